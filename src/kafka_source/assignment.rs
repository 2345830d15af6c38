//! A partition as it was taken over, and whether its log is the one that was counted before.
//!
//! Deliberately no decision about where to read from: that is the ledger's.

use super::LOOKUP_MAX;
use super::list::list_of;
use super::rebalance::{Context, Place};
use crate::core::ledger::{Counted, Watermark};
use crate::core::{LogSource, Offset, PartitionId};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::Offset as KafkaOffset;
use std::ops::Range;

/// A partition as it was taken over.
#[derive(Clone, Debug)]
pub struct Assignment {
    pub partition: PartitionId,
    pub source: LogSource,
    pub committed: Option<Watermark>,
    pub log: Range<Offset>,
    /// What was counted of it was counted of another log of this name.
    pub is_made_anew: bool,
}

/// What this process counted of a partition that it does not hold.
pub type Remembered<'r> = &'r dyn Fn(&Place) -> Option<Counted>;

/// The partitions whose log is another one than that of which something was counted: its first
/// record after what was counted has an offset below. Of a log that kept its producers' times this
/// may be said wrongly, and costs what a crash without a state file costs.
pub(super) fn made_anew(
    consumer: &BaseConsumer<Context>,
    places: &[Place],
    counted: Remembered<'_>,
) -> KafkaResult<Vec<Place>> {
    let known = places
        .iter()
        .filter_map(|place| Some((place, counted(place)?)));
    let known: Vec<(&Place, Counted)> = known.filter(|(_, marks)| marks.before.0 > 0).collect();
    if known.is_empty() {
        return Ok(Vec::new());
    }
    let times = known
        .iter()
        .map(|(place, marks)| (*place, KafkaOffset::Offset(marks.before.0)));
    let found = consumer.offsets_for_times(list_of(times), LOOKUP_MAX)?;
    let is_other = |(place, marks): &(&Place, Counted)| {
        let element = found.find_partition(&place.topic, place.partition);
        element.is_some_and(|element| match element.offset() {
            KafkaOffset::Offset(first) => first < marks.below.0,
            _ => false,
        })
    };
    let others = known.into_iter().filter(is_other);
    Ok(others
        .map(|(place, _)| {
            tracing::warn!(topic = %place.topic, partition = place.partition, "the topic was made \
                anew: what was counted of it before says nothing about it");
            place.clone()
        })
        .collect())
}
