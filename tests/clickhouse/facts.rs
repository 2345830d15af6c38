//! Facts built by hand: one of each table, small enough to change in a test.

use std::sync::Arc;

use tachograph::core::event::{DecisionWord, Measured, ServedBy, Stage};
use tachograph::core::fact::{
    AgentRunFact, AgentRunStatus, AnomalyFact, AnomalyKind, Basis, BranchFact, CallStatus,
    Executed, Fact, FactBody, Flag, Flags, GuardrailFact, InvocationFact, LocalAnswerFact,
    ModelCallFact, ParentLink, RecoveryFact, Status, Sums, ToolCallFact, ToolStatus,
};
use tachograph::core::usage::{TokenUsage, UsageState};
use tachograph::core::{Coordinates, EventTime, LogTime, Name, Nanos, Offset};

/// 2026-03-02 10:00:00 UTC in seconds since 1970.
pub const TEN: i64 = 1_772_445_600;

pub fn name(text: &str) -> Name {
    Arc::from(text)
}

pub fn some(text: &str) -> Option<Name> {
    Some(name(text))
}

/// Milliseconds after `TEN`.
pub fn at(ms: i64) -> EventTime {
    EventTime((TEN * 1_000 + ms) * 1_000_000)
}

pub fn ms(ms: i64) -> Nanos {
    Nanos(ms * 1_000_000)
}

fn place(offset: i64) -> Coordinates {
    Coordinates {
        topic: name("agent-events"),
        partition: 3,
        offset: Offset(offset),
    }
}

/// A fact of invocation `i1`, segment `g1`, logged at `TEN`.
pub fn fact(body: FactBody) -> Fact {
    Fact {
        tenant: name("acme"),
        app: name("desk"),
        invocation_id: name("i1"),
        session_id: some("s1"),
        user_key: None,
        segment: name("g1"),
        segment_logged_at: LogTime(TEN * 1_000),
        first: place(10),
        last: place(20),
        version: 1,
        body,
    }
}

pub fn flags(words: &[Flag]) -> Flags {
    let mut flags = Flags::default();
    for flag in words {
        flags.insert(*flag);
    }
    flags
}

pub fn usage(input: u64, output: u64) -> TokenUsage {
    TokenUsage {
        input_total: Some(input),
        output_total: Some(output),
        total: Some(input + output),
        state: UsageState::Reported,
        ..TokenUsage::default()
    }
}

pub fn invocation() -> InvocationFact {
    InvocationFact {
        status: Status::Completed,
        headless: false,
        run_id: some("r1"),
        started_at: Some(at(0)),
        ended_at: Some(at(3_000)),
        wall: Some(ms(3_000)),
        root_agent: some("root"),
        trigger: some("message"),
        runtime: some("adk-python"),
        runtime_version: None,
        parent: None,
        limit: None,
        error_code: None,
        own: Sums::default(),
        local_answer_count: 1,
        tool_call_count: 1,
        records: 11,
        events: 4,
        user_messages: 1,
        retries: 0,
        attributes: vec![(name("cost_centre"), name("42"))],
        flags: Flags::default(),
    }
}

pub fn child_of(parent: &str) -> ParentLink {
    ParentLink {
        invocation_id: some(parent),
        run_id: None,
        call_id: some("t1"),
        basis: Basis::Declared,
    }
}

pub fn model_call(call_key: &str) -> ModelCallFact {
    ModelCallFact {
        call_key: name(call_key),
        call_id: some(call_key),
        branch: name("fan.alpha"),
        agent: name("root"),
        agent_occurrence: 0,
        node_path: None,
        operation: name("chat"),
        model: some("gemini-2.5-flash"),
        requested_model: None,
        provider: some("gcp.gemini"),
        served_by: ServedBy::Model,
        status: CallStatus::Ok,
        attempts: 2,
        attempt_errors: vec![(name("429"), 1)],
        streaming: Some(true),
        started_at: Some(at(100)),
        first_chunk_at: Some(at(550)),
        ended_at: Some(at(1_300)),
        billed_at: at(1_300),
        ttfc: Some(ms(450)),
        ttft_visible: None,
        completion: Some(Nanos(1_200_000_001)),
        total_with_retries: None,
        measured: Some(Measured::Wrapper),
        is_unmetered: false,
        starved_by: None,
        chunks: Some(7),
        usage: usage(40, 33),
        tier: some("standard"),
        finish_reason: some("stop"),
        finish_reason_raw: some("STOP"),
        error_code: None,
        recovered: false,
        sources: vec!["lifecycle", "adk"],
        trace_id: None,
        span_id: None,
        event_id: some("ev1"),
        order: 0,
        attributes: Vec::new(),
        flags: flags(&[Flag::ModelDiffers, Flag::Late]),
    }
}

pub fn tool_call() -> ToolCallFact {
    ToolCallFact {
        call_key: name("t1"),
        call_id: some("t1"),
        execution: 1,
        tool: name("lookup"),
        is_invented: false,
        origin: some("mcp"),
        agent: name("root"),
        branch: name(""),
        agent_occurrence: 0,
        status: ToolStatus::Ok,
        executed: Executed::Yes,
        started_at: Some(at(1_400)),
        ended_at: Some(at(1_500)),
        duration: Some(Nanos(99_999_999)),
        wait: None,
        long_running: false,
        retries: None,
        error_code: None,
        flags: Flags::default(),
    }
}

pub fn verdict() -> GuardrailFact {
    GuardrailFact {
        stage: Stage::ToolInput,
        decided_at: Some(at(1_350)),
        decision: Some(DecisionWord::Deny),
        decision_native: some("BLOCK"),
        action: some("block"),
        mode: some("enforce"),
        outcome: some("decided"),
        enforced: Some(false),
        policy: some("pii"),
        policy_version: None,
        rule: some("email"),
        reason_code: None,
        reason: None,
        actor_type: some("plugin"),
        actor_name: some("guard"),
        target_kind: some("tool"),
        target_call_id: some("t1"),
        target_name: None,
        order: 0,
        branch: name(""),
        agent: name("root"),
        findings: vec![(DecisionWord::Warn, 2), (DecisionWord::Deny, 1)],
        entity_types: vec![name("EMAIL")],
        duration: Some(ms(5)),
        basis: Basis::Declared,
        model_call_prevented: false,
        content_already_delivered: None,
        followed_kind: None,
        followed_key: None,
        flags: Flags::default(),
    }
}

/// One fact of each table, in the order of the tables.
pub fn one_of_each() -> Vec<Fact> {
    let sums = Sums {
        model_call_count: 1,
        usage_complete: true,
        input_total: Some(40),
        ..Sums::default()
    };
    let bodies = [
        FactBody::Invocation(Box::new(invocation())),
        FactBody::Branch(Box::new(BranchFact {
            branch: name("fan.alpha"),
            occurrence: 1,
            parent_branch: some("fan"),
            forked_at: Some(at(50)),
            joined_at: None,
            duration: None,
            own_time: Some(ms(7)),
            waiting_time: None,
            own: sums.clone(),
            tool_call_count: 0,
            records: 5,
            flags: Flags::default(),
        })),
        FactBody::AgentRun(Box::new(AgentRunFact {
            branch: name("fan.alpha"),
            agent: name("root"),
            occurrence: 0,
            node_path: None,
            agent_kind: some("llm"),
            status: AgentRunStatus::Transferred,
            started_at: Some(at(10)),
            ended_at: Some(at(2_000)),
            duration: Some(ms(1_990)),
            handoff_to: some("billing"),
            error_code: None,
            own: sums,
            tool_call_count: 1,
            flags: Flags::default(),
        })),
        FactBody::ModelCall(Box::new(model_call("c1"))),
        FactBody::LocalAnswer(Box::new(LocalAnswerFact {
            branch: name(""),
            agent: name("root"),
            order: 4,
            served_by: ServedBy::Cache,
            hook: some("before_model"),
            actor_type: None,
            actor_name: some("cache"),
            call_id: None,
            requested_model: None,
            answered_at: Some(at(1_600)),
            replayed: usage(9, 1),
            event_id: None,
            flags: Flags::default(),
        })),
        FactBody::ToolCall(Box::new(tool_call())),
        FactBody::GuardrailDecision(Box::new(verdict())),
        FactBody::RecoveryDecision(Box::new(RecoveryFact {
            phase: name("model"),
            call_id: some("c1"),
            attempt: 1,
            handler: some("retry-plugin"),
            action: name("retry"),
            decided_at: Some(at(200)),
            branch: name(""),
            agent: name("root"),
            error_code: some("429"),
            flags: Flags::default(),
        })),
        FactBody::Anomaly(Box::new(AnomalyFact {
            kind: AnomalyKind::VerdictNotEnforced,
            about: name("tool_call/t1"),
            branch: name(""),
            agent: name("root"),
            at: Some(at(1_400)),
            count: None,
            detail: some("tool_input"),
        })),
    ];
    bodies.into_iter().map(fact).collect()
}

/// A model call, changed by `change`.
pub fn call(call_key: &str, change: impl FnOnce(&mut Fact)) -> Fact {
    let mut fact = fact(FactBody::ModelCall(Box::new(model_call(call_key))));
    change(&mut fact);
    fact
}

/// Gives a model call this usage.
pub fn with_usage(fact: &mut Fact, usage: TokenUsage) {
    if let FactBody::ModelCall(body) = &mut fact.body {
        body.usage = usage;
    }
}
