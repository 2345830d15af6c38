//! Rolling windows of latencies: one hdrhistogram for each minute that has samples.
//!
//! Deliberately without a clock: what time it is is an argument. A sample belongs to the minute in
//! which its cause was logged, not to the one in which it was read, so that a backlog cannot pass
//! for what happens now: it moves `_sum` and `_count` alone. A restart begins with an empty window,
//! since nothing below the predecessor's `observed` gives a sample again.

use super::cell::Summary;
use super::label::LabelLimits;
use crate::core::sample::Family;
use crate::core::{LogTime, Name};
use hdrhistogram::Histogram;

/// The minutes of a window: the current one and the four before it. Shorter windows show noise at
/// p99.9, longer ones what is over; rolling by a fifth hides no step for more than a minute.
const MINUTES: usize = 5;
const MINUTE_MS: i64 = 60_000;

/// Two significant digits: a value is at most 0.8 % too large. A third one costs seven times the
/// memory and says nothing that a sample of a few minutes could tell.
const SIGNIFICANT_DIGITS: u8 = 2;
/// Values from a microsecond to an hour, which stands for everything longer.
const MICROS_MAX: u64 = 3_600_000_000;
const NANOS_PER_MICRO: u64 = 1_000;

/// Series of this family at most: each may hold five histograms of 13 KB.
const SERIES_MAX: usize = 1_000;

/// The quantiles shown, in thousandths.
pub const PER_MILLE: [u64; 4] = [500, 900, 990, 999];

/// Labels of the family; the quantile is the exposition's own.
pub const LABELS: &[&str] = &["app", "model", "phase"];

/// The families whose samples come here as well, with the phase they measure.
pub const PHASES: [(Family, &str); 2] = [
    (Family::TimeToFirstChunk, "first_chunk"),
    (Family::OperationDuration, "completion"),
];

/// The series of a sample in this family; `None` where the sample is no latency of a model.
pub fn labels_of(family: Family, labels: &[Name]) -> Option<[Name; 3]> {
    let (_, phase) = PHASES.iter().find(|(of, _)| *of == family)?;
    let value = |name: &str| {
        let at = family.labels().iter().position(|label| *label == name)?;
        labels.get(at).cloned()
    };
    Some([
        value("app")?,
        value("gen_ai_response_model")?,
        Name::from(*phase),
    ])
}

/// The budgets of the family: as configured, but for the memory that a series takes here.
pub fn limits(labels: &LabelLimits) -> LabelLimits {
    LabelLimits {
        max_series_per_family: labels.max_series_per_family.min(SERIES_MAX),
        ..labels.clone()
    }
}

/// One series: all its samples by number and sum, the newest by minute.
#[derive(Default)]
pub struct Windows {
    /// The minute `m` has the place `m mod MINUTES`.
    minutes: [Option<Minute>; MINUTES],
    count: u64,
    sum: u128,
}

/// The samples of one minute, counted from 1970.
struct Minute {
    at: i64,
    micros: Histogram<u32>,
}

impl Windows {
    /// Takes one sample of `nanos`, whose cause was logged at `logged_at`; `now` is the wall clock.
    /// A log time ahead of it counts as now.
    pub fn observe(&mut self, nanos: u64, logged_at: LogTime, now: LogTime) {
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(u128::from(nanos));
        let at = minute_of(logged_at.min(now));
        if !is_shown(at, now) {
            return;
        }
        let place = &mut self.minutes[place_of(at)];
        // Of the minutes of one place only one can be shown; after a step of the clock the other
        // may also lie ahead.
        let kept = place.take().filter(|minute| minute.at == at);
        let minute = place.insert(kept.unwrap_or_else(|| Minute {
            at,
            micros: empty(),
        }));
        minute.micros.saturating_record(micros_of(nanos));
    }

    /// The window as it stands at `now`. Minutes that have rolled off are let go.
    pub fn summary(&mut self, now: LogTime) -> Summary {
        let mut window = empty();
        for place in &mut self.minutes {
            match place {
                Some(minute) if is_shown(minute.at, now) => window
                    .add(&minute.micros)
                    .expect("both have the same bounds"),
                _ => *place = None,
            }
        }
        Summary {
            quantiles: quantiles(&window),
            count: self.count,
            sum: self.sum,
        }
    }
}

/// By nearest rank: the smallest recorded value that so many of the samples do not exceed, as the
/// upper end of its bucket, in nanoseconds. `None` where there are no samples.
fn quantiles(window: &Histogram<u32>) -> Vec<(u64, Option<u64>)> {
    let mut recorded = window.iter_recorded();
    let (mut seen, mut value) = (0, None);
    let ranks = PER_MILLE.map(|per_mille| (per_mille, (window.len() * per_mille).div_ceil(1_000)));
    let quantile = |(per_mille, rank)| {
        while seen < rank {
            let Some(next) = recorded.next() else { break };
            seen += next.count_since_last_iteration();
            value = Some(next.value_iterated_to() * NANOS_PER_MICRO);
        }
        (per_mille, value)
    };
    ranks.into_iter().map(quantile).collect()
}

/// To the nearest microsecond, half upwards.
fn micros_of(nanos: u64) -> u64 {
    let micros = nanos.saturating_add(NANOS_PER_MICRO / 2) / NANOS_PER_MICRO;
    micros.min(MICROS_MAX)
}

fn empty() -> Histogram<u32> {
    Histogram::new_with_bounds(1, MICROS_MAX, SIGNIFICANT_DIGITS)
        .expect("the bounds are constants that a test uses")
}

fn minute_of(time: LogTime) -> i64 {
    time.0.div_euclid(MINUTE_MS)
}

fn is_shown(minute: i64, now: LogTime) -> bool {
    let age = minute_of(now).saturating_sub(minute);
    (0..MINUTES as i64).contains(&age)
}

fn place_of(minute: i64) -> usize {
    minute.rem_euclid(MINUTES as i64) as usize
}

#[cfg(test)]
mod tests;
