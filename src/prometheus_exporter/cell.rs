//! Cells of our own: exact integers, and how they become the `prometheus` crate's model.
//!
//! Deliberately neither names nor budgets: a cell does not know which series it is. The crate's own
//! counters are not used, since they cannot be restored and hold binary floats. Inside, what is
//! counted is an integer; the exposition has 64-bit floats, as Prometheus itself does, so a count
//! beyond 2^53 is printed rounded to 53 bits and goes on being counted exactly.

use crate::core::Name;
use prometheus::proto;
use std::fmt;

/// Upper bounds of a histogram's finite buckets, inclusive, in the smallest unit.
#[derive(Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Rising, in nanoseconds for durations, in tokens for token counts.
    pub upper: &'static [u64],
    /// How many smallest units make the exposition's unit: 10^9 where that is seconds.
    pub per_unit: u64,
}

impl Bounds {
    /// The bounds as the exposition prints them.
    pub fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        self.upper
            .iter()
            .map(|bound| in_units(u128::from(*bound), self.per_unit))
    }
}

/// The value of one series.
#[derive(Clone)]
pub enum Cell {
    Counter(u64),
    Gauge(f64),
    Histogram(Histogram),
    Summary(Summary),
}

/// Samples by bucket, their number and their exact sum.
#[derive(Clone)]
pub struct Histogram {
    bounds: &'static Bounds,
    /// One more than there are bounds: the last one holds what lies above them all. Not cumulative.
    buckets: Box<[u64]>,
    sum: u128,
}

impl Histogram {
    /// A histogram without samples.
    pub fn new(bounds: &'static Bounds) -> Histogram {
        Histogram {
            bounds,
            buckets: vec![0; bounds.upper.len() + 1].into(),
            sum: 0,
        }
    }

    /// Takes one sample, in the smallest unit of its bounds.
    pub fn observe(&mut self, value: u64) {
        let at = self.bounds.upper.partition_point(|bound| *bound < value);
        // `at` is at most the number of bounds, and there is one bucket more.
        self.buckets[at] = self.buckets[at].saturating_add(1);
        self.sum = self.sum.saturating_add(u128::from(value));
    }

    /// Samples so far.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn model(&self) -> proto::Histogram {
        let mut below = 0;
        let finite = self.bounds.iter().zip(&self.buckets).map(|(bound, count)| {
            below += count;
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(bound);
            bucket.set_cumulative_count(below);
            bucket
        });
        let mut model = proto::Histogram::default();
        model.set_bucket(finite.collect());
        model.set_sample_count(self.count());
        model.set_sample_sum(in_units(self.sum, self.bounds.per_unit));
        model
    }
}

/// What a rolling window shows, beside the number and the sum of all samples ever.
#[derive(Clone, Default)]
pub struct Summary {
    /// Thousandths and the value in nanoseconds; `None` while the window is empty.
    pub quantiles: Vec<(u64, Option<u64>)>,
    pub count: u64,
    /// Nanoseconds.
    pub sum: u128,
}

impl Summary {
    fn model(&self) -> proto::Summary {
        const NANOS_PER_SECOND: u64 = 1_000_000_000;
        let quantiles = self.quantiles.iter().map(|(per_mille, nanos)| {
            let mut quantile = proto::Quantile::default();
            quantile.set_quantile(*per_mille as f64 / 1_000.0);
            // As Prometheus' own clients show a window without samples.
            let seconds = nanos.map(|nanos| in_units(u128::from(nanos), NANOS_PER_SECOND));
            quantile.set_value(seconds.unwrap_or(f64::NAN));
            quantile
        });
        let mut model = proto::Summary::default();
        model.set_quantile(quantiles.collect());
        model.set_sample_count(self.count);
        model.set_sample_sum(in_units(self.sum, NANOS_PER_SECOND));
        model
    }
}

impl Cell {
    /// The crate's model of this cell under its labels.
    pub fn model(&self, labels: Vec<proto::LabelPair>) -> proto::Metric {
        let mut metric = proto::Metric::from_label(labels);
        match self {
            Cell::Counter(count) => {
                let mut counter = proto::Counter::default();
                // Rounds above 2^53; see the module.
                counter.set_value(*count as f64);
                metric.set_counter(counter);
            }
            Cell::Gauge(value) => {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(*value);
                metric.set_gauge(gauge);
            }
            Cell::Histogram(histogram) => metric.set_histogram(histogram.model()),
            Cell::Summary(summary) => metric.set_summary(summary.model()),
        }
        metric
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Counter(count) => write!(f, "{count}"),
            Cell::Gauge(value) => write!(f, "{value}"),
            Cell::Histogram(histogram) => {
                write!(f, "{} samples, sum {}", histogram.count(), histogram.sum)
            }
            Cell::Summary(summary) => {
                write!(f, "{} samples, sum {}", summary.count, summary.sum)
            }
        }
    }
}

/// Pairs names with values for the crate's model.
pub fn label_pairs(names: &[&str], values: &[Name]) -> Vec<proto::LabelPair> {
    names
        .iter()
        .zip(values)
        .map(|(name, value)| {
            let mut pair = proto::LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value(value.to_string());
            pair
        })
        .collect()
}

/// Whole units and the rest apart, so that a sum that fits a float's 53 bits is the nearest float.
fn in_units(value: u128, per_unit: u64) -> f64 {
    let per_unit = u128::from(per_unit);
    if value < 1 << 53 {
        return value as f64 / per_unit as f64;
    }
    (value / per_unit) as f64 + (value % per_unit) as f64 / per_unit as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus_exporter::catalogue::{CALL_SECONDS, TOKENS};

    fn filled(bounds: &'static Bounds, values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new(bounds);
        values.iter().for_each(|value| histogram.observe(*value));
        histogram
    }

    #[test]
    fn a_sample_on_a_boundary_is_inside() {
        let histogram = filled(&TOKENS, &[1, 2, 4, 5]);
        assert_eq!(histogram.buckets[..4], [1, 2, 1, 0]);
    }

    #[test]
    fn long_calls_lie_in_finite_buckets() {
        // PRM-04: 0.04 s, 12.5 s, 420 s.
        let histogram = filled(
            &CALL_SECONDS,
            &[40_000_000, 12_500_000_000, 420_000_000_000],
        );
        let model = histogram.model();
        let last = model.get_bucket().last().unwrap();
        assert_eq!(last.upper_bound(), 655.36);
        assert_eq!(last.cumulative_count(), 3);
        assert_eq!(model.get_sample_sum(), 432.54);
        assert_eq!(model.get_bucket()[2].cumulative_count(), 1);
    }

    #[test]
    fn a_sum_of_many_nanoseconds_does_not_drift() {
        let mut histogram = Histogram::new(&CALL_SECONDS);
        for _ in 0..1_000_000 {
            histogram.observe(100_000_000);
        }
        assert_eq!(histogram.model().get_sample_sum(), 100_000.0);
        assert_eq!(histogram.count(), 1_000_000);
    }

    #[test]
    fn counts_beyond_a_float_go_on() {
        let mut count = (1u64 << 53) + 1;
        let text = |count| {
            Cell::Counter(count)
                .model(vec![])
                .get_counter()
                .get_value()
                .to_string()
        };
        assert_eq!(text(count), "9007199254740992");
        count += 1;
        assert_eq!(text(count), "9007199254740994");
    }
}
