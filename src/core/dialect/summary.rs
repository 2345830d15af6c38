//! One line per event, for the tables of the tests: what is known, in a fixed order.

use super::{DecodeContext, Decoded, RecordBytes, decode};
use crate::core::event::{Decision, EventKind, FunctionCall, NativeEvent, ReadFlags, RuntimeEvent};

/// Bounds as the tests use them.
pub(super) fn context() -> DecodeContext {
    DecodeContext {
        dialect: None,
        payload_bytes_max: 1 << 20,
        hash_key: 7,
        id_bytes_max: 256,
        attributes_max: 3,
        attribute_bytes_max: 8,
        store_reasons: true,
    }
}

/// The outcome of a record and its events, one line each.
pub(super) fn read(payload: &[u8], headers: &[(&str, Option<&[u8]>)]) -> String {
    let mut lines = Vec::new();
    let record = RecordBytes { payload, headers };
    let decoded = decode(record, &context(), &mut |event| lines.push(summary(&event)));
    match decoded {
        Decoded::Refused(reason) => {
            assert_eq!(
                lines,
                Vec::<String>::new(),
                "a refused record shows nothing"
            );
            reason.as_str().to_owned()
        }
        Decoded::Ignored => format!("ignored: {}", lines.join("\n")),
        Decoded::Read { events, .. } => {
            assert_eq!(events as usize, lines.len());
            lines.join("\n")
        }
    }
}

/// Asserts what a record says.
#[track_caller]
pub(super) fn check(payload: &str, expected: &str) {
    assert_eq!(read(payload.as_bytes(), &[]), expected, "{payload}");
}

/// The same for the lifecycle record of a kind: `fields` follow an envelope with an invocation id
/// alone.
#[track_caller]
pub(super) fn check_kind(kind: &str, fields: &str, expected: &str) {
    let payload = format!(r#"{{"v":1,"kind":"{kind}","invocation_id":"e"{fields}}}"#);
    let found = read(payload.as_bytes(), &[]);
    assert_eq!(
        found.strip_prefix("lifecycle/env inv=e ").unwrap_or(&found),
        expected,
        "{payload}"
    );
}

/// The same for a native event: `fields` follow an invocation id and an author.
#[track_caller]
pub(super) fn check_native(fields: &str, expected: &str) {
    let payload = format!(r#"{{"invocationId":"e","author":"a"{fields}}}"#);
    let found = read(payload.as_bytes(), &[]);
    assert_eq!(
        found
            .strip_prefix("adk inv=e agent=a native")
            .unwrap_or(&found),
        expected,
        "{payload}"
    );
}

/// What is known of an event.
pub(super) fn summary(event: &RuntimeEvent) -> String {
    let mut line = Line(event.dialect.as_str().to_owned());
    if event.has_envelope {
        line.0.push_str("/env");
    }
    line.debug("at", event.at.map(|at| at.0));
    line.debug("mono", event.mono_ns);
    line.text("record", event.record_id.as_deref());
    line.debug("seq", event.seq);
    line.text("instance", event.emitter_instance.as_deref());
    line.text("runtime", event.runtime.as_deref());
    line.text("version", event.runtime_version.as_deref());
    line.text("app", event.app.as_deref());
    line.text("tenant", event.tenant.as_deref());
    line.text("session", event.session_id.as_deref());
    line.text("user", event.user_key.as_deref());
    line.text("inv", event.invocation_id.as_deref());
    line.text("run", event.run_id.as_deref());
    if let Some(parent) = &event.parent {
        line.text("parent_inv", parent.invocation_id.as_deref());
        line.text("parent_run", parent.run_id.as_deref());
        line.text("parent_call", parent.call_id.as_deref());
    }
    line.text("branch", Some(&event.branch));
    line.text("path", Some(&event.node_path));
    line.text("agent", event.agent.as_deref());
    line.text("trace", event.trace_id.as_deref());
    line.text("span", event.span_id.as_deref());
    line.text("measured", event.measured.map(|measured| measured.as_str()));
    for (key, value) in &event.attributes {
        line.text(&format!("@{key}"), Some(value));
    }
    line.0.push_str(&flags(event.read_flags));
    line.kind(&event.kind);
    line.0
}

fn flags(flags: ReadFlags) -> String {
    let all = [
        (flags.bom, " +bom"),
        (flags.duplicate_keys, " +duplicate_keys"),
        (flags.invalid_utf8, " +invalid_utf8"),
        (flags.lone_surrogate, " +lone_surrogate"),
        (flags.nonstandard_json, " +nonstandard_json"),
        (flags.schema_prefix, " +schema_prefix"),
    ];
    all.iter()
        .filter(|(is_set, _)| *is_set)
        .map(|(_, word)| *word)
        .collect()
}

/// A debug text without the fields that are `None`, and without `Some`.
fn known(mut text: String) -> String {
    while let Some(at) = text.find(": None") {
        let from = text[..at].rfind(' ').map_or(0, |space| space + 1);
        let below = at + ": None".len();
        let below = if text[below..].starts_with(", ") {
            below + 2
        } else {
            below
        };
        text.replace_range(from..below, "");
    }
    text.replace("Some(", "(")
        .replace(",  }", " }")
        .replace(" {  }", "")
}

struct Line(String);

impl Line {
    fn text(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.0.push_str(&format!(" {name}={value}"));
        }
    }

    fn debug<T: std::fmt::Debug>(&mut self, name: &str, value: Option<T>) {
        if let Some(value) = value {
            self.0.push_str(&format!(" {name}={value:?}"));
        }
    }

    fn flag(&mut self, name: &str, is_set: bool) {
        if is_set {
            self.0.push_str(&format!(" {name}"));
        }
    }

    /// The kinds that read well as they are written in Rust; the large ones by hand.
    fn kind(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Native(native) => self.native(native),
            EventKind::GuardrailDecision(decision) => self.decision(decision),
            other => self
                .0
                .push_str(&format!(" {}", known(format!("{other:?}")))),
        }
    }

    fn decision(&mut self, decision: &Decision) {
        self.0.push_str(" decision");
        self.text("stage", decision.stage.map(|stage| stage.as_str()));
        self.text("is", decision.decision.map(|word| word.as_str()));
        self.text("native", decision.decision_native.as_deref());
        self.flag("unmapped", decision.is_unmapped);
        self.text("action", decision.action.as_deref());
        self.text("policy", decision.policy.as_deref());
        self.text("policy_version", decision.policy_version.as_deref());
        self.text("rule", decision.rule.as_deref());
        self.text("reason_code", decision.reason_code.as_deref());
        self.text("reason", decision.reason.as_deref());
        self.text("actor_type", decision.actor_type.as_deref());
        self.text("actor", decision.actor_name.as_deref());
        self.text("target_kind", decision.target_kind.as_deref());
        self.text("target_call", decision.target_call_id.as_deref());
        self.text("target", decision.target_name.as_deref());
        self.text("mode", decision.mode.as_deref());
        self.text("outcome", decision.outcome.as_deref());
        self.debug("took", decision.duration.map(|span| span.0));
        for (word, count) in &decision.findings {
            self.0.push_str(&format!(" {}x{count}", word.as_str()));
        }
        self.text("entities", Some(&decision.entity_types.join(",")));
    }

    fn native(&mut self, native: &NativeEvent) {
        self.0.push_str(" native");
        self.text("id", native.id.as_deref());
        if native.author.is_none() {
            self.0.push_str(" no_author");
        }
        self.debug("partial", native.partial);
        self.debug("turn_complete", native.turn_complete);
        self.debug("interrupted", native.interrupted);
        self.flag("go_v1", native.is_go_v1);
        self.flag("text", native.content.has_text);
        self.flag("thought", native.content.has_thought);
        self.flag("audio", native.content.has_audio);
        self.flag("other", native.content.has_other);
        for call in &native.function_calls {
            self.call(call);
        }
        for answer in &native.function_responses {
            let id = answer.id.as_deref().unwrap_or("?");
            self.0.push_str(&format!(" answer({}:{id}", answer.name));
            self.flag("error", answer.is_error);
            self.flag("empty", answer.is_empty);
            self.debug("confirmed", answer.confirmed);
            self.0.push(')');
        }
        self.flag("usage", native.usage.is_some());
        self.text("model", native.model_version.as_deref());
        self.text("finish", native.finish_reason.as_deref());
        self.text("error_code", native.error_code.as_deref());
        self.text(
            "long_running",
            Some(&native.long_running_tool_ids.join(",")),
        );
        self.text("transfer", native.actions.transfer_to_agent.as_deref());
        self.flag("escalate", native.actions.escalate);
        self.flag("skip_summarization", native.actions.skip_summarization);
        self.flag("compaction", native.actions.is_compaction);
        self.flag("end_of_agent", native.actions.end_of_agent);
        self.flag("agent_state", native.actions.has_agent_state);
        self.text(
            "confirm",
            Some(&native.actions.requested_confirmations.join(",")),
        );
        for (call_id, word) in &native.actions.security_states {
            self.text(&format!("security:{call_id}"), Some(word));
        }
        self.flag("output", native.has_output);
        self.flag("armor", native.custom.model_armor_blocked);
        self.flag("cache_hit", native.custom.cache_hit);
        if let Some(guardrail) = &native.custom.guardrail {
            self.text("decider", guardrail.decider.as_deref());
            self.text("verdict", guardrail.verdict.as_deref());
            self.text("policy", guardrail.policy.as_deref());
        }
        self.text("custom_tenant", native.custom.tenant.as_deref());
        self.text("custom_model", native.custom.model.as_deref());
        self.text("live", native.live_session_id.as_deref());
    }

    fn call(&mut self, call: &FunctionCall) {
        let id = call.id.as_deref().unwrap_or("?");
        self.0.push_str(&format!(" call({}:{id}", call.name));
        if let Some((id, name)) = &call.confirms {
            self.0.push_str(&format!(" asks {name}:{id}"));
        }
        self.0.push(')');
    }
}
