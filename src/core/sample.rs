//! What the exporter is told: a series and its increments.
//!
//! A sample is the difference between what a fact says now and the most that was ever counted for
//! it (facts.md §5), so the exporter only adds. Names, help texts and buckets are the exporter's;
//! here is which labels go with which family, in which order.

use super::{LogTime, Name};

/// The metric families that facts move (facts.md §5, upper part).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    OperationDuration,
    TimeToFirstChunk,
    TokenUsage,
    ExecuteToolDuration,
    InvokeAgentDuration,
    Tokens,
    ModelCalls,
    LocalAnswers,
    ModelCallsUnmetered,
    ToolCalls,
    GuardrailDecisions,
    GuardrailBypassed,
    RecoveryDecisions,
    Anomalies,
    Invocations,
    InvocationWaits,
    Corrections,
}

impl Family {
    /// Every family, in the order of facts.md §5.
    pub const ALL: [Family; 17] = [
        Family::OperationDuration,
        Family::TimeToFirstChunk,
        Family::TokenUsage,
        Family::ExecuteToolDuration,
        Family::InvokeAgentDuration,
        Family::Tokens,
        Family::ModelCalls,
        Family::LocalAnswers,
        Family::ModelCallsUnmetered,
        Family::ToolCalls,
        Family::GuardrailDecisions,
        Family::GuardrailBypassed,
        Family::RecoveryDecisions,
        Family::Anomalies,
        Family::Invocations,
        Family::InvocationWaits,
        Family::Corrections,
    ];

    /// Label names, in the order in which a sample gives their values.
    pub fn labels(self) -> &'static [&'static str] {
        match self {
            Family::OperationDuration | Family::TimeToFirstChunk => &[
                "app",
                "gen_ai_operation_name",
                "gen_ai_provider_name",
                "gen_ai_response_model",
                "error_type",
            ],
            Family::TokenUsage => &[
                "app",
                "gen_ai_operation_name",
                "gen_ai_provider_name",
                "gen_ai_response_model",
                "gen_ai_token_type",
            ],
            Family::ExecuteToolDuration => &["app", "gen_ai_tool_name", "error_type"],
            Family::InvokeAgentDuration => &["app", "gen_ai_agent_name", "error_type"],
            Family::Tokens => &["app", "tenant", "model", "agent", "token_class"],
            Family::ModelCalls => &["app", "tenant", "model", "agent", "served_by", "status"],
            Family::LocalAnswers => &["app", "tenant", "served_by", "actor"],
            Family::ModelCallsUnmetered => &["app", "tenant", "model", "reason"],
            Family::ToolCalls => &["app", "tenant", "tool", "status"],
            Family::GuardrailDecisions => &[
                "app", "tenant", "policy", "stage", "decision", "action", "actor",
            ],
            Family::GuardrailBypassed => &["app", "tenant", "policy", "stage"],
            Family::RecoveryDecisions => &["app", "tenant", "phase", "action"],
            Family::Anomalies => &["app", "kind"],
            Family::Invocations => &["app", "status"],
            Family::InvocationWaits => &["app"],
            Family::Corrections => &["app", "field"],
        }
    }
}

/// What happens to a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The series exists from now on, at 0.
    Create,
    /// A counter rises.
    Add(u64),
    /// A histogram takes one sample: nanoseconds for durations, tokens for token usage.
    Observe(u64),
}

/// One move of one series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub family: Family,
    /// Values in the order of [`Family::labels`].
    pub labels: Box<[Name]>,
    pub change: Move,
    /// Log time that the partition had reached when this was derived; the pipeline says it.
    pub logged_at: LogTime,
    /// True where the daemon moves a counter again that a predecessor may have moved
    /// (`tachograph_facts_replayed_total`).
    pub is_replayed: bool,
}
