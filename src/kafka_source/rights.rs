//! What a login may do, as the brokers tell it: the admin calls that rdkafka does not wrap.
//!
//! Deliberately all pointers of these calls in one place. Nothing here outlives its call.

use rdkafka::bindings as sys;
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::RDKafkaErrorCode;
use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::slice;

/// How long the brokers may take over one question, in milliseconds.
const ANSWER_MAX_MS: c_int = 10_000;

/// What can be allowed with a topic or a group, as far as the daemon does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
}

impl Operation {
    /// Its name in Kafka's access lists.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Read => "READ",
            Operation::Write => "WRITE",
        }
    }

    fn native(self) -> sys::rd_kafka_AclOperation_t {
        match self {
            Operation::Read => sys::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_READ,
            Operation::Write => sys::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_WRITE,
        }
    }
}

/// What this login may do with one topic or group.
#[derive(Clone, Debug)]
pub struct Rights {
    /// `None` where the broker does not tell.
    allowed: Option<Vec<sys::rd_kafka_AclOperation_t>>,
}

impl Rights {
    /// True where the operation is allowed, or the broker does not tell.
    pub fn allow(&self, operation: Operation) -> bool {
        let allowed = self.allowed.as_ref();
        allowed.is_none_or(|allowed| allowed.contains(&operation.native()))
    }
}

/// What this login may do with `topic`.
///
/// # Errors
/// That the topic is not there, that it may not even be described, or that no answer came.
pub(super) fn of_topic<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
) -> Result<Rights, RDKafkaErrorCode> {
    let name = CString::new(topic).map_err(|_| RDKafkaErrorCode::InvalidTopic)?;
    let native = client.native_ptr();
    let kind = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
    let mut names = [name.as_ptr()];
    let event = ask(native, kind, |options, queue| {
        // SAFETY: the collection copies the names, the call copies the collection.
        unsafe {
            let topics = sys::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), 1);
            sys::rd_kafka_DescribeTopics(native, topics, options, queue);
            sys::rd_kafka_TopicCollection_destroy(topics);
        }
    })?;
    // SAFETY: everything that is read belongs to the event, which lives to the end of this block.
    unsafe {
        let mut count = 0;
        let result = sys::rd_kafka_event_DescribeTopics_result(event.0);
        let described = sys::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        let described = only(described, count)?;
        must_be_fine(sys::rd_kafka_TopicDescription_error(described))?;
        let allowed = sys::rd_kafka_TopicDescription_authorized_operations;
        Ok(rights(allowed(described, &raw mut count), count))
    }
}

/// What this login may do with `group`, which need not be there.
///
/// # Errors
/// That the group may not even be described, or that no answer came.
pub(super) fn of_group<C: ClientContext>(
    client: &Client<C>,
    group: &str,
) -> Result<Rights, RDKafkaErrorCode> {
    let name = CString::new(group).map_err(|_| RDKafkaErrorCode::InvalidGroupId)?;
    let native = client.native_ptr();
    let kind = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS;
    let mut names = [name.as_ptr()];
    let event = ask(native, kind, |options, queue| {
        // SAFETY: the call copies the names.
        unsafe {
            let names = names.as_mut_ptr();
            sys::rd_kafka_DescribeConsumerGroups(native, names, 1, options, queue);
        }
    })?;
    // SAFETY: everything that is read belongs to the event, which lives to the end of this block.
    unsafe {
        let mut count = 0;
        let result = sys::rd_kafka_event_DescribeConsumerGroups_result(event.0);
        let described = sys::rd_kafka_DescribeConsumerGroups_result_groups(result, &raw mut count);
        let described = only(described, count)?;
        must_be_fine(sys::rd_kafka_ConsumerGroupDescription_error(described))?;
        let allowed = sys::rd_kafka_ConsumerGroupDescription_authorized_operations;
        Ok(rights(allowed(described, &raw mut count), count))
    }
}

/// Given back when dropped.
struct Event(*mut sys::rd_kafka_event_t);

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it came from `rd_kafka_queue_poll`, is not null and is given back once.
        unsafe { sys::rd_kafka_event_destroy(self.0) }
    }
}

/// Asks one question and waits for its answer.
fn ask(
    native: *mut sys::rd_kafka_t,
    kind: sys::rd_kafka_admin_op_t,
    call: impl FnOnce(*const sys::rd_kafka_AdminOptions_t, *mut sys::rd_kafka_queue_t),
) -> Result<Event, RDKafkaErrorCode> {
    let mut words: [c_char; 256] = [0; 256];
    // SAFETY: the client outlives this function. Queue and options are made here and given back
    // here; librdkafka keeps what it still needs of them after a time-out.
    let event = unsafe {
        let queue = sys::rd_kafka_queue_new(native);
        let options = sys::rd_kafka_AdminOptions_new(native, kind);
        let size = words.len();
        let words = words.as_mut_ptr();
        sys::rd_kafka_AdminOptions_set_request_timeout(options, ANSWER_MAX_MS, words, size);
        let refused = sys::rd_kafka_AdminOptions_set_include_authorized_operations(options, 1);
        if !refused.is_null() {
            sys::rd_kafka_error_destroy(refused);
        }
        call(options, queue);
        let event = sys::rd_kafka_queue_poll(queue, ANSWER_MAX_MS + 1_000);
        sys::rd_kafka_AdminOptions_destroy(options);
        sys::rd_kafka_queue_destroy(queue);
        event
    };
    if event.is_null() {
        return Err(RDKafkaErrorCode::OperationTimedOut);
    }
    let event = Event(event);
    // SAFETY: the event is not null.
    match unsafe { sys::rd_kafka_event_error(event.0) } {
        sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(event),
        error => Err(error.into()),
    }
}

/// The one element of an answer about one thing.
///
/// # Safety
/// `elements` is null or points to `count` elements.
unsafe fn only<T>(elements: *mut *const T, count: usize) -> Result<*const T, RDKafkaErrorCode> {
    match elements.is_null() || count == 0 {
        true => Err(RDKafkaErrorCode::Unknown),
        // SAFETY: as the caller promises.
        false => Ok(unsafe { *elements }),
    }
}

/// # Safety
/// `error` is null or an error that lives as long as this call.
unsafe fn must_be_fine(error: *const sys::rd_kafka_error_t) -> Result<(), RDKafkaErrorCode> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: as the caller promises.
    match unsafe { sys::rd_kafka_error_code(error) } {
        sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        error => Err(error.into()),
    }
}

/// # Safety
/// `operations` is null, where the broker does not tell, or points to `count` operations.
unsafe fn rights(operations: *const sys::rd_kafka_AclOperation_t, count: usize) -> Rights {
    let allowed = match ptr::NonNull::new(operations.cast_mut()) {
        None => None,
        Some(_) if count == 0 => Some(Vec::new()),
        // SAFETY: as the caller promises.
        Some(first) => Some(unsafe { slice::from_raw_parts(first.as_ptr(), count) }.to_vec()),
    };
    Rights { allowed }
}
