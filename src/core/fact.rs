//! What the daemon knows: one variant per table of facts.md §1.
//!
//! A fact is a pure function of one segment's records. It is not serializable here: the edges turn
//! it into rows and reports. No fact holds content, and no fact spans two segments.

use super::event::{DecisionWord, Measured, ServedBy, Stage};
use super::usage::TokenUsage;
use super::{Coordinates, EventTime, LogTime, Name, Nanos};

/// One row, as the evidence so far tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Empty where no record and no configuration names one.
    pub tenant: Name,
    /// Empty where no record and no configuration names one.
    pub app: Name,
    pub invocation_id: Name,
    pub session_id: Option<Name>,
    pub user_key: Option<Name>,
    /// Id of the segment whose records speak for the row.
    pub segment: Name,
    /// Log time of the segment's first record: chooses the table partition, never changes.
    pub segment_logged_at: LogTime,
    /// Log coordinates of the first and the last record that speak for the row.
    pub first: Coordinates,
    pub last: Coordinates,
    /// facts.md §8.4; the larger wins.
    pub version: u64,
    pub body: FactBody,
}

/// The table and what its row says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FactBody {
    Invocation(Box<InvocationFact>),
    Branch(Box<BranchFact>),
    AgentRun(Box<AgentRunFact>),
    ModelCall(Box<ModelCallFact>),
    LocalAnswer(Box<LocalAnswerFact>),
    ToolCall(Box<ToolCallFact>),
    GuardrailDecision(Box<GuardrailFact>),
    RecoveryDecision(Box<RecoveryFact>),
    Anomaly(Box<AnomalyFact>),
}

/// The tables, in the order of facts.md §1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    Invocations,
    Branches,
    AgentRuns,
    ModelCalls,
    LocalAnswers,
    ToolCalls,
    GuardrailDecisions,
    RecoveryDecisions,
    Anomalies,
}

impl Table {
    /// Every table, in the order of facts.md §1.
    pub const ALL: [Table; 9] = [
        Table::Invocations,
        Table::Branches,
        Table::AgentRuns,
        Table::ModelCalls,
        Table::LocalAnswers,
        Table::ToolCalls,
        Table::GuardrailDecisions,
        Table::RecoveryDecisions,
        Table::Anomalies,
    ];

    /// The table's name in ClickHouse and in the label `table`.
    pub fn as_str(self) -> &'static str {
        match self {
            Table::Invocations => "invocations",
            Table::Branches => "branches",
            Table::AgentRuns => "agent_runs",
            Table::ModelCalls => "model_calls",
            Table::LocalAnswers => "local_answers",
            Table::ToolCalls => "tool_calls",
            Table::GuardrailDecisions => "guardrail_decisions",
            Table::RecoveryDecisions => "recovery_decisions",
            Table::Anomalies => "anomalies",
        }
    }
}

impl FactBody {
    /// The table this row belongs to.
    pub fn table(&self) -> Table {
        match self {
            FactBody::Invocation(_) => Table::Invocations,
            FactBody::Branch(_) => Table::Branches,
            FactBody::AgentRun(_) => Table::AgentRuns,
            FactBody::ModelCall(_) => Table::ModelCalls,
            FactBody::LocalAnswer(_) => Table::LocalAnswers,
            FactBody::ToolCall(_) => Table::ToolCalls,
            FactBody::GuardrailDecision(_) => Table::GuardrailDecisions,
            FactBody::RecoveryDecision(_) => Table::RecoveryDecisions,
            FactBody::Anomaly(_) => Table::Anomalies,
        }
    }
}

impl Fact {
    /// The row's identity after (tenant, app, invocation id), part by part, as facts.md §1 lists
    /// it. Two facts with one table and one identity are versions of one row.
    pub fn identity(&self) -> Vec<String> {
        let segment = self.segment.to_string();
        match &self.body {
            FactBody::Invocation(_) => vec![segment],
            FactBody::Branch(f) => vec![segment, f.branch.to_string(), f.occurrence.to_string()],
            FactBody::AgentRun(f) => {
                vec![
                    segment,
                    f.branch.to_string(),
                    f.agent.to_string(),
                    f.occurrence.to_string(),
                ]
            }
            FactBody::ModelCall(f) => vec![f.call_key.to_string()],
            FactBody::LocalAnswer(f) => {
                vec![
                    segment,
                    f.branch.to_string(),
                    f.agent.to_string(),
                    f.order.to_string(),
                ]
            }
            FactBody::ToolCall(f) => vec![segment, f.call_key.to_string(), f.execution.to_string()],
            FactBody::GuardrailDecision(f) => vec![
                segment,
                f.stage.as_str().to_owned(),
                f.actor_type.as_deref().unwrap_or("").to_owned(),
                f.actor_name.as_deref().unwrap_or("").to_owned(),
                f.target_kind.as_deref().unwrap_or("").to_owned(),
                f.target_call_id.as_deref().unwrap_or("").to_owned(),
                f.target_name.as_deref().unwrap_or("").to_owned(),
                f.order.to_string(),
            ],
            FactBody::RecoveryDecision(f) => vec![
                segment,
                f.phase.to_string(),
                f.call_id.as_deref().unwrap_or("").to_owned(),
                f.attempt.to_string(),
                f.handler.as_deref().unwrap_or("").to_owned(),
            ],
            FactBody::Anomaly(f) => vec![segment, f.about.to_string(), f.kind.as_str().to_owned()],
        }
    }
}

/// Status of an invocation or of one of its segments (facts.md §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    Open,
    Waiting,
    Completed,
    CompletedInferred,
    Error,
    Cancelled,
    Limited,
    Intercepted,
    Incomplete,
}

impl Status {
    /// Every status, in the order of facts.md §1.
    pub const ALL: [Status; 9] = [
        Status::Open,
        Status::Waiting,
        Status::Completed,
        Status::CompletedInferred,
        Status::Error,
        Status::Cancelled,
        Status::Limited,
        Status::Intercepted,
        Status::Incomplete,
    ];

    /// The word of facts.md §1.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Open => "open",
            Status::Waiting => "waiting",
            Status::Completed => "completed",
            Status::CompletedInferred => "completed_inferred",
            Status::Error => "error",
            Status::Cancelled => "cancelled",
            Status::Limited => "limited",
            Status::Intercepted => "intercepted",
            Status::Incomplete => "incomplete",
        }
    }
}

/// How something is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    Declared,
    Inferred,
    Provider,
}

impl Basis {
    /// The word of facts.md §1.
    pub fn as_str(self) -> &'static str {
        match self {
            Basis::Declared => "declared",
            Basis::Inferred => "inferred",
            Basis::Provider => "provider",
        }
    }
}

/// The run that started this one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ParentLink {
    pub invocation_id: Option<Name>,
    pub run_id: Option<Name>,
    /// The tool call that started the child.
    pub call_id: Option<Name>,
    pub basis: Basis,
}

/// Token sums over model calls; `None` where none of the calls is known, 0 over no call (rules.md
/// §4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sums {
    /// Calls with `served_by` model.
    pub model_call_count: u64,
    /// Those whose usage is missing.
    pub usage_missing_calls: u64,
    /// True where no call's usage is missing, partial or invalid.
    pub usage_complete: bool,
    pub input_total: Option<u64>,
    pub input_uncached: Option<u64>,
    pub cache_read: Option<u64>,
    pub cache_write: Option<u64>,
    pub tool_use_input: Option<u64>,
    pub output_total: Option<u64>,
    pub reasoning: Option<u64>,
    pub total: Option<u64>,
}

/// One segment of one invocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InvocationFact {
    pub status: Status,
    /// Opened by a record that was already older than `silence_max` when it was appended.
    pub headless: bool,
    pub run_id: Option<Name>,
    pub started_at: Option<EventTime>,
    pub ended_at: Option<EventTime>,
    /// From first to last, waits included; of one segment equal to `active`.
    pub wall: Option<Nanos>,
    pub root_agent: Option<Name>,
    pub trigger: Option<Name>,
    pub runtime: Option<Name>,
    pub runtime_version: Option<Name>,
    pub parent: Option<ParentLink>,
    pub limit: Option<Name>,
    pub error_code: Option<Name>,
    /// Sums over its own calls.
    pub own: Sums,
    pub local_answer_count: u64,
    pub tool_call_count: u64,
    /// Records that speak for the segment.
    pub records: u64,
    /// Native events among them.
    pub events: u64,
    /// User messages, a repeated one counted once.
    pub user_messages: u64,
    /// Times the invocation was started again with the same user message.
    pub retries: u64,
    pub attributes: Vec<(Name, Name)>,
    pub flags: Flags,
}

/// One occurrence of a branch within a segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BranchFact {
    /// `""` is the root.
    pub branch: Name,
    pub occurrence: u32,
    /// `None` for the root.
    pub parent_branch: Option<Name>,
    pub forked_at: Option<EventTime>,
    pub joined_at: Option<EventTime>,
    /// From fork to join.
    pub duration: Option<Nanos>,
    /// Covered by its own model calls and tools.
    pub own_time: Option<Nanos>,
    /// The rest: waiting for others.
    pub waiting_time: Option<Nanos>,
    pub own: Sums,
    pub tool_call_count: u64,
    /// Records on the branch; 0 where it only occurs as the prefix of others.
    pub records: u64,
    pub flags: Flags,
}

/// Status of an agent run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AgentRunStatus {
    Open,
    Completed,
    Error,
    Cancelled,
    Transferred,
    Intercepted,
    /// Its segment ended and nothing says how the agent did.
    Unknown,
    /// Its segment was released without an end.
    Incomplete,
}

impl AgentRunStatus {
    /// The word printed and stored.
    pub fn as_str(self) -> &'static str {
        match self {
            AgentRunStatus::Open => "open",
            AgentRunStatus::Completed => "completed",
            AgentRunStatus::Error => "error",
            AgentRunStatus::Cancelled => "cancelled",
            AgentRunStatus::Transferred => "transferred",
            AgentRunStatus::Intercepted => "intercepted",
            AgentRunStatus::Unknown => "unknown",
            AgentRunStatus::Incomplete => "incomplete",
        }
    }
}

/// One pass of one agent on one branch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AgentRunFact {
    pub branch: Name,
    pub agent: Name,
    /// From 0: which pass over the same branch and agent.
    pub occurrence: u32,
    pub node_path: Option<Name>,
    pub agent_kind: Option<Name>,
    pub status: AgentRunStatus,
    pub started_at: Option<EventTime>,
    pub ended_at: Option<EventTime>,
    pub duration: Option<Nanos>,
    pub handoff_to: Option<Name>,
    pub error_code: Option<Name>,
    pub own: Sums,
    pub tool_call_count: u64,
    pub flags: Flags,
}

/// Status of a model call (rules.md §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallStatus {
    Ok,
    Error,
    Blocked,
    Cancelled,
    Incomplete,
}

impl CallStatus {
    /// Every status of a model call.
    pub const ALL: [CallStatus; 5] = [
        CallStatus::Ok,
        CallStatus::Error,
        CallStatus::Blocked,
        CallStatus::Cancelled,
        CallStatus::Incomplete,
    ];

    /// The word of facts.md §1.
    pub fn as_str(self) -> &'static str {
        match self {
            CallStatus::Ok => "ok",
            CallStatus::Error => "error",
            CallStatus::Blocked => "blocked",
            CallStatus::Cancelled => "cancelled",
            CallStatus::Incomplete => "incomplete",
        }
    }
}

/// One call that a model answered or may have answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelCallFact {
    /// facts.md §8.2.
    pub call_key: Name,
    /// The runtime's call id, where it has one.
    pub call_id: Option<Name>,
    pub branch: Name,
    pub agent: Name,
    /// The `occurrence` of the agent run that made the call.
    pub agent_occurrence: u32,
    pub node_path: Option<Name>,
    /// chat, generate_content, embeddings, …
    pub operation: Name,
    /// Response model, else requested model.
    pub model: Option<Name>,
    pub requested_model: Option<Name>,
    pub provider: Option<Name>,
    /// `Model` or `Unknown`; other answers are local.
    pub served_by: ServedBy,
    pub status: CallStatus,
    pub attempts: u32,
    /// Failed attempts by error code.
    pub attempt_errors: Vec<(Name, u32)>,
    pub streaming: Option<bool>,
    pub started_at: Option<EventTime>,
    pub first_chunk_at: Option<EventTime>,
    pub ended_at: Option<EventTime>,
    /// End of the call, else its last evidence: chooses day and price.
    pub billed_at: EventTime,
    pub ttfc: Option<Nanos>,
    pub ttft_visible: Option<Nanos>,
    pub completion: Option<Nanos>,
    /// From the first attempt's request to the end of the attempt that was served.
    pub total_with_retries: Option<Nanos>,
    pub measured: Option<Measured>,
    pub chunks: Option<u64>,
    pub usage: TokenUsage,
    /// Usage should have been reported and was not: counted in `usage_missing_calls`. False for a
    /// call that failed before any content, which has none by nature (rules.md §4).
    pub is_unmetered: bool,
    /// The hook that ended the chain before the meter had its turn; empty where it is not named.
    pub starved_by: Option<Name>,
    /// Service tier, such as `standard`.
    pub tier: Option<Name>,
    /// stop, length, tool_calls, content_filter, error, other.
    pub finish_reason: Option<Name>,
    /// The provider's own word.
    pub finish_reason_raw: Option<Name>,
    pub error_code: Option<Name>,
    pub recovered: bool,
    /// Dialects that told of the call.
    pub sources: Vec<&'static str>,
    pub trace_id: Option<Name>,
    pub span_id: Option<Name>,
    /// Id of the native event that closed the call.
    pub event_id: Option<Name>,
    /// Order of the call in its segment, from 0.
    pub order: u32,
    pub attributes: Vec<(Name, Name)>,
    pub flags: Flags,
}

/// An answer that a hook or a cache gave instead of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalAnswerFact {
    pub branch: Name,
    pub agent: Name,
    /// From 0 within (branch, agent).
    pub order: u32,
    /// `Hook` or `Cache`.
    pub served_by: ServedBy,
    /// The hook point, such as `before_model`.
    pub hook: Option<Name>,
    pub actor_type: Option<Name>,
    pub actor_name: Option<Name>,
    pub call_id: Option<Name>,
    pub requested_model: Option<Name>,
    pub answered_at: Option<EventTime>,
    /// What the answer repeated of an older call; never summed with model calls.
    pub replayed: TokenUsage,
    pub event_id: Option<Name>,
    pub flags: Flags,
}

/// Status of a tool call (facts.md §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolStatus {
    /// Not answered yet; never exported.
    Open,
    Ok,
    Error,
    Refused,
    Deferred,
    Skipped,
    Cancelled,
    Timeout,
    Unanswered,
}

impl ToolStatus {
    /// The word of facts.md §1.
    pub fn as_str(self) -> &'static str {
        match self {
            ToolStatus::Open => "open",
            ToolStatus::Ok => "ok",
            ToolStatus::Error => "error",
            ToolStatus::Refused => "refused",
            ToolStatus::Deferred => "deferred",
            ToolStatus::Skipped => "skipped",
            ToolStatus::Cancelled => "cancelled",
            ToolStatus::Timeout => "timeout",
            ToolStatus::Unanswered => "unanswered",
        }
    }
}

/// Three-valued: whether a tool ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Executed {
    Yes,
    No,
    Unknown,
}

impl Executed {
    /// The word of facts.md §1.
    pub fn as_str(self) -> &'static str {
        match self {
            Executed::Yes => "yes",
            Executed::No => "no",
            Executed::Unknown => "unknown",
        }
    }
}

/// One execution of one tool call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ToolCallFact {
    pub call_key: Name,
    /// The runtime's call id, where it has one.
    pub call_id: Option<Name>,
    /// From 1.
    pub execution: u32,
    pub tool: Name,
    /// The tool was not found: its name is no label.
    pub is_invented: bool,
    pub origin: Option<Name>,
    pub agent: Name,
    pub branch: Name,
    pub agent_occurrence: u32,
    pub status: ToolStatus,
    pub executed: Executed,
    pub started_at: Option<EventTime>,
    pub ended_at: Option<EventTime>,
    pub duration: Option<Nanos>,
    /// Of a long-running call: from the call to its answer.
    pub wait: Option<Nanos>,
    pub long_running: bool,
    pub retries: Option<u64>,
    pub error_code: Option<Name>,
    pub flags: Flags,
}

/// One verdict of one guard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GuardrailFact {
    pub stage: Stage,
    pub decided_at: Option<EventTime>,
    pub decision: Option<DecisionWord>,
    /// At most 64 characters of `[A-Za-z0-9_.-]`.
    pub decision_native: Option<Name>,
    pub action: Option<Name>,
    pub mode: Option<Name>,
    pub outcome: Option<Name>,
    /// `None`: not known yet, or never.
    pub enforced: Option<bool>,
    pub policy: Option<Name>,
    pub policy_version: Option<Name>,
    pub rule: Option<Name>,
    pub reason_code: Option<Name>,
    /// Only where configured.
    pub reason: Option<Name>,
    pub actor_type: Option<Name>,
    pub actor_name: Option<Name>,
    pub target_kind: Option<Name>,
    pub target_call_id: Option<Name>,
    pub target_name: Option<Name>,
    /// From 0, in the segment.
    pub order: u32,
    pub branch: Name,
    pub agent: Name,
    pub findings: Vec<(DecisionWord, u32)>,
    pub entity_types: Vec<Name>,
    pub duration: Option<Nanos>,
    pub basis: Basis,
    pub model_call_prevented: bool,
    /// Content of the call had left before the verdict; `None` where nothing tells.
    pub content_already_delivered: Option<bool>,
    /// `model` or `tool`: what a deny turned out to be about, or what started after it all the
    /// same, where the target as it was told does not say it.
    pub followed_kind: Option<&'static str>,
    /// Key of that call.
    pub followed_key: Option<Name>,
    pub flags: Flags,
}

/// What an error handler decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecoveryFact {
    pub phase: Name,
    pub call_id: Option<Name>,
    pub attempt: u32,
    pub handler: Option<Name>,
    pub action: Name,
    pub decided_at: Option<EventTime>,
    pub branch: Name,
    pub agent: Name,
    pub error_code: Option<Name>,
    pub flags: Flags,
}

/// Something that should not be (facts.md §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnomalyKind {
    OrphanEnd,
    ClockSkew,
    UsageShrank,
    VerdictNotEnforced,
    UnmeteredCall,
    DuplicateAnswer,
    ProducerGap,
    StarvedMeter,
    EditLost,
    HookError,
    RetryCap,
    LeakedTimer,
    SplitInvocation,
    LimitReached,
    RetentionLoss,
}

impl AnomalyKind {
    /// Every kind, in the order of facts.md §1.
    pub const ALL: [AnomalyKind; 15] = [
        AnomalyKind::OrphanEnd,
        AnomalyKind::ClockSkew,
        AnomalyKind::UsageShrank,
        AnomalyKind::VerdictNotEnforced,
        AnomalyKind::UnmeteredCall,
        AnomalyKind::DuplicateAnswer,
        AnomalyKind::ProducerGap,
        AnomalyKind::StarvedMeter,
        AnomalyKind::EditLost,
        AnomalyKind::HookError,
        AnomalyKind::RetryCap,
        AnomalyKind::LeakedTimer,
        AnomalyKind::SplitInvocation,
        AnomalyKind::LimitReached,
        AnomalyKind::RetentionLoss,
    ];

    /// The word of facts.md §1.
    pub fn as_str(self) -> &'static str {
        match self {
            AnomalyKind::OrphanEnd => "orphan_end",
            AnomalyKind::ClockSkew => "clock_skew",
            AnomalyKind::UsageShrank => "usage_shrank",
            AnomalyKind::VerdictNotEnforced => "verdict_not_enforced",
            AnomalyKind::UnmeteredCall => "unmetered_call",
            AnomalyKind::DuplicateAnswer => "duplicate_answer",
            AnomalyKind::ProducerGap => "producer_gap",
            AnomalyKind::StarvedMeter => "starved_meter",
            AnomalyKind::EditLost => "edit_lost",
            AnomalyKind::HookError => "hook_error",
            AnomalyKind::RetryCap => "retry_cap",
            AnomalyKind::LeakedTimer => "leaked_timer",
            AnomalyKind::SplitInvocation => "split_invocation",
            AnomalyKind::LimitReached => "limit_reached",
            AnomalyKind::RetentionLoss => "retention_loss",
        }
    }
}

/// One anomaly about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AnomalyFact {
    pub kind: AnomalyKind,
    /// What it is about, such as `model_call/c1`, `tool_call/t1`, `invocation`, `hook/after_model`.
    pub about: Name,
    pub branch: Name,
    pub agent: Name,
    pub at: Option<EventTime>,
    /// How many (lost records of a gap, attempts at a cap); `None` where it does not apply.
    pub count: Option<u64>,
    /// A closed word that says more: a hook's name, a cause.
    pub detail: Option<Name>,
}

/// The words of rules.md §9 that a row can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Flag {
    UsageFromPartial,
    ZeroUsagePlaceholder,
    CacheUnreported,
    InvalidUsageField,
    ImplausibleUsage,
    SourceConflict,
    UsageFromAgentSpan,
    AmbiguousPairing,
    EventTimeNotArrival,
    LifecycleIncomplete,
    InvalidEventTime,
    UsageBasisGuessed,
    TotalMismatch,
    UsageFieldConflict,
    UsagePartExceedsWhole,
    ModelDiffers,
    IdConflict,
    ToolIdReused,
    InvocationIdRepaired,
    PartialFlagLost,
    CrossHostLatency,
    ImplausibleLatency,
    EventTimeFarFromAppend,
    UnmappedDecision,
    StartUnseen,
    SplitInvocation,
    Limited,
    Late,
}

impl Flag {
    /// Every flag, in the order of rules.md §9.
    pub const ALL: [Flag; 28] = [
        Flag::UsageFromPartial,
        Flag::ZeroUsagePlaceholder,
        Flag::CacheUnreported,
        Flag::InvalidUsageField,
        Flag::ImplausibleUsage,
        Flag::SourceConflict,
        Flag::UsageFromAgentSpan,
        Flag::AmbiguousPairing,
        Flag::EventTimeNotArrival,
        Flag::LifecycleIncomplete,
        Flag::InvalidEventTime,
        Flag::UsageBasisGuessed,
        Flag::TotalMismatch,
        Flag::UsageFieldConflict,
        Flag::UsagePartExceedsWhole,
        Flag::ModelDiffers,
        Flag::IdConflict,
        Flag::ToolIdReused,
        Flag::InvocationIdRepaired,
        Flag::PartialFlagLost,
        Flag::CrossHostLatency,
        Flag::ImplausibleLatency,
        Flag::EventTimeFarFromAppend,
        Flag::UnmappedDecision,
        Flag::StartUnseen,
        Flag::SplitInvocation,
        Flag::Limited,
        Flag::Late,
    ];

    /// The word of rules.md §9.
    pub fn as_str(self) -> &'static str {
        match self {
            Flag::UsageFromPartial => "usage_from_partial",
            Flag::ZeroUsagePlaceholder => "zero_usage_placeholder",
            Flag::CacheUnreported => "cache_unreported",
            Flag::InvalidUsageField => "invalid_usage_field",
            Flag::ImplausibleUsage => "implausible_usage",
            Flag::SourceConflict => "source_conflict",
            Flag::UsageFromAgentSpan => "usage_from_agent_span",
            Flag::AmbiguousPairing => "ambiguous_pairing",
            Flag::EventTimeNotArrival => "event_time_not_arrival",
            Flag::LifecycleIncomplete => "lifecycle_incomplete",
            Flag::InvalidEventTime => "invalid_event_time",
            Flag::UsageBasisGuessed => "usage_basis_guessed",
            Flag::TotalMismatch => "total_mismatch",
            Flag::UsageFieldConflict => "usage_field_conflict",
            Flag::UsagePartExceedsWhole => "usage_part_exceeds_whole",
            Flag::ModelDiffers => "model_differs",
            Flag::IdConflict => "id_conflict",
            Flag::ToolIdReused => "tool_id_reused",
            Flag::InvocationIdRepaired => "invocation_id_repaired",
            Flag::PartialFlagLost => "partial_flag_lost",
            Flag::CrossHostLatency => "cross_host_latency",
            Flag::ImplausibleLatency => "implausible_latency",
            Flag::EventTimeFarFromAppend => "event_time_far_from_append",
            Flag::UnmappedDecision => "unmapped_decision",
            Flag::StartUnseen => "start_unseen",
            Flag::SplitInvocation => "split_invocation",
            Flag::Limited => "limited",
            Flag::Late => "late",
        }
    }
}

/// A set of flags; prints its words in the order of rules.md §9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flags(u32);

impl Flags {
    /// Adds one flag.
    pub fn insert(&mut self, flag: Flag) {
        self.0 |= 1 << flag as u8;
    }

    /// Adds every flag of `other`.
    pub fn extend(&mut self, other: Flags) {
        self.0 |= other.0;
    }

    /// True where the set holds `flag`.
    pub fn contains(self, flag: Flag) -> bool {
        self.0 & (1 << flag as u8) != 0
    }

    /// True where the set holds nothing.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The flags in the order of rules.md §9.
    pub fn iter(self) -> impl Iterator<Item = Flag> {
        Flag::ALL
            .into_iter()
            .filter(move |&flag| self.contains(flag))
    }
}
