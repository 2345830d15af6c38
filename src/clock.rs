//! The only place that asks what time it is.
//!
//! Deliberately two answers that do not mix: the monotonic time since the start, by which the
//! daemon acts, and the wall clock, which only bounds what others claim.

use crate::core::{LogTime, Now};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The process's clocks; copies agree.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
}

impl Clock {
    /// Starts counting.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Clock {
        Clock {
            started: Instant::now(),
        }
    }

    /// Monotonic time since the start.
    pub fn now(&self) -> Now {
        Now(self.started.elapsed())
    }

    /// The wall clock, in milliseconds since 1970.
    pub fn wall(&self) -> LogTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let ms = since.map_or(0, |since| since.as_millis());
        LogTime(i64::try_from(ms).unwrap_or(i64::MAX))
    }
}
