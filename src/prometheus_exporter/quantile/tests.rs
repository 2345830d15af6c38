//! Quantiles of the exposition against sorted lists of the same samples.

use super::*;
use crate::core::sample::{Move, Sample};
use crate::prometheus_exporter::{Exporter, ExporterSettings, LabelLimits};
use proptest::prelude::*;

const METRIC: &str = "tachograph_model_latency_seconds";
/// A minute's beginning, in milliseconds since 1970.
const START_MS: i64 = 29_540_760 * MINUTE_MS;

fn latency(family: Family, app: &str, model: &str, nanos: u64, logged_at: LogTime) -> Sample {
    let labels = [app, "chat", "provider", model, ""];
    Sample {
        family,
        labels: labels.into_iter().map(Name::from).collect(),
        change: Move::Observe(nanos),
        logged_at,
        is_replayed: false,
    }
}

/// Lines of the exposition that begin with the metric's name.
fn lines(exporter: &Exporter, now: LogTime) -> Vec<String> {
    let text = exporter.render(now);
    let lines = text.lines().filter(|line| line.starts_with(METRIC));
    lines.map(str::to_owned).collect()
}

fn value(lines: &[String], series: &str) -> f64 {
    let line = lines.iter().find(|line| line.starts_with(series));
    let text = line.unwrap_or_else(|| panic!("{series} in {lines:?}"));
    text.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// What is observed: phase, app, nanoseconds, when it was logged and read, in ms from the start.
type Seen = (bool, bool, u64, i64, i64);

fn seen() -> impl Strategy<Value = Vec<Seen>> {
    let nanos = prop_oneof![
        0u64..5_000,
        0u64..2_000_000_000,
        0u64..100_000_000_000,
        // Beyond the largest value, too.
        0u64..8_000_000_000_000,
    ];
    let lag_ms = prop_oneof![Just(0i64), -90_000i64..3_000, 0i64..600_000];
    let step_ms = prop_oneof![0i64..2_000, 0i64..100_000, -400_000i64..400_000];
    let one = (any::<bool>(), any::<bool>(), nanos, lag_ms, step_ms);
    proptest::collection::vec(one, 0..120).prop_map(|steps| {
        let mut now = 0;
        let step = |(phase, app, nanos, lag, step)| {
            now += step;
            (phase, app, nanos, now - lag, now)
        };
        steps.into_iter().map(step).collect()
    })
}

/// The naive quantile: everything that counts at `now`, sorted; the value at the rank, as the upper
/// end of the bucket that hdrhistogram puts it into; seconds.
fn naive(samples: &[&Seen], now: i64, per_mille: u64) -> f64 {
    let mut nanos: Vec<u64> = samples
        .iter()
        .filter(|(.., logged, read)| {
            let minute = (*logged).min(*read).div_euclid(60_000);
            let (newest, when_read) = (now.div_euclid(60_000), read.div_euclid(60_000));
            minute > newest - 5 && minute <= newest && minute > when_read - 5
        })
        .map(|(_, _, nanos, ..)| *nanos)
        .collect();
    nanos.sort_unstable();
    if nanos.is_empty() {
        return f64::NAN;
    }
    let rank = (nanos.len() as u64 * per_mille).div_ceil(1_000);
    let exact = nanos[usize::try_from(rank).unwrap() - 1];
    let micros = ((exact + 500) / 1_000).min(MICROS_MAX);
    empty().highest_equivalent(micros) as f64 / 1e6
}

/// Takes note of `one` as the exporter does: of the minutes of one place, only the newest told.
fn keep(kept: &mut Vec<Seen>, one: &Seen) {
    let minute = |seen: &Seen| seen.3.min(seen.4).div_euclid(60_000);
    if one.4.div_euclid(60_000) - minute(one) >= 5 {
        return;
    }
    kept.retain(|other| {
        let is_same_series = (other.0, other.1) == (one.0, one.1);
        let is_same_place = (minute(other) - minute(one)) % 5 == 0;
        !is_same_series || !is_same_place || minute(other) == minute(one)
    });
    kept.push(*one);
}

fn family_of(one: &Seen) -> Family {
    [Family::OperationDuration, Family::TimeToFirstChunk][usize::from(one.0)]
}

fn app_of(one: &Seen) -> &'static str {
    ["desk", "shop"][usize::from(one.1)]
}

/// Compares one series with the samples that it was told: those of its window, and all.
fn compare(
    lines: &[String],
    labels: &str,
    kept: &[&Seen],
    all: &[&Seen],
    now: i64,
) -> Result<(), TestCaseError> {
    if all.is_empty() {
        prop_assert!(!lines.iter().any(|line| line.contains(labels)));
        return Ok(());
    }
    for (per_mille, word) in PER_MILLE.into_iter().zip(["0.5", "0.9", "0.99", "0.999"]) {
        let series = format!("{METRIC}{{{labels},quantile=\"{word}\"}}");
        let (got, right) = (value(lines, &series), naive(kept, now, per_mille));
        let is_right = got == right || got.is_nan() && right.is_nan();
        prop_assert!(is_right, "{series}: {got}, not {right}");
    }
    let sum: u128 = all.iter().map(|one| u128::from(one.2)).sum();
    let count = value(lines, &format!("{METRIC}_count{{{labels}}}"));
    prop_assert_eq!(count, all.len() as f64);
    let shown = value(lines, &format!("{METRIC}_sum{{{labels}}}"));
    prop_assert!((shown - sum as f64 / 1e9).abs() < 1e-9 * shown.max(1.0));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever comes whenever, also late, early and while the clock steps back: what is shown is
    /// what a sorted list says, and number and sum are those of all samples.
    #[test]
    fn quantiles_are_those_of_a_sorted_list(all in seen(), wait_ms in 0i64..400_000) {
        let exporter = Exporter::new(&ExporterSettings::default());
        let mut kept: Vec<Seen> = Vec::new();
        for one in &all {
            let (logged, now) = (LogTime(START_MS + one.3), LogTime(START_MS + one.4));
            let sample = latency(family_of(one), app_of(one), "m", one.2, logged);
            exporter.observe(&sample, now);
            keep(&mut kept, one);
        }
        let now = all.last().map_or(0, |one| one.4) + wait_ms;
        let lines = lines(&exporter, LogTime(START_MS + now));
        for (family, phase) in PHASES {
            for app in ["desk", "shop"] {
                let is_here = |one: &&Seen| family_of(one) == family && app_of(one) == app;
                let here: Vec<&Seen> = kept.iter().filter(is_here).collect();
                let ever: Vec<&Seen> = all.iter().filter(is_here).collect();
                let labels = format!("app=\"{app}\",model=\"m\",phase=\"{phase}\"");
                compare(&lines, &labels, &here, &ever, now)?;
            }
        }
    }
}

#[test]
fn a_minute_rolls_off_as_a_whole_and_nothing_is_no_number() {
    let exporter = Exporter::new(&ExporterSettings::default());
    let at = |ms: i64| LogTime(START_MS + ms);
    let tell = |ms: i64, millis: u64| {
        let family = Family::OperationDuration;
        let sample = latency(family, "desk", "m", millis * 1_000_000, at(ms));
        exporter.observe(&sample, at(ms));
    };
    tell(0, 9_000);
    tell(60_000, 100);
    let half = "tachograph_model_latency_seconds{app=\"desk\",model=\"m\",phase=\"completion\",\
                quantile=\"0.5\"}";
    let worst = half.replace("0.5", "0.999");
    let shown = |ms: i64, series: &str| value(&lines(&exporter, at(ms)), series);
    // 0.1 s lies in a bucket of 512 µs that ends at 0.100351 s, 9 s in one that ends at 9.043967 s.
    assert_eq!(shown(60_000, half), 0.100351);
    assert_eq!(shown(299_999, &worst), 9.043967);
    assert_eq!(shown(300_000, &worst), 0.100351);
    assert!(shown(360_000, &worst).is_nan());
    let text = lines(&exporter, at(360_000)).join("\n");
    assert!(text.contains("quantile=\"0.5\"} NaN"), "{text}");
    assert!(
        text.contains("_count{app=\"desk\",model=\"m\",phase=\"completion\"} 2"),
        "{text}"
    );
}

#[test]
fn a_backlog_moves_sums_and_not_the_window() {
    let exporter = Exporter::new(&ExporterSettings::default());
    let now = LogTime(START_MS);
    let observe = |millis: u64, age_ms: i64| {
        let logged_at = LogTime(START_MS - age_ms);
        let nanos = millis * 1_000_000;
        let family = Family::TimeToFirstChunk;
        exporter.observe(&latency(family, "desk", "m", nanos, logged_at), now);
    };
    for _ in 0..1_000 {
        observe(60_000, 3_600_000);
    }
    observe(10, 0);
    let lines = lines(&exporter, now);
    let series = |quantile: &str| {
        format!(
            "{METRIC}{{app=\"desk\",model=\"m\",phase=\"first_chunk\",quantile=\"{quantile}\"}}"
        )
    };
    assert!(value(&lines, &series("0.999")) < 0.0101);
    let count = format!("{METRIC}_count{{app=\"desk\",model=\"m\",phase=\"first_chunk\"}}");
    assert_eq!(value(&lines, &count), 1_001.0);
}

#[test]
fn series_beyond_the_budget_are_other() {
    let exporter = Exporter::new(&ExporterSettings {
        labels: LabelLimits {
            max_values: 3,
            ..LabelLimits::default()
        },
        ..ExporterSettings::default()
    });
    let now = LogTime(START_MS);
    for n in 0..10 {
        let model = format!("m{n}");
        let sample = latency(Family::OperationDuration, "desk", &model, 1_000_000, now);
        exporter.observe(&sample, now);
    }
    let lines = lines(&exporter, now);
    let count = format!("{METRIC}_count{{app=\"desk\",model=\"other\",phase=\"completion\"}}");
    assert_eq!(value(&lines, &count), 7.0);
    assert_eq!(
        lines.iter().filter(|line| line.contains("_count")).count(),
        4
    );
}

#[test]
fn only_latencies_of_models_come_here() {
    let labels = ["desk", "m", "ok", "x", "y"].map(Name::from);
    for family in Family::ALL {
        let is_phase = PHASES.iter().any(|(of, _)| *of == family);
        assert_eq!(labels_of(family, &labels).is_some(), is_phase, "{family:?}");
    }
}

#[test]
fn memory_is_bounded() {
    let bytes = empty().distinct_values() * size_of::<u32>();
    assert_eq!(bytes, 13_312, "of one minute of one series");
    let limits = limits(&LabelLimits::default());
    let most = bytes * MINUTES * limits.max_series_per_family;
    assert!(most < 64 << 20, "{most}");
}
