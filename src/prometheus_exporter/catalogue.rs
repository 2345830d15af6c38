//! Every metric family in one table: name, type, unit, labels, help, buckets (facts.md §5).
//!
//! Deliberately no values: cells live in `cell`, and what moves them in `own` and in the core's
//! samples. Cost and unpriced calls have no source yet; each is a row to add here.

use super::cell::Bounds;
use super::quantile;
use crate::core::sample::Family;
use std::fmt::Write as _;

/// Type of a family in the exposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram(&'static Bounds),
    Summary,
}

impl Kind {
    /// The word of the exposition format.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
            Kind::Summary => "summary",
        }
    }
}

/// What moves a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Samples of the core.
    Fact(Family),
    /// The same samples of latencies, in rolling windows.
    Latency,
    /// The daemon's own health; these are its label names.
    Own(Own, &'static [&'static str]),
    /// The `prometheus` crate's own collector, which also has the help texts.
    Process,
}

/// The families of the daemon's own health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    InvocationsOpen,
    RecordsRead,
    Lag,
    RetentionLost,
    LagSeconds,
    Records,
    DeadLetters,
    LogTime,
    Replaying,
    SegmentsHeld,
    HeldRecords,
    LimitReached,
    Facts,
    FactsLate,
    FactsReplayed,
    RowsInserted,
    InsertSeconds,
    InsertErrors,
    SinkUp,
    CompleteUpTo,
    Commits,
    Rebalances,
    SeriesFolded,
    StateFileUp,
    CountersCreated,
    InvariantViolations,
    BuildInfo,
}

/// One family: a row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub source: Source,
    pub name: &'static str,
    pub kind: Kind,
    /// What one unit of the value is.
    pub unit: &'static str,
    pub help: &'static str,
}

impl Entry {
    /// Label names, in the order in which values are given.
    pub fn labels(&self) -> &'static [&'static str] {
        match self.source {
            Source::Fact(family) => family.labels(),
            Source::Latency => quantile::LABELS,
            Source::Own(_, labels) => labels,
            Source::Process => &[],
        }
    }
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// Durations of calls, first chunks and tools: the GenAI conventions' boundaries and three more
/// doublings.
pub static CALL_SECONDS: Bounds = Bounds {
    upper: &doublings::<17>(10 * MS),
    per_unit: NANOS_PER_SECOND,
};

/// Durations of agents: the conventions' boundaries.
pub static AGENT_SECONDS: Bounds = Bounds {
    upper: &doublings::<13>(100 * MS),
    per_unit: NANOS_PER_SECOND,
};

/// Durations of inserts, which the conventions do not know: 2 ms to 65.536 s.
pub static INSERT_SECONDS: Bounds = Bounds {
    upper: &doublings::<16>(2 * MS),
    per_unit: NANOS_PER_SECOND,
};

/// Tokens of one call: the conventions' boundaries, powers of four.
pub static TOKENS: Bounds = Bounds {
    upper: &[
        1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216,
        67_108_864,
    ],
    per_unit: 1,
};

const fn doublings<const N: usize>(first: u64) -> [u64; N] {
    let mut bounds = [first; N];
    let mut at = 1;
    while at < N {
        bounds[at] = bounds[at - 1] * 2;
        at += 1;
    }
    bounds
}

const NONE: &[&str] = &[];
const PARTITION: &[&str] = &["topic", "partition"];
const TABLE: &[&str] = &["table"];

/// Every family: those of facts in the order of facts.md §5, the daemon's own in the order in which
/// a record passes it.
pub static FAMILIES: &[Entry] = &[
    row(
        Source::Fact(Family::OperationDuration),
        "gen_ai_client_operation_duration_seconds",
        Kind::Histogram(&CALL_SECONDS),
        "s",
        "Time from a model request to the last response with content. GenAI boundaries, \
         extended to 655.36 s.",
    ),
    row(
        Source::Fact(Family::TimeToFirstChunk),
        "gen_ai_client_operation_time_to_first_chunk_seconds",
        Kind::Histogram(&CALL_SECONDS),
        "s",
        "Time from a streaming request to the first chunk with generated content. GenAI \
         boundaries, extended to 655.36 s.",
    ),
    row(
        Source::Fact(Family::TokenUsage),
        "gen_ai_client_token_usage",
        Kind::Histogram(&TOKENS),
        "tokens",
        "Tokens of a model call, as input and as output, where they were reported.",
    ),
    row(
        Source::Fact(Family::ExecuteToolDuration),
        "gen_ai_execute_tool_duration_seconds",
        Kind::Histogram(&CALL_SECONDS),
        "s",
        "Execution time of a tool call, without waiting for people. GenAI boundaries, \
         extended to 655.36 s.",
    ),
    row(
        Source::Fact(Family::InvokeAgentDuration),
        "gen_ai_invoke_agent_duration_seconds",
        Kind::Histogram(&AGENT_SECONDS),
        "s",
        "Time from the start of an agent's run to its end.",
    ),
    row(
        Source::Fact(Family::Tokens),
        "tachograph_tokens_total",
        Kind::Counter,
        "tokens",
        "Tokens of model calls by disjoint class: the sum over the classes is what is \
         billed, as far as it was reported.",
    ),
    row(
        Source::Fact(Family::ModelCalls),
        "tachograph_model_calls_total",
        Kind::Counter,
        "calls",
        "Calls that a model answered or may have answered.",
    ),
    row(
        Source::Fact(Family::LocalAnswers),
        "tachograph_local_answers_total",
        Kind::Counter,
        "answers",
        "Answers that a hook or a cache gave instead of a model.",
    ),
    row(
        Source::Fact(Family::ModelCallsUnmetered),
        "tachograph_model_calls_unmetered_total",
        Kind::Counter,
        "calls",
        "Model calls without a usable token count, by reason.",
    ),
    row(
        Source::Fact(Family::ToolCalls),
        "tachograph_tool_calls_total",
        Kind::Counter,
        "calls",
        "Tool calls by how they ended.",
    ),
    row(
        Source::Fact(Family::GuardrailDecisions),
        "tachograph_guardrail_decisions_total",
        Kind::Counter,
        "decisions",
        "Guardrail decisions.",
    ),
    row(
        Source::Fact(Family::GuardrailBypassed),
        "tachograph_guardrail_bypassed_total",
        Kind::Counter,
        "decisions",
        "Guardrail decisions after which something that they forbid started nevertheless.",
    ),
    row(
        Source::Fact(Family::RecoveryDecisions),
        "tachograph_recovery_decisions_total",
        Kind::Counter,
        "decisions",
        "What error handlers decided.",
    ),
    row(
        Source::Fact(Family::Anomalies),
        "tachograph_anomalies_total",
        Kind::Counter,
        "anomalies",
        "Evidence that contradicts itself or is missing, by kind.",
    ),
    row(
        Source::Fact(Family::Invocations),
        "tachograph_invocations_total",
        Kind::Counter,
        "invocations",
        "Ends of invocations, under the status each was first exported with. A pause is no end.",
    ),
    row(
        Source::Fact(Family::InvocationWaits),
        "tachograph_invocation_waits_total",
        Kind::Counter,
        "segments",
        "Segments that ended or were released as waiting.",
    ),
    row(
        Source::Own(Own::InvocationsOpen, &["app"]),
        "tachograph_invocations_open",
        Kind::Gauge,
        "invocations",
        "Invocations in memory that have not ended.",
    ),
    row(
        Source::Fact(Family::Corrections),
        "tachograph_corrections_total",
        Kind::Counter,
        "the field's",
        "By how much counted values fell afterwards, a changed status counting 1. No counter \
         is ever decremented.",
    ),
    row(
        Source::Latency,
        "tachograph_model_latency_seconds",
        Kind::Summary,
        "s",
        "Latency of model calls by phase, as 50, 90, 99 and 99.9 % of the calls logged in this \
         minute and the four before did not exceed it. NaN where there were none.",
    ),
    row(
        Source::Own(Own::RecordsRead, PARTITION),
        "tachograph_records_read_total",
        Kind::Counter,
        "records",
        "Records read, by assigned partition.",
    ),
    row(
        Source::Own(Own::Lag, PARTITION),
        "tachograph_lag_records",
        Kind::Gauge,
        "records",
        "Records in the log that are not read yet. No series while unknown.",
    ),
    row(
        Source::Own(Own::RetentionLost, PARTITION),
        "tachograph_retention_lost_records_total",
        Kind::Counter,
        "records",
        "Records that retention removed before they were read: their rows and counts are missing.",
    ),
    row(
        Source::Own(Own::LagSeconds, NONE),
        "tachograph_lag_seconds",
        Kind::Gauge,
        "s",
        "How old the oldest unread record is, in the worst partition. No series while unknown.",
    ),
    row(
        Source::Own(Own::Records, &["outcome"]),
        "tachograph_records_total",
        Kind::Counter,
        "records",
        "Records by how they ended. The sum over the outcomes is what was read.",
    ),
    row(
        Source::Own(Own::DeadLetters, &["reason"]),
        "tachograph_dead_letters_total",
        Kind::Counter,
        "records",
        "Records that could not be read, by reason.",
    ),
    row(
        Source::Own(Own::LogTime, PARTITION),
        "tachograph_log_time_seconds",
        Kind::Gauge,
        "s since 1970",
        "The broker's time up to which the partition is read. No series before its first \
         record.",
    ),
    row(
        Source::Own(Own::Replaying, PARTITION),
        "tachograph_replaying",
        Kind::Gauge,
        "boolean",
        "1 until everything that a predecessor counted is passed.",
    ),
    row(
        Source::Own(Own::SegmentsHeld, NONE),
        "tachograph_segments_held",
        Kind::Gauge,
        "segments",
        "Segments of invocations in memory.",
    ),
    row(
        Source::Own(Own::HeldRecords, PARTITION),
        "tachograph_held_records",
        Kind::Gauge,
        "offsets",
        "Offsets from the oldest record still needed to the newest: what a restart reads again.",
    ),
    row(
        Source::Own(Own::LimitReached, &["limit"]),
        "tachograph_limit_reached_total",
        Kind::Counter,
        "times",
        "Times that a limit was reached, of the configuration or of the HTTP server.",
    ),
    row(
        Source::Own(Own::Facts, TABLE),
        "tachograph_facts_total",
        Kind::Counter,
        "facts",
        "Facts derived, every version of a row counted.",
    ),
    row(
        Source::Own(Own::FactsLate, NONE),
        "tachograph_facts_late_total",
        Kind::Counter,
        "facts",
        "Facts of records that came too late for their run: written, and not counted elsewhere.",
    ),
    row(
        Source::Own(Own::FactsReplayed, NONE),
        "tachograph_facts_replayed_total",
        Kind::Counter,
        "facts",
        "Facts that a crashed predecessor may have counted already.",
    ),
    row(
        Source::Own(Own::RowsInserted, TABLE),
        "tachograph_rows_inserted_total",
        Kind::Counter,
        "rows",
        "Rows that ClickHouse acknowledged.",
    ),
    row(
        Source::Own(Own::InsertSeconds, TABLE),
        "tachograph_insert_seconds",
        Kind::Histogram(&INSERT_SECONDS),
        "s",
        "Time of an acknowledged insert.",
    ),
    row(
        Source::Own(Own::InsertErrors, &["reason"]),
        "tachograph_insert_errors_total",
        Kind::Counter,
        "inserts",
        "Inserts and looks at the server that failed, by reason; inserts are tried again.",
    ),
    row(
        Source::Own(Own::SinkUp, NONE),
        "tachograph_sink_up",
        Kind::Gauge,
        "boolean",
        "1 while ClickHouse takes inserts, 0 while it does not.",
    ),
    row(
        Source::Own(Own::CompleteUpTo, NONE),
        "tachograph_complete_up_to_timestamp_seconds",
        Kind::Gauge,
        "s since 1970",
        "Everything older is in ClickHouse, of every assigned partition. No series while \
         unknown.",
    ),
    row(
        Source::Own(Own::Commits, &["result"]),
        "tachograph_commits_total",
        Kind::Counter,
        "commits",
        "Commits of a partition's marks.",
    ),
    row(
        Source::Own(Own::Rebalances, &["kind"]),
        "tachograph_rebalances_total",
        Kind::Counter,
        "rebalances",
        "Changes of the assignment.",
    ),
    row(
        Source::Own(Own::SeriesFolded, &["family"]),
        "tachograph_series_folded_total",
        Kind::Counter,
        "samples",
        "Samples counted under `other` because a label or the family has no room for more.",
    ),
    row(
        Source::Own(Own::StateFileUp, NONE),
        "tachograph_state_file_up",
        Kind::Gauge,
        "boolean",
        "1 while the state file can be written, 0 while a crash would count again. No series where \
         none is configured.",
    ),
    row(
        Source::Own(Own::CountersCreated, NONE),
        "tachograph_counters_created_timestamp_seconds",
        Kind::Gauge,
        "s since 1970",
        "When the oldest counter of facts began: before this process, where a state file is kept. \
         No series before the first count.",
    ),
    row(
        Source::Own(Own::InvariantViolations, &["invariant"]),
        "tachograph_invariant_violations_total",
        Kind::Counter,
        "violations",
        "Broken invariants of the program: anything but 0 is a bug.",
    ),
    row(
        Source::Own(Own::BuildInfo, &["version", "revision"]),
        "tachograph_build_info",
        Kind::Gauge,
        "constant",
        "Always 1. The labels say which build runs.",
    ),
    row(
        Source::Process,
        "process_cpu_seconds_total",
        Kind::Counter,
        "s",
        "Total user and system CPU time spent in seconds.",
    ),
    row(
        Source::Process,
        "process_open_fds",
        Kind::Gauge,
        "files",
        "Number of open file descriptors.",
    ),
    row(
        Source::Process,
        "process_max_fds",
        Kind::Gauge,
        "files",
        "Maximum number of open file descriptors.",
    ),
    row(
        Source::Process,
        "process_virtual_memory_bytes",
        Kind::Gauge,
        "bytes",
        "Virtual memory size in bytes.",
    ),
    row(
        Source::Process,
        "process_resident_memory_bytes",
        Kind::Gauge,
        "bytes",
        "Resident memory size in bytes.",
    ),
    row(
        Source::Process,
        "process_start_time_seconds",
        Kind::Gauge,
        "s since 1970",
        "Start time of the process since unix epoch in seconds.",
    ),
    row(
        Source::Process,
        "process_threads",
        Kind::Gauge,
        "threads",
        "Number of OS threads in the process.",
    ),
];

const fn row(
    source: Source,
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    help: &'static str,
) -> Entry {
    Entry {
        source,
        name,
        kind,
        unit,
        help,
    }
}

/// The table as Markdown, for the README.
pub fn markdown() -> String {
    let mut text = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for entry in FAMILIES {
        let labels: Vec<String> = entry.labels().iter().map(|l| format!("`{l}`")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            entry.name,
            entry.kind.as_str(),
            labels.join(", "),
            entry.help
        );
    }
    text
}

#[cfg(test)]
mod tests;
