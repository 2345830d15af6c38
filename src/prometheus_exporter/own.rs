//! The daemon's own health as series: the pipeline's snapshot and what the edges count.
//!
//! Deliberately nothing that facts move, and no thresholds: what is bad is for alerts to say.

use super::catalogue::{INSERT_SECONDS, Own};
use super::cell::{Cell, Histogram};
use crate::core::dialect::DeadLetterReason;
use crate::core::fact::Table;
use crate::core::invariant::Violations;
use crate::core::pipeline::{PartitionStatus, Snapshot, Totals};
use crate::core::{LogTime, Name};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How a commit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommitResult {
    Ok,
    Failed,
}

impl CommitResult {
    /// Every result.
    pub const ALL: [CommitResult; 2] = [CommitResult::Ok, CommitResult::Failed];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            CommitResult::Ok => "ok",
            CommitResult::Failed => "failed",
        }
    }
}

/// How the assignment changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rebalance {
    Assigned,
    Revoked,
    Lost,
}

impl Rebalance {
    /// Every kind.
    pub const ALL: [Rebalance; 3] = [Rebalance::Assigned, Rebalance::Revoked, Rebalance::Lost];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Rebalance::Assigned => "assigned",
            Rebalance::Revoked => "revoked",
            Rebalance::Lost => "lost",
        }
    }
}

/// Limits whose series exist from the start: those of config.md, and of the HTTP server.
const LIMITS: [&str; 16] = [
    "payload_bytes_max",
    "work_in_flight_max",
    "held_records_max",
    "segments_open_max",
    "branches_per_run_max",
    "calls_per_run_max",
    "records_per_run_max",
    "id_bytes_max",
    "attribute_bytes_max",
    "plausible_tokens_max",
    "names_interned_max",
    "drain_max",
    "http_connections_max",
    "http_requests_max",
    "http_head_bytes_max",
    "http_head_time_max",
];

const DEAD_LETTER_REASONS: [DeadLetterReason; 6] = [
    DeadLetterReason::InvalidJson,
    DeadLetterReason::TooDeep,
    DeadLetterReason::TooLarge,
    DeadLetterReason::Empty,
    DeadLetterReason::NoEnvelope,
    DeadLetterReason::NoInvocationId,
];

/// One series: label values in the order of the catalogue, and the value.
pub type Series = (Vec<Name>, Cell);

/// What the daemon knows of itself.
pub struct Health {
    pub snapshot: Option<Arc<Snapshot>>,
    tables: BTreeMap<Table, (u64, Histogram)>,
    insert_errors: BTreeMap<&'static str, u64>,
    is_sink_up: Option<bool>,
    commits: BTreeMap<CommitResult, u64>,
    rebalances: BTreeMap<Rebalance, u64>,
    limits_reached: BTreeMap<&'static str, u64>,
    lag_records: BTreeMap<(Name, i32), u64>,
    lag_seconds: Option<f64>,
    records_lost: BTreeMap<(Name, i32), u64>,
    build: [Name; 2],
}

impl Health {
    /// Everything at 0, everything else unknown.
    pub fn new(version: &str, revision: &str) -> Health {
        let table = |table| (table, (0, Histogram::new(&INSERT_SECONDS)));
        Health {
            snapshot: None,
            tables: Table::ALL.into_iter().map(table).collect(),
            insert_errors: BTreeMap::new(),
            is_sink_up: None,
            commits: CommitResult::ALL.into_iter().map(|r| (r, 0)).collect(),
            rebalances: Rebalance::ALL.into_iter().map(|kind| (kind, 0)).collect(),
            limits_reached: LIMITS.into_iter().map(|limit| (limit, 0)).collect(),
            lag_records: BTreeMap::new(),
            lag_seconds: None,
            records_lost: BTreeMap::new(),
            build: [version.into(), revision.into()],
        }
    }

    pub fn inserted(&mut self, table: Table, rows: u64, took: Duration) {
        if let Some((count, seconds)) = self.tables.get_mut(&table) {
            *count += rows;
            seconds.observe(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    pub fn failed(&mut self, reason: &'static str) {
        *self.insert_errors.entry(reason).or_insert(0) += 1;
    }

    pub fn up(&mut self, is_up: bool) {
        self.is_sink_up = Some(is_up);
    }

    pub fn commit(&mut self, result: CommitResult) {
        *self.commits.entry(result).or_insert(0) += 1;
    }

    pub fn rebalance(&mut self, kind: Rebalance) {
        *self.rebalances.entry(kind).or_insert(0) += 1;
    }

    pub fn limit_reached(&mut self, limit: &'static str) {
        *self.limits_reached.entry(limit).or_insert(0) += 1;
    }

    pub fn lag(&mut self, topic: &Name, partition: i32, records: Option<u64>) {
        let key = (topic.clone(), partition);
        match records {
            Some(records) => self.lag_records.insert(key, records),
            None => self.lag_records.remove(&key),
        };
    }

    /// Kept when the partition goes: a loss must outlive the next rebalance.
    pub fn records_lost(&mut self, topic: &Name, partition: i32, records: u64) {
        *self
            .records_lost
            .entry((topic.clone(), partition))
            .or_insert(0) += records;
    }

    pub fn lag_seconds(&mut self, seconds: Option<f64>) {
        self.lag_seconds = seconds;
    }

    /// Drops every series of a partition that is no longer ours.
    pub fn forget_partition(&mut self, topic: &Name, partition: i32) {
        self.lag_records.remove(&(topic.clone(), partition));
        if let Some(snapshot) = &mut self.snapshot {
            Arc::make_mut(snapshot)
                .partitions
                .retain(|p| p.source.topic != *topic || p.source.partition != partition);
        }
    }

    /// The series of one family. Those of labels and counters are the exporter's.
    pub fn series(&self, own: Own) -> Vec<Series> {
        match own {
            Own::LagSeconds => alone(self.lag_seconds.map(Cell::Gauge)),
            Own::SinkUp => alone(self.is_sink_up.map(flag)),
            Own::CompleteUpTo => alone(self.complete_up_to().map(instant)),
            Own::InsertErrors => counters(&self.insert_errors, |reason| reason),
            Own::Commits => counters(&self.commits, |result| result.as_str()),
            Own::Rebalances => counters(&self.rebalances, |kind| kind.as_str()),
            Own::LimitReached => counters(&self.all_limits_reached(), |limit| limit),
            Own::BuildInfo => vec![(self.build.to_vec(), Cell::Gauge(1.0))],
            Own::RowsInserted => self.by_table(|(rows, _)| Cell::Counter(*rows)),
            Own::InsertSeconds => self.by_table(|(_, seconds)| Cell::Histogram(seconds.clone())),
            Own::Lag => {
                let lag = self.lag_records.iter();
                lag.map(|((topic, partition), records)| {
                    (
                        vec![topic.clone(), partition.to_string().into()],
                        Cell::Gauge(*records as f64),
                    )
                })
                .collect()
            }
            Own::RetentionLost => {
                let lost = self.records_lost.iter();
                lost.map(|((topic, partition), records)| {
                    let labels = vec![topic.clone(), partition.to_string().into()];
                    (labels, Cell::Counter(*records))
                })
                .collect()
            }
            Own::RecordsRead => self.by_partition(|p| Some(Cell::Counter(p.records_read))),
            Own::LogTime => self.by_partition(|p| known(p.log_time).map(instant)),
            Own::Replaying => self.by_partition(|p| Some(flag(p.is_replaying))),
            Own::HeldRecords => self.by_partition(|p| Some(Cell::Gauge(p.held_records as f64))),
            Own::SegmentsHeld
            | Own::Records
            | Own::DeadLetters
            | Own::Facts
            | Own::FactsLate
            | Own::FactsReplayed
            | Own::InvariantViolations => match &self.snapshot {
                Some(snapshot) => pipeline_series(snapshot, own),
                None => pipeline_series(&untouched(), own),
            },
            Own::InvocationsOpen | Own::SeriesFolded | Own::StateFileUp | Own::CountersCreated => {
                Vec::new()
            }
        }
    }

    /// Log time up to which every assigned partition is in the sink; `None` while one is unknown
    /// that is not known to be empty, and where none is assigned.
    fn complete_up_to(&self) -> Option<LogTime> {
        let mut least = None;
        for partition in &self.snapshot.as_ref()?.partitions {
            let source = &partition.source;
            match known(partition.complete_up_to) {
                Some(time) => least = Some(least.map_or(time, |known: LogTime| known.min(time))),
                None => {
                    let key = (source.topic.clone(), source.partition);
                    if self.lag_records.get(&key) != Some(&0) {
                        return None;
                    }
                }
            }
        }
        least
    }

    /// What the edges reached and what the core did.
    fn all_limits_reached(&self) -> BTreeMap<&'static str, u64> {
        let mut all = self.limits_reached.clone();
        if let Some(snapshot) = &self.snapshot {
            for (limit, count) in &snapshot.totals.limits_reached {
                *all.entry(limit).or_insert(0) += count;
            }
        }
        all
    }

    fn by_table(&self, cell: impl Fn(&(u64, Histogram)) -> Cell) -> Vec<Series> {
        let tables = self.tables.iter();
        tables
            .map(|(table, inserts)| (vec![table.as_str().into()], cell(inserts)))
            .collect()
    }

    fn by_partition(&self, cell: impl Fn(&PartitionStatus) -> Option<Cell>) -> Vec<Series> {
        let Some(snapshot) = &self.snapshot else {
            return Vec::new();
        };
        let partitions = snapshot.partitions.iter();
        partitions
            .filter_map(|p| {
                let labels = vec![
                    p.source.topic.clone(),
                    p.source.partition.to_string().into(),
                ];
                Some((labels, cell(p)?))
            })
            .collect()
    }
}

/// The pipeline before its first input: every series is there, at 0.
fn untouched() -> Snapshot {
    Snapshot {
        totals: Totals::default(),
        partitions: Vec::new(),
        work_in_flight: 0,
        facts_waiting: 0,
        is_paused: false,
        invocations_open: BTreeMap::new(),
        violations: Violations::counting().iter().collect(),
    }
}

/// The series of totals and sums of one snapshot.
fn pipeline_series(snapshot: &Snapshot, own: Own) -> Vec<Series> {
    let totals = &snapshot.totals;
    let outcomes = &totals.outcomes;
    match own {
        Own::SegmentsHeld => {
            let held: usize = snapshot.partitions.iter().map(|p| p.segments_held).sum();
            alone(Some(Cell::Gauge(held as f64)))
        }
        Own::Records => vec![
            word("applied", outcomes.applied),
            word("ignored", outcomes.ignored),
            word("tombstone", outcomes.tombstones),
            word("dead_lettered", outcomes.dead_lettered),
            word("duplicate", outcomes.duplicates),
        ],
        Own::DeadLetters => {
            let count = |reason| totals.dead_letters.get(&reason).copied().unwrap_or(0);
            let reasons = DEAD_LETTER_REASONS.into_iter();
            reasons.map(|r| word(r.as_str(), count(r))).collect()
        }
        Own::Facts => {
            let count = |table| totals.facts.get(&table).copied().unwrap_or(0);
            let tables = Table::ALL.into_iter();
            tables.map(|t| word(t.as_str(), count(t))).collect()
        }
        Own::FactsLate => alone(Some(Cell::Counter(totals.facts_late))),
        Own::FactsReplayed => alone(Some(Cell::Counter(totals.facts_replayed))),
        Own::InvariantViolations => {
            let violations = snapshot.violations.iter();
            violations
                .map(|(i, count)| word(i.as_str(), *count))
                .collect()
        }
        _ => Vec::new(),
    }
}

fn alone(cell: Option<Cell>) -> Vec<Series> {
    cell.map(|cell| (Vec::new(), cell)).into_iter().collect()
}

fn word(value: &str, count: u64) -> Series {
    (vec![value.into()], Cell::Counter(count))
}

fn counters<K>(counts: &BTreeMap<K, u64>, text: impl Fn(&K) -> &'static str) -> Vec<Series> {
    counts
        .iter()
        .map(|(k, count)| word(text(k), *count))
        .collect()
}

fn flag(is_set: bool) -> Cell {
    Cell::Gauge(if is_set { 1.0 } else { 0.0 })
}

/// A log time as seconds since 1970.
fn instant(time: LogTime) -> Cell {
    Cell::Gauge(time.0 as f64 / 1000.0)
}

/// Before its first record a partition has no time that means anything.
fn known(time: LogTime) -> Option<LogTime> {
    (time.0 > 0).then_some(time)
}
