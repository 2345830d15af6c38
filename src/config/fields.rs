//! Every key of the file with its place in [`Config`], once: parsing, printing and the test of the
//! example file all walk this list.

use super::{Choice, Config, Secret, Topic};
use crate::core::Limits;
use std::collections::BTreeMap;
use std::time::Duration;

/// A key's place, by the way its value is spelled.
pub(super) enum Field<'a> {
    Text(&'a mut String),
    Texts(&'a mut Vec<String>),
    Word(&'a mut dyn Choice),
    Flag(&'a mut bool),
    /// A size: an integer, or text such as `8 MiB`.
    Bytes(&'a mut usize),
    Count(&'a mut usize),
    Count32(&'a mut u32),
    Count64(&'a mut u64),
    Offsets(&'a mut i64),
    /// A duration: text such as `30 min`.
    Span(&'a mut Duration),
    /// A table of librdkafka's own properties.
    Properties(&'a mut BTreeMap<String, String>),
}

/// Told each key in the order of the file.
pub(super) type Visit<'v> = &'v mut dyn FnMut(&'static str, Field<'_>);

/// The keys of one section, by its name; `[[topic]]` is [`topic`].
pub(super) struct Section {
    pub name: &'static str,
    pub each: fn(&mut Config, Visit<'_>),
}

/// Every section but `[[topic]]`, in the order of the file.
pub(super) const SECTIONS: [Section; 9] = [
    section("kafka", kafka),
    section("clickhouse", clickhouse),
    section("http", |config, visit| {
        visit("listen", Field::Text(&mut config.http_listen));
    }),
    section("state", |config, visit| {
        visit("file", Field::Text(&mut config.state_file));
    }),
    section("labels", labels),
    section("prices", |config, visit| {
        visit("book", Field::Text(&mut config.price_book));
    }),
    section("privacy", |config, visit| {
        visit(
            "store_reasons",
            Field::Flag(&mut config.limits.store_reasons),
        );
    }),
    section("log", |config, visit| {
        visit("format", Field::Word(&mut config.log_format));
    }),
    section("limits", |config, visit| limits(&mut config.limits, visit)),
];

const fn section(name: &'static str, each: fn(&mut Config, Visit<'_>)) -> Section {
    Section { name, each }
}

fn kafka(config: &mut Config, visit: Visit<'_>) {
    let kafka = &mut config.kafka;
    visit("brokers", Field::Text(&mut kafka.brokers));
    visit("group", Field::Text(&mut kafka.group));
    visit("topics", Field::Texts(&mut kafka.topics));
    visit("instance_id", Field::Text(&mut kafka.instance_id));
    visit("protocol", Field::Word(&mut kafka.protocol));
    visit("sasl_mechanism", Field::Text(&mut kafka.sasl_mechanism));
    visit("username", Field::Text(&mut kafka.username));
    secret(&mut kafka.password, visit);
    visit("ca_file", Field::Text(&mut kafka.ca_file));
    visit("certificate_file", Field::Text(&mut kafka.certificate_file));
    visit("key_file", Field::Text(&mut kafka.key_file));
    visit("group_protocol", Field::Word(&mut kafka.group_protocol));
    visit("dead_letters", Field::Text(&mut kafka.dead_letters));
    visit("properties", Field::Properties(&mut kafka.properties));
}

fn secret(secret: &mut Secret, visit: Visit<'_>) {
    visit("password_env", Field::Text(&mut secret.env));
    visit("password_file", Field::Text(&mut secret.file));
}

/// The keys of one `[[topic]]`.
pub(super) fn topic(topic: &mut Topic, visit: Visit<'_>) {
    visit("name", Field::Text(&mut topic.name));
    visit("dialect", Field::Text(&mut topic.dialect));
    visit("tenant", Field::Text(&mut topic.tenant));
    visit("app", Field::Text(&mut topic.app));
    visit("producer", Field::Text(&mut topic.producer));
    visit(
        "event_time_semantics",
        Field::Word(&mut topic.event_time_semantics),
    );
}

fn clickhouse(config: &mut Config, visit: Visit<'_>) {
    let clickhouse = &mut config.clickhouse;
    visit("url", Field::Text(&mut clickhouse.url));
    visit("database", Field::Text(&mut clickhouse.database));
    visit("user", Field::Text(&mut clickhouse.user));
    secret(&mut clickhouse.password, visit);
    visit("ca_file", Field::Text(&mut clickhouse.ca_file));
    visit("compression", Field::Word(&mut clickhouse.compression));
}

fn labels(config: &mut Config, visit: Visit<'_>) {
    let labels = &mut config.labels;
    visit("max_values", Field::Count(&mut labels.max_values));
    visit(
        "max_series_per_family",
        Field::Count(&mut labels.max_series_per_family),
    );
    visit("known_models", Field::Texts(&mut labels.known_models));
}

fn limits(limits: &mut Limits, visit: Visit<'_>) {
    use Field::{Bytes, Count, Count32, Count64, Offsets, Span};
    visit("payload_bytes_max", Bytes(&mut limits.payload_bytes_max));
    visit("batch_facts_max", Count(&mut limits.batch_facts_max));
    visit("batch_bytes_max", Bytes(&mut limits.batch_bytes_max));
    visit("batch_age_max", Span(&mut limits.batch_age_max));
    visit("work_in_flight_max", Count(&mut limits.work_in_flight_max));
    visit("silence_max", Span(&mut limits.silence_max));
    visit("tool_silence_max", Span(&mut limits.tool_silence_max));
    visit("held_records_max", Offsets(&mut limits.held_records_max));
    visit("segments_open_max", Count(&mut limits.segments_open_max));
    visit(
        "branches_per_run_max",
        Count(&mut limits.branches_per_run_max),
    );
    visit("calls_per_run_max", Count(&mut limits.calls_per_run_max));
    visit(
        "records_per_run_max",
        Count32(&mut limits.records_per_run_max),
    );
    visit("id_bytes_max", Count(&mut limits.id_bytes_max));
    visit(
        "attribute_bytes_max",
        Count(&mut limits.attribute_bytes_max),
    );
    visit(
        "plausible_tokens_max",
        Count64(&mut limits.plausible_tokens_max),
    );
    visit("names_interned_max", Count(&mut limits.names_interned_max));
    visit("commit_interval", Span(&mut limits.commit_interval));
    visit("drain_max", Span(&mut limits.drain_max));
    visit("quiet_margin", Span(&mut limits.quiet_margin));
}
