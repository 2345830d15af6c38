//! Which topics are read: those that are named, or those that a regex fits.
//!
//! Deliberately matched here. librdkafka and, with `group_protocol = "consumer"`, the broker would
//! each understand a regex of their own, and neither could leave out our own dead letters.

use super::rebalance::Context;
use crate::config::Kafka;
use crate::core::Now;
use crate::warn_rarely;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaResult;
use regex::Regex;
use std::collections::BTreeSet;
use std::time::Duration;

/// Bound on one look, on the loop's thread. A broker that is up answers within milliseconds.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// What the brokers keep for themselves begins so.
const INTERNAL: &str = "__";

/// The topics of the subscription.
pub(super) struct Topics {
    brokers: String,
    pattern: Option<Pattern>,
    /// Named, or found so far. One that is deleted stays: it may come again.
    names: BTreeSet<String>,
    /// Named, and not there.
    missing: BTreeSet<String>,
    /// How many of `names` are subscribed to.
    subscribed: usize,
    every: Duration,
    due: Now,
}

impl Topics {
    pub fn new(kafka: &Kafka) -> Topics {
        let pattern = Pattern::of(kafka);
        let names = match &pattern {
            Some(_) => BTreeSet::new(),
            None => kafka.topics.iter().cloned().collect(),
        };
        Topics {
            brokers: kafka.brokers.clone(),
            pattern,
            names,
            missing: BTreeSet::new(),
            subscribed: 0,
            every: kafka.topic_look_interval(),
            due: Now::default(),
        }
    }

    /// A topic to ask for where an answer is all that counts.
    pub fn first(&self) -> Option<&str> {
        self.names.first().map(String::as_str)
    }

    /// Looks where that is due, and subscribes to what was found.
    ///
    /// # Errors
    /// What librdkafka says of the subscription.
    pub fn keep_up(&mut self, consumer: &BaseConsumer<Context>, now: Now) -> KafkaResult<()> {
        let is_wanted = self.pattern.is_some() || !self.missing.is_empty();
        if is_wanted && now >= self.due {
            self.look(consumer, now);
        }
        self.subscribe(consumer)
    }

    /// Asks which of the topics are there.
    pub fn look(&mut self, consumer: &BaseConsumer<Context>, now: Now) {
        self.due = Now(now.0 + self.every);
        match &self.pattern {
            Some(pattern) => {
                let Ok(answer) = consumer.fetch_metadata(None, LOOK_MAX) else {
                    return;
                };
                let there = answer.topics().iter().map(|topic| topic.name());
                let fits = there.filter(|topic| pattern.fits(topic));
                self.names.extend(fits.map(str::to_owned));
            }
            None => self.look_for_names(consumer),
        }
    }

    fn look_for_names(&mut self, consumer: &BaseConsumer<Context>) {
        for topic in &self.names {
            let Ok(answer) = consumer.fetch_metadata(Some(topic), LOOK_MAX) else {
                return;
            };
            let is_there = answer.topics().iter().any(|seen| seen.error().is_none());
            if is_there {
                self.missing.remove(topic);
                continue;
            }
            self.missing.insert(topic.clone());
            let brokers = &self.brokers;
            warn_rarely!(
                &format!("topic {topic}"),
                topic,
                brokers,
                "the topic does not exist, or this login may not read it: create it; looking again"
            );
        }
    }

    /// Subscribes where there is more than before. An empty subscription would be none at all.
    fn subscribe(&mut self, consumer: &BaseConsumer<Context>) -> KafkaResult<()> {
        if self.subscribed == self.names.len() {
            return Ok(());
        }
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        if self.pattern.is_some() {
            tracing::info!(topics = ?names, "topics that the regex fits");
        }
        consumer.subscribe(&names)?;
        self.subscribed = names.len();
        Ok(())
    }

    /// What is missing, and what to do.
    pub fn reason(&self) -> Option<String> {
        let brokers = &self.brokers;
        if let Some(topic) = self.missing.first() {
            return Some(format!(
                "topic {topic:?} is not there on {brokers}: create it"
            ));
        }
        let pattern = self.pattern.as_ref().filter(|_| self.names.is_empty())?;
        let regex = pattern.regex.as_str();
        Some(format!(
            "no topic on {brokers} fits {regex:?}: create one, or let this login describe it"
        ))
    }
}

/// The regex of `kafka.topics`, and what must not be read although it fits.
pub(super) struct Pattern {
    regex: Regex,
    /// Fits the topics of dead letters.
    letters: Option<Regex>,
}

impl Pattern {
    /// `None` where topics are named.
    pub fn of(kafka: &Kafka) -> Option<Pattern> {
        // A regex that does not compile is refused with the configuration.
        let regex = Regex::new(kafka.topic_regex()?).ok()?;
        let letters = kafka.dead_letter_topic("TOPIC").and_then(|topic| {
            let escaped = regex::escape(&topic).replace("TOPIC", ".+");
            Regex::new(&format!("^{escaped}$")).ok()
        });
        Some(Pattern { regex, letters })
    }

    /// True where the topic is to be read.
    pub fn fits(&self, topic: &str) -> bool {
        let is_ours = !topic.starts_with(INTERNAL) && self.regex.is_match(topic);
        // Ours, or of another group with the same template: whoever reads dead letters writes them
        // again, and they go round for ever.
        let letters = self.letters.as_ref();
        is_ours && !letters.is_some_and(|letters| letters.is_match(topic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn fits(regex: &str, letters: &str, topics: &[&str]) -> Vec<String> {
        let mut kafka = Config::default().kafka;
        kafka.topics = vec![regex.to_owned()];
        kafka.dead_letters = letters.to_owned();
        let pattern = Pattern::of(&kafka).expect("a regex");
        let topics = topics.iter().filter(|topic| pattern.fits(topic));
        topics.map(|topic| (*topic).to_owned()).collect()
    }

    #[test]
    fn a_regex_reads_neither_dead_letters_nor_what_is_internal() {
        let topics = ["agent-a", "agent-a.dead-letters", "x", "__consumer_offsets"];
        let template = "{topic}.dead-letters";
        assert_eq!(fits("^.*", template, &topics), ["agent-a", "x"]);
        assert_eq!(fits("^agent-", template, &topics), ["agent-a"]);
        assert_eq!(fits("^agent-a$", template, &topics), ["agent-a"]);
        assert_eq!(fits("^agent-", "drop", &topics), topics[..2]);
    }

    #[test]
    fn every_template_of_dead_letters_is_left_out() {
        let topics = ["dead.a", "a", "dead", "dead.a.x", "a.x"];
        assert_eq!(
            fits("^.*", "dead.{topic}", &topics),
            ["a", "dead", "a.x"],
            "a prefix"
        );
        assert_eq!(
            fits("^.*", "dead.{topic}.x", &topics),
            ["dead.a", "a", "dead", "a.x"],
            "both"
        );
        assert_eq!(
            fits("^.*", "dead", &topics),
            ["dead.a", "a", "dead.a.x", "a.x"],
            "one topic for all"
        );
    }
}
