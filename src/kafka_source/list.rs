//! Lists of partitions as librdkafka takes them, and the one call that rdkafka does not wrap.
//!
//! Deliberately without state.

use super::position;
use super::rebalance::{Context, Place};
use crate::core::ledger::Watermark;
use crate::warn_rarely;
use rdkafka::bindings as sys;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{
    Offset as KafkaOffset, TopicPartitionList, TopicPartitionListElem,
};

pub(super) fn list_of<'p>(
    places: impl Iterator<Item = (&'p Place, KafkaOffset)>,
) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (place, offset) in places {
        let mut element = list.add_partition(&place.topic, place.partition);
        // Fails only for offsets that no i64 holds.
        let _ = element.set_offset(offset);
    }
    list
}

pub(super) fn log_refusal(what: &'static str, done: KafkaResult<()>) {
    if let Err(error) = done {
        warn_rarely!(what, %error, "librdkafka refused {what}");
    }
}

/// Commits without waiting; the result comes to `Context::commit_callback` out of a later `poll`,
/// which rdkafka's own `CommitMode::Async` never brings about (kafka.md §4.1).
pub(super) fn commit_with_result(
    consumer: &BaseConsumer<Context>,
    list: &TopicPartitionList,
) -> Result<(), RDKafkaErrorCode> {
    // SAFETY: both pointers outlive the call, librdkafka copies the list, and the reference to the
    // queue is given back.
    let error = unsafe {
        let native = consumer.client().native_ptr();
        let queue = sys::rd_kafka_queue_get_consumer(native);
        let error =
            sys::rd_kafka_commit_queue(native, list.ptr(), queue, None, std::ptr::null_mut());
        sys::rd_kafka_queue_destroy(queue);
        error
    };
    match error {
        sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        error => Err(error.into()),
    }
}

/// The marks of one looked-up commit.
pub(super) fn marks_of(offset: i64, element: &TopicPartitionListElem<'_>) -> Watermark {
    let (marks, is_unknown) = position::marks(offset, element.metadata());
    if is_unknown {
        tracing::warn!(
            topic = element.topic(),
            partition = element.partition(),
            offset,
            "the commit's metadata is not of this build: taken as a bare offset"
        );
    }
    marks
}
