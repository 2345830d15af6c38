//! The pipeline as it stands: what can be seen from outside, and nothing that decides.

use super::dialect::DeadLetterReason;
use super::fact::Table;
use super::invariant::Invariant;
use super::ledger::Watermark;
use super::{LogSource, LogTime, Name, Offset, PartitionId};
use std::collections::BTreeMap;

/// What became of the records, by the four ways in which a record ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    pub read: u64,
    pub applied: u64,
    pub ignored: u64,
    pub tombstones: u64,
    pub duplicates: u64,
    pub dead_lettered: u64,
}

/// Counts that the pipeline's own metrics and the report of `replay` show.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub outcomes: Outcomes,
    pub dead_letters: BTreeMap<DeadLetterReason, u64>,
    pub facts: BTreeMap<Table, u64>,
    pub facts_late: u64,
    pub facts_replayed: u64,
    pub limits_reached: BTreeMap<&'static str, u64>,
    pub schema_prefixes: u64,
    pub boms: u64,
    pub duplicate_keys: u64,
    pub invalid_utf8: u64,
    pub lone_surrogates: u64,
    pub nonstandard_json: u64,
}

impl Totals {
    /// Counts that a limit of the configuration was reached.
    pub fn reach(&mut self, limit: &'static str) {
        *self.limits_reached.entry(limit).or_insert(0) += 1;
    }
}

/// One partition as it stands.
#[derive(Clone, Debug)]
pub struct PartitionStatus {
    pub partition: PartitionId,
    pub source: LogSource,
    /// Records read since the partition was assigned.
    pub records_read: u64,
    pub next: Offset,
    pub log_time: LogTime,
    pub is_replaying: bool,
    pub segments_held: usize,
    /// Offsets between the oldest held record and the newest.
    pub held_records: i64,
    pub watermark: Watermark,
    /// Log time up to which everything is in the sink.
    pub complete_up_to: LogTime,
}

/// The pipeline as it stands, for `/debug/pipeline` and the pipeline's own metrics.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub totals: Totals,
    pub partitions: Vec<PartitionStatus>,
    pub work_in_flight: usize,
    pub facts_waiting: usize,
    pub is_paused: bool,
    pub invocations_open: BTreeMap<Name, u64>,
    pub violations: Vec<(Invariant, u64)>,
}
