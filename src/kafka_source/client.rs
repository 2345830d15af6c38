//! The configuration to librdkafka's settings (kafka.md §5).

use crate::config::{GroupProtocol, Kafka, Protocol};
use rdkafka::ClientConfig;

/// Settings shared by the consumer and the producer of dead letters.
pub(super) fn connection(kafka: &Kafka) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", kafka.brokers.as_str());
    client.set("client.id", "tachograph");
    client.set("reconnect.backoff.max.ms", "1000");
    client.set("security.protocol", kafka.protocol.as_str());
    if matches!(kafka.protocol, Protocol::SaslPlaintext | Protocol::SaslSsl) {
        client.set("sasl.mechanism", kafka.sasl_mechanism.as_str());
        client.set("sasl.username", kafka.username.as_str());
        client.set("sasl.password", kafka.password.value.as_str());
    }
    for (name, value) in [
        ("ssl.ca.location", &kafka.ca_file),
        ("ssl.certificate.location", &kafka.certificate_file),
        ("ssl.key.location", &kafka.key_file),
    ] {
        if !value.is_empty() {
            client.set(name, value.as_str());
        }
    }
    client
}

/// Who comes, in words: never a password.
pub(super) fn who(kafka: &Kafka) -> String {
    match kafka.protocol {
        Protocol::SaslPlaintext | Protocol::SaslSsl => {
            format!("{:?} ({})", kafka.username, kafka.sasl_mechanism)
        }
        Protocol::Ssl if !kafka.certificate_file.is_empty() => {
            format!("the owner of {}", kafka.certificate_file)
        }
        Protocol::Plaintext | Protocol::Ssl => "anybody".to_owned(),
    }
}

/// Settings of the consumer.
pub(super) fn consumer(kafka: &Kafka) -> ClientConfig {
    let mut client = connection(kafka);
    for (name, value) in [
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        // A jump must be seen: with `earliest` it is silent.
        ("auto.offset.reset", "error"),
        ("enable.partition.eof", "true"),
        ("isolation.level", "read_committed"),
        ("statistics.interval.ms", "1000"),
        // A full local queue would put the fetcher to sleep for a second.
        ("fetch.queue.backoff.ms", "10"),
        ("queued.max.messages.kbytes", "16384"),
        ("queued.min.messages", "100000"),
        ("check.crcs", "true"),
        ("fetch.wait.max.ms", "100"),
        // How soon new partitions are found.
        ("topic.metadata.refresh.interval.ms", "10000"),
    ] {
        client.set(name, value);
    }
    for (name, value) in &kafka.properties {
        client.set(name.as_str(), value.as_str());
    }
    client.set("group.id", kafka.group.as_str());
    if !kafka.instance_id.is_empty() {
        client.set("group.instance.id", kafka.instance_id.as_str());
    }
    match kafka.group_protocol {
        GroupProtocol::Classic => {
            client.set("partition.assignment.strategy", "cooperative-sticky");
        }
        GroupProtocol::Consumer => {
            client.set("group.protocol", "consumer");
        }
    }
    client
}

/// Properties that only a consumer knows, and a producer would warn about.
const CONSUMER_ONLY: [&str; 9] = [
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "queued.min.messages",
    "queued.max.messages.kbytes",
    "check.crcs",
    "allow.auto.create.topics",
    "max.partition.fetch.bytes",
    "coordinator.query.interval.ms",
];

/// Settings of the producer of dead letters.
pub(super) fn producer(kafka: &Kafka) -> ClientConfig {
    let mut client = connection(kafka);
    for (name, value) in &kafka.properties {
        if !name.starts_with("fetch.") && !CONSUMER_ONLY.contains(&name.as_str()) {
            client.set(name.as_str(), value.as_str());
        }
    }
    for (name, value) in [
        ("acks", "all"),
        ("message.timeout.ms", "30000"),
        // The broker decides what is too large, and one letter must not be refused for another.
        ("message.max.bytes", "1000000000"),
        ("batch.num.messages", "1"),
        ("linger.ms", "0"),
        ("compression.type", "lz4"),
    ] {
        client.set(name, value);
    }
    client
}
