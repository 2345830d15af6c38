//! Waiting for a level, with a deadline: the only place where a test sleeps.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

/// Asks `probe` until it has an answer.
///
/// # Panics
/// After `within`, with `what`.
pub fn until<T>(what: &str, within: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(started.elapsed() < within, "not within {within:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Asks `probe` until it answers `expected`.
///
/// # Panics
/// After `within`, with `what` and the last answer.
pub fn until_eq<T: PartialEq + Debug>(
    what: &str,
    within: Duration,
    expected: T,
    mut probe: impl FnMut() -> T,
) {
    let started = Instant::now();
    loop {
        let seen = probe();
        if seen == expected {
            return;
        }
        assert!(
            started.elapsed() < within,
            "not within {within:?}: {what}: expected {expected:?}, last seen {seen:?}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}
