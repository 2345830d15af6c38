//! What came out against what the log alone says.

use std::collections::{BTreeMap, BTreeSet};

use indicatif::ProgressBar;
use tachograph::config::{Config, Needs};
use tachograph::core::fact::Table;
use tachograph::replay::{Records as _, TopicReader};

use crate::reference::Reference;
use crate::stage::{Series, Stage};
use crate::support::engine::Database;
use crate::support::kafka::PATIENCE;
use crate::support::wait;

/// Views that add nothing but what rows say.
const VIEWS: [&str; 6] = [
    "v_invocations",
    "v_model_calls",
    "v_tool_calls",
    "v_guardrail_audit",
    "v_unmetered",
    "v_timeline",
];

/// Counters of facts, beside `tachograph_corrections_total` all that can be held to account.
const COUNTERS: [&str; 12] = [
    "tachograph_tokens_total",
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
    "tachograph_corrections_total",
];

/// Counters that one fact moves by one.
fn is_count(family: &str) -> bool {
    !["tachograph_tokens_total", "tachograph_corrections_total"].contains(&family)
}

/// Lines of a difference that are shown.
const SHOWN: usize = 10;

/// Panics with what is wrong.
pub fn all(stage: &mut Stage, reference: &mut Reference) {
    reference.read();
    rows(&stage.database, &reference.database);
    counters(stage, &reference.series());
    letters(stage, &reference.quarantined);
    let eaten = stage.eaten;
    eprintln!("  the same: {}, {eaten} records eaten", reference.tally());
}

fn rows(got: &Database, right: &Database) {
    let tables = Table::ALL.into_iter().map(|table| {
        let name = table.as_str();
        (name, format!("SELECT * FROM {name} FINAL"))
    });
    let views = VIEWS.map(|name| (name, format!("SELECT * FROM {name}")));
    for (name, select) in tables.chain(views) {
        let (lost, extra) = difference(&lines(right, &select), &lines(got, &select));
        let more = lost.len().max(extra.len()).saturating_sub(SHOWN);
        assert!(
            lost.is_empty() && extra.is_empty(),
            "{name} (- must be there, + must not; {more} more):\n{}\n{}",
            shown("-", &lost),
            shown("+", &extra)
        );
    }
}

/// Rows as text, every column of them, and how often each is there.
fn lines(database: &Database, select: &str) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    for line in database.query(select).lines() {
        *lines.entry(line.to_owned()).or_default() += 1;
    }
    lines
}

fn difference(
    right: &BTreeMap<String, usize>,
    got: &BTreeMap<String, usize>,
) -> (Vec<String>, Vec<String>) {
    let missing = |of: &BTreeMap<String, usize>, from: &BTreeMap<String, usize>| {
        let lines = of.iter();
        let lines = lines.filter(|(line, count)| from.get(*line).unwrap_or(&0) < *count);
        lines.map(|(line, _)| line.clone()).collect()
    };
    (missing(right, got), missing(got, right))
}

fn shown(mark: &str, lines: &[String]) -> String {
    let lines = lines.iter().take(SHOWN);
    let lines: Vec<String> = lines.map(|line| format!("  {mark} {line}")).collect();
    lines.join("\n")
}

/// Sums over hosts are what each record once comes to, or more by what was said to be again.
fn counters(stage: &mut Stage, right: &Series) {
    let names = |series: &str| family_of(series).to_owned();
    let right: Series = right
        .iter()
        .filter(|(series, _)| COUNTERS.contains(&family_of(series)))
        .map(|(series, value)| (series.clone(), *value))
        .collect();
    let got = wait::until("a scrape that shows all", PATIENCE, || {
        let got = sums(stage);
        let is_there = |(series, least): (&String, &f64)| got.get(series).unwrap_or(&0.0) >= least;
        right.iter().all(is_there).then_some(got)
    });
    let replayed: f64 = stage.hosts.iter().map(|host| host.replayed()).sum();
    let mut ahead: BTreeMap<String, f64> = BTreeMap::new();
    for (series, value) in &got {
        let excess = value - right.get(series).unwrap_or(&0.0);
        if excess > 0.0 {
            *ahead.entry(names(series)).or_default() += excess;
        }
    }
    let is_too_much = |(family, excess): &(&String, &f64)| {
        replayed == 0.0 || is_count(family) && **excess > replayed
    };
    let wrong: Vec<_> = ahead.iter().filter(is_too_much).collect();
    assert!(
        wrong.is_empty(),
        "counted again: {wrong:?}; {replayed} facts were said to be"
    );
    eprintln!("  counted again: {ahead:?}, of {replayed} facts that may be");
}

fn family_of(series: &str) -> &str {
    series.split('{').next().unwrap_or(series)
}

fn sums(stage: &mut Stage) -> Series {
    let mut sums = Series::new();
    for host in &mut stage.hosts {
        if host.daemon.is_some() {
            host.scrape();
        }
        let ours = host.seen.iter();
        for (series, value) in ours.filter(|(name, _)| COUNTERS.contains(&family_of(name))) {
            *sums.entry(series.clone()).or_default() += value;
        }
    }
    sums
}

/// Every record that cannot be read has a dead letter, and no other has.
fn letters(stage: &Stage, right: &BTreeSet<(i32, i64)>) {
    let text = format!("[kafka]\nbrokers = \"{}\"\n", stage.brokers());
    let config = Config::parse(&text, Needs::Nothing, &|_| None).expect("a right file");
    let opened = TopicReader::open(&config.kafka, &stage.letters(), ProgressBar::hidden());
    let mut reader = opened.unwrap_or_else(|error| panic!("{error}"));
    let mut got = BTreeSet::new();
    while let Some(letter) = reader.next_record().expect("it can be read") {
        let number = |name: &str| {
            let header = letter.headers.iter().find(|(key, _)| key == name)?;
            let text = String::from_utf8(header.1.clone()?).ok()?;
            text.parse::<i64>().ok()
        };
        let partition = number("tachograph_partition").expect("a header");
        let partition = i32::try_from(partition).expect("few");
        got.insert((partition, number("tachograph_offset").expect("a header")));
    }
    assert_eq!(got, *right, "dead letters");
}
