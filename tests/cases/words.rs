//! The closed words of facts.md and rules.md: a value of `expect` that is none of them is a mistake.

use super::vocabulary::Kind::{self, Word};

pub const RUN_STATUS: Kind = Word(&[
    "open",
    "waiting",
    "completed",
    "completed_inferred",
    "error",
    "cancelled",
    "limited",
    "intercepted",
    "incomplete",
]);
pub const AGENT_STATUS: Kind = Word(&[
    "open",
    "completed",
    "completed_inferred",
    "error",
    "cancelled",
    "transferred",
    "intercepted",
    "incomplete",
    "unknown",
]);
pub const CALL_STATUS: Kind = Word(&["ok", "error", "blocked", "cancelled", "incomplete"]);
pub const TOOL_STATUS: Kind = Word(&[
    "ok",
    "error",
    "refused",
    "deferred",
    "skipped",
    "cancelled",
    "timeout",
    "unanswered",
]);
pub const STAGE: Kind = Word(&[
    "run_input",
    "model_input",
    "model_output",
    "tool_input",
    "tool_output",
    "run_output",
]);
pub const DECISION: Kind = Word(&["allow", "deny", "modify", "warn", "escalate"]);
pub const ANOMALY: &[&str] = &[
    "orphan_end",
    "clock_skew",
    "usage_shrank",
    "verdict_not_enforced",
    "unmetered_call",
    "duplicate_answer",
    "producer_gap",
    "starved_meter",
    "edit_lost",
    "hook_error",
    "retry_cap",
    "leaked_timer",
    "split_invocation",
    "limit_reached",
    "retention_loss",
];
/// Words of rules.md §9; `flags` of a row may hold kinds of anomalies besides.
pub const FLAG: &[&str] = &[
    "usage_from_partial",
    "zero_usage_placeholder",
    "cache_unreported",
    "invalid_usage_field",
    "implausible_usage",
    "source_conflict",
    "usage_from_agent_span",
    "ambiguous_pairing",
    "event_time_not_arrival",
    "lifecycle_incomplete",
    "invalid_event_time",
    "usage_basis_guessed",
    "total_mismatch",
    "usage_field_conflict",
    "usage_part_exceeds_whole",
    "model_differs",
    "id_conflict",
    "tool_id_reused",
    "invocation_id_repaired",
    "partial_flag_lost",
    "cross_host_latency",
    "implausible_latency",
    "event_time_far_from_append",
    "unmapped_decision",
    "start_unseen",
    "split_invocation",
    "limited",
    "late",
    "read_bom",
    "read_duplicate_keys",
    "read_invalid_utf8",
    "read_lone_surrogate",
    "read_nonstandard_json",
];
pub const REASON: Kind = Word(&[
    "invalid_json",
    "too_deep",
    "too_large",
    "empty",
    "no_envelope",
    "no_invocation_id",
]);
pub const SERVED_BY: Kind = Word(&["model", "hook", "cache", "none", "unknown"]);
