//! Facts, gathered until they are many, big or old enough to be inserted together.
//!
//! The batcher keeps what the facts hold back beside them. It knows neither tables nor time-outs.

use super::fact::Fact;
use super::ledger::{Hold, WorkId};
use super::{Limits, Now, PartitionId};
use std::collections::BTreeMap;

/// A sealed batch on its way to the sink.
#[derive(Debug)]
pub struct Batch {
    pub work: WorkId,
    pub facts: Vec<Fact>,
}

/// The batch that is being filled.
#[derive(Debug, Default)]
pub struct Batcher {
    facts: Vec<Fact>,
    bytes: usize,
    oldest: Option<Now>,
    holds: BTreeMap<PartitionId, Hold>,
}

impl Batcher {
    /// Adds one fact and what it holds back.
    pub fn push(&mut self, fact: Fact, partition: PartitionId, hold: Hold, now: Now) {
        self.bytes += fact_bytes(&fact);
        self.facts.push(fact);
        self.holds.entry(partition).or_default().merge(hold);
        self.oldest.get_or_insert(now);
    }

    /// Holds back something more of a partition until the waiting facts are settled.
    pub fn keep(&mut self, partition: PartitionId, hold: Hold) {
        self.holds.entry(partition).or_default().merge(hold);
    }

    /// True where a limit says that the batch must be sealed.
    pub fn is_due(&self, limits: &Limits, now: Now) -> bool {
        self.facts.len() >= limits.batch_facts_max
            || self.bytes >= limits.batch_bytes_max
            || self
                .deadline(limits)
                .is_some_and(|deadline| deadline <= now)
    }

    /// When the batch must be sealed for its age; `None` while it is empty.
    pub fn deadline(&self, limits: &Limits) -> Option<Now> {
        self.oldest
            .map(|oldest| Now(oldest.0 + limits.batch_age_max))
    }

    /// True where nothing waits.
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Facts that wait.
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    /// What the waiting facts hold back of one partition.
    pub fn hold(&self, partition: PartitionId) -> Option<Hold> {
        self.holds.get(&partition).copied()
    }

    /// Drops what is held for a partition that is gone; its facts are still inserted, which is
    /// harmless.
    pub fn forget(&mut self, partition: PartitionId) {
        self.holds.remove(&partition);
    }

    /// Takes everything out: the facts and their holds.
    pub fn seal(&mut self) -> (Vec<Fact>, BTreeMap<PartitionId, Hold>) {
        self.bytes = 0;
        self.oldest = None;
        (
            std::mem::take(&mut self.facts),
            std::mem::take(&mut self.holds),
        )
    }
}

/// Roughly what a fact weighs as a row: a constant for the columns and the texts that differ in
/// length.
fn fact_bytes(fact: &Fact) -> usize {
    512 + fact.invocation_id.len()
        + fact.segment.len()
        + fact.session_id.as_ref().map_or(0, |id| id.len())
}
