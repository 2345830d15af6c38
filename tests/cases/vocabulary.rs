//! Every name that an `expect` block may use, what its value is, and which harness can tell.
//!
//! The names are those of facts.md and of section 7 of the README here. A name, a word, a step or
//! a config key that is not in these tables fails its case: an expectation that nobody reads would
//! hold for ever.

use super::words::*;
use Harness::{Billing, ClickHouse, Prices, Prometheus, Replay, Steps};
use Kind::{
    Contains, Exactly, InOrder, Instant, Map, Money, Number, Object, Rows, Text, Truth, Word,
};

/// Who can tell what a name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harness {
    Replay,
    Steps,
    ClickHouse,
    Prometheus,
    /// The daily reports.
    Billing,
    /// The price book, which this build has not: a part of the README's `billing`.
    Prices,
}

impl Harness {
    pub fn as_str(self) -> &'static str {
        match self {
            Replay => "replay",
            Steps => "steps",
            ClickHouse => "clickhouse",
            Prometheus => "prometheus",
            Billing => "billing",
            Prices => "a price book",
        }
    }

    pub fn parse(word: &str) -> Option<Harness> {
        [Replay, Steps, ClickHouse, Prometheus, Billing]
            .into_iter()
            .find(|harness| harness.as_str() == word)
    }
}

/// What the value of a name is, and so how it matches (README, section 5).
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    Number,
    Truth,
    /// RFC 3339, equal as instants.
    Instant,
    /// A decimal string, equal as a decimal.
    Money,
    /// A list that must hold each word given; all words are of these lists where there are any.
    Contains(&'static [&'static [&'static str]]),
    /// A list that must hold exactly these words, in any order.
    Exactly,
    /// A list that must hold exactly these words in this order.
    InOrder,
    Object(&'static [Name]),
    /// Each expected object matches a row of its own.
    Rows(&'static [Name]),
    /// The expected objects match rows in their order.
    OrderedRows(&'static [Name]),
    /// Any key, each with such a value.
    Map(&'static Kind),
}

/// One name.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    pub name: &'static str,
    pub harness: Harness,
    pub kind: Kind,
}

const fn told(name: &'static str, kind: Kind) -> Name {
    Name {
        name,
        harness: Replay,
        kind,
    }
}

const fn by(harness: Harness, name: &'static str, kind: Kind) -> Name {
    Name {
        name,
        harness,
        kind,
    }
}

/// Steps and their fields (README, section 3).
pub const STEPS: &[(&str, &[&str])] = &[
    ("start", &[]),
    ("clock", &["now"]),
    ("flush", &[]),
    ("scrape", &["expect_tokens_input"]),
    ("crash", &["committed_offset"]),
    ("restart", &[]),
    (
        "rebalance",
        &["lost_partition", "committed_offset", "new_owner"],
    ),
    (
        "clickhouse_insert",
        &["rows", "rows_from_offsets", "batch", "retry", "result"],
    ),
    ("control_record", &["offset", "kind", "txn"]),
    ("log_end", &["offset"]),
    ("committed_offset", &["partition", "offset"]),
    ("topic_recreated", &["log_start", "log_end"]),
    ("replay_from", &["offset"]),
    ("no_merge_yet", &[]),
    ("query", &["sql"]),
    ("table_without_column", &["column"]),
    ("alter_table_add_column", &["column"]),
    ("price_table_reload", &[]),
    ("recompute_costs", &[]),
    (
        "generate",
        &[
            "count",
            "template",
            "time_field",
            "time_start",
            "time_step",
            "partitions",
        ],
    ),
];

/// facts.md §3, and what the README adds.
const USAGE: &[Name] = &[
    told("input_total", Number),
    told("input_uncached", Number),
    told("cache_read", Number),
    told("cache_write", Number),
    told("cache_write_5m", Number),
    told("cache_write_1h", Number),
    told("tool_use_input", Number),
    told("output_total", Number),
    told("output_text", Number),
    told("reasoning", Number),
    told("audio_input", Number),
    told("audio_output", Number),
    told("image_input", Number),
    told("image_output", Number),
    told("total", Number),
    told("provider_total", Number),
    told("unattributed", Number),
    told("raw_prompt", Text),
    told(
        "state",
        Word(&["reported", "partial", "missing", "invalid"]),
    ),
    told("model_call_count", Number),
    told("usage_missing_calls", Number),
    told("usage_complete", Truth),
];

const ACTOR: &[Name] = &[
    told(
        "type",
        Word(&["plugin", "callback", "hook", "provider", "service", "human"]),
    ),
    told("name", Text),
];
const COORDINATES: &[Name] = &[
    told("topic", Text),
    told("partition", Number),
    told("offset", Number),
];
const PARENT: &[Name] = &[
    told("invocation_id", Text),
    told("run_id", Text),
    told("call_id", Text),
    told("basis", Word(&["declared", "inferred"])),
];

/// The columns that rows of every table have.
macro_rules! row {
    ($($name:expr),* $(,)?) => {
        &[
            told("tenant", Text),
            told("app", Text),
            told("invocation_id", Text),
            told("segment", Text),
            told("session_id", Text),
            told("user_key", Text),
            told("first", Object(COORDINATES)),
            told("last", Object(COORDINATES)),
            told("version", Number),
            told("flags", Contains(&[FLAG, ANOMALY])),
            told("flagged", Truth),
            told("attributes", Map(&Text)),
            told("branch", Text),
            told("agent", Text),
            told("occurrence", Number),
            by(Steps, "amended", Truth),
            $($name),*
        ]
    };
}

const INVOCATION: &[Name] = row![
    told("status", RUN_STATUS),
    told("segments", Number),
    told("started_at", Instant),
    told("ended_at", Instant),
    told("wall_ms", Number),
    told("active_ms", Number),
    told("wait_ms", Number),
    told("root_agent", Text),
    told("trigger", Word(&["message", "resume", "api"])),
    told("runtime", Text),
    told("runtime_version", Text),
    told("parent", Object(PARENT)),
    told("limit", Text),
    told("error_code", Text),
    told("own", Object(USAGE)),
    told("with_descendants", Object(USAGE)),
    told("usage_complete", Truth),
    told("local_answer_count", Number),
    told("tool_call_count", Number),
    told("records", Number),
    told("order", InOrder),
    told("events", Number),
    told("user_messages", Number),
    told("retries", Number),
];

const BRANCH: &[Name] = row![
    told("parent_branch", Text),
    told("forked_at", Instant),
    told("joined_at", Instant),
    told("duration_ms", Number),
    told("own_ms", Number),
    told("waiting_ms", Number),
    told("own", Object(USAGE)),
    told("with_descendants", Object(USAGE)),
    told("tool_call_count", Number),
    told("records", Number),
    told("events", Number),
];

const AGENT_RUN: &[Name] = row![
    told("status", AGENT_STATUS),
    told("agent_kind", Text),
    told("node_path", Text),
    told("started_at", Instant),
    told("ended_at", Instant),
    told("duration_ms", Number),
    told("handoff_to", Text),
    told("error_code", Text),
    told("own", Object(USAGE)),
    told("tool_call_count", Number),
];

const MODEL_CALL: &[Name] = row![
    told("seq", Number),
    told("event", Text),
    told("call_id", Text),
    told("node_path", Text),
    told("operation", Text),
    told("model", Text),
    told("requested_model", Text),
    told("provider", Text),
    told("served_by", SERVED_BY),
    told("status", CALL_STATUS),
    told("attempts", Number),
    told("attempt_errors", Map(&Number)),
    told("streaming", Truth),
    told("started_at", Instant),
    told("ended_at", Instant),
    told("billed_at", Instant),
    told("ttfc_ms", Number),
    told("ttft_visible_ms", Number),
    told("completion_ms", Number),
    told("total_with_retries_ms", Number),
    told("measured", Word(&["wrapper", "hook", "native", "derived"])),
    told("usage", Object(USAGE)),
    told("tier", Text),
    told(
        "finish_reason",
        Word(&[
            "stop",
            "length",
            "tool_calls",
            "content_filter",
            "error",
            "other",
        ]),
    ),
    told("finish_reason_raw", Text),
    told("error_code", Text),
    told("sources", Exactly),
    told("trace_id", Text),
    told("span_id", Text),
    by(Prices, "cost_usd", Money),
    by(Prices, "list_cost_usd", Money),
    by(Prices, "provider_cost_usd", Money),
    by(Prices, "cost_state", Word(&["priced", "unpriced"])),
    by(Prices, "cost_is_lower_bound", Truth),
    by(Prices, "price_id", Text),
    by(Prices, "price_tier", Text),
];

const LOCAL_ANSWER: &[Name] = row![
    told("order", Number),
    told("served_by", SERVED_BY),
    told("actor", Object(ACTOR)),
    told("replayed_usage", Object(USAGE)),
    told("event", Text),
];

const TOOL: &[Name] = row![
    told("call_id", Text),
    told("execution", Number),
    told("tool", Text),
    told(
        "origin",
        Word(&["local", "mcp", "agent", "transfer", "unknown"])
    ),
    told("status", TOOL_STATUS),
    told("executed", Word(&["yes", "no", "unknown"])),
    told("started_at", Instant),
    told("ended_at", Instant),
    told("duration_ms", Number),
    told("wait_ms", Number),
    told("long_running", Truth),
    told("retries", Number),
    told("error_code", Text),
];

const TARGET: &[Name] = &[
    told("kind", Word(&["model", "tool", "run", "agent"])),
    told("call_id", Text),
    told("name", Text),
];

const VERDICT: &[Name] = row![
    told("stage", STAGE),
    told("order", Number),
    told("decided_at", Instant),
    told("decision", DECISION),
    told(
        "action",
        Word(&["none", "allow", "block", "modify", "confirm"])
    ),
    told("mode", Word(&["enforce", "monitor"])),
    told(
        "outcome",
        Word(&["decided", "failed_open", "failed_closed"])
    ),
    told("enforced", Truth),
    told("policy", Text),
    told("rule", Text),
    told("reason_code", Text),
    told("reason", Text),
    told("decision_native", Text),
    told("findings", Map(&Number)),
    told("entity_types", Exactly),
    told("actor", Object(ACTOR)),
    told("target", Object(TARGET)),
    told("duration_ms", Number),
    told("basis", Word(&["declared", "inferred", "provider"])),
    told("model_call_prevented", Truth),
    told("content_already_delivered", Truth),
];

const RECOVERY: &[Name] = row![
    told("phase", Word(&["model", "tool", "callback", "render"])),
    told("call_id", Text),
    told("attempt", Number),
    told("handler", Text),
    told(
        "action",
        Word(&["throw", "skip", "abort", "retry", "fallback", "pass"])
    ),
    told("error_code", Text),
];

const ANOMALY_ROW: &[Name] = row![
    told("kind", Word(ANOMALY)),
    told("about", Text),
    told("at", Instant),
    told("count", Number),
    told("detail", Text),
];

const COUNTERS: &[Name] = &[
    told("records", Number),
    told("records_quarantined", Number),
    told("tombstones", Number),
    told("duplicates_dropped", Number),
    told("usage_missing_calls", Number),
    told("invalid_usage_fields", Number),
    told("invalid_utf8_records", Number),
    told("nonstandard_json", Number),
    told("schema_prefix_stripped", Number),
    by(Steps, "late_amendments", Number),
    by(Steps, "offset_gaps", Number),
    by(Steps, "offset_resets", Number),
];

const QUARANTINED: &[Name] = &[
    told("topic", Text),
    told("partition", Number),
    told("offset", Number),
    told("reason", REASON),
];

const TIMELINE: &[Name] = &[told("id", Text), told("kind", Text), told("echo_of", Text)];

const PROCESS: &[Name] = &[
    told("alive", Truth),
    by(Steps, "peak_memory_growth_mib_max", Number),
];

const PLACES: &[&str] = &[
    "report",
    "prometheus",
    "clickhouse",
    "logs",
    "dead_letter_headers",
];
/// `never_appears_in`.
const NEVER_APPEARS: &[Name] = &[told("text", Text), told("places", Contains(&[PLACES]))];

const CLICKHOUSE: &[Name] = &[
    by(ClickHouse, "rows_visible", Number),
    by(ClickHouse, "sum_input_total", Number),
    by(ClickHouse, "sum_output_total", Number),
    by(Prices, "sum_cost_usd", Money),
    by(Prices, "cost_of_one_row_usd", Money),
    by(ClickHouse, "model_calls", Rows(MODEL_CALL)),
    by(ClickHouse, "insert_errors", Number),
    by(ClickHouse, "inserts_max", Number),
    by(ClickHouse, "partitions_touched_per_insert_max", Number),
    by(ClickHouse, "row_bytes_max", Number),
    by(ClickHouse, "columns_named_in_insert", Truth),
    by(
        ClickHouse,
        "cost_column",
        Object(&[
            by(ClickHouse, "integer_digits_min", Number),
            by(ClickHouse, "decimal_places_min", Number),
        ]),
    ),
];

const PROMETHEUS: &[Name] = &[
    by(Prometheus, "sum_of_increases", Map(&Number)),
    by(Prometheus, "label_names_never", Contains(&[])),
    by(Prometheus, "label_values_never", Contains(&[])),
    by(Prometheus, "text_contains", Contains(&[])),
    by(Prometheus, "scrape_parses", Truth),
    by(Prometheus, "output_is_valid_utf8", Truth),
    by(Prometheus, "series_per_metric_max", Number),
    by(Prometheus, "distinct_model_label_values_max", Number),
    by(Prometheus, "series_folded_min", Number),
    by(Prometheus, "finite_bucket_bounds", Exactly),
    by(Prometheus, "observations_only_in_inf_bucket", Number),
];

/// Families that a key of `prometheus` may select, as `name` or `name{label="value",…}`, the
/// histograms with `_count` and `_sum`.
pub const FAMILIES: &[&str] = &[
    "gen_ai_client_operation_duration_seconds",
    "gen_ai_client_operation_time_to_first_chunk_seconds",
    "gen_ai_client_token_usage",
    "gen_ai_execute_tool_duration_seconds",
    "gen_ai_invoke_agent_duration_seconds",
    "tachograph_tokens_total",
    "tachograph_cost_usd_total",
    "tachograph_unpriced_calls_total",
    "tachograph_model_calls_total",
    "tachograph_local_answers_total",
    "tachograph_model_calls_unmetered_total",
    "tachograph_tool_calls_total",
    "tachograph_guardrail_decisions_total",
    "tachograph_guardrail_bypassed_total",
    "tachograph_recovery_decisions_total",
    "tachograph_anomalies_total",
    "tachograph_invocations_total",
    "tachograph_invocation_waits_total",
    "tachograph_invocations_open",
    "tachograph_corrections_total",
    "tachograph_model_latency_seconds",
    "tachograph_facts_replayed_total",
    "tachograph_facts_late_total",
];

const AFTER_RESTART: &[Name] = &[
    by(Steps, "rereads_from_offset_max", Number),
    by(Steps, "clickhouse", Object(CLICKHOUSE)),
];

const BILLING: &[Name] = &[
    by(Prices, "complete", Truth),
    by(Prices, "cost_usd", Money),
    by(Billing, "input_total", Number),
    by(Billing, "output_total", Number),
    by(Prices, "unpriced_calls", Number),
    by(Prices, "unpriced_tokens", Number),
];

/// The names at the top of `expect`, and of `never`.
pub const TOP: &[Name] = &[
    told("invocation", Object(INVOCATION)),
    told("invocations", Rows(INVOCATION)),
    told("branches", Rows(BRANCH)),
    told("agent_runs", Rows(AGENT_RUN)),
    told("model_calls", Rows(MODEL_CALL)),
    told("local_answers", Rows(LOCAL_ANSWER)),
    told("tools", Rows(TOOL)),
    told("verdicts", Rows(VERDICT)),
    told("recoveries", Rows(RECOVERY)),
    told("anomalies", Rows(ANOMALY_ROW)),
    told("totals", Object(USAGE)),
    told("model_call_count", Number),
    told("tool_call_count", Number),
    told("counters", Object(COUNTERS)),
    told("quarantined", Rows(QUARANTINED)),
    told("flags", Contains(&[FLAG, ANOMALY])),
    told("flagged", Truth),
    told("invocation_count", Number),
    told("branch_count", Number),
    told("events_kept", Number),
    told("latency_samples", Number),
    told("sum_of_completion_ms", Number),
    told("served_from_cache", Number),
    told("replayed_usage", Object(USAGE)),
    told("by_agent", Map(&Object(USAGE))),
    told("any_order", Truth),
    told("exported_json_is_strict", Truth),
    told("output_is_valid_utf8", Truth),
    told("never_appears_in", Object(NEVER_APPEARS)),
    told("process", Object(PROCESS)),
    told("timeline", Kind::OrderedRows(TIMELINE)),
    told("timeline_contains", Contains(&[])),
    told("event_times", Map(&Instant)),
    by(Steps, "status_at", Map(&RUN_STATUS)),
    by(Steps, "state_entries_left", Number),
    by(Steps, "committed_offset", Number),
    by(Steps, "committed_offset_at_crash_max", Number),
    by(Steps, "after_restart", Object(AFTER_RESTART)),
    by(Steps, "first_offset_read", Number),
    by(Steps, "reported_lag", Number),
    by(Steps, "retries_of_bad_records_max", Number),
    by(
        Steps,
        "alerts",
        Contains(&[&["offset_out_of_range_reset_to_start", "schema_behind"]]),
    ),
    by(Steps, "readiness_while_behind", Word(&["degraded"])),
    by(Steps, "data_loss", Truth),
    by(Steps, "max_delay_to_visible_s", Number),
    by(
        Steps,
        "on_too_many_parts",
        Contains(&[&["back_off", "keep_batch", "no_commit", "no_drop"]]),
    ),
    by(ClickHouse, "clickhouse", Object(CLICKHOUSE)),
    by(ClickHouse, "rollup", Object(USAGE)),
    by(Prometheus, "prometheus", Object(PROMETHEUS)),
    by(Prices, "cost_usd", Money),
    by(Billing, "usage_daily", Map(&Map(&Object(USAGE)))),
    by(Billing, "billing", Object(BILLING)),
    by(Prices, "by_price_key", Map(&Object(MODEL_CALL_SUM))),
    by(Prices, "raw_model_preserved", Truth),
    by(Prices, "row_has", Contains(&[])),
    by(Prices, "cost_of_one_call_usd", Money),
    by(Prices, "cost_usd_after_recompute", Money),
];

const MODEL_CALL_SUM: &[Name] = &[
    by(Prices, "cost_usd", Money),
    by(Prices, "input_total", Number),
    by(Prices, "output_total", Number),
];
