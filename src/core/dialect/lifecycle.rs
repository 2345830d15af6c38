//! Our own records, events.md §2.2: one flat wire structure, then a conversion by kind.
//!
//! Words outside a closed list become its `Unknown`, fields of the wrong type are unknown; neither
//! refuses a record.

use super::envelope::{self, Emitter, ParentWire};
use super::instant::{instant, span_of_ms};
use super::wire::{Object, Raw, Scalar, Seen};
use super::{DecodeContext, guard};
use crate::core::event::{
    AgentStatus, ChunkContent, Dialect, ErrorSaid, EventKind, HookOutcome, ModelChunk, ModelEnd,
    ModelError, ModelStart, Recovery, Returned, RunStatus, RuntimeEvent, ServedBy, ToolEnd,
    ToolOutcome, ToolStart,
};
use crate::core::time::EventTime;
use crate::core::usage::UsageReport;
use serde::Deserialize;

flat! {
    /// Every field of every kind. Flat: a tagged enum would buffer the whole record first.
    pub(super) struct LifecycleWire<'p> {
        pub v: Scalar<'p>,
        pub kind: Scalar<'p>,
        /// A CloudEvent, not ours.
        pub specversion: Seen,
        pub at: Raw<'p>,
        pub mono_ns: Scalar<'p>,
        pub record_id: Scalar<'p>,
        pub seq: Scalar<'p>,
        pub emitter: Object<Emitter<'p>>,
        pub runtime: Object<Emitter<'p>>,
        pub app: Scalar<'p>,
        pub tenant: Scalar<'p>,
        pub session_id: Scalar<'p>,
        pub user_key: Scalar<'p>,
        pub invocation_id: Scalar<'p>,
        pub run_id: Scalar<'p>,
        pub parent: Object<ParentWire<'p>>,
        pub branch: Scalar<'p>,
        pub node_path: Scalar<'p>,
        pub agent: Scalar<'p>,
        pub trace_id: Scalar<'p>,
        pub span_id: Scalar<'p>,
        pub measured: Scalar<'p>,
        pub attributes: Raw<'p>,
        // What the kinds add.
        pub root_agent: Scalar<'p>,
        pub trigger: Scalar<'p>,
        pub status: Scalar<'p>,
        pub limit: Scalar<'p>,
        pub error: Object<ErrorWire<'p>>,
        pub agent_kind: Scalar<'p>,
        pub handoff_to: Scalar<'p>,
        pub call_id: Scalar<'p>,
        pub model: Scalar<'p>,
        pub provider: Scalar<'p>,
        pub streaming: Scalar<'p>,
        pub step: Scalar<'p>,
        pub attempt: Scalar<'p>,
        pub operation: Scalar<'p>,
        pub index: Scalar<'p>,
        pub content: Scalar<'p>,
        pub usage: Raw<'p>,
        pub served_by: Scalar<'p>,
        pub finish_reason: Scalar<'p>,
        pub service_tier: Scalar<'p>,
        pub started_at: Raw<'p>,
        pub first_chunk_at: Raw<'p>,
        pub last_chunk_at: Raw<'p>,
        pub chunks: Scalar<'p>,
        pub recovered: Scalar<'p>,
        pub execution: Scalar<'p>,
        pub tool: Scalar<'p>,
        pub origin: Scalar<'p>,
        pub answers: Object<ParentWire<'p>>,
        pub outcome: Scalar<'p>,
        pub duration_ms: Raw<'p>,
        pub retries: Scalar<'p>,
        pub stage: Scalar<'p>,
        pub decision: Scalar<'p>,
        pub action: Scalar<'p>,
        pub policy: Object<guard::PolicyWire<'p>>,
        pub reason_code: Scalar<'p>,
        pub reason: Scalar<'p>,
        pub actor: Object<guard::ActorWire<'p>>,
        pub target: Object<guard::TargetWire<'p>>,
        pub mode: Scalar<'p>,
        pub native: Raw<'p>,
        pub phase: Scalar<'p>,
        pub handler: Scalar<'p>,
        pub hook: Scalar<'p>,
        pub returned: Scalar<'p>,
        pub event: Raw<'p>,
        pub dialect: Scalar<'p>,
        pub dropped: Scalar<'p>,
        pub from_seq: Scalar<'p>,
        pub to_seq: Scalar<'p>,
    }
}

/// `error`; its `message` is not even read.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(super) struct ErrorWire<'p> {
    #[serde(borrow, rename = "type")]
    pub kind: Scalar<'p>,
    pub code: Scalar<'p>,
}

impl LifecycleWire<'_> {
    /// Integer `v` and a string `kind` (events.md §1).
    pub(super) fn is_mine(&self) -> bool {
        self.v.integer().is_some()
            && !matches!(self.v, Scalar::Text(_))
            && !self.kind.as_str().is_empty()
    }

    /// True for the kind that carries a native event.
    pub(super) fn is_wrapped(&self) -> bool {
        self.kind.as_str() == "event"
    }
}

/// The event of a record of any kind but `event`.
pub(super) fn event<'p>(wire: &mut LifecycleWire<'p>, context: &DecodeContext) -> RuntimeEvent<'p> {
    let mut kind = kind(wire);
    if let EventKind::GuardrailDecision(decision) = &mut kind
        && !context.store_reasons
    {
        decision.reason = None;
    }
    let mut event = envelope::blank(Dialect::Lifecycle, kind);
    envelope::wrap(wire, context, &mut event);
    event
}

fn kind<'p>(wire: &mut LifecycleWire<'p>) -> EventKind<'p> {
    match wire.kind.as_str() {
        "run.start" => EventKind::RunStart {
            root_agent: wire.root_agent.take_text(),
            trigger: wire.trigger.take_text(),
        },
        "run.end" => EventKind::RunEnd {
            status: run_status(wire.status.as_str()),
            limit: wire.limit.take_text(),
            error: error(&mut wire.error),
        },
        "agent.start" => EventKind::AgentStart {
            agent_kind: wire.agent_kind.take_text(),
        },
        "agent.end" => EventKind::AgentEnd {
            status: agent_status(wire.status.as_str()),
            handoff_to: wire.handoff_to.take_text(),
        },
        "agent.error" => EventKind::AgentError {
            error: error(&mut wire.error).unwrap_or_default(),
        },
        "model.start" => EventKind::ModelStart(model_start(wire)),
        "model.chunk" => EventKind::ModelChunk(model_chunk(wire)),
        "model.end" => EventKind::ModelEnd(Box::new(model_end(wire))),
        "model.error" => EventKind::ModelError(Box::new(model_error(wire))),
        "tool.start" => EventKind::ToolStart(tool_start(wire)),
        "tool.end" => EventKind::ToolEnd(Box::new(tool_end(wire))),
        "guardrail.decision" => EventKind::GuardrailDecision(Box::new(guard::decision(wire))),
        "recovery.decision" => EventKind::RecoveryDecision(Box::new(recovery(wire))),
        "hook.outcome" => EventKind::HookOutcome(hook_outcome(wire)),
        "emitter.gap" => EventKind::EmitterGap {
            dropped: wire.dropped.count(),
            from_seq: wire.from_seq.count(),
            to_seq: wire.to_seq.count(),
        },
        _ => EventKind::Unknown,
    }
}

/// An error stands there as soon as anything does; what is no object says nothing more.
fn error<'p>(field: &mut Object<ErrorWire<'p>>) -> Option<ErrorSaid<'p>> {
    match std::mem::take(field) {
        Object::Absent => None,
        Object::Other => Some(ErrorSaid::default()),
        Object::Is(mut wire) => Some(ErrorSaid {
            kind: wire.kind.take_text(),
            code: wire.code.take_text(),
        }),
    }
}

fn time(raw: Raw<'_>) -> Option<EventTime> {
    instant(raw?.get())
}

/// The usage object of a record, untouched until here.
pub(super) fn usage(raw: Raw<'_>) -> Option<UsageReport> {
    let json = raw?.get();
    if json.starts_with('{') {
        UsageReport::parse(json)
    } else {
        None
    }
}

fn model_start<'p>(wire: &mut LifecycleWire<'p>) -> ModelStart<'p> {
    ModelStart {
        call_id: wire.call_id.take_text(),
        model: wire.model.take_text(),
        provider: wire.provider.take_text(),
        streaming: wire.streaming.flag(),
        step: wire.step.count(),
        attempt: wire.attempt.small_count(),
        operation: wire.operation.take_text(),
    }
}

fn model_chunk<'p>(wire: &mut LifecycleWire<'p>) -> ModelChunk<'p> {
    ModelChunk {
        call_id: wire.call_id.take_text(),
        attempt: wire.attempt.small_count(),
        index: wire.index.count(),
        content: chunk_content(wire.content.as_str()),
        usage: usage(wire.usage),
    }
}

fn model_end<'p>(wire: &mut LifecycleWire<'p>) -> ModelEnd<'p> {
    ModelEnd {
        call_id: wire.call_id.take_text(),
        model: wire.model.take_text(),
        provider: wire.provider.take_text(),
        attempt: wire.attempt.small_count(),
        served_by: served_by(wire.served_by.as_str()),
        finish_reason: wire.finish_reason.take_text(),
        usage: usage(wire.usage),
        service_tier: wire.service_tier.take_text(),
        started_at: time(wire.started_at),
        first_chunk_at: time(wire.first_chunk_at),
        last_chunk_at: time(wire.last_chunk_at),
        chunks: wire.chunks.count(),
        streaming: wire.streaming.flag(),
        operation: wire.operation.take_text(),
        error: error(&mut wire.error),
    }
}

fn model_error<'p>(wire: &mut LifecycleWire<'p>) -> ModelError<'p> {
    ModelError {
        call_id: wire.call_id.take_text(),
        error: error(&mut wire.error).unwrap_or_default(),
        model: wire.model.take_text(),
        provider: wire.provider.take_text(),
        attempt: wire.attempt.small_count(),
        usage: usage(wire.usage),
        recovered: wire.recovered.flag(),
    }
}

fn tool_start<'p>(wire: &mut LifecycleWire<'p>) -> ToolStart<'p> {
    ToolStart {
        call_id: wire.call_id.take_text(),
        execution: wire.execution.small_count(),
        tool: wire.tool.take_text(),
        origin: wire.origin.take_text(),
    }
}

fn tool_end<'p>(wire: &mut LifecycleWire<'p>) -> ToolEnd<'p> {
    let mut answers = wire.answers.take_or_default();
    let answers = answers
        .invocation_id
        .take_text()
        .zip(answers.call_id.take_text());
    ToolEnd {
        call_id: wire.call_id.take_text(),
        answers,
        execution: wire.execution.small_count(),
        tool: wire.tool.take_text(),
        outcome: tool_outcome(wire.outcome.as_str()),
        duration: wire.duration_ms.and_then(|raw| span_of_ms(raw.get())),
        retries: wire.retries.count(),
        error: error(&mut wire.error),
    }
}

fn recovery<'p>(wire: &mut LifecycleWire<'p>) -> Recovery<'p> {
    Recovery {
        phase: wire.phase.take_text(),
        attempt: wire.attempt.small_count(),
        action: wire.action.take_text(),
        handler: wire.handler.take_text(),
        call_id: wire.call_id.take_text(),
        error: error(&mut wire.error),
    }
}

fn hook_outcome<'p>(wire: &mut LifecycleWire<'p>) -> HookOutcome<'p> {
    let mut actor = wire.actor.take_or_default();
    HookOutcome {
        hook: wire.hook.take_text(),
        actor_type: actor.kind.take_text(),
        actor_name: actor.name.take_text(),
        returned: match wire.returned.as_str() {
            "nothing" => Returned::Nothing,
            "value" => Returned::Value,
            "error" => Returned::Error,
            _ => Returned::Unknown,
        },
        call_id: wire.call_id.take_text(),
    }
}

fn run_status(word: &str) -> RunStatus {
    match word {
        "completed" => RunStatus::Completed,
        "error" => RunStatus::Error,
        "cancelled" => RunStatus::Cancelled,
        "yielded" => RunStatus::Yielded,
        "limited" => RunStatus::Limited,
        "intercepted" => RunStatus::Intercepted,
        _ => RunStatus::Unknown,
    }
}

fn agent_status(word: &str) -> AgentStatus {
    match word {
        "completed" => AgentStatus::Completed,
        "error" => AgentStatus::Error,
        "cancelled" => AgentStatus::Cancelled,
        "transferred" => AgentStatus::Transferred,
        "intercepted" => AgentStatus::Intercepted,
        _ => AgentStatus::Unknown,
    }
}

fn chunk_content(word: &str) -> ChunkContent {
    match word {
        "text" => ChunkContent::Text,
        "thought" => ChunkContent::Thought,
        "tool_call" => ChunkContent::ToolCall,
        "audio" => ChunkContent::Audio,
        "" | "none" => ChunkContent::None,
        _ => ChunkContent::Other,
    }
}

fn served_by(word: &str) -> Option<ServedBy> {
    Some(match word {
        "" => return None,
        "model" => ServedBy::Model,
        "hook" => ServedBy::Hook,
        "cache" => ServedBy::Cache,
        "none" => ServedBy::None,
        _ => ServedBy::Unknown,
    })
}

fn tool_outcome(word: &str) -> ToolOutcome {
    match word {
        "ok" => ToolOutcome::Ok,
        "error" => ToolOutcome::Error,
        "refused" => ToolOutcome::Refused,
        "deferred" => ToolOutcome::Deferred,
        "skipped" => ToolOutcome::Skipped,
        "timeout" => ToolOutcome::Timeout,
        "cancelled" => ToolOutcome::Cancelled,
        _ => ToolOutcome::Unknown,
    }
}
