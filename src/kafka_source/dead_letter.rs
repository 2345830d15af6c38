//! Records that could not be read, copied to the dead-letter topic.
//!
//! Deliberately patient: a letter is settled when the broker has it, however long that takes;
//! until then its offset is held back.

use super::{SourceError, client};
use crate::config::Kafka;
use crate::core::ledger::WorkId;
use crate::core::pipeline::DeadLetter;
use crate::warn_rarely;
use rand::Rng as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What is kept of a record that the broker refuses as too large.
const TRUNCATED_BYTES: usize = 64 << 10;
const BACK_OFF_FIRST: Duration = Duration::from_millis(200);
const BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// Told each piece of work that is settled.
pub type Settle = Arc<dyn Fn(WorkId) + Send + Sync>;

/// The producer of dead letters. Its letters in flight are bounded by the pipeline.
#[derive(Clone)]
pub struct DeadLetters {
    kafka: Arc<Kafka>,
    producer: FutureProducer,
    settle: Settle,
    runtime: tokio::runtime::Handle,
    failing: Arc<AtomicUsize>,
}

impl DeadLetters {
    /// A producer whose letters are sent on `runtime`.
    ///
    /// # Errors
    /// Settings that librdkafka refuses.
    pub fn new(
        kafka: &Kafka,
        settle: Settle,
        runtime: tokio::runtime::Handle,
    ) -> Result<DeadLetters, SourceError> {
        let producer = client::producer(kafka).create();
        Ok(DeadLetters {
            kafka: Arc::new(kafka.clone()),
            producer: producer.map_err(SourceError::Configuration)?,
            settle,
            runtime,
            failing: Arc::default(),
        })
    }

    /// Sends one letter, and says so when the broker has it. Returns at once.
    pub fn send(&self, letter: Box<DeadLetter>) {
        match self.kafka.dead_letter_topic(&letter.at.topic) {
            None => {
                let (topic, partition) = (&letter.at.topic, letter.at.partition);
                warn_rarely!("drop", %topic, partition, offset = letter.at.offset.0,
                    reason = letter.reason.as_str(),
                    "an unreadable record was dropped, as kafka.dead_letters says");
                (self.settle)(letter.work);
            }
            Some(topic) => {
                let letters = self.clone();
                self.runtime.spawn(letters.deliver(topic, letter));
            }
        }
    }

    /// Why letters wait, while some do.
    pub fn reason(&self) -> Option<String> {
        let failing = self.failing.load(Ordering::Relaxed);
        (failing > 0).then(|| {
            let template = &self.kafka.dead_letters;
            format!("{failing} dead letters cannot be written to {template:?}: see the log")
        })
    }

    async fn deliver(self, topic: String, letter: Box<DeadLetter>) {
        let mut is_truncated = false;
        let mut back_off = BACK_OFF_FIRST;
        let mut has_failed = false;
        loop {
            let code = match self.attempt(&topic, &letter, is_truncated).await {
                Ok(()) => break,
                Err(code) => code,
            };
            let is_too_large = matches!(
                code,
                RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::MessageBatchTooLarge
            );
            if is_too_large && !is_truncated && letter.payload.len() > TRUNCATED_BYTES {
                is_truncated = true;
                continue;
            }
            warn_rarely!(&format!("dead letter {code:?}"), topic, %code,
                "a dead letter was not written and its offset is held: is the topic there, and may \
                this login write to it? Or set kafka.dead_letters = \"drop\"");
            if !std::mem::replace(&mut has_failed, true) {
                self.failing.fetch_add(1, Ordering::Relaxed);
            }
            let jitter = rand::rng().random_range(0.5..1.0);
            tokio::time::sleep(back_off.mul_f64(jitter)).await;
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
        if has_failed {
            self.failing.fetch_sub(1, Ordering::Relaxed);
        }
        (self.settle)(letter.work);
    }

    async fn attempt(
        &self,
        topic: &str,
        letter: &DeadLetter,
        is_truncated: bool,
    ) -> Result<(), RDKafkaErrorCode> {
        let mut payload = letter.payload.as_slice();
        if is_truncated {
            payload = &payload[..TRUNCATED_BYTES.min(payload.len())];
        }
        let mut record: FutureRecord<'_, [u8], [u8]> = FutureRecord::to(topic)
            .payload(payload)
            .timestamp(letter.logged_at.0)
            .headers(headers(letter, is_truncated));
        record.key = letter.key.as_deref();
        let code = |error: KafkaError| {
            let code = error.rdkafka_error_code();
            code.unwrap_or(RDKafkaErrorCode::Unknown)
        };
        let delivery = self.producer.send_result(record);
        let delivery = delivery.map_err(|(error, _)| code(error))?;
        match delivery.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err((error, _))) => Err(code(error)),
            Err(_) => Err(RDKafkaErrorCode::Unknown),
        }
    }
}

/// The record's own headers, then ours (config.md).
fn headers(letter: &DeadLetter, is_truncated: bool) -> OwnedHeaders {
    let mut headers = OwnedHeaders::new();
    for (key, value) in &letter.headers {
        headers = headers.insert(Header {
            key,
            value: value.as_deref(),
        });
    }
    let ours = [
        ("tachograph_reason", letter.reason.as_str().to_owned()),
        ("tachograph_topic", letter.at.topic.to_string()),
        ("tachograph_partition", letter.at.partition.to_string()),
        ("tachograph_offset", letter.at.offset.0.to_string()),
        ("tachograph_timestamp", letter.logged_at.0.to_string()),
        ("tachograph_version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    for (key, value) in &ours {
        headers = headers.insert(Header {
            key,
            value: Some(value.as_str()),
        });
    }
    if is_truncated {
        let size = letter.payload.len().to_string();
        headers = headers.insert(Header {
            key: "tachograph_truncated",
            value: Some(size.as_str()),
        });
    }
    headers
}
