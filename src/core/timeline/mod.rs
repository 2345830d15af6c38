//! Events to facts, one partition at a time: placeholder signatures until the timelines land.

use super::event::RuntimeEvent;
use super::fact::Fact;
use super::ledger::Cause;
use super::pipeline::Settings;
use super::sample::Sample;
use super::{LogSource, LogTime, Name, Offset};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the timelines made of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Applied {
    Ignored,
    Duplicate,
    Applied,
}

/// Where in the log an event stands.
#[derive(Clone, Copy, Debug)]
pub struct RecordAt {
    pub offset: Offset,
    /// Log time of the partition at the record: never backwards.
    pub log_time: LogTime,
}

/// One thing that follows from the evidence: a row, its samples, and what it keeps back.
#[derive(Debug)]
pub struct Derived {
    pub fact: Option<Box<Fact>>,
    pub samples: Vec<Sample>,
    /// First record of the segment that speaks for it.
    pub evidence_from: Offset,
    pub cause: Cause,
    /// Written but not counted (facts.md §8.1).
    pub is_late: bool,
    /// Name of a limit that was reached on the way.
    pub limit: Option<&'static str>,
}

/// The held segments of one partition.
#[derive(Debug)]
pub struct Timelines {
    open_by_app: BTreeMap<Name, u64>,
}

impl Timelines {
    /// A partition with nothing held.
    pub fn new(_source: LogSource, _settings: Arc<Settings>) -> Timelines {
        Timelines {
            open_by_app: BTreeMap::new(),
        }
    }
    /// Takes one event in.
    pub fn apply(
        &mut self,
        _event: &RuntimeEvent<'_>,
        _at: RecordAt,
        _out: &mut Vec<Derived>,
    ) -> Applied {
        Applied::Ignored
    }
    /// Log time has reached `log_time`: releases what has been silent for too long.
    pub fn pass(&mut self, _log_time: LogTime, _out: &mut Vec<Derived>) {}
    /// The record at `offset` was read: releases what lies too far behind, or is too much.
    pub fn bound(&mut self, _offset: Offset, _out: &mut Vec<Derived>) {}
    /// First record of the oldest held segment.
    pub fn held_from(&self) -> Option<Offset> {
        None
    }
    /// Segments in memory.
    pub fn segments_held(&self) -> usize {
        0
    }
    /// Invocations in memory and not ended, by app.
    pub fn open_by_app(&self) -> &BTreeMap<Name, u64> {
        &self.open_by_app
    }
    /// The facts of every held segment as they stand.
    pub fn held_facts(&self) -> Vec<Fact> {
        Vec::new()
    }
    /// Log time at which the record at `offset` was read, as far as it is remembered; else `reached`.
    pub fn log_time_of(&self, _offset: Offset, reached: LogTime) -> LogTime {
        reached
    }
}
