//! Records and assignments out of Kafka, commits and dead letters back into it.
//!
//! Deliberately no domain: it says what happened, one event at a time, and does what the driver
//! asks. Everything runs on the driver's thread but the dead letters.

mod assignment;
mod client;
mod dead_letter;
mod list;
mod position;
mod reading;
mod rebalance;
mod rights;
mod survey;
mod topics;
mod trouble;
mod whole;

pub use assignment::{Assignment, Remembered};
pub use dead_letter::DeadLetters;
pub use rebalance::{Change, Place};
pub use rights::{Operation, Rights};
pub use survey::{Cluster, Survey};
pub use trouble::Trouble;
pub use whole::{TopicError, WholeTopic};

use crate::clock::Clock;
use crate::config::{Config, Kafka};
use crate::core::ledger::{self, Watermark};
use crate::core::{LogSource, LogTime, Now, Offset, PartitionId, TopicDefaults};
use crate::warn_rarely;
use assignment::made_anew;
use list::{commit_with_result, list_of, log_refusal, marks_of};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use reading::Reading;
use rebalance::{Context, Statistics};
use std::ops::Range;
use std::time::Duration;
use topics::Topics;

/// Bound on looking up commits and ends while partitions are being assigned.
const LOOKUP_MAX: Duration = Duration::from_secs(10);
/// How long the brokers may take to answer at the start before the daemon goes on unready.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(5);
/// Bound on asking for the cluster's id, which is mostly known by then.
const CLUSTER_MAX: Duration = Duration::from_secs(1);
/// Before a look-up or a commit that failed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// One thing that happened.
#[derive(Debug)]
pub enum SourceEvent<'c> {
    Record(SourceRecord<'c>),
    News(News),
}

/// What happened beside records.
#[derive(Debug)]
pub enum News {
    Changed(Change),
    /// Everything below `next` was read, and log time is at least `log_time`.
    CaughtUp {
        partition: PartitionId,
        next: Offset,
        log_time: Option<LogTime>,
    },
    /// Offsets not read yet; `None` while the end is unknown.
    Lag {
        place: Place,
        records: Option<u64>,
        /// The broker's time of the newest record read.
        newest: Option<LogTime>,
    },
    /// What became of a commit.
    Committed {
        is_ok: bool,
    },
    /// Retention removed records before they were read.
    RecordsLost {
        place: Place,
        records: u64,
    },
    Idle,
    /// Going on is pointless: `poll` would hand out records that are not ours.
    Fatal(SourceError),
}

/// A record, borrowed from librdkafka.
#[derive(Debug)]
pub struct SourceRecord<'c> {
    pub partition: PartitionId,
    pub offset: Offset,
    pub logged_at: LogTime,
    message: BorrowedMessage<'c>,
}

impl SourceRecord<'_> {
    pub fn key(&self) -> Option<&[u8]> {
        self.message.key()
    }

    pub fn payload(&self) -> Option<&[u8]> {
        self.message.payload()
    }

    pub fn headers(&self) -> Vec<(&str, Option<&[u8]>)> {
        let headers = self.message.headers();
        headers.map_or_else(Vec::new, |headers| {
            let pairs = headers.iter().map(|header| (header.key, header.value));
            pairs.collect()
        })
    }
}

/// Why the source cannot go on, or not begin.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("Kafka at {brokers} refused the login of {who}: {trouble}")]
    LoginRefused {
        brokers: String,
        /// User and mechanism, or the file of a certificate.
        who: String,
        trouble: Trouble,
    },
    #[error("librdkafka refuses the configuration: {0}")]
    Configuration(#[source] KafkaError),
    #[error(
        "another instance with instance_id {0:?} is in the group, and only one may be; \
         give each its own: kafka.instance_id, or --instance-id"
    )]
    Fenced(String),
    #[error("Kafka ended this consumer for good: {0}; run `tachograph check`")]
    Fatal(RDKafkaErrorCode),
}

/// The consumer and what it holds.
pub struct Source {
    consumer: BaseConsumer<Context>,
    // Apart from the consumer, from which a record is borrowed while this changes.
    state: State,
}

struct State {
    kafka: Kafka,
    defaults: Box<dyn Fn(&str) -> TopicDefaults + Send>,
    clock: Clock,
    reading: Reading,
    /// Assigned, but commits or ends could not be looked up.
    pending: Vec<Place>,
    pending_due: Now,
    has_joined: bool,
    topics: Topics,
    /// Why no broker is heard, in the newest words.
    trouble: Option<Trouble>,
}

impl Source {
    /// Makes the consumer, looks whether the brokers let it in, and subscribes.
    ///
    /// # Errors
    /// A refused login, or settings that librdkafka refuses. Brokers that do not answer are none.
    pub fn connect(config: &Config, clock: Clock) -> Result<Source, SourceError> {
        let kafka = config.kafka.clone();
        let consumer: BaseConsumer<Context> = client::consumer(&kafka)
            .create_with_context(Context::default())
            .map_err(SourceError::Configuration)?;
        let all = config.clone();
        let mut state = State {
            topics: Topics::new(&kafka),
            kafka,
            defaults: Box::new(move |topic| all.topic_defaults(topic)),
            clock,
            reading: Reading::new(clock, config.limits.quiet_margin),
            pending: Vec::new(),
            pending_due: Now::default(),
            has_joined: false,
            trouble: None,
        };
        state.knock(&consumer)?;
        let subscribed = state.topics.keep_up(&consumer, clock.now());
        subscribed.map_err(SourceError::Configuration)?;
        Ok(Source { consumer, state })
    }

    /// The next thing that happened, waiting up to `timeout`. Must be called often: a consumer
    /// that does not poll is thrown out of its group.
    pub fn next(&mut self, timeout: Duration) -> SourceEvent<'_> {
        let Source { consumer, state } = self;
        if let Some(event) = state.reading.queue.pop_front() {
            return SourceEvent::News(event);
        }
        let polled = consumer.poll(timeout);
        let happened = consumer.context().take();
        // Statistics come once a second, however much there is to read.
        let statistics = happened.statistics.as_ref();
        if statistics.is_some_and(Statistics::has_broker) {
            state.keep_up(consumer);
        }
        let reasons = state.reading.absorb(happened, consumer);
        match polled {
            Some(Ok(message)) => match state.reading.record(&message) {
                Some((partition, logged_at)) => SourceEvent::Record(SourceRecord {
                    partition,
                    offset: Offset(message.offset()),
                    logged_at,
                    message,
                }),
                None => SourceEvent::News(News::Idle),
            },
            Some(Err(error)) => {
                state.hear(&reasons);
                SourceEvent::News(state.trouble(consumer, &error, &reasons))
            }
            None => SourceEvent::News(state.idle(consumer)),
        }
    }

    /// Takes assigned partitions over: looks up what was committed and where their logs begin and
    /// end, and starts reading. Empty where that failed: they come again as `Changed`.
    pub fn assign(&mut self, places: &[Place], counted: Remembered<'_>) -> Vec<Assignment> {
        let Source { consumer, state } = self;
        match state.assign(consumer, places, counted) {
            Ok(assignments) => {
                state.has_joined = true;
                assignments
            }
            Err(error) => {
                warn_rarely!("assign", %error, "cannot take over partitions yet; trying again");
                state.pending = places.to_vec();
                state.pending_due = Now(state.clock.now().0 + RETRY_AFTER);
                Vec::new()
            }
        }
    }

    /// The numbers of those of `places` that are held.
    pub fn partitions(&self, places: &[Place]) -> Vec<PartitionId> {
        let reading = &self.state.reading;
        let ids = places
            .iter()
            .map(|place| reading.find(&place.topic, place.partition));
        ids.flatten().collect()
    }

    /// Where a partition is, while it is held.
    pub fn place(&self, partition: PartitionId) -> Option<&Place> {
        self.state.reading.place(partition)
    }

    /// Lets partitions go, as the answer to `Revoked` and `Lost`.
    pub fn unassign(&mut self, places: &[Place]) {
        let Source { consumer, state } = self;
        let (waiting, ours): (Vec<&Place>, Vec<&Place>) = places
            .iter()
            .partition(|place| state.pending.contains(place));
        if !waiting.is_empty() {
            // librdkafka lets go only of what was assigned.
            let list = list_of(
                waiting
                    .into_iter()
                    .map(|place| (place, KafkaOffset::Invalid)),
            );
            log_refusal("incremental_assign", consumer.incremental_assign(&list));
            state.pending.retain(|place| !places.contains(place));
        }
        for place in ours {
            state.reading.end(place);
        }
        let list = list_of(places.iter().map(|place| (place, KafkaOffset::Invalid)));
        log_refusal("incremental_unassign", consumer.incremental_unassign(&list));
    }

    /// Stops or resumes delivery of every held partition.
    pub fn pause(&mut self, is_paused: bool) {
        let reading = &mut self.state.reading;
        reading.is_paused = is_paused;
        let places = reading.places();
        let list = list_of(places.iter().map(|place| (place, KafkaOffset::Invalid)));
        let done = match is_paused {
            true => self.consumer.pause(&list),
            false => self.consumer.resume(&list),
        };
        log_refusal("pause or resume", done);
    }

    /// Commits without waiting; the result comes as [`News::Committed`], and what failed is
    /// tried again until newer marks come.
    pub fn commit(&mut self, marks: &[(PartitionId, Watermark)]) {
        let list = self.state.reading.committing(marks);
        if list.count() > 0
            && let Err(code) = commit_with_result(&self.consumer, &list)
        {
            warn_rarely!("commit", %code, "a commit was refused; it is repeated");
            self.state.reading.commit_failed(marks);
        }
    }

    /// Commits and waits, for the moment before partitions are let go.
    ///
    /// # Errors
    /// What the broker, or librdkafka, says.
    pub fn commit_now(&mut self, marks: &[(PartitionId, Watermark)]) -> KafkaResult<()> {
        let list = self.state.reading.committing(marks);
        match list.count() {
            0 => Ok(()),
            _ => self.consumer.commit(&list, CommitMode::Sync),
        }
    }

    /// The cluster's id; `None` while no broker has told.
    pub fn cluster(&self) -> Option<String> {
        self.consumer.client().fetch_cluster_id(CLUSTER_MAX)
    }

    /// Why there is nothing to read yet, or no longer.
    pub fn reason(&self) -> Option<String> {
        self.state.reason()
    }

    /// Begins to leave the group: one last `Revoked` follows, then [`Source::is_closed`]. False
    /// where there is nothing to wait for.
    pub fn begin_close(&mut self) -> bool {
        self.consumer.close_queue().is_ok()
    }

    /// True once the group is left.
    pub fn is_closed(&self) -> bool {
        self.consumer.closed()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // Dropping the consumer polls until it is closed, while nobody acts on the queue any more:
        // what librdkafka may be waiting for is answered here, the rest by the context.
        self.consumer.context().close();
        let nothing = TopicPartitionList::new();
        let _ = self.consumer.incremental_assign(&nothing);
        if let Ok(all) = self.consumer.assignment() {
            let _ = self.consumer.incremental_unassign(&all);
        }
    }
}

impl State {
    /// Waits a little for the first answer, since a refused login is seen only by asking.
    fn knock(&mut self, consumer: &BaseConsumer<Context>) -> Result<(), SourceError> {
        let until = self.clock.now().0 + FIRST_ANSWER_MAX;
        while self.clock.now().0 < until {
            let step = Duration::from_millis(500);
            if consumer.fetch_metadata(self.topics.first(), step).is_ok() {
                self.reading.has_broker = true;
                self.topics.look(consumer, self.clock.now());
                return Ok(());
            }
            // Errors are served by polling; before the subscription nothing else is.
            while consumer.poll(Duration::ZERO).is_some() {}
            let troubles = consumer.context().take().troubles;
            self.hear(&troubles);
            if let Some(trouble) = self.trouble.take_if(|trouble| trouble.is_refusal()) {
                return Err(SourceError::LoginRefused {
                    brokers: self.kafka.brokers.clone(),
                    who: client::who(&self.kafka),
                    trouble,
                });
            }
        }
        Ok(())
    }

    /// Keeps the words that say most of why no broker is heard.
    fn hear(&mut self, troubles: &[(RDKafkaErrorCode, String)]) {
        for (code, reason) in troubles {
            let trouble = Trouble::of(*code, reason);
            self.trouble = trouble.or_else(|| self.trouble.take());
        }
    }

    fn assign(
        &mut self,
        consumer: &BaseConsumer<Context>,
        places: &[Place],
        counted: Remembered<'_>,
    ) -> KafkaResult<Vec<Assignment>> {
        let wanted = list_of(places.iter().map(|place| (place, KafkaOffset::Invalid)));
        let committed = match places.is_empty() {
            true => wanted,
            false => consumer.committed_offsets(wanted, LOOKUP_MAX)?,
        };
        let mut found = Vec::new();
        for element in committed.elements() {
            element.error()?;
            let marks = match element.offset() {
                KafkaOffset::Offset(offset) => Some(marks_of(offset, &element)),
                _ => None,
            };
            let (topic, partition) = (element.topic(), element.partition());
            let (low, high) = consumer.fetch_watermarks(topic, partition, LOOKUP_MAX)?;
            let place = places
                .iter()
                .find(|place| *place.topic == *topic && place.partition == partition);
            if let Some(place) = place {
                found.push((place, marks, Offset(low)..Offset(high)));
            }
        }
        let made_anew = made_anew(consumer, places, counted)?;
        let starts: Vec<Offset> = found
            .iter()
            .map(|(_, marks, log)| ledger::take_over(*marks, log).start)
            .collect();
        let pairs = found.iter().zip(&starts);
        consumer.incremental_assign(&list_of(
            pairs.map(|((place, _, _), start)| (*place, KafkaOffset::Offset(start.0))),
        ))?;
        let assignments = found.into_iter().zip(starts);
        let begin = |((place, committed, log), start)| Assignment {
            is_made_anew: made_anew.contains(place),
            ..self.begin(place, committed, log, start)
        };
        Ok(assignments.map(begin).collect())
    }

    fn begin(
        &mut self,
        place: &Place,
        committed: Option<Watermark>,
        log: Range<Offset>,
        start: Offset,
    ) -> Assignment {
        let taken = ledger::take_over(committed, &log);
        let (topic, number) = (&place.topic, place.partition);
        if taken.is_void {
            tracing::warn!(%topic, partition = number, "the marks lie beyond the log's end: \
                the topic was made anew, reading it from its start");
        }
        if taken.lost_records > 0 {
            self.lost(place, taken.lost_records);
        }
        let from = start.0;
        tracing::info!(%topic, partition = number, from, end = log.end.0, "partition assigned");
        Assignment {
            partition: self.reading.begin(place, start),
            source: LogSource {
                topic: place.topic.clone(),
                partition: number,
                defaults: (self.defaults)(topic),
            },
            committed,
            log,
            is_made_anew: false,
        }
    }

    fn lost(&mut self, place: &Place, records: u64) {
        let (topic, partition) = (&place.topic, place.partition);
        tracing::error!(%topic, partition, records, "retention removed records before they were \
            read: their rows and counts are missing");
        self.reading.queue.push_back(News::RecordsLost {
            place: place.clone(),
            records,
        });
    }

    /// What an error out of `poll` means.
    fn trouble(
        &mut self,
        consumer: &BaseConsumer<Context>,
        error: &KafkaError,
        reasons: &[(RDKafkaErrorCode, String)],
    ) -> News {
        let code = match error {
            KafkaError::PartitionEOF(partition) => {
                self.reading.end_reached(*partition, consumer);
                return self.idle(consumer);
            }
            KafkaError::MessageConsumptionFatal(code) => {
                return News::Fatal(self.fatal(*code));
            }
            KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset) => {
                self.offsets_jumped(consumer);
                return self.idle(consumer);
            }
            other => other.rdkafka_error_code(),
        };
        let code = code.unwrap_or(RDKafkaErrorCode::Unknown);
        let said = reasons.iter().find(|(other, _)| *other == code);
        let reason = said.map_or("", |(_, reason)| reason.as_str());
        match code {
            RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => {
                self.topics.look(consumer, self.clock.now());
            }
            code => {
                let brokers = &self.kafka.brokers;
                warn_rarely!(&format!("kafka {code:?}"), %code, brokers, reason, "Kafka is in \
                    trouble; going on by itself when it is over");
            }
        }
        self.idle(consumer)
    }

    fn fatal(&self, code: RDKafkaErrorCode) -> SourceError {
        match code {
            // The classic protocol ends the older of two, KIP-848 the newer.
            RDKafkaErrorCode::FencedInstanceId | RDKafkaErrorCode::UnreleasedInstanceId => {
                SourceError::Fenced(self.kafka.instance_id.clone())
            }
            code => SourceError::Fatal(code),
        }
    }

    /// Reads new topics too.
    fn keep_up(&mut self, consumer: &BaseConsumer<Context>) {
        if let Err(error) = self.topics.keep_up(consumer, self.clock.now()) {
            warn_rarely!("subscribe", %error, "librdkafka refused the subscription");
        }
    }

    /// What is due while there is nothing to read.
    fn idle(&mut self, consumer: &BaseConsumer<Context>) -> News {
        let now = self.clock.now();
        if let Some(code) = self.reading.fatal.take() {
            return News::Fatal(self.fatal(code));
        }
        if !self.pending.is_empty() && now >= self.pending_due {
            let pending = std::mem::take(&mut self.pending);
            return News::Changed(Change::Assigned(pending));
        }
        let repeated = self.reading.uncommitted(now);
        if !repeated.is_empty() {
            let list = self.reading.committing(&repeated);
            if commit_with_result(consumer, &list).is_err() {
                self.reading.commit_failed(&repeated);
            }
        }
        self.reading.queue.pop_front().unwrap_or(News::Idle)
    }

    /// One partition's next record is not there: it is one without a position. Finds out which,
    /// and reads on at the log's start.
    fn offsets_jumped(&mut self, consumer: &BaseConsumer<Context>) {
        for (place, next) in self.reading.without_position(consumer) {
            let ends = consumer.fetch_watermarks(&place.topic, place.partition, LOOKUP_MAX);
            let Ok((low, high)) = ends else { continue };
            if next.0 > high {
                // The log is another one. Nothing that is held has anything to do with it.
                let lost = Change::Lost(vec![place.clone()]);
                self.reading.queue.push_back(News::Changed(lost));
                let anew = Change::Assigned(vec![place]);
                self.reading.queue.push_back(News::Changed(anew));
            } else if next.0 < low {
                self.lost(&place, u64::try_from(low - next.0).unwrap_or(0));
                let again = list_of([(&place, KafkaOffset::Offset(low))].into_iter());
                log_refusal(
                    "incremental_unassign",
                    consumer.incremental_unassign(&again),
                );
                log_refusal("incremental_assign", consumer.incremental_assign(&again));
                if self.reading.is_paused {
                    log_refusal("pause", consumer.pause(&again));
                }
                self.reading.moved(&place, Offset(low));
            }
        }
    }

    fn reason(&self) -> Option<String> {
        if !self.reading.has_broker {
            let brokers = &self.kafka.brokers;
            return Some(match &self.trouble {
                Some(trouble) => format!("no broker of {brokers} takes us: {trouble}"),
                None => format!("no broker of {brokers} answers"),
            });
        }
        if let Some(reason) = self.topics.reason() {
            return Some(reason);
        }
        if !self.has_joined {
            return Some(format!("joining the group {:?}", self.kafka.group));
        }
        (!self.pending.is_empty()).then(|| "cannot look up commits and ends yet".to_owned())
    }
}
