//! TOML to a [`Config`]: key by key, so that one wrong value does not hide the next.

use super::fields::{self, Field, SECTIONS, Visit};
use super::value::{parse_bytes, parse_span};
use super::{Config, GroupProtocol, Problem, Protocol, Secret, Topic};
use crate::core::event::Dialect;
use std::collections::BTreeMap;
use std::time::Duration;
use toml::{Table, Value};

/// What the command at hand cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// `run`: `kafka.brokers`, `clickhouse.url` and the secrets.
    Everything,
    /// `schema`: `clickhouse.url` and its secret.
    ClickHouse,
    /// `replay --topic`: `kafka.brokers` and its secret.
    Kafka,
    /// `replay` of files, `config print`: every key has a default, and secrets are not looked up.
    Nothing,
}

/// librdkafka properties that have a key of their own, or on which exactness rests.
const OWNED: [&str; 29] = [
    "bootstrap.servers",
    "metadata.broker.list",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "partition.assignment.strategy",
    "enable.auto.commit",
    "auto.commit.enable",
    "auto.commit.interval.ms",
    "enable.auto.offset.store",
    "auto.offset.reset",
    "enable.partition.eof",
    "isolation.level",
    "statistics.interval.ms",
    "topic.blacklist",
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.client.secret",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
    "enable.sasl.oauthbearer.unsecure.jwt",
];

/// Parts of the names of properties that hold secrets themselves, aliases included.
const SECRET: [&str; 6] = [
    "password",
    "passphrase",
    "secret",
    "key.pem",
    "oauthbearer.config",
    "jaas",
];

/// With KIP-848 the broker owns these.
const OWNED_BY_BROKER: [&str; 3] = [
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "group.protocol.type",
];

/// Dialects of events.md §1.
const DIALECTS: [&str; 6] = [
    "lifecycle",
    "adk",
    "anima",
    "bigquery",
    "otlp_json",
    "otlp_proto",
];

const PRODUCERS: [&str; 6] = ["", "adk-python", "adk-java", "adk-ts", "adk-go", "anima"];

/// `has_tls` says whether the build has the feature `tls`.
pub(super) fn parse(
    text: &str,
    needs: Needs,
    env: &dyn Fn(&str) -> Option<String>,
    has_tls: bool,
) -> Result<Config, Vec<Problem>> {
    let mut problems = Problems::default();
    let mut table = match text.parse::<Table>() {
        Ok(table) => table,
        Err(error) => {
            problems.add("", not_toml(text, &error));
            return Err(problems.0);
        }
    };
    let mut config = Config::default();
    required(&table, needs, &mut problems);
    topics(&mut table, &mut config, &mut problems);
    for section in SECTIONS {
        let taken = table.remove(section.name);
        let Some(mut values) = section_table(taken, section.name, &mut problems) else {
            continue;
        };
        (section.each)(&mut config, &mut |key, field| {
            take(&mut values, section.name, key, field, &mut problems);
        });
        unknown(&values, section.name, &mut problems);
    }
    unknown(&table, "", &mut problems);
    // Who opens no connection needs no secret.
    if matches!(needs, Needs::Everything | Needs::Kafka) {
        secret(&mut config.kafka.password, "kafka", env, &mut problems);
    }
    if matches!(needs, Needs::Everything | Needs::ClickHouse) {
        let password = &mut config.clickhouse.password;
        secret(password, "clickhouse", env, &mut problems);
    }
    check(&mut config, has_tls, &mut problems);
    match problems.0.is_empty() {
        true => Ok(config),
        false => Err(problems.0),
    }
}

/// Where and why a text is no TOML, without the line itself: a secret may stand there.
fn not_toml(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    format!("not TOML: line {line}: {}", error.message())
}

/// The dialect of a word, where this build reads it.
pub(super) fn dialect_of(word: &str) -> Option<Dialect> {
    [Dialect::Lifecycle, Dialect::Adk]
        .into_iter()
        .find(|dialect| dialect.as_str() == word)
}

#[derive(Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, key: &str, says: impl Into<String>) {
        let (key, says) = (key.to_owned(), says.into());
        self.0.push(Problem { key, says });
    }
}

fn required(table: &Table, needs: Needs, problems: &mut Problems) {
    let wanted: &[(&str, &str)] = match needs {
        Needs::Everything => &[("kafka", "brokers"), ("clickhouse", "url")],
        Needs::ClickHouse => &[("clickhouse", "url")],
        Needs::Kafka => &[("kafka", "brokers")],
        Needs::Nothing => &[],
    };
    for (section, key) in wanted {
        let is_there = table
            .get(*section)
            .and_then(Value::as_table)
            .is_some_and(|values| values.contains_key(*key));
        if !is_there {
            problems.add(&format!("{section}.{key}"), "required and missing");
        }
    }
}

fn section_table(taken: Option<Value>, name: &str, problems: &mut Problems) -> Option<Table> {
    match taken {
        None => None,
        Some(Value::Table(values)) => Some(values),
        Some(other) => {
            problems.add(name, format!("must be a table, is {}", said(&other)));
            None
        }
    }
}

fn topics(table: &mut Table, config: &mut Config, problems: &mut Problems) {
    let entries = match table.remove("topic") {
        None => return,
        Some(Value::Array(entries)) => entries,
        Some(other) => {
            let says = format!("must be [[topic]] tables, is {}", said(&other));
            return problems.add("topic", says);
        }
    };
    for (index, entry) in entries.into_iter().enumerate() {
        let path = format!("topic[{index}]");
        let Some(mut values) = section_table(Some(entry), &path, problems) else {
            continue;
        };
        let mut topic = Topic {
            dialect: "auto".into(),
            ..Topic::default()
        };
        let visit: Visit<'_> = &mut |key, field| take(&mut values, &path, key, field, problems);
        fields::topic(&mut topic, visit);
        unknown(&values, &path, problems);
        check_topic(&topic, &path, problems);
        config.topics.push(topic);
    }
}

fn unknown(values: &Table, section: &str, problems: &mut Problems) {
    for key in values.keys() {
        let path = match section {
            "" => key.clone(),
            section => format!("{section}.{key}"),
        };
        problems.add(&path, "unknown key");
    }
}

fn said(value: &Value) -> String {
    match value {
        Value::String(text) => format!("the text {text:?}"),
        Value::Integer(number) => format!("the number {number}"),
        Value::Float(number) => format!("the number {number}"),
        Value::Boolean(flag) => flag.to_string(),
        other => format!("a value of type {}", other.type_str()),
    }
}

/// Moves one value into its place, or says why it does not fit.
fn take(values: &mut Table, section: &str, key: &str, field: Field<'_>, problems: &mut Problems) {
    let Some(value) = values.remove(key) else {
        return;
    };
    let path = format!("{section}.{key}");
    if let Field::Properties(properties) = field {
        return take_properties(value, &path, properties, problems);
    }
    if let Err(wanted) = place(&value, field) {
        problems.add(&path, format!("must be {wanted}, is {}", said(&value)));
    }
}

/// # Errors
/// What the value must be instead.
fn place(value: &Value, field: Field<'_>) -> Result<(), String> {
    const SIZE: &str = "a size above 0, such as \"8 MiB\" or a number of bytes";
    const SPAN: &str = "a duration with its unit (ms, s, min, h), such as \"30 min\"";
    const COUNT: &str = "a whole number above 0";
    let count = || {
        value
            .as_integer()
            .filter(|n| *n > 0)
            .ok_or(COUNT.to_owned())
    };
    match field {
        Field::Text(place) => *place = value.as_str().ok_or("a text")?.to_owned(),
        Field::Texts(place) => *place = texts(value).ok_or("a list of texts")?,
        Field::Word(choice) => {
            let is_chosen = value.as_str().is_some_and(|word| choice.choose(word));
            is_chosen
                .then_some(())
                .ok_or_else(|| format!("one of {}", choice.words().join(", ")))?;
        }
        Field::Flag(place) => *place = value.as_bool().ok_or("true or false")?,
        Field::Bytes(place) => {
            let bytes = match value {
                Value::String(text) => parse_bytes(text),
                Value::Integer(number) => usize::try_from(*number).ok(),
                _ => None,
            };
            *place = bytes.filter(|bytes| *bytes > 0).ok_or(SIZE)?;
        }
        Field::Count(place) => *place = usize::try_from(count()?).map_err(|_| COUNT)?,
        Field::Count32(place) => *place = u32::try_from(count()?).map_err(|_| COUNT)?,
        Field::Count64(place) => *place = u64::try_from(count()?).map_err(|_| COUNT)?,
        Field::Offsets(place) => *place = count()?,
        Field::Span(place) => {
            let span = value.as_str().and_then(parse_span);
            *place = span.filter(|span| *span > Duration::ZERO).ok_or(SPAN)?;
        }
        Field::Properties(_) => {}
    }
    Ok(())
}

fn texts(value: &Value) -> Option<Vec<String>> {
    let items = value.as_array()?.iter();
    items.map(|item| item.as_str().map(str::to_owned)).collect()
}

fn take_properties(
    value: Value,
    path: &str,
    place: &mut BTreeMap<String, String>,
    problems: &mut Problems,
) {
    let Some(table) = section_table(Some(value), path, problems) else {
        return;
    };
    for (name, value) in table {
        let key = format!("{path}.{name:?}");
        let text = match &value {
            Value::String(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Boolean(flag) => flag.to_string(),
            other => {
                problems.add(&key, format!("must be a text, is {}", said(other)));
                continue;
            }
        };
        if OWNED.contains(&name.as_str()) {
            problems.add(&key, "tachograph sets this one itself; remove it");
            continue;
        }
        if SECRET.iter().any(|part| name.contains(part)) {
            problems.add(&key, "would be a secret in clear, which no file may hold");
            continue;
        }
        let mut alone = rdkafka::ClientConfig::new();
        alone.set(name.as_str(), text.as_str());
        match alone.create_native_config() {
            Ok(_) => drop(place.insert(name, text)),
            Err(rdkafka::error::KafkaError::ClientConfig(_, says, _, _)) => {
                problems.add(&key, format!("librdkafka refuses it: {says}"));
            }
            Err(error) => problems.add(&key, format!("librdkafka refuses it: {error}")),
        }
    }
}

fn secret(
    secret: &mut Secret,
    section: &str,
    env: &dyn Fn(&str) -> Option<String>,
    problems: &mut Problems,
) {
    let key = |name: &str| format!("{section}.{name}");
    match (secret.env.as_str(), secret.file.as_str()) {
        ("", "") => {}
        (name, "") => match env(name) {
            Some(value) => secret.value = value,
            // Whoever writes the password itself there must not find it in a log.
            None if !is_environment_name(name) => problems.add(
                &key("password_env"),
                "must name an environment variable, such as TACHOGRAPH_PASSWORD",
            ),
            None => {
                let says = format!("the environment variable {name} is not set");
                problems.add(&key("password_env"), says);
            }
        },
        ("", path) => match std::fs::read_to_string(path) {
            Ok(text) => secret.value = text.trim_end_matches(['\r', '\n']).to_owned(),
            Err(error) => problems.add(&key("password_file"), format!("{path}: {error}")),
        },
        _ => problems.add(
            &key("password_file"),
            "give password_env or password_file, not both",
        ),
    }
}

/// Capitals, digits and `_`, as such names are written.
fn is_environment_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().all(is_part)
}

fn check_topic(topic: &Topic, path: &str, problems: &mut Problems) {
    check_topic_name(&topic.name, &format!("{path}.name"), problems);
    let key = format!("{path}.dialect");
    let word = topic.dialect.as_str();
    if word != "auto" && !DIALECTS.contains(&word) {
        let says = format!(
            "must be auto or one of {}, is {word:?}",
            DIALECTS.join(", ")
        );
        problems.add(&key, says);
    } else if word != "auto" && dialect_of(word).is_none() {
        problems.add(&key, format!("this build does not read {word} yet"));
    }
    if !PRODUCERS.contains(&topic.producer.as_str()) {
        let says = format!("must be one of {}", PRODUCERS[1..].join(", "));
        problems.add(&format!("{path}.producer"), says);
    }
}

fn check_topic_name(name: &str, key: &str, problems: &mut Problems) {
    if name.starts_with('^') {
        if let Err(error) = regex::Regex::new(name) {
            problems.add(key, format!("{name:?} is no regex: {error}"));
        }
        return;
    }
    let is_legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > 249 || !name.chars().all(is_legal) {
        let says = format!("{name:?} is no Kafka topic name, nor a regex that begins with ^");
        problems.add(key, says);
    }
}

fn check(config: &mut Config, has_tls: bool, problems: &mut Problems) {
    check_kafka(config, problems);
    check_login(config, has_tls, problems);
    check_clickhouse(config, has_tls, problems);
    let (host, port) = config.http_listen.rsplit_once(':').unwrap_or(("", ""));
    if host.is_empty() || port.parse::<u16>().is_err() {
        let says = format!(
            "{:?} is no address such as 127.0.0.1:9464",
            config.http_listen
        );
        problems.add("http.listen", says);
    }
    if !config.price_book.is_empty() {
        problems.add(
            "prices.book",
            "this build has no prices yet: leave it empty",
        );
    }
    check_limits(config, problems);
}

fn check_kafka(config: &Config, problems: &mut Problems) {
    let kafka = &config.kafka;
    for (key, value) in [("brokers", &kafka.brokers), ("group", &kafka.group)] {
        if value.trim().is_empty() {
            problems.add(&format!("kafka.{key}"), "must not be empty");
        }
    }
    let regexes = kafka.topics.iter().filter(|name| name.starts_with('^'));
    if kafka.topics.is_empty() {
        problems.add(
            "kafka.topics",
            "must name a topic, or one regex that begins with ^",
        );
    } else if regexes.count() > 0 && kafka.topics.len() > 1 {
        problems.add("kafka.topics", "must be names, or one regex alone");
    }
    for name in &kafka.topics {
        check_topic_name(name, "kafka.topics", problems);
    }
    if kafka.dead_letters != "drop" {
        let filled = kafka.dead_letters.replace("{topic}", "t");
        if filled.starts_with('^') {
            problems.add("kafka.dead_letters", "must be a topic name, or drop");
        } else {
            check_topic_name(&filled, "kafka.dead_letters", problems);
        }
        let letters = |name: &String| kafka.dead_letter_topic(name);
        let loops = kafka.topics.iter().filter_map(letters);
        for topic in loops.filter(|topic| kafka.topics.contains(topic) || filled == "t") {
            let says =
                format!("{topic:?} is one of kafka.topics: a record would go round for ever");
            problems.add("kafka.dead_letters", says);
        }
    }
    if kafka.group_protocol == GroupProtocol::Consumer {
        for name in OWNED_BY_BROKER {
            if kafka.properties.contains_key(name) {
                let key = format!("kafka.properties.{name:?}");
                problems.add(
                    &key,
                    "with group_protocol = \"consumer\" the broker sets it",
                );
            }
        }
    }
}

fn check_login(config: &Config, has_tls: bool, problems: &mut Problems) {
    let kafka = &config.kafka;
    let is_ssl = matches!(kafka.protocol, Protocol::Ssl | Protocol::SaslSsl);
    let is_sasl = matches!(kafka.protocol, Protocol::SaslPlaintext | Protocol::SaslSsl);
    let word = kafka.protocol.as_str();
    if is_ssl && !has_tls {
        let says = format!("{word} needs a build with the feature `tls`");
        problems.add("kafka.protocol", says);
    }
    match (is_sasl, kafka.sasl_mechanism.as_str()) {
        (true, "PLAIN") => {}
        (true, "SCRAM-SHA-256" | "SCRAM-SHA-512") if has_tls => {}
        (true, scram @ ("SCRAM-SHA-256" | "SCRAM-SHA-512")) => {
            let says = format!("{scram} needs a build with the feature `tls`");
            problems.add("kafka.sasl_mechanism", says);
        }
        (true, other) => {
            let says = format!("must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, is {other:?}");
            problems.add("kafka.sasl_mechanism", says);
        }
        (false, "") => {}
        (false, _) => {
            let says = format!("protocol = {word:?} has no login; use sasl_plaintext or sasl_ssl");
            problems.add("kafka.sasl_mechanism", says);
        }
    }
    let has_password = !(kafka.password.env.is_empty() && kafka.password.file.is_empty());
    if is_sasl && kafka.username.is_empty() {
        problems.add("kafka.username", format!("protocol = {word:?} needs one"));
    }
    if is_sasl && !has_password {
        let says = format!("protocol = {word:?} needs it, or password_file");
        problems.add("kafka.password_env", says);
    }
    let files = [
        ("ca_file", &kafka.ca_file),
        ("certificate_file", &kafka.certificate_file),
        ("key_file", &kafka.key_file),
    ];
    for (key, path) in files {
        let key = format!("kafka.{key}");
        if !path.is_empty() && !is_ssl {
            problems.add(&key, format!("protocol = {word:?} does not use it"));
        } else if !path.is_empty() {
            check_file(&key, path, problems);
        }
    }
    if kafka.certificate_file.is_empty() != kafka.key_file.is_empty() {
        let (missing, there) = match kafka.key_file.is_empty() {
            true => ("key_file", "certificate_file"),
            false => ("certificate_file", "key_file"),
        };
        problems.add(
            &format!("kafka.{missing}"),
            format!("kafka.{there} is of no use without it"),
        );
    }
}

fn check_file(key: &str, path: &str, problems: &mut Problems) {
    if let Err(error) = std::fs::File::open(path) {
        problems.add(key, format!("{path}: {error}"));
    }
}

/// librdkafka looks into its own files; this one is looked into here.
fn check_authorities(path: &str, problems: &mut Problems) {
    #[cfg(feature = "tls")]
    if let Err(error) = crate::clickhouse_sink::Trust::of_file(path.as_ref()) {
        problems.add("clickhouse.ca_file", error.to_string());
    }
    #[cfg(not(feature = "tls"))]
    check_file("clickhouse.ca_file", path, problems);
}

fn check_clickhouse(config: &Config, has_tls: bool, problems: &mut Problems) {
    let clickhouse = &config.clickhouse;
    let (scheme, rest) = clickhouse.url.split_once("://").unwrap_or(("", ""));
    match scheme {
        "http" => {}
        "https" if has_tls => {}
        "https" => problems.add(
            "clickhouse.url",
            "https needs a build with the feature `tls`",
        ),
        _ => problems.add("clickhouse.url", "must begin with http:// or https://"),
    }
    if rest.contains(['@', '?', '#']) {
        let says = "must hold no login and no query: use clickhouse.user and password_env";
        problems.add("clickhouse.url", says);
    }
    if !clickhouse.ca_file.is_empty() {
        match scheme {
            "https" => check_authorities(&clickhouse.ca_file, problems),
            _ => problems.add("clickhouse.ca_file", "only an https:// url uses it"),
        }
    }
    for (key, name) in [
        ("database", &clickhouse.database),
        ("user", &clickhouse.user),
    ] {
        if name.is_empty() {
            problems.add(&format!("clickhouse.{key}"), "must not be empty");
        }
    }
}

fn check_limits(config: &mut Config, problems: &mut Problems) {
    let poll_max = config.kafka.poll_interval_max();
    let limits = &mut config.limits;
    limits.tool_silence_max = limits.tool_silence_max.max(limits.silence_max);
    if limits.drain_max >= poll_max {
        let says = format!(
            "must be shorter than max.poll.interval.ms ({} ms)",
            poll_max.as_millis()
        );
        problems.add("limits.drain_max", says);
    }
    if limits.commit_interval <= limits.drain_max {
        let says = "must be longer than limits.drain_max";
        problems.add("limits.commit_interval", says);
    }
    if limits.batch_age_max >= limits.silence_max {
        let says = "must be shorter than limits.silence_max";
        problems.add("limits.batch_age_max", says);
    }
}
