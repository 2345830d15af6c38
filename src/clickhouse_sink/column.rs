//! Values of columns: instants, durations and words as the tables of facts.md §6 want them.
//!
//! It knows no table and no column name; `row` does.

use crate::core::event::DecisionWord;
use crate::core::fact::{Flag, Flags};
use crate::core::usage::UsageFlags;
use crate::core::{EventTime, LogTime, Name, Nanos};
use serde::ser::{Serialize, Serializer};

/// `DateTime64(9, 'UTC')`: nanoseconds since 1970.
pub type Instant = i64;
/// `Decimal(18, 6)` of milliseconds, which is a whole number of nanoseconds.
pub type Millis = i64;
/// `Decimal(38, 12)`: units of 10⁻¹² US dollars.
pub type Usd = i128;

/// 1900-01-01, the first instant of a `DateTime64(9)`.
pub const INSTANT_MIN: Instant = -2_208_988_800_000_000_000;
/// 2262-04-11, the last midnight of a `DateTime64(9)`.
pub const INSTANT_MAX: Instant = 9_223_286_400_000_000_000;
/// 2149-06-06, the last day of a `Date`, in milliseconds: partitions are days.
const LOG_TIME_MAX: i64 = 5_662_310_399_999;
/// Nanoseconds that a `Decimal(18, 6)` of milliseconds cannot hold any more (31.7 years).
const MILLIS_END: u64 = 1_000_000_000_000_000_000;

/// The instant, clamped to the range of the column (facts.md §6).
pub fn instant(at: EventTime) -> Instant {
    at.0.clamp(INSTANT_MIN, INSTANT_MAX)
}

/// The instant where it is known, clamped.
pub fn maybe_instant(at: Option<EventTime>) -> Option<Instant> {
    at.map(instant)
}

/// The broker's time, clamped to the days that a partition can be.
pub fn logged(at: LogTime) -> Instant {
    at.0.clamp(0, LOG_TIME_MAX) * 1_000_000
}

/// The table partition of a row, as days since 1970.
pub fn partition_day(segment_logged_at: LogTime) -> i64 {
    LogTime(segment_logged_at.0.clamp(0, LOG_TIME_MAX)).day()
}

/// The span where it is known and fits; never a clamp: a wrong latency is none (facts.md §4).
pub fn millis(span: Option<Nanos>) -> Option<Millis> {
    span.map(|span| span.0)
        .filter(|nanos| nanos.unsigned_abs() < MILLIS_END)
}

/// The text, or empty for unknown.
pub fn text(name: &Option<Name>) -> &str {
    name.as_deref().unwrap_or("")
}

/// The words of a row's flags, each once: `invalid_event_time` also where an instant was clamped.
pub fn words(
    flags: Flags,
    usage: Option<UsageFlags>,
    instants: &[Option<EventTime>],
) -> Vec<&'static str> {
    let mut flags = flags;
    if instants.iter().flatten().any(|at| instant(*at) != at.0) {
        flags.insert(Flag::InvalidEventTime);
    }
    let mut words: Vec<&'static str> = flags.iter().map(Flag::as_str).collect();
    for word in usage.into_iter().flat_map(UsageFlags::iter) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words
}

/// A `Map(LowCardinality(String), String)`.
pub struct Texts<'f>(pub &'f [(Name, Name)]);

impl Serialize for Texts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (&**key, &**value)))
    }
}

/// A `Map(LowCardinality(String), UInt64)` by name.
pub struct Counts<'f>(pub &'f [(Name, u32)]);

impl Serialize for Counts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, n)| (&**key, u64::from(*n))))
    }
}

/// A `Map(LowCardinality(String), UInt64)` by decision.
pub struct Findings<'f>(pub &'f [(DecisionWord, u32)]);

impl Serialize for Findings<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            self.0
                .iter()
                .map(|(word, n)| (word.as_str(), u64::from(*n))),
        )
    }
}

/// An `Array(LowCardinality(String))`.
pub struct Names<'f>(pub &'f [Name]);

impl Serialize for Names<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|name| &**name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_beyond_the_column_are_clamped_and_flagged() {
        let known = [Some(EventTime(i64::MIN)), None, Some(EventTime(0))];
        assert_eq!(
            words(Flags::default(), None, &known),
            ["invalid_event_time"]
        );
        assert_eq!(maybe_instant(known[0]), Some(INSTANT_MIN));
        assert_eq!(instant(EventTime(i64::MAX)), INSTANT_MAX);
        assert!(words(Flags::default(), None, &known[1..]).is_empty());
    }

    #[test]
    fn a_span_that_does_not_fit_is_unknown() {
        let limit = 1_000_000_000_000_000_000;
        assert_eq!(millis(Some(Nanos(limit))), None);
        assert_eq!(millis(Some(Nanos(i64::MIN))), None);
        assert_eq!(millis(Some(Nanos(limit - 1))), Some(limit - 1));
        assert_eq!(millis(Some(Nanos(-3_000_001))), Some(-3_000_001));
    }

    #[test]
    fn log_times_stay_within_the_days_of_a_partition() {
        assert_eq!(partition_day(LogTime(-1)), 0);
        assert_eq!(partition_day(LogTime(i64::MAX)), 65_535);
        assert_eq!(logged(LogTime(1_500)), 1_500_000_000);
    }
}
