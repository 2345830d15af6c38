//! Properties of the core over any log: how records are polled, batched, settled or read again must
//! not show in the rows.
//!
//! `PROPTEST_CASES` sets the number of cases. The simulation has the faults; here each property
//! stands alone, so that a failure names what broke.

mod ledger;
mod log;
mod process;
mod usage;

use log::{EPOCH_MS, Logged, junk, threads, weave};
use process::{Life, P, Pace, Sink};
use proptest::prelude::*;
use tachograph::core::ledger::Watermark;

/// Few cases by default: the whole file stays within seconds.
fn cases() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|text| text.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(64),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn pace() -> impl Strategy<Value = Pace> {
    (1usize..40, 0usize..4, 0usize..9, 0usize..9).prop_map(
        |(batch_facts_max, settle_lag, tick_every, poll_every)| Pace {
            batch_facts_max,
            settle_lag,
            tick_every,
            poll_every,
        },
    )
}

fn picks() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(any::<u32>(), 1..40)
}

/// A woven log whose broker times rise by `steps`, over and over.
fn logged(payloads: Vec<Vec<u8>>, steps: &[i64]) -> Vec<Logged> {
    let mut at = EPOCH_MS;
    let steps = steps.iter().cycle();
    payloads
        .into_iter()
        .zip(steps)
        .map(|(payload, step)| {
            at += step;
            Logged {
                logged_at_ms: at,
                payload: Some(payload),
            }
        })
        .collect()
}

/// A log in which some segments are released before it ends, some records come late.
fn any_log() -> impl Strategy<Value = Vec<Logged>> {
    let steps = prop::collection::vec(prop_oneof![4 => 0i64..4, 1 => 20i64..200], 1..20);
    (threads(), picks(), steps)
        .prop_map(|(threads, picks, steps)| logged(weave(&threads, &picks), &steps))
}

fn rows(log: &[Logged], pace: Pace) -> Sink {
    let mut sink = Sink::default();
    Life::begin(log, None, pace).finish(&mut sink);
    sink
}

/// No mark of a later commit lies before the same mark of an earlier one.
fn check_monotone(commits: &[Watermark]) -> Result<(), TestCaseError> {
    for pair in commits.windows(2) {
        prop_assert!(
            pair[0].exported_below <= pair[1].exported_below,
            "{} then {}",
            pair[0],
            pair[1]
        );
        prop_assert!(pair[0].abandoned_before <= pair[1].abandoned_before);
        prop_assert!(pair[0].observed_below <= pair[1].observed_below);
        prop_assert!(pair[0].observed_before <= pair[1].observed_before);
    }
    for marks in commits {
        prop_assert!(marks.resume_from <= marks.exported_below, "{marks}");
        prop_assert!(marks.exported_below <= marks.observed_below, "{marks}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn polls_and_batches_do_not_show_in_the_rows(log in any_log(), pace in pace()) {
        prop_assert_eq!(rows(&log, pace), rows(&log, Pace::PLAIN));
    }

    #[test]
    fn other_invocations_do_not_show_in_the_rows(
        threads in threads(),
        one in picks(),
        other in picks(),
    ) {
        // All at one log time: silence is about other records too.
        let a = rows(&logged(weave(&threads, &one), &[0]), Pace::PLAIN);
        let b = rows(&logged(weave(&threads, &other), &[0]), Pace::PLAIN);
        prop_assert_eq!(a.without_offsets(), b.without_offsets());
    }

    #[test]
    fn restarts_do_not_show_in_the_rows(
        log in any_log(),
        pace in pace(),
        crashes in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>()), 1..5),
    ) {
        let mut ends: Vec<(usize, u32)> = crashes
            .iter()
            .map(|(at, lands)| (at.index(log.len() + 1), *lands))
            .collect();
        ends.sort_unstable();
        let mut sink = Sink::default();
        let mut committed = None;
        let mut commits = Vec::new();
        for (end, lands) in ends {
            let mut life = Life::begin(&log, committed, pace);
            life.read_to(end, &mut sink);
            commits.extend(life.crash(lands, &mut sink));
            committed = commits.last().copied();
        }
        let (_, last) = Life::begin(&log, committed, pace).finish(&mut sink);
        commits.extend(last);
        prop_assert_eq!(sink, rows(&log, Pace::PLAIN));
        check_monotone(&commits)?;
    }

    #[test]
    fn handing_over_in_order_does_not_show_in_the_rows(
        log in any_log(),
        at in any::<prop::sample::Index>(),
    ) {
        let mut sink = Sink::default();
        let mut first = Life::begin(&log, None, Pace::PLAIN);
        first.read_to(at.index(log.len() + 1), &mut sink);
        let marks = first.pipeline.hand_over(P);
        first.crash(0, &mut sink);
        Life::begin(&log, marks, Pace::PLAIN).finish(&mut sink);
        prop_assert_eq!(sink, rows(&log, Pace::PLAIN));
    }

    #[test]
    fn every_record_ends_in_exactly_one_way(
        log in any_log(),
        strays in prop::collection::vec((any::<prop::sample::Index>(), junk()), 0..12),
        pace in pace(),
    ) {
        let mut log = log;
        for (at, payload) in strays {
            let at = at.index(log.len() + 1);
            let logged_at_ms = log.get(at).map_or(EPOCH_MS, |logged| logged.logged_at_ms);
            log.insert(at, Logged { logged_at_ms, payload });
        }
        let mut sink = Sink::default();
        let mut life = Life::begin(&log, None, pace);
        life.read_to(log.len(), &mut sink);
        let letters = life.letters;
        let (ended, commits) = life.finish(&mut sink);
        prop_assert_eq!(ended.read, log.len() as u64);
        prop_assert_eq!(ended.dead_lettered, letters);
        let tombstones = log.iter().filter(|logged| logged.payload.is_none()).count();
        prop_assert_eq!(ended.tombstones, tombstones as u64);
        let ways = ended.applied + ended.ignored + ended.duplicates;
        prop_assert_eq!(ended.read, ways + ended.tombstones + ended.dead_lettered);
        check_monotone(&commits)?;
    }
}
