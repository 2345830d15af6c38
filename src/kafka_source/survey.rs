//! A look at Kafka through the daemon's own settings, without joining the group or writing.
//!
//! Deliberately facts only; what they mean for an operator is said elsewhere.

use super::rebalance::Context;
use super::rights::{self, Rights};
use super::topics::Pattern;
use super::trouble::Trouble;
use super::{SourceError, client};
use crate::config::{Kafka, Protocol};
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode;
use std::time::{Duration, Instant};

/// How long the brokers may take to let us in.
const LOGIN_MAX: Duration = Duration::from_secs(10);
/// How long they may take over one question.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Before a group's coordinator is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// A connection to look around with.
pub struct Survey {
    kafka: Kafka,
    consumer: BaseConsumer<Context>,
    admin: AdminClient<DefaultClientContext>,
}

/// What everybody who is let in may know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Each broker's number, host and port, as the brokers give them out.
    pub brokers: Vec<(i32, String, u16)>,
    /// Those of the topics that are there and that `kafka.topics` means.
    pub topics: Vec<String>,
}

impl Survey {
    /// Opens nothing yet.
    ///
    /// # Errors
    /// Settings that librdkafka refuses.
    pub fn new(kafka: &Kafka) -> Result<Survey, SourceError> {
        let consumer = client::consumer(kafka)
            .create_with_context(Context::default())
            .map_err(SourceError::Configuration)?;
        let admin = client::producer(kafka).create();
        Ok(Survey {
            kafka: kafka.clone(),
            consumer,
            admin: admin.map_err(SourceError::Configuration)?,
        })
    }

    /// Connects, encrypts and logs in, whatever of it is configured.
    ///
    /// # Errors
    /// Why no broker lets us in; `None` where none says so.
    pub fn login(&self) -> Result<Cluster, Option<Trouble>> {
        let started = Instant::now();
        let mut trouble = None;
        while started.elapsed() < LOGIN_MAX {
            let step = Duration::from_millis(500);
            if let Ok(answer) = self.consumer.fetch_metadata(None, step) {
                let brokers = answer.brokers().iter().map(|broker| {
                    let port = u16::try_from(broker.port()).unwrap_or(0);
                    (broker.id(), broker.host().to_owned(), port)
                });
                let topics = answer.topics().iter().map(|topic| topic.name());
                return Ok(Cluster {
                    brokers: brokers.collect(),
                    topics: self.wanted(topics),
                });
            }
            while self.consumer.poll(Duration::ZERO).is_some() {}
            for (code, reason) in self.consumer.context().take().troubles {
                trouble = Trouble::of(code, &reason).or(trouble);
            }
            let is_final =
                |trouble: &Trouble| trouble.is_refusal() || matches!(trouble, Trouble::Tls(_));
            if trouble.as_ref().is_some_and(is_final) {
                break;
            }
        }
        Err(trouble)
    }

    /// Who this login is, and how it comes.
    pub fn who(&self) -> String {
        let encrypted = match self.kafka.protocol {
            Protocol::Plaintext | Protocol::SaslPlaintext => "unencrypted",
            Protocol::Ssl | Protocol::SaslSsl => "over TLS",
        };
        format!("{}, {encrypted}", client::who(&self.kafka))
    }

    fn wanted<'t>(&self, topics: impl Iterator<Item = &'t str>) -> Vec<String> {
        let pattern = Pattern::of(&self.kafka);
        let is_wanted = |topic: &&str| match &pattern {
            Some(pattern) => pattern.fits(topic),
            None => self.kafka.topics.iter().any(|name| name == topic),
        };
        topics.filter(is_wanted).map(str::to_owned).collect()
    }

    /// What this login may do with `topic`.
    ///
    /// # Errors
    /// That the topic is not there, that it may not even be described, or that no answer came.
    pub fn topic(&self, topic: &str) -> Result<Rights, RDKafkaErrorCode> {
        rights::of_topic(self.consumer.client(), topic)
    }

    /// What this login may do with the group.
    ///
    /// # Errors
    /// That the group may not even be described, or that no answer came.
    pub fn group(&self) -> Result<Rights, RDKafkaErrorCode> {
        let started = Instant::now();
        loop {
            let answer = rights::of_group(self.consumer.client(), &self.kafka.group);
            // Whoever coordinates the group may have changed, or not be ready yet.
            let is_moving = matches!(
                answer,
                Err(RDKafkaErrorCode::NotCoordinator
                    | RDKafkaErrorCode::CoordinatorNotAvailable
                    | RDKafkaErrorCode::CoordinatorLoadInProgress)
            );
            if !is_moving || started.elapsed() > ANSWER_MAX {
                return answer;
            }
            std::thread::sleep(AGAIN_AFTER);
        }
    }

    /// One setting of a topic or broker; `None` where it may not be asked for, or no answer came.
    pub async fn setting(&self, of: ResourceSpecifier<'_>, name: &str) -> Option<String> {
        let options = AdminOptions::new().request_timeout(Some(ANSWER_MAX));
        let answer = self.admin.describe_configs([&of], &options).await.ok()?;
        // Where it may not be asked for, rdkafka gives no error but no entries.
        let described = answer.into_iter().next()?.ok()?;
        described.get(name)?.value.clone()
    }
}
