//! How long the views take over a one-hour window of a table with many days in it.
//!
//! Twenty million model calls are made inside ClickHouse, spread evenly over thirty days, a
//! twentieth of them in two versions, and nothing is merged by hand. Run with `cargo bench
//! --features demo --bench views`; `ROWS=1000000` makes fewer, `TEST_CLICKHOUSE`
//! (tests/support/engine.rs) names another server.
#![cfg(feature = "demo")]

#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};
use support::engine::Database;
use tachograph::clickhouse_sink::{SinkConfig, schema};

const DAYS: u64 = 30;
/// Inserts that make a day.
const PIECES: u64 = 6;
/// Rounds of each query, of which the best and the median are told.
const ROUNDS: usize = 5;
/// The window: an hour of the fifteenth day.
const WINDOW: &str = "from = '2026-03-16 12:00:00', to = '2026-03-16 13:00:00'";

fn main() {
    let rows = std::env::var("ROWS").map_or(20_000_000, |text| {
        text.parse().expect("ROWS is a number of rows")
    });
    let database = Database::create("views");
    schema::apply_blocking(&config(&database)).expect("a schema");
    let started = Instant::now();
    fill(&database, rows);
    let parts = "SELECT count(), sum(rows) FROM system.parts WHERE active AND table = 'model_calls' \
                 AND database = currentDatabase()";
    println!(
        "{rows} model calls over {DAYS} days, made in {:.0} s: parts and rows {}",
        started.elapsed().as_secs_f64(),
        database.query(parts).trim()
    );
    for (name, sql) in queries() {
        let mut took: Vec<Duration> = (0..ROUNDS)
            .map(|_| {
                let started = Instant::now();
                database.query(&sql);
                started.elapsed()
            })
            .collect();
        took.sort();
        println!(
            "{name:44} best {:7.3} s, median {:7.3} s of {ROUNDS}",
            took[0].as_secs_f64(),
            took[ROUNDS / 2].as_secs_f64()
        );
    }
}

fn config(database: &Database) -> SinkConfig {
    let (user, password) = (database.user(), database.password());
    SinkConfig::new(database.url(), database.name.clone(), user, password)
}

fn queries() -> Vec<(&'static str, String)> {
    vec![
        (
            "v_model_calls_between, every column",
            format!("SELECT * FROM v_model_calls_between({WINDOW}) FORMAT Null"),
        ),
        (
            "v_model_calls_between, a dashboard's sums",
            format!(
                "SELECT model, count(), sum(input_total), sum(output_total), \
                 quantiles(0.5, 0.99)(toFloat64(completion_ms)) \
                 FROM v_model_calls_between({WINDOW}) GROUP BY model"
            ),
        ),
        (
            "v_usage_daily_between",
            format!("SELECT * FROM v_usage_daily_between({WINDOW}, tz = 'UTC') FORMAT Null"),
        ),
        (
            "v_invocations_between",
            format!("SELECT * FROM v_invocations_between({WINDOW}) FORMAT Null"),
        ),
    ]
}

/// A piece of a day at a time, each call and then a newer version of some; four calls an
/// invocation.
fn fill(database: &Database, rows: u64) {
    let day = rows / DAYS;
    let piece = day / PIECES;
    for from in (0..DAYS * PIECES).map(|number| number * piece) {
        for (step, version) in [(1, 1), (20, 2)] {
            database.query(&calls(from, piece / step, step, version, day));
        }
        database.query(&invocations(from / 4, piece / 4, day / 4));
    }
}

/// The instant of row `i`, where a day has `day` rows.
fn instant(day: u64) -> String {
    format!(
        "toDateTime64('2026-03-02 00:00:00', 9, 'UTC') + toIntervalMillisecond(intDiv(i * 86400000, {day}))"
    )
}

/// `count` model calls, each `step`th from row `from` on.
fn calls(from: u64, count: u64, step: u64, version: u64, day: u64) -> String {
    let at = instant(day);
    format!(
        "INSERT INTO model_calls (tenant, app, invocation_id, session_id, segment, call_key, \
         call_id, branch, agent, seq, operation, model, requested_model, provider, served_by, \
         status, attempts, streaming, started_at, first_chunk_at, ended_at, billed_at, ttfc_ms, \
         completion_ms, measured, chunks, usage_state, input_total, input_uncached, cache_read, \
         output_total, reasoning, total, cost_usd, list_cost_usd, finish_reason, \
         finish_reason_raw, sources, trace_id, span_id, event_id, segment_logged_at, first_topic, \
         first_offset, last_topic, last_offset, schema_version, version) \
         WITH {from} + number * {step} AS i, intDiv(i, 4) AS run, \
         hex(sipHash128(run)) AS id, {at} AS at \
         SELECT 't-' || toString(run % 4), 'app-' || toString(run % 16), 'e-' || id, \
         's-' || toString(intDiv(run, 3)), 'g-' || id, 'c-' || hex(sipHash64(i)) AS key, key, \
         if(i % 3 = 0, 'fan.alpha', ''), 'agent-' || toString(i % 30), i % 4, 'chat', \
         'model-' || toString(i % 12) AS name, name, 'gcp.gemini', 'model', \
         if(i % 50 = 0, 'error', 'ok'), 1, true, at, at + toIntervalMillisecond(200 + i % 700), \
         at + toIntervalMillisecond(900 + i % 4000) AS end, end, toDecimal64(200 + i % 700, 6), \
         toDecimal64(900 + i % 4000, 6), 'wrapper', i % 90, 'reported', 150 + sipHash64(i) % 9000 AS input, \
         input, 0, sipHash64(i, 1) % 2000 AS output, 0, input + output AS sum, \
         toDecimal128(sum, 12) / 1000000 AS cost, cost, 'stop', 'STOP', ['adk', 'lifecycle'], \
         hex(sipHash128(run, 1)), hex(sipHash64(i, 2)), 'ev-' || hex(sipHash64(i, 3)), \
         toDateTime64('2026-03-02 00:00:00', 9, 'UTC') \
             + toIntervalMillisecond(intDiv(run * 4 * 86400000, {day})), \
         'agent-events', i * 4, 'agent-events', i * 4 + 3, 1, {version} FROM numbers({count})"
    )
}

/// `count` invocations from number `from` on.
fn invocations(from: u64, count: u64, day: u64) -> String {
    let at = instant(day);
    format!(
        "INSERT INTO invocations (tenant, app, invocation_id, session_id, segment, status, \
         started_at, ended_at, wall_ms, root_agent, runtime, own_model_call_count, \
         own_usage_complete, own_input_total, own_output_total, own_total, tool_call_count, \
         records, segment_logged_at, first_topic, first_offset, last_topic, last_offset, \
         schema_version, version) \
         WITH {from} + number AS i, hex(sipHash128(i)) AS id, {at} AS at \
         SELECT 't-' || toString(i % 4), 'app-' || toString(i % 16), 'e-' || id, \
         's-' || toString(intDiv(i, 3)), 'g-' || id, 'completed', at, \
         at + toIntervalMillisecond(9000), toDecimal64(9000, 6), 'desk', 'adk-python', 4, true, \
         sipHash64(i) % 40000 AS input, sipHash64(i, 1) % 9000 AS output, input + output, 3, 17, \
         at, 'agent-events', i * 16, 'agent-events', i * 16 + 15, 1, 1 FROM numbers({count})"
    )
}
