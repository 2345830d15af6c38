//! Facts made by hand, for tests of what is done with them.

use super::cost::unpriced;
use super::draw::Canvas;
use crate::core::event::{ServedBy, Stage};
use crate::core::fact::*;
use crate::core::usage::{TokenUsage, UsageState};
use crate::core::{Coordinates, EventTime, LogTime, Nanos, Offset};
use std::sync::Arc;

/// 2026-03-02T10:00:00Z.
const START_MS: i64 = 1_772_445_600_000;

/// An instant so many milliseconds after the start.
pub fn at(ms: i64) -> Option<EventTime> {
    Some(EventTime((START_MS + ms) * 1_000_000))
}

/// So many milliseconds.
pub fn ms(ms: i64) -> Option<Nanos> {
    Some(Nanos(ms * 1_000_000))
}

/// A fact of invocation `run`, segment `segment`, whose first record has this offset.
pub fn fact(run: &str, segment: &str, offset: i64, body: FactBody) -> Fact {
    let place = Coordinates {
        topic: "t".into(),
        partition: 0,
        offset: Offset(offset),
    };
    Fact {
        tenant: "acme".into(),
        app: "support".into(),
        invocation_id: run.into(),
        session_id: Some("s-1".into()),
        user_key: None,
        segment: segment.into(),
        segment_logged_at: LogTime(START_MS + offset),
        first: place.clone(),
        last: place,
        version: 1,
        body,
    }
}

/// Sums over so many calls.
pub fn sums(calls: u64, input: u64, output: u64) -> Sums {
    Sums {
        model_call_count: calls,
        usage_complete: true,
        input_total: Some(input),
        output_total: Some(output),
        total: Some(input + output),
        ..Sums::default()
    }
}

pub fn invocation(status: Status, from: i64, to: Option<i64>, own: Sums) -> InvocationFact {
    InvocationFact {
        status,
        headless: false,
        run_id: None,
        started_at: at(from),
        ended_at: to.and_then(at),
        wall: to.and_then(|to| ms(to - from)),
        root_agent: Some("desk".into()),
        trigger: None,
        runtime: Some("adk-python".into()),
        runtime_version: None,
        parent: None,
        limit: None,
        error_code: None,
        own,
        local_answer_count: 0,
        tool_call_count: 0,
        records: 1,
        events: 0,
        user_messages: 0,
        retries: 0,
        attributes: Vec::new(),
        flags: Flags::default(),
    }
}

pub fn branch(path: &str, own: Sums) -> BranchFact {
    BranchFact {
        branch: path.into(),
        occurrence: 0,
        parent_branch: None,
        forked_at: at(0),
        joined_at: None,
        duration: None,
        own_time: None,
        waiting_time: None,
        own,
        tool_call_count: 0,
        records: 1,
        flags: Flags::default(),
    }
}

pub fn model_call(key: &str, branch: &str, agent: &str, from: i64) -> ModelCallFact {
    ModelCallFact {
        call_key: key.into(),
        call_id: Some(key.into()),
        is_unmetered: false,
        starved_by: None,
        branch: branch.into(),
        agent: agent.into(),
        agent_occurrence: 0,
        node_path: None,
        operation: "chat".into(),
        model: Some("gemini-2.5-flash".into()),
        requested_model: None,
        provider: None,
        served_by: ServedBy::Model,
        status: CallStatus::Ok,
        attempts: 1,
        attempt_errors: Vec::new(),
        streaming: Some(true),
        started_at: at(from),
        first_chunk_at: at(from + 450),
        ended_at: at(from + 1_200),
        billed_at: EventTime((START_MS + from + 1_200) * 1_000_000),
        ttfc: ms(450),
        ttft_visible: ms(450),
        completion: ms(1_200),
        total_with_retries: ms(1_200),
        measured: None,
        chunks: Some(2),
        usage: TokenUsage {
            input_total: Some(40),
            output_total: Some(33),
            total: Some(73),
            state: UsageState::Reported,
            ..TokenUsage::default()
        },
        tier: None,
        finish_reason: None,
        finish_reason_raw: None,
        error_code: None,
        recovered: false,
        sources: vec!["lifecycle"],
        trace_id: None,
        span_id: None,
        event_id: None,
        order: 0,
        attributes: Vec::new(),
        flags: Flags::default(),
    }
}

pub fn tool(
    key: &str,
    agent: &str,
    status: ToolStatus,
    from: i64,
    to: Option<i64>,
) -> ToolCallFact {
    ToolCallFact {
        call_key: key.into(),
        call_id: Some(key.into()),
        execution: 1,
        tool: "lookup".into(),
        is_invented: false,
        origin: None,
        agent: agent.into(),
        branch: "".into(),
        agent_occurrence: 0,
        status,
        executed: Executed::Yes,
        started_at: at(from),
        ended_at: to.and_then(at),
        duration: to.and_then(|to| ms(to - from)),
        wait: None,
        long_running: false,
        retries: None,
        error_code: None,
        flags: Flags::default(),
    }
}

pub fn deny(agent: &str, decided: i64, enforced: Option<bool>) -> GuardrailFact {
    GuardrailFact {
        stage: Stage::ToolInput,
        decided_at: at(decided),
        decision: Some(crate::core::event::DecisionWord::Deny),
        decision_native: None,
        action: Some("block".into()),
        mode: None,
        outcome: None,
        enforced,
        policy: Some("refunds".into()),
        policy_version: None,
        rule: Some("over-500".into()),
        reason_code: None,
        reason: None,
        actor_type: Some("plugin".into()),
        actor_name: Some("guard".into()),
        target_kind: Some("tool".into()),
        target_call_id: Some("t1".into()),
        target_name: None,
        order: 0,
        branch: "".into(),
        agent: agent.into(),
        findings: Vec::new(),
        entity_types: Vec::new(),
        duration: None,
        basis: Basis::Declared,
        model_call_prevented: false,
        content_already_delivered: None,
        followed_kind: None,
        followed_key: None,
        flags: Flags::default(),
    }
}

pub fn anomaly(kind: AnomalyKind, agent: &str, about: &str, when: i64) -> AnomalyFact {
    AnomalyFact {
        kind,
        about: about.into(),
        branch: "".into(),
        agent: agent.into(),
        at: at(when),
        count: None,
        detail: None,
    }
}

/// A canvas without colours and prices.
pub fn canvas(width: usize) -> Canvas {
    Canvas {
        width,
        has_color: false,
        is_ascii: false,
        limit: 50,
        price: Arc::new(unpriced),
    }
}
