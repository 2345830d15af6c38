//! `demo --once`: every figure in ClickHouse and in `/metrics` against the truth.
//!
//! Deliberately no tolerance: counts are equal or they are wrong.

use super::ledger::{Ledger, TAKEN_BACK, TOOL_CALLS, Truth, in_clickhouse, in_metrics};
use super::metrics::Scrape;
use super::producer::Progress;
use super::{DemoError, Stage};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// How long everything may take to arrive.
const SETTLE_MAX: Duration = Duration::from_secs(120);
/// How long nothing may move before all has arrived; batches are far younger.
const STILL_FOR: Duration = Duration::from_secs(2);
/// Between looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Between lines about the waiting where it is no terminal.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// How far the daemon is, out of one scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Arrived {
    records: u64,
    held: u64,
    facts: u64,
    rows: u64,
}

impl Arrived {
    fn of(scrape: &Scrape) -> Arrived {
        // Counters and gauges of whole things.
        let count = |name| scrape.sum(name) as u64;
        Arrived {
            records: count("tachograph_records_total"),
            held: count("tachograph_segments_held"),
            facts: count("tachograph_facts_total"),
            rows: count("tachograph_rows_inserted_total"),
        }
    }
}

/// Waits until all that was sent is read, every run is closed, and no row is under way any more.
/// False where the time is up first: comparing then shows what is missing.
pub fn wait(stage: &Stage<'_>, progress: &Progress) -> Result<bool, DemoError> {
    let began = Instant::now();
    let mut said = None;
    let mut last = (Arrived::default(), began);
    let is_settled = loop {
        if !stage.is_running() {
            return Err(DemoError::Interrupted);
        }
        let now = Arrived::of(&stage.scrape().unwrap_or_default());
        if now != last.0 {
            last = (now, Instant::now());
        }
        let is_all = progress.is_done() && now.records >= progress.sent() && now.held == 0;
        if is_all && now.records > 0 && last.1.elapsed() >= STILL_FOR {
            break true;
        }
        if began.elapsed() > SETTLE_MAX {
            break false;
        }
        say(now, progress, began, &mut said);
        std::thread::sleep(LOOK_EVERY);
    };
    if std::io::stdout().is_terminal() {
        super::put("\r\x1b[K");
    }
    Ok(is_settled)
}

/// One line, redrawn on a terminal and repeated seldom elsewhere.
fn say(now: Arrived, progress: &Progress, began: Instant, said: &mut Option<Instant>) {
    let line = format!(
        "settling: {} of {} records read, {} runs open, {} rows in ClickHouse, {} s",
        now.records,
        progress.sent(),
        now.held,
        now.rows,
        began.elapsed().as_secs()
    );
    if std::io::stdout().is_terminal() {
        super::put(&format!("\r\x1b[K{line}"));
    } else if said.is_none_or(|at| at.elapsed() >= SAY_EVERY) {
        *said = Some(Instant::now());
        super::put(&format!("{line}\n"));
    }
}

/// Compares, prints the table, and answers whether everything is equal.
pub fn compare(stage: &Stage<'_>, is_settled: bool) -> Result<bool, DemoError> {
    let truth = Truth::of(stage.recordings);
    let rows = in_clickhouse(stage.engine, super::DATABASE)?;
    let scrape = stage.scrape().map_err(DemoError::Metrics)?;
    let counters = in_metrics(&scrape);
    let verdict = Verdict::of(&truth, &rows, &counters);
    super::put(&verdict.table());
    let dead = scrape.sum("tachograph_dead_letters_total");
    let is_clean = is_settled && dead == 0.0;
    if !is_settled {
        super::put("not everything had arrived in time\n");
    }
    if dead > 0.0 {
        super::put(&format!("{dead} records could not be read\n"));
    }
    super::put(&format!(
        "\n{} figures of {} recordings compared; exceptions that are listed: {}; verdicts that no \
         guard declared, hence not told: {}\n",
        verdict.figures,
        stage.recordings.len(),
        truth.exceptions,
        truth.undeclared_verdicts,
    ));
    if !truth.counted.is_empty() {
        super::put("in brackets: a counter cannot fall where a later report takes tokens back\n");
    }
    let is_equal = verdict.differences.is_empty() && is_clean;
    super::put(match is_equal {
        true => "every figure in ClickHouse and in /metrics equals the truth\n",
        false => "FAILED: not every figure equals the truth\n",
    });
    Ok(is_equal)
}

/// One figure in one place.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    want: u64,
    got: u64,
}

/// What comparing came to.
#[derive(Debug, Default)]
struct Verdict {
    /// By figure, over all recordings: in ClickHouse, in `/metrics`; `None` where it is not told.
    sums: BTreeMap<String, [Option<Told>; 2]>,
    figures: u64,
    differences: Vec<String>,
}

impl Verdict {
    fn of(truth: &Truth, rows: &Ledger, counters: &Ledger) -> Verdict {
        let mut out = Verdict::default();
        let known = [&truth.ledger, &truth.counted, rows, counters];
        let keys: BTreeSet<_> = known.iter().flat_map(|ledger| ledger.keys()).collect();
        for key in keys {
            let of = |ledger: &Ledger| ledger.get(key).copied();
            let want = of(&truth.ledger).unwrap_or_default();
            let places = [
                ("ClickHouse", TAKEN_BACK, want, of(rows)),
                (
                    "/metrics",
                    TOOL_CALLS,
                    of(&truth.counted).unwrap_or(want),
                    of(counters),
                ),
            ];
            let (figure, app) = key;
            let sums = out.sums.entry(figure.clone()).or_default();
            for (sum, (place, untold, want, got)) in sums.iter_mut().zip(places) {
                if figure == untold {
                    continue;
                }
                let got = got.unwrap_or_default();
                let sum = sum.get_or_insert_default();
                sum.want += want;
                sum.got += got;
                out.figures += 1;
                if got != want {
                    let line = format!("{app}: {figure}: {got} in {place}, truly {want}");
                    out.differences.push(line);
                }
            }
        }
        out
    }

    fn table(&self) -> String {
        let mut out = String::new();
        let mut row = |cells: [&str; 5]| {
            let [figure, want, rows, counted, ok] = cells;
            let _ = writeln!(out, "{figure:<24}{want:>16}{rows:>12}{counted:>12}  {ok}");
        };
        row(["figure", "expected", "ClickHouse", "/metrics", "ok"]);
        for (figure, [rows, counted]) in &self.sums {
            let differs = format!(": {figure}: ");
            let is_ok = !self.differences.iter().any(|line| line.contains(&differs));
            let got =
                |told: &Option<Told>| told.map_or("-".to_owned(), |told| told.got.to_string());
            let want = match (rows, counted) {
                (Some(rows), Some(counted)) if rows.want != counted.want => {
                    format!("{} ({})", rows.want, counted.want)
                }
                (Some(told), _) | (None, Some(told)) => told.want.to_string(),
                (None, None) => String::new(),
            };
            let word = if is_ok { "yes" } else { "NO" };
            row([figure, &want, &got(rows), &got(counted), word]);
        }
        for difference in &self.differences {
            let _ = writeln!(out, "  {difference}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(figure: &str) -> (String, String) {
        (figure.to_owned(), "01_simple".to_owned())
    }

    #[test]
    fn a_difference_of_one_fails_in_either_place() {
        let truth = Truth {
            ledger: Ledger::from([(key("model calls"), 3)]),
            ..Truth::default()
        };
        let right = truth.ledger.clone();
        let wrong = Ledger::from([(key("model calls"), 4)]);
        assert!(Verdict::of(&truth, &right, &right).differences.is_empty());
        let none = Ledger::new();
        for (rows, counters) in [(&wrong, &right), (&right, &wrong), (&right, &none)] {
            let verdict = Verdict::of(&truth, rows, counters);
            assert_eq!(verdict.differences.len(), 1);
            assert!(verdict.table().contains("NO"), "{}", verdict.table());
        }
    }

    #[test]
    fn what_should_not_be_there_fails() {
        let stray: Ledger = Ledger::from([(key("verdicts deny"), 1)]);
        let verdict = Verdict::of(&Truth::default(), &stray, &Ledger::new());
        let says = "01_simple: verdicts deny: 1 in ClickHouse, truly 0";
        assert_eq!(verdict.differences, [says]);
    }

    #[test]
    fn a_counter_may_keep_what_a_later_report_took_back() {
        let truth = Truth {
            ledger: Ledger::from([(key("tokens answer"), 6)]),
            counted: Ledger::from([(key("tokens answer"), 25)]),
            ..Truth::default()
        };
        let counters = truth.counted.clone();
        assert!(
            Verdict::of(&truth, &truth.ledger, &counters)
                .differences
                .is_empty()
        );
    }
}
