//! Three clocks that must not meet: the emitter's, the broker's, the process's.
//!
//! No arithmetic crosses from one type to another, and none of them can read a clock.

use std::time::Duration;

/// An instant by an emitter's wall clock, in nanoseconds since 1970. May be stale, coarse or run
/// backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventTime(pub i64);

/// An instant by the broker's clock (LogAppendTime), in milliseconds since 1970; the same on every
/// replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogTime(pub i64);

/// An instant of the process's monotonic clock, counted from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Now(pub Duration);

/// A signed span of time in nanoseconds. As a fact it is printed in exact decimal milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub i64);

impl EventTime {
    /// The span from `earlier` to this instant; negative where the clock says so.
    pub fn since(self, earlier: EventTime) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl LogTime {
    /// This instant moved on by `span`, in whole milliseconds.
    pub fn plus(self, span: Duration) -> LogTime {
        let ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        LogTime(self.0.saturating_add(ms))
    }

    /// The UTC day of this instant, counted from 1970-01-01.
    pub fn day(self) -> i64 {
        self.0.div_euclid(86_400_000)
    }
}

/// The broker's time as an event time: the one place where it stands in for an unusable one
/// (events.md §3).
pub fn stand_in(log: LogTime) -> EventTime {
    EventTime(log.0.saturating_mul(1_000_000))
}

/// By how much an event was older than its append, negative where it claims the future
/// (architecture.md §11).
pub fn lateness(event: EventTime, log: LogTime) -> Nanos {
    Nanos(stand_in(log).0.saturating_sub(event.0))
}

impl Nanos {
    /// Milliseconds as exact decimal text without trailing zeros: `450`, `0.25`, `-3.000001`.
    pub fn to_ms_text(self) -> String {
        let sign = if self.0 < 0 { "-" } else { "" };
        let abs = self.0.unsigned_abs();
        let (whole, rest) = (abs / 1_000_000, abs % 1_000_000);
        if rest == 0 {
            return format!("{sign}{whole}");
        }
        let digits = format!("{rest:06}");
        format!("{sign}{whole}.{}", digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_exact() {
        for (nanos, text) in [
            (450_000_000, "450"),
            (250_000, "0.25"),
            (-3_000_001, "-3.000001"),
            (0, "0"),
        ] {
            assert_eq!(Nanos(nanos).to_ms_text(), text);
        }
    }

    #[test]
    fn a_day_before_1970_is_negative() {
        assert_eq!(LogTime(-1).day(), -1);
    }
}
