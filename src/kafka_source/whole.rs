//! One topic from its start to where it ended when it was opened, without the group.
//!
//! Deliberately partition by partition: in which order their records make one log is asked
//! elsewhere. It subscribes to nothing and commits nothing, so the brokers show no group.

use super::rebalance::Context;
use super::survey::Survey;
use super::trouble::Trouble;
use super::{LOOKUP_MAX, Operation, client};
use crate::config::Kafka;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Message as _, OwnedMessage};
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a partition may keep silent before its end is reached.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long one look at a partition waits.
const STEP: Duration = Duration::from_millis(100);

/// Why a topic cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    #[error("librdkafka refuses the configuration: {0}")]
    Configuration(KafkaError),
    #[error("Kafka at {brokers} refuses {who}: {trouble}")]
    Refused {
        brokers: String,
        /// User and mechanism, or the file of a certificate.
        who: String,
        trouble: Trouble,
    },
    #[error("no broker of {brokers} answers{}", words(.trouble))]
    Away {
        brokers: String,
        trouble: Option<Trouble>,
    },
    #[error("there is no topic {topic} at {brokers}")]
    Missing { topic: String, brokers: String },
    #[error("topic {topic}: {who} may not read it: grant READ on topic {topic}")]
    Forbidden { topic: String, who: String },
    #[error("topic {topic}: no answer about it ({cause}): try again")]
    NoAnswer { topic: String, cause: KafkaError },
    #[error("topic {topic}: retention removed records while they were read: try again")]
    Vanished { topic: String },
    #[error(
        "topic {topic}, partition {partition}: nothing came for {SILENCE_MAX:?} before its end"
    )]
    Silent { topic: String, partition: i32 },
}

fn words(trouble: &Option<Trouble>) -> String {
    let words = trouble.as_ref().map(|trouble| format!(": {trouble}"));
    words.unwrap_or_default()
}

/// A topic that is being read.
pub struct WholeTopic {
    consumer: Arc<BaseConsumer<Context>>,
    topic: String,
    partitions: Vec<Partition>,
}

struct Partition {
    number: i32,
    /// What is read, as the log was when it was opened.
    log: Range<i64>,
    queue: PartitionQueue<Context>,
    /// What came before the queue was its own.
    early: VecDeque<OwnedMessage>,
    is_read: bool,
}

impl WholeTopic {
    /// Logs in, and looks up where each partition begins and ends.
    ///
    /// # Errors
    /// That nobody lets us in, that the topic is not there, or that it may not be read.
    pub fn open(kafka: &Kafka, topic: &str) -> Result<WholeTopic, TopicError> {
        enter(kafka, topic)?;
        let consumer = client::consumer(kafka)
            .set("statistics.interval.ms", "0")
            // For each partition.
            .set("queued.max.messages.kbytes", "1024")
            .create_with_context(Context::default());
        let consumer: BaseConsumer<Context> = consumer.map_err(TopicError::Configuration)?;
        let no_answer = |cause| TopicError::NoAnswer {
            topic: topic.to_owned(),
            cause,
        };
        let logs = logs(&consumer, topic).map_err(no_answer)?;
        let mut list = TopicPartitionList::new();
        for (number, log) in &logs {
            let mut element = list.add_partition(topic, *number);
            // Fails only for offsets that no i64 holds.
            let _ = element.set_offset(KafkaOffset::Offset(log.start));
        }
        consumer.assign(&list).map_err(no_answer)?;
        let consumer = Arc::new(consumer);
        let split = |(number, log): (i32, Range<i64>)| {
            Some(Partition {
                number,
                is_read: log.is_empty(),
                log,
                queue: consumer.split_partition_queue(topic, number)?,
                early: VecDeque::new(),
            })
        };
        let partitions = logs.into_iter().filter_map(split).collect();
        Ok(WholeTopic {
            consumer,
            topic: topic.to_owned(),
            partitions,
        })
    }

    /// How many partitions it has.
    pub fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    /// How many offsets lie between the start and the end of all partitions.
    pub fn offsets(&self) -> u64 {
        let logs = self.partitions.iter().map(|partition| &partition.log);
        let length = |log: &Range<i64>| u64::try_from(log.end - log.start).unwrap_or(0);
        logs.map(length).sum()
    }

    /// The next record of the partition at `index`; `None` at its end.
    ///
    /// # Errors
    /// That it cannot be read to its end.
    pub fn next_of(&mut self, index: usize) -> Result<Option<OwnedMessage>, TopicError> {
        let started = Instant::now();
        loop {
            self.serve();
            let partition = &mut self.partitions[index];
            if partition.is_read {
                return Ok(None);
            }
            if let Some(message) = partition.early.pop_front() {
                return Ok(partition.within(message));
            }
            match partition.queue.poll(STEP) {
                Some(Ok(message)) => {
                    let message = message.detach();
                    return Ok(partition.within(message));
                }
                Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset))) => {
                    let topic = self.topic.clone();
                    return Err(TopicError::Vanished { topic });
                }
                // Whatever the brokers' trouble is, it ends or becomes silence.
                Some(Err(_)) => {}
                None => self.look_for_end(index),
            }
            if started.elapsed() > SILENCE_MAX {
                return Err(TopicError::Silent {
                    topic: self.topic.clone(),
                    partition: self.partitions[index].number,
                });
            }
        }
    }

    /// Serves what is not a partition's own; keeps records that came before their queue was split.
    fn serve(&mut self) {
        while let Some(told) = self.consumer.poll(Duration::ZERO) {
            let Ok(message) = told else { continue };
            let (number, message) = (message.partition(), message.detach());
            let theirs = self.partitions.iter_mut().find(|one| one.number == number);
            if let Some(partition) = theirs {
                partition.early.push_back(message);
            }
        }
        self.consumer.context().take();
    }

    /// Nothing waits: what lies before the end may be markers and records of aborted transactions,
    /// which only the position tells of.
    fn look_for_end(&mut self, index: usize) {
        let Ok(positions) = self.consumer.position() else {
            return;
        };
        let partition = &mut self.partitions[index];
        let elements = positions.elements_for_topic(&self.topic);
        let own = elements
            .iter()
            .find(|one| one.partition() == partition.number);
        if let Some(KafkaOffset::Offset(next)) = own.map(|element| element.offset()) {
            partition.is_read = next >= partition.log.end;
        }
    }
}

impl Drop for WholeTopic {
    fn drop(&mut self) {
        // Dropping a consumer that still has partitions waits for somebody to let them go.
        self.consumer.context().close();
        let _ = self.consumer.unassign();
    }
}

impl Partition {
    /// The record, unless it was written after the topic was opened.
    fn within(&mut self, message: OwnedMessage) -> Option<OwnedMessage> {
        self.is_read = message.offset() + 1 >= self.log.end;
        (message.offset() < self.log.end).then_some(message)
    }
}

/// Finds out in plain words whether the topic may be read.
fn enter(kafka: &Kafka, topic: &str) -> Result<(), TopicError> {
    let survey = Survey::new(kafka).map_err(|error| match error {
        super::SourceError::Configuration(error) => TopicError::Configuration(error),
        other => TopicError::Configuration(KafkaError::ClientCreation(other.to_string())),
    })?;
    let brokers = || kafka.brokers.clone();
    survey.login().map_err(|trouble| match trouble {
        Some(trouble) if !matches!(trouble, Trouble::Network(_)) => TopicError::Refused {
            brokers: brokers(),
            who: client::who(kafka),
            trouble,
        },
        trouble => TopicError::Away {
            brokers: brokers(),
            trouble,
        },
    })?;
    let forbidden = || TopicError::Forbidden {
        topic: topic.to_owned(),
        who: client::who(kafka),
    };
    match survey.topic(topic) {
        Ok(rights) if rights.allow(Operation::Read) => Ok(()),
        Ok(_) | Err(RDKafkaErrorCode::TopicAuthorizationFailed) => Err(forbidden()),
        Err(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
            Err(TopicError::Missing {
                topic: topic.to_owned(),
                brokers: brokers(),
            })
        }
        Err(code) => Err(TopicError::NoAnswer {
            topic: topic.to_owned(),
            cause: KafkaError::MetadataFetch(code),
        }),
    }
}

/// Where each partition begins, and ends for a reader of committed transactions.
fn logs(
    consumer: &BaseConsumer<Context>,
    topic: &str,
) -> Result<Vec<(i32, Range<i64>)>, KafkaError> {
    let told = consumer.fetch_metadata(Some(topic), LOOKUP_MAX)?;
    let partitions = told.topics().iter().flat_map(|topic| topic.partitions());
    let mut logs = Vec::new();
    for partition in partitions {
        let (low, high) = consumer.fetch_watermarks(topic, partition.id(), LOOKUP_MAX)?;
        logs.push((partition.id(), low..high));
    }
    logs.sort_by_key(|(number, _)| *number);
    Ok(logs)
}
