//! Facts as rows: the one file of Rust that names columns.
//!
//! One struct per table of deploy/clickhouse, borrowing from the fact. Inserts name their columns,
//! so that position means nothing. A row is a pure function of its fact: writing it twice writes
//! the same bytes. It decides nothing about what a fact means.

use super::column::{
    Counts, Findings, Instant, Millis, Names, Texts, Usd, instant, logged, maybe_instant, millis,
    text, words,
};
use super::money::parse_usd;
use crate::core::Name;
use crate::core::fact::{
    AgentRunFact, AnomalyFact, BranchFact, Fact, FactBody, Flags, GuardrailFact, InvocationFact,
    LocalAnswerFact, ModelCallFact, ParentLink, RecoveryFact, Table, ToolCallFact,
};
use clickhouse::{Row, RowWrite};
use serde::Serialize;

/// The meaning of the columns, as rows say it.
pub const SCHEMA_VERSION: u16 = 1;

/// A row type of one table.
pub trait FactRow: RowWrite + 'static {
    /// The table that the rows belong to.
    const TABLE: Table;

    /// The row that `fact` is; `None` where it belongs to another table.
    fn of(fact: &Fact) -> Option<Self::Value<'_>>;
}

/// The columns that the daemon writes into `table`, in no order that matters.
pub fn columns(table: Table) -> &'static [&'static str] {
    match table {
        Table::Invocations => InvocationRow::COLUMN_NAMES,
        Table::Branches => BranchRow::COLUMN_NAMES,
        Table::AgentRuns => AgentRunRow::COLUMN_NAMES,
        Table::ModelCalls => ModelCallRow::COLUMN_NAMES,
        Table::LocalAnswers => LocalAnswerRow::COLUMN_NAMES,
        Table::ToolCalls => ToolCallRow::COLUMN_NAMES,
        Table::GuardrailDecisions => GuardrailDecisionRow::COLUMN_NAMES,
        Table::RecoveryDecisions => RecoveryDecisionRow::COLUMN_NAMES,
        Table::Anomalies => AnomalyRow::COLUMN_NAMES,
    }
}

/// Defines a row type with the columns that every table has and its own, each with the expression
/// that fills it.
macro_rules! row {
    (
        $(#[$doc:meta])*
        $row:ident, $variant:ident, $body:ident, $table:ident, $f:ident {
            $($column:ident: $type:ty = $value:expr;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Row, Serialize)]
        pub struct $row<'f> {
            tenant: &'f str,
            app: &'f str,
            invocation_id: &'f str,
            session_id: &'f str,
            user_key: &'f str,
            segment: &'f str,
            segment_logged_at: Instant,
            first_topic: &'f str,
            first_partition: i32,
            first_offset: i64,
            last_topic: &'f str,
            last_partition: i32,
            last_offset: i64,
            schema_version: u16,
            version: u64,
            $($column: $type,)*
        }

        impl<'f> $row<'f> {
            fn with(fact: &'f Fact, $f: &'f $body) -> Self {
                $row {
                    tenant: &fact.tenant,
                    app: &fact.app,
                    invocation_id: &fact.invocation_id,
                    session_id: text(&fact.session_id),
                    user_key: text(&fact.user_key),
                    segment: &fact.segment,
                    segment_logged_at: logged(fact.segment_logged_at),
                    first_topic: &fact.first.topic,
                    first_partition: fact.first.partition,
                    first_offset: fact.first.offset.0,
                    last_topic: &fact.last.topic,
                    last_partition: fact.last.partition,
                    last_offset: fact.last.offset.0,
                    schema_version: SCHEMA_VERSION,
                    version: fact.version,
                    $($column: $value,)*
                }
            }
        }

        impl FactRow for $row<'static> {
            const TABLE: Table = Table::$table;

            fn of(fact: &Fact) -> Option<$row<'_>> {
                match &fact.body {
                    FactBody::$variant(body) => Some($row::with(fact, body)),
                    _ => None,
                }
            }
        }
    };
}

/// A part of the link to the run that started this one.
fn parent(f: &InvocationFact, part: fn(&ParentLink) -> &Option<Name>) -> &str {
    f.parent.as_ref().map_or("", |link| text(part(link)))
}

row! {
    /// One row per segment of an invocation; v_invocations folds segments into invocations.
    InvocationRow, Invocation, InvocationFact, Invocations, f {
        status: &'f str = f.status.as_str();
        headless: bool = f.headless;
        run_id: &'f str = text(&f.run_id);
        started_at: Option<Instant> = maybe_instant(f.started_at);
        ended_at: Option<Instant> = maybe_instant(f.ended_at);
        wall_ms: Option<Millis> = millis(f.wall);
        root_agent: &'f str = text(&f.root_agent);
        trigger: &'f str = text(&f.trigger);
        runtime: &'f str = text(&f.runtime);
        runtime_version: &'f str = text(&f.runtime_version);
        parent_invocation_id: &'f str = parent(f, |link| &link.invocation_id);
        parent_run_id: &'f str = parent(f, |link| &link.run_id);
        parent_call_id: &'f str = parent(f, |link| &link.call_id);
        parent_basis: &'f str = f.parent.as_ref().map_or("", |link| link.basis.as_str());
        limit: &'f str = text(&f.limit);
        error_code: &'f str = text(&f.error_code);
        own_model_call_count: u64 = f.own.model_call_count;
        own_usage_missing_calls: u64 = f.own.usage_missing_calls;
        own_usage_complete: bool = f.own.usage_complete;
        own_input_total: Option<u64> = f.own.input_total;
        own_input_uncached: Option<u64> = f.own.input_uncached;
        own_cache_read: Option<u64> = f.own.cache_read;
        own_cache_write: Option<u64> = f.own.cache_write;
        own_tool_use_input: Option<u64> = f.own.tool_use_input;
        own_output_total: Option<u64> = f.own.output_total;
        own_reasoning: Option<u64> = f.own.reasoning;
        own_total: Option<u64> = f.own.total;
        local_answer_count: u64 = f.local_answer_count;
        tool_call_count: u64 = f.tool_call_count;
        records: u64 = f.records;
        events: u64 = f.events;
        user_messages: u64 = f.user_messages;
        retries: u64 = f.retries;
        attributes: Texts<'f> = Texts(&f.attributes);
        flags: Vec<&'static str> = words(f.flags, None, &[f.started_at, f.ended_at]);
    }
}

row! {
    /// One row per occurrence of a branch within a segment.
    BranchRow, Branch, BranchFact, Branches, f {
        branch: &'f str = &f.branch;
        occurrence: u32 = f.occurrence;
        parent_branch: &'f str = text(&f.parent_branch);
        forked_at: Option<Instant> = maybe_instant(f.forked_at);
        joined_at: Option<Instant> = maybe_instant(f.joined_at);
        duration_ms: Option<Millis> = millis(f.duration);
        own_ms: Option<Millis> = millis(f.own_time);
        waiting_ms: Option<Millis> = millis(f.waiting_time);
        own_model_call_count: u64 = f.own.model_call_count;
        own_usage_missing_calls: u64 = f.own.usage_missing_calls;
        own_usage_complete: bool = f.own.usage_complete;
        own_input_total: Option<u64> = f.own.input_total;
        own_input_uncached: Option<u64> = f.own.input_uncached;
        own_cache_read: Option<u64> = f.own.cache_read;
        own_cache_write: Option<u64> = f.own.cache_write;
        own_tool_use_input: Option<u64> = f.own.tool_use_input;
        own_output_total: Option<u64> = f.own.output_total;
        own_reasoning: Option<u64> = f.own.reasoning;
        own_total: Option<u64> = f.own.total;
        tool_call_count: u64 = f.tool_call_count;
        records: u64 = f.records;
        flags: Vec<&'static str> = words(f.flags, None, &[f.forked_at, f.joined_at]);
    }
}

row! {
    /// One row per pass of an agent over a branch within a segment.
    AgentRunRow, AgentRun, AgentRunFact, AgentRuns, f {
        branch: &'f str = &f.branch;
        agent: &'f str = &f.agent;
        occurrence: u32 = f.occurrence;
        node_path: &'f str = text(&f.node_path);
        agent_kind: &'f str = text(&f.agent_kind);
        status: &'f str = f.status.as_str();
        started_at: Option<Instant> = maybe_instant(f.started_at);
        ended_at: Option<Instant> = maybe_instant(f.ended_at);
        duration_ms: Option<Millis> = millis(f.duration);
        handoff_to: &'f str = text(&f.handoff_to);
        error_code: &'f str = text(&f.error_code);
        own_model_call_count: u64 = f.own.model_call_count;
        own_usage_missing_calls: u64 = f.own.usage_missing_calls;
        own_usage_complete: bool = f.own.usage_complete;
        own_input_total: Option<u64> = f.own.input_total;
        own_input_uncached: Option<u64> = f.own.input_uncached;
        own_cache_read: Option<u64> = f.own.cache_read;
        own_cache_write: Option<u64> = f.own.cache_write;
        own_tool_use_input: Option<u64> = f.own.tool_use_input;
        own_output_total: Option<u64> = f.own.output_total;
        own_reasoning: Option<u64> = f.own.reasoning;
        own_total: Option<u64> = f.own.total;
        tool_call_count: u64 = f.tool_call_count;
        flags: Vec<&'static str> = words(f.flags, None, &[f.started_at, f.ended_at]);
    }
}

row! {
    /// Calls that a model answered or may have answered, one row each.
    ModelCallRow, ModelCall, ModelCallFact, ModelCalls, f {
        call_key: &'f str = &f.call_key;
        call_id: &'f str = text(&f.call_id);
        branch: &'f str = &f.branch;
        agent: &'f str = &f.agent;
        occurrence: u32 = f.agent_occurrence;
        node_path: &'f str = text(&f.node_path);
        seq: u32 = f.order;
        operation: &'f str = &f.operation;
        model: &'f str = text(&f.model);
        requested_model: &'f str = text(&f.requested_model);
        provider: &'f str = text(&f.provider);
        served_by: &'f str = f.served_by.as_str();
        status: &'f str = f.status.as_str();
        attempts: u32 = f.attempts;
        attempt_errors: Counts<'f> = Counts(&f.attempt_errors);
        streaming: Option<bool> = f.streaming;
        started_at: Option<Instant> = maybe_instant(f.started_at);
        first_chunk_at: Option<Instant> = maybe_instant(f.first_chunk_at);
        ended_at: Option<Instant> = maybe_instant(f.ended_at);
        billed_at: Instant = instant(f.billed_at);
        ttfc_ms: Option<Millis> = millis(f.ttfc);
        ttft_visible_ms: Option<Millis> = millis(f.ttft_visible);
        completion_ms: Option<Millis> = millis(f.completion);
        total_with_retries_ms: Option<Millis> = millis(f.total_with_retries);
        measured: &'f str = f.measured.map_or("", |how| how.as_str());
        chunks: Option<u64> = f.chunks;
        usage_state: &'f str = f.usage.state.as_str();
        input_total: Option<u64> = f.usage.input_total;
        input_uncached: Option<u64> = f.usage.input_uncached;
        cache_read: Option<u64> = f.usage.cache_read;
        cache_write: Option<u64> = f.usage.cache_write;
        cache_write_5m: Option<u64> = f.usage.cache_write_5m;
        cache_write_1h: Option<u64> = f.usage.cache_write_1h;
        tool_use_input: Option<u64> = f.usage.tool_use_input;
        output_total: Option<u64> = f.usage.output_total;
        reasoning: Option<u64> = f.usage.reasoning;
        audio_input: Option<u64> = f.usage.audio_input;
        audio_output: Option<u64> = f.usage.audio_output;
        image_input: Option<u64> = f.usage.image_input;
        image_output: Option<u64> = f.usage.image_output;
        total: Option<u64> = f.usage.total;
        provider_total: Option<u64> = f.usage.provider_total;
        unattributed: Option<i64> = f.usage.unattributed;
        raw_prompt: &'f str = f.usage.raw_prompt.as_deref().unwrap_or("");
        is_unmetered: bool = f.is_unmetered;
        // Prices come with the price book; until then what counts is not known.
        cost_usd: Option<Usd> = None;
        list_cost_usd: Option<Usd> = None;
        provider_cost_usd: Option<Usd> = f.usage.provider_cost.as_deref().and_then(parse_usd);
        cost_is_lower_bound: bool = false;
        price_id: &'f str = "";
        tier: &'f str = text(&f.tier);
        price_tier: &'f str = "";
        finish_reason: &'f str = text(&f.finish_reason);
        finish_reason_raw: &'f str = text(&f.finish_reason_raw);
        error_code: &'f str = text(&f.error_code);
        recovered: bool = f.recovered;
        sources: Vec<&'static str> = f.sources.clone();
        trace_id: &'f str = text(&f.trace_id);
        span_id: &'f str = text(&f.span_id);
        event_id: &'f str = text(&f.event_id);
        attributes: Texts<'f> = Texts(&f.attributes);
        flags: Vec<&'static str> = words(
                f.flags,
                Some(f.usage.flags),
                &[f.started_at, f.first_chunk_at, f.ended_at, Some(f.billed_at)],
            );
    }
}

row! {
    /// Answers that a hook or a cache gave instead of a model; never summed with calls.
    LocalAnswerRow, LocalAnswer, LocalAnswerFact, LocalAnswers, f {
        branch: &'f str = &f.branch;
        agent: &'f str = &f.agent;
        order: u32 = f.order;
        served_by: &'f str = f.served_by.as_str();
        hook: &'f str = text(&f.hook);
        actor_type: &'f str = text(&f.actor_type);
        actor_name: &'f str = text(&f.actor_name);
        call_id: &'f str = text(&f.call_id);
        requested_model: &'f str = text(&f.requested_model);
        answered_at: Option<Instant> = maybe_instant(f.answered_at);
        replayed_state: &'f str = f.replayed.state.as_str();
        replayed_input_total: Option<u64> = f.replayed.input_total;
        replayed_input_uncached: Option<u64> = f.replayed.input_uncached;
        replayed_cache_read: Option<u64> = f.replayed.cache_read;
        replayed_cache_write: Option<u64> = f.replayed.cache_write;
        replayed_cache_write_5m: Option<u64> = f.replayed.cache_write_5m;
        replayed_cache_write_1h: Option<u64> = f.replayed.cache_write_1h;
        replayed_tool_use_input: Option<u64> = f.replayed.tool_use_input;
        replayed_output_total: Option<u64> = f.replayed.output_total;
        replayed_reasoning: Option<u64> = f.replayed.reasoning;
        replayed_audio_input: Option<u64> = f.replayed.audio_input;
        replayed_audio_output: Option<u64> = f.replayed.audio_output;
        replayed_image_input: Option<u64> = f.replayed.image_input;
        replayed_image_output: Option<u64> = f.replayed.image_output;
        replayed_total: Option<u64> = f.replayed.total;
        replayed_provider_total: Option<u64> = f.replayed.provider_total;
        replayed_unattributed: Option<i64> = f.replayed.unattributed;
        replayed_raw_prompt: &'f str = f.replayed.raw_prompt.as_deref().unwrap_or("");
        event_id: &'f str = text(&f.event_id);
        flags: Vec<&'static str> = words(f.flags, Some(f.replayed.flags), &[f.answered_at]);
    }
}

row! {
    /// Executions of tool calls, one row per segment; v_tool_calls joins segments.
    ToolCallRow, ToolCall, ToolCallFact, ToolCalls, f {
        call_key: &'f str = &f.call_key;
        execution: u32 = f.execution;
        call_id: &'f str = text(&f.call_id);
        tool: &'f str = &f.tool;
        is_invented: bool = f.is_invented;
        origin: &'f str = text(&f.origin);
        branch: &'f str = &f.branch;
        agent: &'f str = &f.agent;
        occurrence: u32 = f.agent_occurrence;
        status: &'f str = f.status.as_str();
        executed: &'f str = f.executed.as_str();
        started_at: Option<Instant> = maybe_instant(f.started_at);
        ended_at: Option<Instant> = maybe_instant(f.ended_at);
        duration_ms: Option<Millis> = millis(f.duration);
        wait_ms: Option<Millis> = millis(f.wait);
        long_running: bool = f.long_running;
        retries: Option<u64> = f.retries;
        error_code: &'f str = text(&f.error_code);
        flags: Vec<&'static str> = words(f.flags, None, &[f.started_at, f.ended_at]);
    }
}

row! {
    /// Verdicts of guards, one row each; v_guardrail_audit adds what followed.
    GuardrailDecisionRow, GuardrailDecision, GuardrailFact, GuardrailDecisions, f {
        stage: &'f str = f.stage.as_str();
        actor_type: &'f str = text(&f.actor_type);
        actor_name: &'f str = text(&f.actor_name);
        target_kind: &'f str = text(&f.target_kind);
        target_call_id: &'f str = text(&f.target_call_id);
        target_name: &'f str = text(&f.target_name);
        order: u32 = f.order;
        decided_at: Option<Instant> = maybe_instant(f.decided_at);
        decision: &'f str = f.decision.map_or("", |word| word.as_str());
        decision_native: &'f str = text(&f.decision_native);
        action: &'f str = text(&f.action);
        mode: &'f str = text(&f.mode);
        outcome: &'f str = text(&f.outcome);
        enforced: Option<bool> = f.enforced;
        policy: &'f str = text(&f.policy);
        policy_version: &'f str = text(&f.policy_version);
        rule: &'f str = text(&f.rule);
        reason_code: &'f str = text(&f.reason_code);
        reason: &'f str = text(&f.reason);
        branch: &'f str = &f.branch;
        agent: &'f str = &f.agent;
        findings: Findings<'f> = Findings(&f.findings);
        entity_types: Names<'f> = Names(&f.entity_types);
        duration_ms: Option<Millis> = millis(f.duration);
        basis: &'f str = f.basis.as_str();
        model_call_prevented: bool = f.model_call_prevented;
        content_already_delivered: Option<bool> = f.content_already_delivered;
        followed_kind: &'f str = f.followed_kind.unwrap_or("");
        followed_key: &'f str = text(&f.followed_key);
        flags: Vec<&'static str> = words(f.flags, None, &[f.decided_at]);
    }
}

row! {
    /// What error handlers decided, one row each.
    RecoveryDecisionRow, RecoveryDecision, RecoveryFact, RecoveryDecisions, f {
        phase: &'f str = &f.phase;
        call_id: &'f str = text(&f.call_id);
        attempt: u32 = f.attempt;
        handler: &'f str = text(&f.handler);
        action: &'f str = &f.action;
        decided_at: Option<Instant> = maybe_instant(f.decided_at);
        branch: &'f str = &f.branch;
        agent: &'f str = &f.agent;
        error_code: &'f str = text(&f.error_code);
        flags: Vec<&'static str> = words(f.flags, None, &[f.decided_at]);
    }
}

row! {
    /// What should not be, one row per thing and kind.
    AnomalyRow, Anomaly, AnomalyFact, Anomalies, f {
        about: &'f str = &f.about;
        kind: &'f str = f.kind.as_str();
        branch: &'f str = &f.branch;
        agent: &'f str = &f.agent;
        at: Option<Instant> = maybe_instant(f.at);
        count: Option<u64> = f.count;
        detail: &'f str = text(&f.detail);
        flags: Vec<&'static str> = words(Flags::default(), None, &[f.at]);
    }
}
