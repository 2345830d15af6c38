//! What the recordings truly add up to, and the same figures out of ClickHouse and `/metrics`.
//!
//! Deliberately the same key everywhere, (figure, app), so that comparing is looking up. What is 0
//! has no entry.

use super::corpus::{EXCEPTIONS, EXPECTED, Recording};
use super::metrics::Scrape;
use crate::embedded::engine::{Engine, EngineError};
use serde_json::Value;
use std::collections::BTreeMap;

/// Counts by figure and app.
pub type Ledger = BTreeMap<(String, String), u64>;

/// A figure that only ClickHouse tells: there a tool call that was answered in a later segment is
/// one row of the view; a counter counts each segment's row.
pub const TOOL_CALLS: &str = "tool calls";
/// A figure that only counters tell: by how much tokens that were counted fell afterwards.
pub const TAKEN_BACK: &str = "tokens taken back";
const TOOL_ROWS: &str = "tool calls by segment";
const MODEL_CALLS: &str = "model calls";
const UNMETERED: &str = "unmetered calls";
const TOKENS: &str = "tokens";
const VERDICTS: &str = "verdicts";

/// The truth, less what the streams cannot tell.
#[derive(Debug, Default)]
pub struct Truth {
    pub ledger: Ledger,
    /// What counters say instead where a later report took something back: they never fall.
    pub counted: Ledger,
    /// Exceptions that change a figure.
    pub exceptions: u64,
    /// Verdicts of the truth that no guard declared.
    pub undeclared_verdicts: u64,
}

impl Truth {
    /// The truth of `recordings`.
    pub fn of(recordings: &[Recording]) -> Truth {
        let expected: Value = parsed(EXPECTED);
        let exceptions: Value = parsed(EXCEPTIONS);
        let mut truth = Truth::default();
        for recording in recordings {
            let file = format!("{}.ndjson", recording.name);
            let own: Vec<&Value> = list(&exceptions)
                .filter(|entry| {
                    entry["corpus"] == "adk-python"
                        && entry["stream"] == "lifecycle"
                        && entry["file"] == file.as_str()
                })
                .collect();
            truth.recording(recording, &expected["files"][&file], &own);
        }
        truth.ledger.retain(|_, count| *count > 0);
        truth
    }

    fn recording(&mut self, recording: &Recording, truth: &Value, exceptions: &[&Value]) {
        let app = recording.name;
        let is_told = |name: &str| {
            let untold = format!("{name}: not told");
            exceptions
                .iter()
                .all(|entry| entry["what"] != untold.as_str())
        };
        for (number, call) in (1..).zip(list(&truth["model_calls"])) {
            let agent = call["agent"].as_str().or(call["made_by"].as_str());
            match is_told(&format!("call {number} of {}", agent.unwrap_or_default())) {
                true => self.call(app, call),
                false => self.exceptions += 1,
            }
        }
        for (number, call) in (1..).zip(list(&truth["tool_calls"])) {
            let tool = call["tool"].as_str().unwrap_or_default();
            if !is_told(&format!("tool {number} {tool}")) {
                self.exceptions += 1;
                continue;
            }
            self.add(TOOL_CALLS, app, 1);
            let is_in_two = call["outcome"] == "pending_then_answered_by_user";
            self.add(TOOL_ROWS, app, 1 + u64::from(is_in_two));
        }
        for told in exceptions.iter().map(|entry| &entry["told"]) {
            self.exceptions += u64::from(!told.is_null());
            for (figure, count) in told.as_object().into_iter().flatten() {
                self.add(figure, app, count.as_u64().unwrap_or_default());
            }
        }
        for counted in exceptions.iter().map(|entry| &entry["counted"]) {
            for (figure, count) in counted.as_object().into_iter().flatten() {
                let key = (figure.clone(), app.to_owned());
                let count = count.as_u64().unwrap_or_default();
                self.counted.insert(key, count);
            }
        }
        self.verdicts(recording, truth);
    }

    fn call(&mut self, app: &str, call: &Value) {
        self.add(MODEL_CALLS, app, 1);
        let billed = &call["billed"];
        if billed.is_null() {
            // A call that failed before any answer owes no usage.
            self.add(UNMETERED, app, u64::from(call["outcome"] != "error"));
            return;
        }
        let count = |class: &str| billed[class].as_u64().unwrap_or_default();
        let parts = count("cached") + count("cache_creation") + count("tool_use");
        for (class, tokens) in [
            ("input_uncached", count("input").saturating_sub(parts)),
            ("cache_read", count("cached")),
            ("cache_write", count("cache_creation")),
            ("tool_use_input", count("tool_use")),
            ("answer", count("output").saturating_sub(count("thoughts"))),
            ("reasoning", count("thoughts")),
        ] {
            self.add(&format!("{TOKENS} {class}"), app, tokens);
        }
    }

    /// A verdict can be told where its guard declared it, or where it was the provider's.
    fn verdicts(&mut self, recording: &Recording, truth: &Value) {
        let mut declared = recording.declared_verdicts();
        for verdict in list(&truth["guardrail_verdicts"]) {
            let decision = match verdict["verdict"].as_str().unwrap_or_default() {
                "block" => "deny",
                "transform" => "modify",
                "requested" => "escalate",
                "pass" | "confirmed" => "allow",
                // An answer out of a cache or of an error handler is no verdict.
                _ => continue,
            };
            let known = declared.iter().position(|word| *word == decision);
            let is_provider = verdict["decider"] == "model_provider";
            if let Some(known) = known.filter(|_| !is_provider) {
                declared.remove(known);
            }
            match known.is_some() || is_provider {
                true => self.add(&format!("{VERDICTS} {decision}"), recording.name, 1),
                false => self.undeclared_verdicts += 1,
            }
        }
    }

    fn add(&mut self, figure: &str, app: &str, count: u64) {
        let key = (figure.to_owned(), app.to_owned());
        *self.ledger.entry(key).or_default() += count;
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("a test reads both embedded files")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The figures in ClickHouse, out of the views that people read.
///
/// # Errors
/// The engine is away, or refuses the query.
pub fn in_clickhouse(engine: &Engine, database: &str) -> Result<Ledger, EngineError> {
    let sql = format!(
        "SELECT figure, app, sum(n) FROM (
            SELECT '{MODEL_CALLS}' AS figure, app, count() AS n
            FROM {database}.v_model_calls WHERE served_by = 'model' GROUP BY app
            UNION ALL
            SELECT '{TOKENS} ' || part.1 AS figure, app, toUInt64(sum(ifNull(part.2, 0))) AS n
            FROM {database}.v_model_calls
            ARRAY JOIN [('input_uncached', input_uncached), ('cache_read', cache_read),
                ('cache_write', cache_write), ('tool_use_input', tool_use_input),
                ('answer', CAST(output_total - ifNull(reasoning, 0) AS Nullable(UInt64))),
                ('reasoning', reasoning)] AS part
            WHERE served_by = 'model' GROUP BY figure, app
            UNION ALL
            SELECT '{TOOL_CALLS}' AS figure, app, count() AS n
            FROM {database}.v_tool_calls GROUP BY app
            UNION ALL
            SELECT '{TOOL_ROWS}' AS figure, app, count() AS n
            FROM {database}.tool_calls FINAL GROUP BY app
            UNION ALL
            SELECT '{VERDICTS} ' || decision AS figure, app, count() AS n
            FROM {database}.guardrail_decisions FINAL GROUP BY figure, app
            UNION ALL
            SELECT '{UNMETERED}' AS figure, app, count() AS n
            FROM {database}.anomalies FINAL WHERE kind = 'unmetered_call' GROUP BY app
        ) GROUP BY figure, app HAVING sum(n) > 0 FORMAT TSV"
    );
    let rows = engine.query(&sql)?;
    let row = |line: &str| {
        let mut cells = line.split('\t').map(str::to_owned);
        let (figure, app) = (cells.next()?, cells.next()?);
        Some(((figure, app), cells.next()?.parse().ok()?))
    };
    Ok(rows.lines().filter_map(row).collect())
}

/// The figures of one scrape.
pub fn in_metrics(scrape: &Scrape) -> Ledger {
    let mut out = Ledger::new();
    for (metric, figure, label) in [
        ("tachograph_model_calls_total", MODEL_CALLS, ""),
        ("tachograph_tokens_total", TOKENS, "token_class"),
        ("tachograph_tool_calls_total", TOOL_ROWS, ""),
        ("tachograph_guardrail_decisions_total", VERDICTS, "decision"),
        ("tachograph_model_calls_unmetered_total", UNMETERED, ""),
        ("tachograph_corrections_total", TAKEN_BACK, ""),
    ] {
        for series in scrape.of_metric(metric) {
            let is_other = match figure {
                MODEL_CALLS => series.label("served_by") != "model",
                TAKEN_BACK => series.label("field") != TOKENS,
                _ => false,
            };
            if is_other {
                continue;
            }
            let figure = match label {
                "" => figure.to_owned(),
                label => format!("{figure} {}", series.label(label)),
            };
            let key = (figure, series.label("app").to_owned());
            // Counters are whole numbers, far below the 2^53 that a float holds exactly.
            *out.entry(key).or_default() += series.value as u64;
        }
    }
    out.retain(|_, count| *count > 0);
    out
}

#[cfg(test)]
mod tests {
    use super::super::corpus::recordings;
    use super::*;

    fn sum(ledger: &Ledger, figure: &str) -> u64 {
        let own = ledger.iter().filter(|((name, _), _)| name == figure);
        own.map(|(_, count)| count).sum()
    }

    #[test]
    fn the_truth_counts_what_happened_less_what_nobody_told() {
        let truth = Truth::of(&recordings());
        let expected: Value = parsed(EXPECTED);
        let files = expected["files"].as_object().unwrap();
        let happened: u64 = files
            .values()
            .map(|file| file["model_calls_that_happened"].as_u64().unwrap())
            .sum();
        // The summarizer's call is not told; a live session's reports stand as one call.
        assert_eq!(sum(&truth.ledger, MODEL_CALLS), happened - 1 + 1);
        assert_eq!(sum(&truth.ledger, UNMETERED), 1);
        let of = |figure: &str, app: &str| {
            let key = (figure.to_owned(), app.to_owned());
            truth.ledger.get(&key).copied().unwrap_or_default()
        };
        assert_eq!(of("tokens answer", "02_sse_cumulative_usage"), 21);
        assert_eq!(of("tokens reasoning", "02_sse_cumulative_usage"), 10);
        assert_eq!(of("tokens input_uncached", "02_sse_cumulative_usage"), 150);
        assert_eq!(of("tokens cache_write", "25_usage_shapes"), 40);
        assert_eq!(of("tool calls", "14c_task_mode_sub_agent"), 1);
        assert_eq!(of("verdicts deny", "24b_provider_block_and_max_tokens"), 2);
        assert_eq!(of("verdicts deny", "09_guardrail_before_model"), 1);
        assert_eq!(of("model calls", "22_live"), 1);
    }

    #[test]
    fn a_scrape_becomes_the_same_figures() {
        let scrape = Scrape::parse(
            "tachograph_tokens_total{app=\"a\",agent=\"x\",token_class=\"answer\"} 5\n\
             tachograph_tokens_total{app=\"a\",agent=\"y\",token_class=\"answer\"} 6\n\
             tachograph_model_calls_total{app=\"a\",served_by=\"unknown\"} 9\n",
        );
        let key = ("tokens answer".to_owned(), "a".to_owned());
        assert_eq!(in_metrics(&scrape), Ledger::from([(key, 11)]));
    }
}
