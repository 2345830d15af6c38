//! Facts to named columns, in the words of facts.md: one list for the report and for `--output
//! facts`.
//!
//! Rows of ClickHouse are made elsewhere. Nothing here decides anything.

use super::json::Object;
use crate::core::fact::{
    AgentRunFact, AnomalyFact, BranchFact, Fact, FactBody, Flags, GuardrailFact, InvocationFact,
    LocalAnswerFact, ModelCallFact, ParentLink, RecoveryFact, Sums, ToolCallFact,
};
use crate::core::usage::TokenUsage;
use crate::core::{Coordinates, Name};

/// Version of the columns, carried by every row.
pub const SCHEMA_VERSION: u64 = 1;

/// The columns every row begins with.
pub fn identity(fact: &Fact, o: &mut Object<'_>) {
    o.name("tenant", &fact.tenant);
    o.name("app", &fact.app);
    o.name("invocation_id", &fact.invocation_id);
}

/// The columns every row ends with.
pub fn evidence(fact: &Fact, o: &mut Object<'_>) {
    o.text("session_id", fact.session_id.as_deref());
    o.text("user_key", fact.user_key.as_deref());
    coordinates("first", &fact.first, o);
    coordinates("last", &fact.last, o);
    if !o.omits() {
        o.count("schema_version", Some(SCHEMA_VERSION));
    }
    o.count("version", Some(fact.version));
}

/// Log coordinates: an object in the report, `topic/partition/offset` in a line of facts.
pub fn coordinates(key: &str, at: &Coordinates, o: &mut Object<'_>) {
    if o.omits() {
        let text = format!("{}/{}/{}", at.topic, at.partition, at.offset.0);
        return o.text(key, Some(&text));
    }
    o.object(
        key,
        Some(|o: &mut Object<'_>| {
            o.text("topic", Some(&at.topic));
            o.signed("partition", Some(i64::from(at.partition)));
            o.signed("offset", Some(at.offset.0));
        }),
    );
}

/// One fact as a line of JSON without unknown or empty columns (`--output facts`).
pub fn line(fact: &Fact) -> String {
    let mut out = String::new();
    Object::write(&mut out, super::json::Unknown::Omit, |o| {
        o.text("table", Some(fact.body.table().as_str()));
        identity(fact, o);
        let identity = fact.identity();
        o.words("identity", identity.iter().map(String::as_str));
        body(fact, o);
        evidence(fact, o);
    });
    out
}

fn body(fact: &Fact, o: &mut Object<'_>) {
    match &fact.body {
        FactBody::Invocation(f) => invocation(f, o),
        FactBody::Branch(f) => branch(f, o),
        FactBody::AgentRun(f) => agent_run(f, o),
        FactBody::ModelCall(f) => model_call(f, o),
        FactBody::LocalAnswer(f) => local_answer(f, o),
        FactBody::ToolCall(f) => tool_call(f, o),
        FactBody::GuardrailDecision(f) => verdict(f, o),
        FactBody::RecoveryDecision(f) => recovery(f, o),
        FactBody::Anomaly(f) => anomaly(f, o),
    }
}

fn invocation(f: &InvocationFact, o: &mut Object<'_>) {
    o.text("status", Some(f.status.as_str()));
    o.mark("headless", f.headless);
    o.text("run_id", f.run_id.as_deref());
    o.instant("started_at", f.started_at);
    o.instant("ended_at", f.ended_at);
    o.millis("wall_ms", f.wall);
    o.text("root_agent", f.root_agent.as_deref());
    o.text("trigger", f.trigger.as_deref());
    o.text("runtime", f.runtime.as_deref());
    o.text("runtime_version", f.runtime_version.as_deref());
    parent(f.parent.as_ref(), o);
    o.text("limit", f.limit.as_deref());
    o.text("error_code", f.error_code.as_deref());
    sums("own", &f.own, o);
    o.count("local_answer_count", Some(f.local_answer_count));
    o.count("tool_call_count", Some(f.tool_call_count));
    o.count("records", Some(f.records));
    o.count("events", Some(f.events));
    o.count("user_messages", Some(f.user_messages));
    o.count("retries", Some(f.retries));
    attributes(&f.attributes, o);
    flags(f.flags, o);
}

/// The parent link.
pub fn parent(link: Option<&ParentLink>, o: &mut Object<'_>) {
    o.object(
        "parent",
        link.map(|link| {
            |o: &mut Object<'_>| {
                o.text("invocation_id", link.invocation_id.as_deref());
                o.text("run_id", link.run_id.as_deref());
                o.text("call_id", link.call_id.as_deref());
                o.text("basis", Some(link.basis.as_str()));
            }
        }),
    );
}

/// Token sums over model calls.
pub fn sums(key: &str, sums: &Sums, o: &mut Object<'_>) {
    let fill = |o: &mut Object<'_>| {
        o.count("model_call_count", Some(sums.model_call_count));
        o.count("usage_missing_calls", Some(sums.usage_missing_calls));
        o.truth("usage_complete", Some(sums.usage_complete));
        o.count("input_total", sums.input_total);
        o.count("input_uncached", sums.input_uncached);
        o.count("cache_read", sums.cache_read);
        o.count("cache_write", sums.cache_write);
        o.count("tool_use_input", sums.tool_use_input);
        o.count("output_total", sums.output_total);
        if !o.omits() {
            o.count("output_text", answer(sums.output_total, sums.reasoning));
        }
        o.count("reasoning", sums.reasoning);
        o.count("total", sums.total);
    };
    o.object(key, Some(fill));
}

/// `output_total` less `reasoning`.
pub fn answer(output: Option<u64>, reasoning: Option<u64>) -> Option<u64> {
    Some(output?.saturating_sub(reasoning.unwrap_or(0)))
}

/// Usage of one call (facts.md §3).
pub fn usage(key: &str, u: &TokenUsage, o: &mut Object<'_>) {
    let fill = |o: &mut Object<'_>| {
        o.text("state", Some(u.state.as_str()));
        o.count("input_total", u.input_total);
        o.count("input_uncached", u.input_uncached);
        o.count("cache_read", u.cache_read);
        o.count("cache_write", u.cache_write);
        o.count("cache_write_5m", u.cache_write_5m);
        o.count("cache_write_1h", u.cache_write_1h);
        o.count("tool_use_input", u.tool_use_input);
        o.count("output_total", u.output_total);
        if !o.omits() {
            o.count("output_text", answer(u.output_total, u.reasoning));
        }
        o.count("reasoning", u.reasoning);
        o.count("audio_input", u.audio_input);
        o.count("audio_output", u.audio_output);
        o.count("image_input", u.image_input);
        o.count("image_output", u.image_output);
        o.count("total", u.total);
        o.count("provider_total", u.provider_total);
        o.signed("unattributed", u.unattributed);
        o.text("raw_prompt", u.raw_prompt.as_deref());
    };
    o.object(key, Some(fill));
}

/// Small values that the emitter added, by name.
pub fn attributes(attributes: &[(Name, Name)], o: &mut Object<'_>) {
    let fill = |o: &mut Object<'_>| {
        for (name, value) in attributes {
            o.text(name, Some(value));
        }
    };
    o.object("attributes", Some(fill));
}

/// The words of rules.md §9.
pub fn flags(flags: Flags, o: &mut Object<'_>) {
    o.words("flags", flags.iter().map(|flag| flag.as_str()));
}

/// Columns of `branches` without its identity and sums over sub-branches.
pub fn branch(f: &BranchFact, o: &mut Object<'_>) {
    if !o.omits() {
        o.text("branch", Some(&f.branch));
        o.count("occurrence", Some(u64::from(f.occurrence)));
    }
    o.text("parent_branch", f.parent_branch.as_deref());
    o.instant("forked_at", f.forked_at);
    o.instant("joined_at", f.joined_at);
    o.millis("duration_ms", f.duration);
    o.millis("own_ms", f.own_time);
    o.millis("waiting_ms", f.waiting_time);
    sums("own", &f.own, o);
    o.count("tool_call_count", Some(f.tool_call_count));
    o.count("records", Some(f.records));
    flags(f.flags, o);
}

/// Columns of `agent_runs`.
pub fn agent_run(f: &AgentRunFact, o: &mut Object<'_>) {
    if !o.omits() {
        o.text("branch", Some(&f.branch));
        o.name("agent", &f.agent);
        o.count("occurrence", Some(u64::from(f.occurrence)));
    }
    o.text("node_path", f.node_path.as_deref());
    o.text("agent_kind", f.agent_kind.as_deref());
    o.text("status", Some(f.status.as_str()));
    o.instant("started_at", f.started_at);
    o.instant("ended_at", f.ended_at);
    o.millis("duration_ms", f.duration);
    o.text("handoff_to", f.handoff_to.as_deref());
    o.text("error_code", f.error_code.as_deref());
    sums("own", &f.own, o);
    o.count("tool_call_count", Some(f.tool_call_count));
    flags(f.flags, o);
}

/// Columns of `model_calls`, money aside.
pub fn model_call(f: &ModelCallFact, o: &mut Object<'_>) {
    if !o.omits() {
        o.text("call_key", Some(&f.call_key));
    }
    o.text("call_id", f.call_id.as_deref());
    o.text("branch", Some(&f.branch));
    o.name("agent", &f.agent);
    o.count("occurrence", Some(u64::from(f.agent_occurrence)));
    o.text("node_path", f.node_path.as_deref());
    o.text("operation", Some(&f.operation));
    o.text("model", f.model.as_deref());
    o.text("requested_model", f.requested_model.as_deref());
    o.text("provider", f.provider.as_deref());
    o.text("served_by", Some(f.served_by.as_str()));
    o.text("status", Some(f.status.as_str()));
    o.count("attempts", Some(u64::from(f.attempts)));
    counts(
        "attempt_errors",
        f.attempt_errors.iter().map(|(code, n)| (&**code, *n)),
        o,
    );
    o.truth("streaming", f.streaming);
    o.instant("started_at", f.started_at);
    o.instant("first_chunk_at", f.first_chunk_at);
    o.instant("ended_at", f.ended_at);
    o.instant("billed_at", Some(f.billed_at));
    o.millis("ttfc_ms", f.ttfc);
    o.millis("ttft_visible_ms", f.ttft_visible);
    o.millis("completion_ms", f.completion);
    o.millis("total_with_retries_ms", f.total_with_retries);
    o.text("measured", f.measured.map(|m| m.as_str()));
    o.count("chunks", f.chunks);
    usage("usage", &f.usage, o);
    o.mark("unmetered", f.is_unmetered);
    o.text("tier", f.tier.as_deref());
    o.text("finish_reason", f.finish_reason.as_deref());
    o.text("finish_reason_raw", f.finish_reason_raw.as_deref());
    o.text("error_code", f.error_code.as_deref());
    o.mark("recovered", f.recovered);
    o.words("sources", f.sources.iter().copied());
    o.text("trace_id", f.trace_id.as_deref());
    o.text("span_id", f.span_id.as_deref());
    o.text("event", f.event_id.as_deref());
    o.count("order", Some(u64::from(f.order)));
    attributes(&f.attributes, o);
    flags(f.flags, o);
}

/// Counts by word, as an object.
fn counts<'w>(key: &str, told: impl Iterator<Item = (&'w str, u32)>, o: &mut Object<'_>) {
    let fill = |o: &mut Object<'_>| {
        for (word, n) in told {
            o.count(word, Some(u64::from(n)));
        }
    };
    o.object(key, Some(fill));
}

/// Columns of `local_answers`.
pub fn local_answer(f: &LocalAnswerFact, o: &mut Object<'_>) {
    if !o.omits() {
        o.text("branch", Some(&f.branch));
        o.name("agent", &f.agent);
        o.count("order", Some(u64::from(f.order)));
    }
    o.text("served_by", Some(f.served_by.as_str()));
    o.text("hook", f.hook.as_deref());
    actor(f.actor_type.as_deref(), f.actor_name.as_deref(), o);
    o.text("call_id", f.call_id.as_deref());
    o.text("requested_model", f.requested_model.as_deref());
    o.instant("answered_at", f.answered_at);
    usage("replayed_usage", &f.replayed, o);
    o.text("event", f.event_id.as_deref());
    flags(f.flags, o);
}

fn actor(kind: Option<&str>, name: Option<&str>, o: &mut Object<'_>) {
    let fill = |o: &mut Object<'_>| {
        o.text("type", kind);
        o.text("name", name);
    };
    o.object("actor", (kind.is_some() || name.is_some()).then_some(fill));
}

/// Columns of `tool_calls`.
pub fn tool_call(f: &ToolCallFact, o: &mut Object<'_>) {
    if !o.omits() {
        o.text("call_key", Some(&f.call_key));
        o.count("execution", Some(u64::from(f.execution)));
    }
    o.text("call_id", f.call_id.as_deref());
    o.name("tool", &f.tool);
    o.mark("invented", f.is_invented);
    o.text("origin", f.origin.as_deref());
    o.text("branch", Some(&f.branch));
    o.name("agent", &f.agent);
    o.count("occurrence", Some(u64::from(f.agent_occurrence)));
    o.text("status", Some(f.status.as_str()));
    o.text("executed", Some(f.executed.as_str()));
    o.instant("started_at", f.started_at);
    o.instant("ended_at", f.ended_at);
    o.millis("duration_ms", f.duration);
    o.millis("wait_ms", f.wait);
    o.mark("long_running", f.long_running);
    o.count("retries", f.retries);
    o.text("error_code", f.error_code.as_deref());
    flags(f.flags, o);
}

/// Columns of `guardrail_decisions`.
pub fn verdict(f: &GuardrailFact, o: &mut Object<'_>) {
    if !o.omits() {
        o.text("stage", Some(f.stage.as_str()));
        o.count("order", Some(u64::from(f.order)));
    }
    o.instant("decided_at", f.decided_at);
    o.text("decision", f.decision.map(|d| d.as_str()));
    o.text("decision_native", f.decision_native.as_deref());
    o.text("action", f.action.as_deref());
    o.text("mode", f.mode.as_deref());
    o.text("outcome", f.outcome.as_deref());
    o.truth("enforced", f.enforced);
    o.text("policy", f.policy.as_deref());
    o.text("policy_version", f.policy_version.as_deref());
    o.text("rule", f.rule.as_deref());
    o.text("reason_code", f.reason_code.as_deref());
    o.text("reason", f.reason.as_deref());
    actor(f.actor_type.as_deref(), f.actor_name.as_deref(), o);
    let target = |o: &mut Object<'_>| {
        o.text("kind", f.target_kind.as_deref());
        o.text("call_id", f.target_call_id.as_deref());
        o.text("name", f.target_name.as_deref());
    };
    let told = [&f.target_kind, &f.target_call_id, &f.target_name];
    let is_told = told.iter().any(|part| part.is_some());
    o.object("target", is_told.then_some(target));
    o.text("branch", Some(&f.branch));
    o.name("agent", &f.agent);
    counts(
        "findings",
        f.findings.iter().map(|(word, n)| (word.as_str(), *n)),
        o,
    );
    o.words("entity_types", f.entity_types.iter().map(|name| &**name));
    o.millis("duration_ms", f.duration);
    o.text("basis", Some(f.basis.as_str()));
    o.truth("model_call_prevented", Some(f.model_call_prevented));
    o.truth("content_already_delivered", f.content_already_delivered);
    o.text("followed_kind", f.followed_kind);
    o.text("followed_key", f.followed_key.as_deref());
    flags(f.flags, o);
}

/// Columns of `recovery_decisions`.
pub fn recovery(f: &RecoveryFact, o: &mut Object<'_>) {
    if !o.omits() {
        o.text("phase", Some(&f.phase));
        o.text("call_id", f.call_id.as_deref());
        o.count("attempt", Some(u64::from(f.attempt)));
        o.text("handler", f.handler.as_deref());
    }
    o.text("action", Some(&f.action));
    o.instant("decided_at", f.decided_at);
    o.text("branch", Some(&f.branch));
    o.name("agent", &f.agent);
    o.text("error_code", f.error_code.as_deref());
    flags(f.flags, o);
}

/// Columns of `anomalies`.
pub fn anomaly(f: &AnomalyFact, o: &mut Object<'_>) {
    if !o.omits() {
        o.text("kind", Some(f.kind.as_str()));
        o.text("about", Some(&f.about));
    }
    o.text("branch", Some(&f.branch));
    o.name("agent", &f.agent);
    o.instant("at", f.at);
    o.count("count", f.count);
    o.text("detail", f.detail.as_deref());
}
