//! What is held: where each partition stands, what is quiet, what is being committed.
//!
//! Deliberately no blocking call: positions are local to librdkafka, ends come with its statistics.

use super::position::metadata;
use super::rebalance::{Committed, Context, Happened, PartitionStatistics, Place, Statistics};
use super::{News, RETRY_AFTER};
use crate::clock::Clock;
use crate::core::ledger::Watermark;
use crate::core::{LogTime, Name, Now, Offset, PartitionId};
use crate::warn_rarely;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{BorrowedMessage, Message as _, Timestamp};
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A leader not heard for so long says nothing about the end of its log.
const LEADER_SILENCE_MAX: Duration = Duration::from_secs(5);

/// One assigned partition.
#[derive(Debug)]
struct Held {
    place: Place,
    /// The next offset expected: the start, or behind the last record handed out.
    next: Offset,
    /// Log time of the newest record, and when it came.
    newest: Option<(LogTime, Now)>,
    has_create_time: bool,
    /// The newest marks sent to the broker; commits are answered in order.
    committing: Option<Watermark>,
    /// True where the newest answer was a failure.
    is_uncommitted: bool,
}

/// Everything that is held.
pub(super) struct Reading {
    clock: Clock,
    quiet_margin: Duration,
    held: BTreeMap<PartitionId, Held>,
    /// Held partitions by number: a record names its partition by topic and number.
    by_number: BTreeMap<i32, Vec<(Name, PartitionId)>>,
    partition_next: u32,
    pub queue: VecDeque<News>,
    pub is_paused: bool,
    pub has_broker: bool,
    pub fatal: Option<RDKafkaErrorCode>,
    uncommitted_due: Now,
    create_time_topics: BTreeSet<Name>,
}

impl Reading {
    pub fn new(clock: Clock, quiet_margin: Duration) -> Reading {
        Reading {
            clock,
            quiet_margin,
            held: BTreeMap::new(),
            by_number: BTreeMap::new(),
            partition_next: 0,
            queue: VecDeque::new(),
            is_paused: false,
            has_broker: false,
            fatal: None,
            uncommitted_due: Now::default(),
            create_time_topics: BTreeSet::new(),
        }
    }

    pub fn find(&self, topic: &str, partition: i32) -> Option<PartitionId> {
        let ids = self.by_number.get(&partition)?;
        let found = ids.iter().find(|(name, _)| **name == *topic);
        found.map(|(_, id)| *id)
    }

    pub fn place(&self, partition: PartitionId) -> Option<&Place> {
        self.held.get(&partition).map(|held| &held.place)
    }

    pub fn places(&self) -> Vec<Place> {
        self.held.values().map(|held| held.place.clone()).collect()
    }

    /// Begins a partition that is read from `start`. Its number is never used again, so that work
    /// of an earlier assignment cannot be taken for its own.
    pub fn begin(&mut self, place: &Place, start: Offset) -> PartitionId {
        self.end(place);
        self.partition_next += 1;
        let id = PartitionId(self.partition_next);
        let held = Held {
            place: place.clone(),
            next: start,
            newest: None,
            has_create_time: false,
            committing: None,
            is_uncommitted: false,
        };
        self.held.insert(id, held);
        let ids = self.by_number.entry(place.partition).or_default();
        ids.push((place.topic.clone(), id));
        id
    }

    pub fn end(&mut self, place: &Place) {
        let Some(id) = self.find(&place.topic, place.partition) else {
            return;
        };
        self.held.remove(&id);
        if let Some(ids) = self.by_number.get_mut(&place.partition) {
            ids.retain(|(_, other)| *other != id);
        }
    }

    /// Notes that a partition is read on from `next`.
    pub fn moved(&mut self, place: &Place, next: Offset) {
        let id = self.find(&place.topic, place.partition);
        if let Some(held) = id.and_then(|id| self.held.get_mut(&id)) {
            held.next = next;
        }
    }

    /// Notes a record, and says whose it is and its log time. `None` where the partition is not
    /// held (any more).
    pub fn record(&mut self, message: &BorrowedMessage<'_>) -> Option<(PartitionId, LogTime)> {
        let id = self.find(message.topic(), message.partition())?;
        let held = self.held.get_mut(&id)?;
        let logged_at = match message.timestamp() {
            Timestamp::LogAppendTime(ms) => LogTime(ms),
            other => {
                held.has_create_time = true;
                if self.create_time_topics.insert(held.place.topic.clone()) {
                    tracing::warn!(topic = %held.place.topic, "the topic keeps its producers' \
                        times: set message.timestamp.type=LogAppendTime, else a replay may differ");
                }
                // Log time never passes the daemon's own clock (facts.md §8.1).
                let wall = self.clock.wall();
                other.to_millis().map_or(wall, |ms| LogTime(ms).min(wall))
            }
        };
        held.next = Offset(message.offset()).next();
        held.newest = Some((logged_at, self.clock.now()));
        Some((id, logged_at))
    }

    /// Turns what was called back into events; gives back librdkafka's words of trouble.
    pub fn absorb(
        &mut self,
        happened: Happened,
        consumer: &BaseConsumer<Context>,
    ) -> Vec<(RDKafkaErrorCode, String)> {
        for committed in happened.commits {
            self.committed(&committed);
        }
        for change in happened.changes {
            self.queue.push_back(News::Changed(change));
        }
        if let Some(statistics) = happened.statistics {
            self.measure(&statistics, consumer);
        }
        happened.troubles
    }

    fn committed(&mut self, committed: &Committed) {
        let is_ok = committed.result.is_ok();
        self.queue.push_back(News::Committed { is_ok });
        if let Err(code) = committed.result {
            match code {
                // Between the rounds of a rebalance, or while the coordinator is away.
                RDKafkaErrorCode::RebalanceInProgress
                | RDKafkaErrorCode::IllegalGeneration
                | RDKafkaErrorCode::WaitingForCoordinator => {
                    tracing::debug!(%code, "a commit must be repeated");
                }
                RDKafkaErrorCode::FencedInstanceId => self.fatal = Some(code),
                code => warn_rarely!("commit", %code, "a commit failed; it is repeated"),
            }
        }
        self.uncommitted_due = Now(self.clock.now().0 + RETRY_AFTER);
        for place in &committed.places {
            let id = self.find(&place.topic, place.partition);
            if let Some(held) = id.and_then(|id| self.held.get_mut(&id)) {
                held.is_uncommitted = !is_ok;
            }
        }
    }

    /// The list that commits `marks`, of those partitions that are held.
    pub fn committing(&mut self, marks: &[(PartitionId, Watermark)]) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for (id, watermark) in marks {
            let Some(held) = self.held.get_mut(id) else {
                continue;
            };
            (held.committing, held.is_uncommitted) = (Some(*watermark), false);
            let mut element = list.add_partition(&held.place.topic, held.place.partition);
            // Fails only for offsets that no i64 holds.
            let _ = element.set_offset(KafkaOffset::Offset(watermark.resume_from.0));
            element.set_metadata(metadata(watermark));
        }
        list
    }

    /// Notes that a commit was not even sent.
    pub fn commit_failed(&mut self, marks: &[(PartitionId, Watermark)]) {
        self.uncommitted_due = Now(self.clock.now().0 + RETRY_AFTER);
        for (id, _) in marks {
            if let Some(held) = self.held.get_mut(id) {
                held.is_uncommitted = true;
            }
        }
        self.queue.push_back(News::Committed { is_ok: false });
    }

    /// Marks whose commit failed and is due again.
    pub fn uncommitted(&mut self, now: Now) -> Vec<(PartitionId, Watermark)> {
        if now < self.uncommitted_due {
            return Vec::new();
        }
        let failed = self.held.iter().filter(|(_, held)| held.is_uncommitted);
        let marks = failed.filter_map(|(id, held)| held.committing.map(|marks| (*id, marks)));
        marks.collect()
    }

    /// The end of a partition of this number was reached. It does not say of which topic; but
    /// everything below any position was read, markers of transactions included.
    pub fn end_reached(&mut self, partition: i32, consumer: &BaseConsumer<Context>) {
        if self.is_paused {
            return;
        }
        let positions = positions(consumer);
        for (id, held) in &mut self.held {
            let position = positions.get(&held.place).copied();
            if let Some(next) = position.filter(|_| held.place.partition == partition) {
                held.next = held.next.max(next);
                self.queue.push_back(News::CaughtUp {
                    partition: *id,
                    next,
                    log_time: None,
                });
            }
        }
    }

    /// Lags, and the log time of what is quiet, once a second.
    fn measure(&mut self, statistics: &Statistics, consumer: &BaseConsumer<Context>) {
        self.has_broker = statistics.has_broker();
        let positions = positions(consumer);
        let now = self.clock.now();
        for (id, held) in &mut self.held {
            if let Some(position) = positions.get(&held.place) {
                held.next = held.next.max(*position);
            }
            let seen = statistics.partition(&held.place);
            let seen = seen.filter(|(figures, _)| figures.ls_offset >= 0);
            let lag = seen.map(|(figures, _)| figures.ls_offset - held.next.0);
            self.queue.push_back(News::Lag {
                place: held.place.clone(),
                records: lag.map(|lag| u64::try_from(lag).unwrap_or(0)),
                newest: held.newest.map(|(at, _)| at),
            });
            // Log time must not pass what was appended before and is seen later.
            let is_quiet = |(figures, _): &(PartitionStatistics, i64)| {
                lag <= Some(0) && !figures.may_hide_records() && !self.is_paused
            };
            let Some((_, idle_us)) = seen.filter(is_quiet) else {
                continue;
            };
            // What the leader said last may have been said so long ago.
            let silent = Duration::from_micros(u64::try_from(idle_us).unwrap_or(0));
            let Some((newest, came)) = held.newest.filter(|_| silent < LEADER_SILENCE_MAX) else {
                continue;
            };
            let quiet = (now.0 - came.0).saturating_sub(silent + self.quiet_margin);
            let mut log_time = newest.plus(quiet);
            if held.has_create_time {
                log_time = log_time.min(self.clock.wall());
            }
            if !quiet.is_zero() {
                self.queue.push_back(News::CaughtUp {
                    partition: *id,
                    next: held.next,
                    log_time: Some(log_time),
                });
            }
        }
    }

    /// Held partitions that librdkafka has no position for, with the offset expected next.
    pub fn without_position(&self, consumer: &BaseConsumer<Context>) -> Vec<(Place, Offset)> {
        let positions = positions(consumer);
        let lost = self.held.values();
        let lost = lost.filter(|held| !positions.contains_key(&held.place));
        lost.map(|held| (held.place.clone(), held.next)).collect()
    }
}

/// The next offset of each assigned partition that has one.
fn positions(consumer: &BaseConsumer<Context>) -> BTreeMap<Place, Offset> {
    let Ok(list) = consumer.position() else {
        return BTreeMap::new();
    };
    let elements = list.elements();
    let known = elements.iter().filter_map(|element| {
        let place = Place {
            topic: element.topic().into(),
            partition: element.partition(),
        };
        match element.offset() {
            KafkaOffset::Offset(next) => Some((place, Offset(next))),
            _ => None,
        }
    });
    known.collect()
}
