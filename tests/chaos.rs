//! Faults against the real parts: three brokers, the engine behind a bad wire, daemons as
//! processes.
//!
//! A seeded plan of faults strikes while recorded runs are written, with transactions, aborted
//! ones, redeliveries, poison and tombstones among them. `CHAOS_SEED=` repeats a plan (not its
//! timing), `CHAOS_FAULTS=` says how many faults, `CHAOS_KINDS=` of which kinds. `cargo test` has
//! one of each kind, `make chaos` fifty.
//!
//! After each round everything comes to rest, and is held against what the log alone says:
//!
//! - **Rows.** Every table with `FINAL`, and the views, must be the same, every column of every
//!   row, as when the facts of a replay of the topic are inserted by an undisturbed sink into a
//!   database of their own: nothing lost, doubled or different. What comes to rest is decided by
//!   the log: once every run was silent for `silence_max`, a tombstone in each partition makes log
//!   time pass, for daemon and replay alike.
//! - **Counters.** Every series of facts, summed over the hosts, is at least what a pipeline counts
//!   that reads each record once. It may be more only after a takeover from a crash or from a
//!   member that was given up, by no more facts than `tachograph_facts_replayed_total` showed. Each
//!   host keeps a state file, so that a kill loses no count that was shown, and a life begins with
//!   what the one before it had. Histograms restart with their process and are not compared.
//! - **Dead letters.** Exactly the records that the replay quarantined have one or more.
//! - **Retention.** What it ate is in `tachograph_retention_lost_records_total`, to the record, and
//!   in the log. Rows of what was read before stay.
#![cfg(feature = "demo")]

#[path = "chaos/compare.rs"]
mod compare;
#[path = "chaos/faults.rs"]
mod faults;
#[path = "chaos/reference.rs"]
mod reference;
#[path = "chaos/stage.rs"]
mod stage;
mod support;
#[path = "chaos/workload.rs"]
mod workload;

use faults::Fault;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use reference::Reference;
use stage::Stage;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};
use workload::Workload;

/// Recordings that a round writes, or a few more: about 15 records each.
const RECORDINGS: usize = 40;

/// A number that the environment gives.
fn given<T: FromStr<Err: Display>>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(error) => panic!("{name}={text}: {error}"),
    }
}

/// Rounds of faults in which each kind occurs as often as any other, give or take one.
/// `CHAOS_KINDS=zombie,retention` leaves the others out.
fn plan(dice: &mut StdRng, count: usize) -> Vec<Vec<Fault>> {
    let wanted = given::<String>("CHAOS_KINDS");
    let is_wanted = |fault: &Fault| {
        let words = wanted.as_ref().map(|words| words.split(',').map(str::trim));
        words.is_none_or(|mut words| words.any(|word| word == fault.name()))
    };
    let all_kinds: Vec<Fault> = Fault::ALL.into_iter().filter(is_wanted).collect();
    assert!(!all_kinds.is_empty(), "no fault is called {wanted:?}");
    let mut all = Vec::new();
    while all.len() < count {
        let mut kinds = all_kinds.clone();
        kinds.shuffle(dice);
        all.extend(kinds);
    }
    all.truncate(count);
    // Few rounds for a few faults, since each ends with a wait for silence.
    let per_round = if count > Fault::ALL.len() { 2 } else { 4 };
    let rounds = all.chunks(per_round).map(<[Fault]>::to_vec);
    rounds.collect()
}

#[test]
fn nothing_is_lost_doubled_or_different() {
    let seed = given("CHAOS_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.expect("after 1970").as_secs() % 100_000
    });
    let count = given("CHAOS_FAULTS").unwrap_or(Fault::ALL.len());
    eprintln!("CHAOS_SEED={seed} CHAOS_FAULTS={count}");
    let mut dice = StdRng::seed_from_u64(seed);
    let rounds = plan(&mut dice, count);
    let mut stage = Stage::new();
    let mut reference = Reference::new(&stage);
    let mut workload = Workload::default();
    let mut done: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, mut faults) in rounds.into_iter().enumerate() {
        eprintln!("round {number}: {faults:?}");
        // Nothing else is unread then.
        faults.sort_by_key(|fault| *fault != Fault::Retention);
        let size = RECORDINGS + dice.random_range(0..4);
        let mut round = workload.round(&mut dice, size, faults.len());
        for fault in &faults {
            stage.strike(*fault, &mut round, &mut workload, &mut dice);
            *done.entry(fault.name()).or_default() += 1;
        }
        round.write_all(&stage, &mut dice);
        stage.come_to_rest();
        compare::all(&mut stage, &mut reference);
    }
    stage.leave();
    let faults: usize = done.values().sum();
    eprintln!("{faults} faults, 0 rows lost, doubled or different: {done:?}");
    eprintln!("{}", reference.tally());
}
