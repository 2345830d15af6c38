//! A member of a consumer group that is driven by hand, with a source and no pipeline.
//!
//! Deliberately bare marks: what is tested with it is what Kafka does, not what is derived.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tachograph::clock::Clock;
use tachograph::config::Config;
use tachograph::core::ledger::{Counted, Watermark};
use tachograph::core::{Offset, PartitionId};
use tachograph::kafka_source::{Assignment, Change, News, Place, Source, SourceError, SourceEvent};

use super::kafka::{self, PATIENCE};

/// How long one turn waits.
pub const STEP: Duration = Duration::from_millis(20);

/// A member without a pipeline: it commits what it has read, and hands over in order.
pub struct Member {
    pub source: Source,
    pub read: BTreeMap<PartitionId, Offset>,
    pub assignments: Vec<Assignment>,
    /// Partition and offset of each record.
    pub records: Vec<(i32, i64)>,
    /// Partitions taken away.
    pub lost: usize,
    /// What it remembers of every partition.
    pub counted: Option<Counted>,
}

impl Member {
    /// A member of the group that `config` names.
    pub fn join(config: &Config) -> Member {
        Member {
            source: Source::connect(config, Clock::new()).expect("the broker takes us"),
            read: BTreeMap::new(),
            assignments: Vec::new(),
            records: Vec::new(),
            lost: 0,
            counted: None,
        }
    }

    /// One event; an error ends the source for good.
    pub fn turn(&mut self) -> Option<SourceError> {
        let news = match self.source.next(STEP) {
            SourceEvent::Record(record) => {
                self.read.insert(record.partition, record.offset.next());
                let (id, offset) = (record.partition, record.offset.0);
                let partition = self.source.place(id).map_or(-1, |place| place.partition);
                self.records.push((partition, offset));
                return None;
            }
            SourceEvent::News(news) => news,
        };
        match news {
            News::Changed(Change::Assigned(places)) => {
                let counted = self.counted;
                let assignments = self.source.assign(&places, &|_| counted);
                self.assignments.extend(assignments);
            }
            News::Changed(Change::Revoked(places)) => {
                let marks = self.marks(&places);
                self.source
                    .commit_now(&marks)
                    .expect("a commit while revoking is accepted");
                self.source.unassign(&places);
            }
            News::Changed(Change::Lost(places)) => {
                self.lost += places.len();
                self.source.unassign(&places);
            }
            News::Fatal(error) => return Some(error),
            _ => {}
        }
        None
    }

    fn marks(&self, places: &[Place]) -> Vec<(PartitionId, Watermark)> {
        let ids = self.source.partitions(places);
        let marks = ids
            .into_iter()
            .filter_map(|id| Some((id, Watermark::bare(*self.read.get(&id)?))));
        marks.collect()
    }

    /// Turns until `is_so`.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&Member) -> bool) {
        let started = Instant::now();
        while !is_so(self) {
            assert!(
                started.elapsed() < PATIENCE,
                "{what}\n{}",
                kafka::diagnose()
            );
            assert!(self.turn().is_none(), "{what}");
        }
    }

    /// Leaves the group in order.
    pub fn leave(&mut self) {
        assert!(self.source.begin_close());
        let started = Instant::now();
        while !self.source.is_closed() {
            assert!(started.elapsed() < PATIENCE, "leaving");
            self.turn();
        }
    }
}
