//! What librdkafka calls back with: queued here, acted on after `poll` returns.
//!
//! Deliberately no pipeline state: the queue behind one uncontended mutex is all that callbacks
//! share with the loop.

use crate::core::Name;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};
use serde::Deserialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A partition by its name in Kafka.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub topic: Name,
    pub partition: i32,
}

/// A change of what is ours. Until it is answered, no partition delivers anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Answer with `Source::assign`.
    Assigned(Vec<Place>),
    /// To be handed over in order; answer with `Source::unassign`.
    Revoked(Vec<Place>),
    /// Taken away: nothing may be committed; answer with `Source::unassign`.
    Lost(Vec<Place>),
}

/// What became of one commit.
#[derive(Clone, Debug)]
pub(super) struct Committed {
    pub result: Result<(), RDKafkaErrorCode>,
    pub places: Vec<Place>,
}

/// What happened since it was last asked.
#[derive(Debug, Default)]
pub(super) struct Happened {
    pub changes: VecDeque<Change>,
    pub commits: Vec<Committed>,
    pub statistics: Option<Statistics>,
    /// Reasons in librdkafka's words.
    pub troubles: Vec<(RDKafkaErrorCode, String)>,
}

/// The context of the consumer.
#[derive(Debug, Default)]
pub(super) struct Context {
    happened: Mutex<Happened>,
    is_closing: AtomicBool,
}

impl Context {
    /// Takes what happened.
    pub fn take(&self) -> Happened {
        std::mem::take(&mut *self.lock())
    }

    /// From now on the callback unassigns by itself, so that dropping the consumer ends, also
    /// after a panic (kafka.md §4.3).
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Happened> {
        self.happened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Context {
    fn stats_raw(&self, json: &[u8]) {
        if let Ok(statistics) = serde_json::from_slice(json) {
            self.lock().statistics = Some(statistics);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        let code = code.unwrap_or(RDKafkaErrorCode::Unknown);
        if code != RDKafkaErrorCode::PartitionEOF {
            self.lock().troubles.push((code, reason.to_owned()));
        }
    }
}

impl ConsumerContext for Context {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        kind: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        let is_assignment = kind == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if self.is_closing.load(Ordering::Acquire) {
            let _ = match is_assignment {
                true => consumer.incremental_assign(list),
                false => consumer.incremental_unassign(list),
            };
            return;
        }
        let places = places(list);
        let change = match is_assignment {
            true => Change::Assigned(places),
            false if consumer.assignment_lost() => Change::Lost(places),
            false => Change::Revoked(places),
        };
        self.lock().changes.push_back(change);
    }

    fn commit_callback(&self, result: KafkaResult<()>, list: &TopicPartitionList) {
        let result = result.map_err(|error| {
            let code = error.rdkafka_error_code();
            code.unwrap_or(RDKafkaErrorCode::Unknown)
        });
        let places = places(list);
        self.lock().commits.push(Committed { result, places });
    }
}

fn places(list: &TopicPartitionList) -> Vec<Place> {
    let elements = list.elements();
    let place = elements.iter().map(|element| Place {
        topic: element.topic().into(),
        partition: element.partition(),
    });
    place.collect()
}

/// The few of librdkafka's statistics that are looked at.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Statistics {
    pub brokers: BTreeMap<String, BrokerStatistics>,
    pub topics: BTreeMap<String, TopicStatistics>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct BrokerStatistics {
    pub nodeid: i32,
    pub state: String,
    /// Microseconds since something was received.
    #[serde(default)]
    pub rxidle: i64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct TopicStatistics {
    /// By partition number; -1 stands for unassigned.
    pub partitions: BTreeMap<String, PartitionStatistics>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct PartitionStatistics {
    pub leader: i32,
    /// The end as a reader of committed transactions sees it; negative while unknown.
    pub ls_offset: i64,
    /// The end with what open transactions wrote; negative while unknown.
    pub hi_offset: i64,
}

impl PartitionStatistics {
    /// True where records may be in the log that nobody may see before their transaction ends.
    pub fn may_hide_records(&self) -> bool {
        self.hi_offset > self.ls_offset
    }
}

impl Statistics {
    /// A partition's figures, and how long ago its leader was last heard, in microseconds.
    pub fn partition(&self, place: &Place) -> Option<(PartitionStatistics, i64)> {
        let topic = self.topics.get(&*place.topic)?;
        let partition = *topic.partitions.get(&place.partition.to_string())?;
        let leader = self
            .brokers
            .values()
            .find(|broker| broker.nodeid == partition.leader && broker.state == "UP")?;
        Some((partition, leader.rxidle.max(0)))
    }

    /// True where some broker is connected.
    pub fn has_broker(&self) -> bool {
        self.brokers.values().any(|broker| broker.state == "UP")
    }
}
