//! Thousands of seeded histories of crashes, rebalances and broken edges, each compared with a
//! stupid second
//! implementation that reads the whole log at once.
//!
//! `SIM_SEEDS` is the number of seeds a mix, `SIM_SEED` one seed, `SIM_MIX` one mix; `SIM_TRACE=1`
//! prints
//! every input.

mod compare;
mod faults;
mod flights;
mod group;
mod hosts;
mod oracle;
#[path = "../support/rows.rs"]
mod rows;
mod spoil;
mod tables;
mod workload;
mod world;

use faults::{Fault, MIXES, Mix, Silence};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tables::Tally;
use world::World;

/// Seeds of a mix where the environment names no other number.
const SEEDS: u64 = 200;
/// Threads that share the seeds of one mix.
const THREADS: usize = 2;

/// Mixes run one after the other, so that each one's time can be told.
static TURN: Mutex<()> = Mutex::new(());
/// Set by the first failure; with `SIM_STOP` the mixes after it are left out.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number of seeds"))
}

/// One history, and what is wrong with its outcome.
fn history(seed: u64, mix: &Mix) -> Result<Tally, String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(seed, mix);
        let limits = &world.settings.limits;
        let silence = Silence::new(limits.silence_max, limits.tool_silence_max);
        let expected = oracle::expect(&world.log, silence);
        world.expect_letters(expected.letters.keys().copied());
        world.run()?;
        compare::verdict(&world, &expected)?;
        if world.faults.has(Fault::MadeAnew) {
            world.make_anew(seed);
            let expected = oracle::expect(&world.log, silence);
            world.expect_letters(expected.letters.keys().copied());
            world.run()?;
            compare::verdict(&world, &expected)?;
        }
        let mut tally = world.tally.clone();
        tally.segments = expected.segments;
        tally.headless = expected.headless;
        Ok(tally)
    }));
    outcome.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panicked: {}", text.unwrap_or_default()))
    })
}

fn run(mix: &Mix) {
    if std::env::var("SIM_MIX").is_ok_and(|name| name != mix.name) {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if HAS_FAILED.load(Ordering::Relaxed) && std::env::var_os("SIM_STOP").is_some() {
        return;
    }
    let (first, below) = match number("SIM_SEED") {
        Some(seed) => (seed, seed + 1),
        None => (0, number("SIM_SEEDS").unwrap_or(SEEDS)),
    };
    let started = Instant::now();
    let next = AtomicU64::new(first);
    let total = Mutex::new(Tally::default());
    let failures: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= below || !failures.lock().expect("whole").is_empty() {
                        return;
                    }
                    match history(seed, mix) {
                        Ok(tally) => total.lock().expect("whole").add(&tally),
                        Err(error) => failures.lock().expect("whole").push((seed, error)),
                    }
                }
            });
        }
    });
    let (total, mut failures) = (
        total.lock().expect("whole"),
        failures.lock().expect("whole"),
    );
    failures.sort();
    if let Some((seed, error)) = failures.first() {
        let name = mix.name;
        HAS_FAILED.store(true, Ordering::Relaxed);
        panic!("{error}\nSIM_SEED={seed} SIM_MIX={name} cargo test --test simulation");
    }
    let (name, seeds) = (mix.name, below - first);
    eprintln!(
        "{name}: {seeds} seeds in {:.1} s: {total}",
        started.elapsed().as_secs_f64()
    );
}

macro_rules! mixes {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let name = stringify!($name);
            run(MIXES.iter().find(|mix| mix.name == name).expect("a mix of this name"));
        })*

        #[test]
        fn every_mix_is_run() {
            let names = [$(stringify!($name)),*];
            assert!(MIXES.iter().map(|mix| mix.name).eq(names));
        }
    };
}

mixes! {
    calm crashes graceful out_of_time zombies flaky_sink lost_acks backpressure poison_strays
    pauses quiet state_files state_take_over made_anew retention create_time everything
}
