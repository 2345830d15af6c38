//! Kafka: brokers, login, topics, group, dead letters.

use super::network::{self, host_and_port};
use super::{Report, Verdict};
use crate::config::{Config, Kafka};
use crate::kafka_source::{Cluster, Operation, Survey, Trouble};
use rdkafka::admin::ResourceSpecifier;
use rdkafka::error::RDKafkaErrorCode;
use std::collections::BTreeSet;
use tokio::runtime::Runtime;

/// Where a broker listens that is named without a port.
const DEFAULT_PORT: u16 = 9092;
/// Which times the broker keeps (facts.md §8.1).
const TIMES: &str = "message.timestamp.type";
/// Whether a topic is made when somebody writes to it.
const AUTO_CREATE: &str = "auto.create.topics.enable";

pub(super) fn check(config: &Config, runtime: &Runtime, report: &mut Report<'_>) {
    let kafka = &config.kafka;
    let is_reached = bootstrap(kafka, report);
    let survey = match Survey::new(kafka) {
        Ok(survey) => survey,
        Err(error) => return report.say(Verdict::Wrong, "kafka", error.to_string()),
    };
    let entered = is_reached.then(|| login(kafka, &survey, report)).flatten();
    let Some(cluster) = entered else {
        let says = "topics, group and dead letters: no broker lets us in";
        return report.say(Verdict::Skipped, "kafka", says);
    };
    advertised(&cluster, report);
    let looker = Looker {
        kafka,
        survey,
        runtime,
    };
    let topics = looker.topics(&cluster, report);
    looker.group(report);
    looker.dead_letters(&topics, &cluster, report);
}

/// True where at least one of the named brokers takes connections.
fn bootstrap(kafka: &Kafka, report: &mut Report<'_>) -> bool {
    let mut is_reached = false;
    for address in kafka
        .brokers
        .split(',')
        .filter(|name| !name.trim().is_empty())
    {
        let (host, port) = host_and_port(address, DEFAULT_PORT);
        match network::trouble(&host, port, "kafka.brokers") {
            None => {
                is_reached = true;
                let says = format!("{host}:{port} takes connections");
                report.say(Verdict::Ok, "broker", says);
            }
            Some(trouble) => report.say(Verdict::Missing, "broker", trouble),
        }
    }
    is_reached
}

fn login(kafka: &Kafka, survey: &Survey, report: &mut Report<'_>) -> Option<Cluster> {
    let who = survey.who();
    match survey.login() {
        Ok(cluster) => {
            report.say(Verdict::Ok, "login", format!("{who}: let in"));
            return Some(cluster);
        }
        Err(Some(trouble)) if !matches!(trouble, Trouble::Network(_)) => {
            report.say(Verdict::Refused, "login", format!("{who}: {trouble}"));
        }
        Err(trouble) => {
            let words = trouble.map(|trouble| format!(" ({trouble})"));
            let says = format!(
                "{who}: connections are taken, and no broker answers{}: is kafka.protocol = {:?} \
                 what listens there?",
                words.unwrap_or_default(),
                kafka.protocol.as_str()
            );
            report.say(Verdict::Missing, "login", says);
        }
    }
    None
}

/// The addresses that brokers give out must lead somewhere from here, too.
fn advertised(cluster: &Cluster, report: &mut Report<'_>) {
    for (id, host, port) in &cluster.brokers {
        if let Some(trouble) = network::trouble(host, *port, "its advertised.listeners") {
            let says = format!("broker {id} gives out an address that leads nowhere: {trouble}");
            report.say(Verdict::Missing, "broker", says);
        }
    }
}

/// Asks what a login may do, once it is let in.
struct Looker<'a> {
    kafka: &'a Kafka,
    survey: Survey,
    runtime: &'a Runtime,
}

impl Looker<'_> {
    fn name(&self) -> &str {
        match self.kafka.username.as_str() {
            "" => "this client",
            name => name,
        }
    }

    /// Looks at each topic that is read; gives back those that are there.
    fn topics(&self, cluster: &Cluster, report: &mut Report<'_>) -> BTreeSet<String> {
        let wanted = match self.kafka.topic_regex() {
            Some(_) => &cluster.topics,
            None => &self.kafka.topics,
        };
        if let Some(regex) = self.kafka.topic_regex().filter(|_| wanted.is_empty()) {
            let says = format!(
                "no topic fits {regex:?}: create one, or grant DESCRIBE on them to {}",
                self.name()
            );
            report.say(Verdict::Missing, "topic", says);
        }
        let there = wanted.iter().filter(|topic| self.topic(topic, report));
        there.cloned().collect()
    }

    fn topic(&self, topic: &str, report: &mut Report<'_>) -> bool {
        let name = self.name();
        match self.survey.topic(topic) {
            Ok(rights) if rights.allow(Operation::Read) => {
                report.say(Verdict::Ok, "topic", format!("{topic} may be read"));
            }
            Ok(_) => {
                let says = format!(
                    "{topic}: {name} may see it and not read it: grant READ on topic {topic}"
                );
                report.say(Verdict::Refused, "topic", says);
            }
            Err(code) => {
                self.not_described("topic", "topic", topic, code, report);
                return false;
            }
        }
        self.times(topic, report);
        true
    }

    /// What an error about one topic or group means.
    fn not_described(
        &self,
        what: &'static str,
        kind: &str,
        name: &str,
        code: RDKafkaErrorCode,
        report: &mut Report<'_>,
    ) {
        let who = self.name();
        match code {
            RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => {
                report.say(
                    Verdict::Missing,
                    what,
                    format!("{name} is not there: create it"),
                );
            }
            RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::GroupAuthorizationFailed => {
                let says = format!(
                    "{name}: {who} may not even see it: grant READ on {kind} {name} (it may also \
                     not be there)"
                );
                report.say(Verdict::Refused, what, says);
            }
            code => {
                let says = format!("{name}: no answer about it ({code}): try again");
                report.say(Verdict::Missing, what, says);
            }
        }
    }

    fn times(&self, topic: &str, report: &mut Report<'_>) {
        let asked = self.survey.setting(ResourceSpecifier::Topic(topic), TIMES);
        let Some(kept) = self.runtime.block_on(asked) else {
            let says = format!(
                "{topic}: {TIMES} cannot be seen: make sure that it is LogAppendTime, or grant \
                 DESCRIBE_CONFIGS on topic {topic} to {}",
                self.name()
            );
            return report.say(Verdict::Warning, "topic", says);
        };
        match kept.as_str() {
            "LogAppendTime" => {
                let says = format!("{topic} keeps the broker's times");
                report.say(Verdict::Ok, "topic", says);
            }
            _ => {
                let says = format!(
                    "{topic}: {TIMES} is {kept}: set LogAppendTime, else a replay may differ"
                );
                report.say(Verdict::Warning, "topic", says);
            }
        }
    }

    fn group(&self, report: &mut Report<'_>) {
        let (group, name) = (&self.kafka.group, self.name());
        match self.survey.group() {
            Ok(rights) if rights.allow(Operation::Read) => {
                let says = format!("{group} may be joined and committed to");
                report.say(Verdict::Ok, "group", says);
            }
            Ok(_) => {
                let says = format!(
                    "{group}: {name} may see it and not join it: grant READ on group {group}"
                );
                report.say(Verdict::Refused, "group", says);
            }
            Err(code) => self.not_described("group", "group", group, code, report),
        }
    }

    fn dead_letters(&self, topics: &BTreeSet<String>, cluster: &Cluster, report: &mut Report<'_>) {
        if self.kafka.dead_letters == "drop" {
            let says = "are dropped, as kafka.dead_letters says";
            return report.say(Verdict::Ok, "dead letters", says);
        }
        let named = self
            .kafka
            .topics
            .iter()
            .filter(|name| !name.starts_with('^'));
        let letters = |topic: &String| self.kafka.dead_letter_topic(topic);
        let wanted: BTreeSet<String> = topics.iter().chain(named).filter_map(letters).collect();
        for topic in wanted {
            self.dead_letter_topic(&topic, cluster, report);
        }
    }

    fn dead_letter_topic(&self, topic: &str, cluster: &Cluster, report: &mut Report<'_>) {
        const WHAT: &str = "dead letters";
        match self.survey.topic(topic) {
            Ok(rights) if rights.allow(Operation::Write) => {
                report.say(Verdict::Ok, WHAT, format!("{topic} may be written to"));
            }
            Ok(_) => {
                let says = format!(
                    "{topic}: {} may see it and not write to it: grant WRITE on topic {topic}",
                    self.name()
                );
                report.say(Verdict::Refused, WHAT, says);
            }
            Err(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                if self.are_topics_made(cluster) {
                    let says = format!("{topic} is not there; the broker makes it when written to");
                    return report.say(Verdict::Ok, WHAT, says);
                }
                let says = format!(
                    "{topic} is not there: create it, or set kafka.dead_letters; until then the \
                     first unreadable record is held, and nothing is committed past it"
                );
                report.say(Verdict::Missing, WHAT, says);
            }
            Err(RDKafkaErrorCode::TopicAuthorizationFailed) => {
                let says = format!(
                    "{topic}: {} may not even see it: grant WRITE on topic {topic} (it may also \
                     not be there)",
                    self.name()
                );
                report.say(Verdict::Refused, WHAT, says);
            }
            Err(code) => {
                let says = format!("{topic}: no answer about it ({code}): try again");
                report.say(Verdict::Missing, WHAT, says);
            }
        }
    }

    /// Whether the brokers make topics by themselves. One that does not tell is taken not to.
    fn are_topics_made(&self, cluster: &Cluster) -> bool {
        let Some((id, _, _)) = cluster.brokers.first() else {
            return false;
        };
        let asked = self
            .survey
            .setting(ResourceSpecifier::Broker(*id), AUTO_CREATE);
        self.runtime.block_on(asked).as_deref() == Some("true")
    }
}
