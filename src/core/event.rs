//! What an agent runtime can say, borrowed from the bytes it came in.
//!
//! An event holds no bytes longer than one call: whatever the timeline keeps, it copies. It carries
//! no content, only what kind of content there was.

use super::time::EventTime;
use super::usage::UsageReport;
use std::borrow::Cow;

/// Text borrowed from a record where the JSON allows it.
pub type Str<'p> = Cow<'p, str>;

/// The wire formats of events.md §1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// Our own records, events.md §2.
    Lifecycle,
    /// Native events of the four Agent Development Kits.
    Adk,
}

impl Dialect {
    /// The word of events.md §1.
    pub fn as_str(self) -> &'static str {
        match self {
            Dialect::Lifecycle => "lifecycle",
            Dialect::Adk => "adk",
        }
    }
}

/// What of an event was cut to the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// An id or name (`id_bytes_max`).
    pub ids: bool,
    /// Attributes, their keys or values (`attribute_bytes_max`).
    pub attributes: bool,
    /// Calls, answers or requests of a native event.
    pub parts: bool,
}

/// One thing a runtime said.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeEvent<'p> {
    /// Format of the innermost thing that was read: a wrapped native event is `Adk`.
    pub dialect: Dialect,
    /// True where a lifecycle envelope carries the event (always so for lifecycle records).
    pub has_envelope: bool,
    /// When it happened; `None` where absent or unreadable.
    pub at: Option<EventTime>,
    /// The emitter's monotonic clock, nanoseconds.
    pub mono_ns: Option<i64>,
    /// Redelivery key, unique within tenant and emitter instance; CloudEvents: `source` and `id`.
    pub record_id: Option<Str<'p>>,
    /// Rises by one per emitter instance.
    pub seq: Option<u64>,
    pub emitter_instance: Option<Str<'p>>,
    /// Runtime name, such as `adk-python`.
    pub runtime: Option<Str<'p>>,
    pub runtime_version: Option<Str<'p>>,
    pub app: Option<Str<'p>>,
    pub tenant: Option<Str<'p>>,
    pub session_id: Option<Str<'p>>,
    pub user_key: Option<Str<'p>>,
    /// Empty only for `EmitterGap` and native events without one.
    pub invocation_id: Option<Str<'p>>,
    pub run_id: Option<Str<'p>>,
    pub parent: Option<Parent<'p>>,
    /// The runtime's own branch; `""` is the root.
    pub branch: Str<'p>,
    pub node_path: Str<'p>,
    pub agent: Option<Str<'p>>,
    pub trace_id: Option<Str<'p>>,
    pub span_id: Option<Str<'p>>,
    pub measured: Option<Measured>,
    /// Small flat values, in the order of the record; values as text.
    pub attributes: Vec<(Str<'p>, String)>,
    /// Oddities of the bytes, words of rules.md §9 (`read_bom`, …).
    pub read_flags: ReadFlags,
    pub reached: Reached,
    pub kind: EventKind<'p>,
}

/// What was odd about the bytes of a record (rules.md §9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadFlags {
    pub bom: bool,
    pub duplicate_keys: bool,
    pub invalid_utf8: bool,
    pub lone_surrogate: bool,
    pub nonstandard_json: bool,
    /// A schema-registry prefix was stripped; counted, not flagged.
    pub schema_prefix: bool,
}

/// The run that started this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parent<'p> {
    pub invocation_id: Option<Str<'p>>,
    pub run_id: Option<Str<'p>>,
    pub call_id: Option<Str<'p>>,
}

/// How the emitter knows (events.md §2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measured {
    Wrapper,
    Hook,
    Native,
    Derived,
}

impl Measured {
    /// The word of events.md §2.1.
    pub fn as_str(self) -> &'static str {
        match self {
            Measured::Wrapper => "wrapper",
            Measured::Hook => "hook",
            Measured::Native => "native",
            Measured::Derived => "derived",
        }
    }
}

/// The kinds of events.md §2.2.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "the frequent kinds live on the stack for one call; boxing them costs an allocation a record"
)]
pub enum EventKind<'p> {
    RunStart {
        root_agent: Option<Str<'p>>,
        trigger: Option<Str<'p>>,
    },
    RunEnd {
        status: RunStatus,
        limit: Option<Str<'p>>,
        error: Option<ErrorSaid<'p>>,
    },
    AgentStart {
        agent_kind: Option<Str<'p>>,
    },
    AgentEnd {
        status: AgentStatus,
        handoff_to: Option<Str<'p>>,
    },
    AgentError {
        error: ErrorSaid<'p>,
    },
    ModelStart(ModelStart<'p>),
    ModelChunk(ModelChunk<'p>),
    ModelEnd(Box<ModelEnd<'p>>),
    ModelError(Box<ModelError<'p>>),
    ToolStart(ToolStart<'p>),
    ToolEnd(Box<ToolEnd<'p>>),
    GuardrailDecision(Box<Decision<'p>>),
    RecoveryDecision(Box<Recovery<'p>>),
    HookOutcome(HookOutcome<'p>),
    /// A native ADK event, bare or wrapped.
    Native(Box<NativeEvent<'p>>),
    EmitterGap {
        dropped: Option<u64>,
        from_seq: Option<u64>,
        to_seq: Option<u64>,
    },
    /// A kind this build does not know: kept out of every fact, counted as ignored.
    Unknown,
}

/// An error as told; its message is dropped at the border.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorSaid<'p> {
    /// `cancelled`, `not_found` and `tool_result` mean something (events.md §2.2).
    pub kind: Option<Str<'p>>,
    pub code: Option<Str<'p>>,
}

/// `run.end.status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunStatus {
    Completed,
    Error,
    Cancelled,
    Yielded,
    Limited,
    Intercepted,
    Unknown,
}

/// `agent.end.status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AgentStatus {
    Completed,
    Error,
    Cancelled,
    Transferred,
    Intercepted,
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelStart<'p> {
    pub call_id: Option<Str<'p>>,
    pub model: Option<Str<'p>>,
    pub provider: Option<Str<'p>>,
    pub streaming: Option<bool>,
    pub step: Option<u64>,
    pub attempt: Option<u32>,
    /// The operation where the emitter names one (`chat`, `embeddings`, …).
    pub operation: Option<Str<'p>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ModelChunk<'p> {
    pub call_id: Option<Str<'p>>,
    pub attempt: Option<u32>,
    pub index: Option<u64>,
    pub content: ChunkContent,
    pub usage: Option<UsageReport>,
}

/// What a chunk held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkContent {
    Text,
    Thought,
    ToolCall,
    Audio,
    Other,
    None,
}

/// Who answered (events.md §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServedBy {
    Model,
    Hook,
    Cache,
    /// Announced and never sent.
    None,
    Unknown,
}

impl ServedBy {
    /// The word of events.md §2.2.
    pub fn as_str(self) -> &'static str {
        match self {
            ServedBy::Model => "model",
            ServedBy::Hook => "hook",
            ServedBy::Cache => "cache",
            ServedBy::None => "none",
            ServedBy::Unknown => "unknown",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelEnd<'p> {
    pub call_id: Option<Str<'p>>,
    pub model: Option<Str<'p>>,
    pub provider: Option<Str<'p>>,
    pub attempt: Option<u32>,
    /// `None`: not said, which means the model.
    pub served_by: Option<ServedBy>,
    pub finish_reason: Option<Str<'p>>,
    pub usage: Option<UsageReport>,
    pub service_tier: Option<Str<'p>>,
    pub started_at: Option<EventTime>,
    pub first_chunk_at: Option<EventTime>,
    pub last_chunk_at: Option<EventTime>,
    pub chunks: Option<u64>,
    pub streaming: Option<bool>,
    pub operation: Option<Str<'p>>,
    pub error: Option<ErrorSaid<'p>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelError<'p> {
    pub call_id: Option<Str<'p>>,
    pub error: ErrorSaid<'p>,
    pub model: Option<Str<'p>>,
    pub provider: Option<Str<'p>>,
    pub attempt: Option<u32>,
    pub usage: Option<UsageReport>,
    pub recovered: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolStart<'p> {
    pub call_id: Option<Str<'p>>,
    pub execution: Option<u32>,
    pub tool: Option<Str<'p>>,
    /// local, mcp, agent, transfer, unknown.
    pub origin: Option<Str<'p>>,
}

/// `tool.end.outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolOutcome {
    Ok,
    Error,
    Refused,
    Deferred,
    Skipped,
    Timeout,
    Cancelled,
    /// A word outside the list.
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolEnd<'p> {
    pub call_id: Option<Str<'p>>,
    /// A late answer that came under another invocation: (invocation, call).
    pub answers: Option<(Str<'p>, Str<'p>)>,
    pub execution: Option<u32>,
    pub tool: Option<Str<'p>>,
    pub outcome: ToolOutcome,
    /// Nanoseconds, from `duration_ms`; `None` where absent or unreadable.
    pub duration: Option<super::Nanos>,
    pub retries: Option<u64>,
    pub error: Option<ErrorSaid<'p>>,
}

/// Where a guard stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    RunInput,
    ModelInput,
    ModelOutput,
    ToolInput,
    ToolOutput,
    RunOutput,
    Unknown,
}

impl Stage {
    /// The word of events.md §2.2.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::RunInput => "run_input",
            Stage::ModelInput => "model_input",
            Stage::ModelOutput => "model_output",
            Stage::ToolInput => "tool_input",
            Stage::ToolOutput => "tool_output",
            Stage::RunOutput => "run_output",
            Stage::Unknown => "unknown",
        }
    }
}

/// What a guard decided, after the words of other systems are mapped (events.md §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DecisionWord {
    Allow,
    Deny,
    Modify,
    Warn,
    Escalate,
}

impl DecisionWord {
    /// The word of events.md §2.2.
    pub fn as_str(self) -> &'static str {
        match self {
            DecisionWord::Allow => "allow",
            DecisionWord::Deny => "deny",
            DecisionWord::Modify => "modify",
            DecisionWord::Warn => "warn",
            DecisionWord::Escalate => "escalate",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision<'p> {
    pub stage: Option<Stage>,
    /// The mapped decision; `None` where absent or outside the mapping.
    pub decision: Option<DecisionWord>,
    /// The word as it was written, where it is one.
    pub decision_native: Option<Str<'p>>,
    /// True where a word stood there that the mapping does not know and no finding decided.
    pub is_unmapped: bool,
    /// none, allow, block, modify, confirm.
    pub action: Option<Str<'p>>,
    pub policy: Option<Str<'p>>,
    pub policy_version: Option<Str<'p>>,
    pub rule: Option<Str<'p>>,
    pub reason_code: Option<Str<'p>>,
    /// Read only where configured.
    pub reason: Option<Str<'p>>,
    /// plugin, callback, hook, provider, service, human.
    pub actor_type: Option<Str<'p>>,
    pub actor_name: Option<Str<'p>>,
    /// model, tool, run, agent.
    pub target_kind: Option<Str<'p>>,
    pub target_call_id: Option<Str<'p>>,
    pub target_name: Option<Str<'p>>,
    /// enforce, monitor.
    pub mode: Option<Str<'p>>,
    /// decided, failed_open, failed_closed.
    pub outcome: Option<Str<'p>>,
    pub duration: Option<super::Nanos>,
    /// Findings inside `native`, by the decision each would have meant (rules.md §8).
    pub findings: Vec<(DecisionWord, u32)>,
    /// Kinds of matched entities, never the matched text.
    pub entity_types: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery<'p> {
    /// model, tool, callback, render.
    pub phase: Option<Str<'p>>,
    pub attempt: Option<u32>,
    /// throw, skip, abort, retry, fallback, pass.
    pub action: Option<Str<'p>>,
    pub handler: Option<Str<'p>>,
    pub call_id: Option<Str<'p>>,
    pub error: Option<ErrorSaid<'p>>,
}

/// What a hook gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Returned {
    Nothing,
    Value,
    Error,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookOutcome<'p> {
    /// before_run, before_agent, before_model, after_model, …
    pub hook: Option<Str<'p>>,
    pub actor_type: Option<Str<'p>>,
    pub actor_name: Option<Str<'p>>,
    pub returned: Returned,
    pub call_id: Option<Str<'p>>,
}

/// A native ADK event, reduced to what can become a fact.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NativeEvent<'p> {
    pub id: Option<Str<'p>>,
    pub author: Option<Str<'p>>,
    /// Three-valued: absent and null are `None`.
    pub partial: Option<bool>,
    pub turn_complete: Option<bool>,
    pub interrupted: Option<bool>,
    /// ADK Go v1 writes `Partial: false` on everything: then it proves no stream.
    pub is_go_v1: bool,
    pub content: NativeContent,
    /// Function calls, synthetic `adk_request_*` included.
    pub function_calls: Vec<FunctionCall<'p>>,
    pub function_responses: Vec<FunctionResponse<'p>>,
    /// `Some` where a usage object stands there, even an empty one.
    pub usage: Option<UsageReport>,
    pub model_version: Option<Str<'p>>,
    pub finish_reason: Option<Str<'p>>,
    pub error_code: Option<Str<'p>>,
    pub long_running_tool_ids: Vec<Str<'p>>,
    pub actions: NativeActions<'p>,
    /// `output` of a workflow node stands beside.
    pub has_output: bool,
    /// What the guard volunteered in `customMetadata`.
    pub custom: NativeCustom<'p>,
    pub live_session_id: Option<Str<'p>>,
    /// Keyed 64-bit hash of the content's bytes, for telling duplicates; 0 without content.
    pub content_hash: u64,
}

/// What kinds of parts a native event held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NativeContent {
    pub has_text: bool,
    pub has_thought: bool,
    pub has_audio: bool,
    /// Any other generated part (image, code, …), not function calls or responses.
    pub has_other: bool,
}

impl NativeContent {
    /// True where a model could have generated something visible or hidden, function calls aside.
    pub fn is_some(self) -> bool {
        self.has_text || self.has_thought || self.has_audio || self.has_other
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionCall<'p> {
    pub id: Option<Str<'p>>,
    pub name: Str<'p>,
    /// Keyed hash of the arguments' bytes (flag `tool_id_reused`).
    pub args_hash: u64,
    /// For `adk_request_confirmation`: the id and name of the call it asks about.
    pub confirms: Option<(Str<'p>, Str<'p>)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionResponse<'p> {
    pub id: Option<Str<'p>>,
    pub name: Str<'p>,
    /// `isError: true` or a top-level `error` (facts.md §1).
    pub is_error: bool,
    /// No `response` key, null, or an empty object.
    pub is_empty: bool,
    /// `confirmed` of an answer to `adk_request_confirmation`.
    pub confirmed: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NativeActions<'p> {
    pub transfer_to_agent: Option<Str<'p>>,
    pub escalate: bool,
    pub skip_summarization: bool,
    pub is_compaction: bool,
    pub end_of_agent: bool,
    pub has_agent_state: bool,
    /// Call ids for which a confirmation is asked.
    pub requested_confirmations: Vec<Str<'p>>,
    /// TypeScript's security plugin: (call id, word), such as `DENY`.
    pub security_states: Vec<(Str<'p>, Str<'p>)>,
}

/// What `customMetadata` volunteers, object or Java list of pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NativeCustom<'p> {
    pub model_armor_blocked: bool,
    pub cache_hit: bool,
    /// `guardrail: {decider, verdict, policy}`.
    pub guardrail: Option<NativeGuardrail<'p>>,
    /// `tenant` of `RunConfig.custom_metadata`, the natural carrier (runtimes.md §19).
    pub tenant: Option<Str<'p>>,
    /// OpenAI adapter of ADK Go streaming: `openai_model`.
    pub model: Option<Str<'p>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NativeGuardrail<'p> {
    pub decider: Option<Str<'p>>,
    pub verdict: Option<Str<'p>>,
    pub policy: Option<Str<'p>>,
}
