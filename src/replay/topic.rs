//! A topic as one log: its partitions in the order of log time.
//!
//! Deliberately the order alone. It follows from the log, whatever the brokers delivered first:
//! log time as the daemon has it, never backwards within a partition, then partition, then offset.

use super::input::{InputError, LogRecord, Records};
use crate::clock::Clock;
use crate::config::Kafka;
use crate::core::{LogTime, Name, Offset};
use crate::kafka_source::WholeTopic;
use indicatif::ProgressBar;
use rdkafka::message::{Headers as _, Message as _, OwnedMessage, Timestamp};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Reads a topic from its start to where it ended when it was opened.
pub struct TopicReader {
    whole: WholeTopic,
    topic: Name,
    /// Log time of each partition.
    reached: Vec<LogTime>,
    /// The next record of each partition that has one, first the one to be read next.
    heads: BinaryHeap<Reverse<Head>>,
    /// Partitions whose next record is to be looked for.
    asked: Vec<usize>,
    /// The daemon's own clock, which the times of producers never pass (facts.md §8.1).
    wall: LogTime,
    progress: ProgressBar,
}

/// A partition's next record, ordered by all but what it says.
struct Head {
    at: LogTime,
    partition: usize,
    record: LogRecord,
}

impl Head {
    fn rank(&self) -> (LogTime, usize, Offset) {
        (self.at, self.partition, self.record.offset)
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl TopicReader {
    /// Logs in, and looks up where the topic begins and ends.
    ///
    /// # Errors
    /// [`InputError::Topic`].
    pub fn open(
        kafka: &Kafka,
        topic: &str,
        progress: ProgressBar,
    ) -> Result<TopicReader, InputError> {
        let whole = WholeTopic::open(kafka, topic)?;
        progress.set_length(whole.offsets());
        let partitions = whole.partition_count();
        Ok(TopicReader {
            whole,
            topic: Name::from(topic),
            reached: vec![LogTime(i64::MIN); partitions],
            heads: BinaryHeap::new(),
            asked: (0..partitions).collect(),
            wall: Clock::new().wall(),
            progress,
        })
    }

    fn head(&mut self, partition: usize, message: &OwnedMessage) -> Head {
        let logged_at = match message.timestamp() {
            Timestamp::LogAppendTime(ms) => LogTime(ms),
            other => other
                .to_millis()
                .map_or(self.wall, |ms| LogTime(ms).min(self.wall)),
        };
        let at = logged_at.max(self.reached[partition]);
        self.reached[partition] = at;
        let headers = message.headers().map_or_else(Vec::new, |headers| {
            let own = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
            let pairs = headers
                .iter()
                .map(|one| (one.key.to_owned(), own(one.value)));
            pairs.collect()
        });
        Head {
            at,
            partition,
            record: LogRecord {
                topic: Name::clone(&self.topic),
                partition: message.partition(),
                offset: Offset(message.offset()),
                key: message.key().map(<[u8]>::to_vec),
                headers,
                timestamp: Some(at),
                payload: message.payload().map(<[u8]>::to_vec),
            },
        }
    }
}

impl Records for TopicReader {
    fn next_record(&mut self) -> Result<Option<LogRecord>, InputError> {
        while let Some(partition) = self.asked.pop() {
            if let Some(message) = self.whole.next_of(partition)? {
                let head = self.head(partition, &message);
                self.heads.push(Reverse(head));
            }
        }
        let Some(Reverse(head)) = self.heads.pop() else {
            return Ok(None);
        };
        self.asked.push(head.partition);
        self.progress.inc(1);
        Ok(Some(head.record))
    }
}
