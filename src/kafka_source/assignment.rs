//! A partition as it was taken over, and whether its log is the one that was counted before.
//!
//! Deliberately no decision about where to read from: that is the ledger's.

use super::LOOKUP_MAX;
use super::list::list_of;
use super::rebalance::{Context, Place};
use crate::core::ledger::{Counted, Watermark};
use crate::core::{LogSource, LogTime, Offset, PartitionId};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::Offset as KafkaOffset;
use std::collections::BTreeMap;
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

/// The partitions whose log is another one than that of which something was counted: its very first
/// record is younger than what was counted, and has an offset below. Not any younger record: one
/// that was aborted, and the marker behind it, lie below what was read, and no reader is told their
/// times. Of a log that kept its producers' times, or of which retention left only such records,
/// this may be said wrongly, and costs what a crash without a state file costs.
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
    let begun = known.iter().map(|(place, _)| (*place, LogTime(0)));
    let begun = first_since(consumer, begun)?;
    let after = known.iter().map(|(place, marks)| (*place, marks.before));
    let after = first_since(consumer, after)?;
    let is_other = |(place, marks): &(&Place, Counted)| match (begun.get(place), after.get(place)) {
        (Some(begun), Some(after)) => begun == after && *after < marks.below,
        _ => false,
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

/// The first offset of each partition that was appended at a time or later; of those that have one.
fn first_since<'p>(
    consumer: &BaseConsumer<Context>,
    times: impl Iterator<Item = (&'p Place, LogTime)>,
) -> KafkaResult<BTreeMap<Place, Offset>> {
    let times = times.map(|(place, at)| (place, KafkaOffset::Offset(at.0)));
    let found = consumer.offsets_for_times(list_of(times), LOOKUP_MAX)?;
    let elements = found.elements();
    let known = elements.iter().filter_map(|element| {
        let place = Place {
            topic: element.topic().into(),
            partition: element.partition(),
        };
        match element.offset() {
            KafkaOffset::Offset(first) => Some((place, Offset(first))),
            _ => None,
        }
    });
    Ok(known.collect())
}
