//! One TOML file, checked as a whole: a [`Config`], or every problem it has, each with its key.
//!
//! Deliberately no reload and no environment beyond secrets: restart instead. Nothing here opens a
//! socket.

mod fields;
mod parse;
mod render;
mod value;

pub use parse::Needs;

use crate::core::{Limits, TopicDefaults};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that is read where none is named.
pub const DEFAULT_FILE: &str = "tachograph.toml";

/// The whole configuration, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub kafka: Kafka,
    /// `[[topic]]`: what records of a topic mean; the first name that fits counts.
    pub topics: Vec<Topic>,
    pub clickhouse: ClickHouse,
    /// Address of `/metrics` and the health routes.
    pub http_listen: String,
    /// State file; empty: none.
    pub state_file: String,
    pub labels: Labels,
    /// Price book of a later build; empty: none.
    pub price_book: String,
    pub log_format: LogFormat,
    /// Bounds of the core, with `[privacy] store_reasons`.
    pub limits: Limits,
}

/// `[kafka]`: where records come from and dead letters go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kafka {
    pub brokers: String,
    pub group: String,
    /// Names, or one regex that begins with `^`.
    pub topics: Vec<String>,
    /// Static membership; empty: none.
    pub instance_id: String,
    pub protocol: Protocol,
    pub sasl_mechanism: String,
    pub username: String,
    pub password: Secret,
    pub ca_file: String,
    pub certificate_file: String,
    pub key_file: String,
    pub group_protocol: GroupProtocol,
    /// A topic name, in which `{topic}` is the record's topic, or `drop`.
    pub dead_letters: String,
    /// Passed through to librdkafka.
    pub properties: BTreeMap<String, String>,
}

/// One `[[topic]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topic {
    /// A name, or a regex that begins with `^`.
    pub name: String,
    /// `auto`, or a dialect of events.md §1.
    pub dialect: String,
    pub tenant: String,
    pub app: String,
    pub producer: String,
    pub event_time_semantics: EventTimeSemantics,
}

/// `[clickhouse]`: where rows go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClickHouse {
    pub url: String,
    pub database: String,
    pub user: String,
    pub password: Secret,
    pub ca_file: String,
    pub compression: Compression,
}

/// `[labels]`: how many series the exporter may make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    pub max_values: usize,
    pub max_series_per_family: usize,
    pub known_models: Vec<String>,
}

/// A secret and where it came from. Only the value is secret, and it is never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret {
    /// Name of the environment variable; empty: none.
    pub env: String,
    /// Path of the file; empty: none.
    pub file: String,
    /// The secret itself; empty: none.
    pub value: String,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("env", &self.env)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// One thing that is wrong with the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Dotted key, such as `limits.drain_max`; empty for the file as a whole.
    pub key: String,
    pub says: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => f.write_str(&self.says),
            key => write!(f, "{key}: {}", self.says),
        }
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// It could, and says things that cannot be.
    #[error("{}", list(.0))]
    Problems(Vec<Problem>),
}

fn list(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

impl Config {
    /// Reads `path`, or the default file where it is there, or nothing at all.
    ///
    /// # Errors
    /// An unreadable file, or every problem it has.
    pub fn load(path: Option<&Path>, needs: Needs) -> Result<Config, ConfigError> {
        let default = Path::new(DEFAULT_FILE);
        let chosen = path.or_else(|| default.exists().then_some(default));
        let text = match chosen {
            Some(path) => {
                std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
                    path: path.to_owned(),
                    source,
                })?
            }
            None => String::new(),
        };
        Config::parse(&text, needs, &|name| std::env::var(name).ok())
    }

    /// Reads a configuration out of TOML text; `env` looks up secrets.
    ///
    /// # Errors
    /// [`ConfigError::Problems`], with all of them.
    pub fn parse(
        text: &str,
        needs: Needs,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Config, ConfigError> {
        parse::parse(text, needs, env, cfg!(feature = "tls")).map_err(ConfigError::Problems)
    }

    /// The effective file as TOML, without secrets. Parsing it gives the same configuration.
    pub fn render(&self) -> String {
        render::render(self)
    }

    /// What the configuration says about records of `topic`.
    pub fn topic_defaults(&self, topic: &str) -> TopicDefaults {
        let fits = |entry: &&Topic| match entry.name.starts_with('^') {
            true => regex::Regex::new(&entry.name).is_ok_and(|regex| regex.is_match(topic)),
            false => entry.name == topic,
        };
        let exact = self.topics.iter().find(|entry| entry.name == topic);
        exact
            .or_else(|| self.topics.iter().find(fits))
            .map_or_else(TopicDefaults::default, Topic::defaults)
    }
}

impl Topic {
    fn defaults(&self) -> TopicDefaults {
        let name = |text: &str| crate::core::Name0(text.into());
        TopicDefaults {
            dialect: parse::dialect_of(&self.dialect),
            tenant: name(&self.tenant),
            app: name(&self.app),
            producer: name(&self.producer),
            event_times_are_arrivals: self.event_time_semantics == EventTimeSemantics::Arrival,
        }
    }
}

impl Kafka {
    /// `max.poll.interval.ms` as librdkafka will see it.
    pub fn poll_interval_max(&self) -> Duration {
        let given = self.properties.get("max.poll.interval.ms");
        Duration::from_millis(given.and_then(|ms| ms.parse().ok()).unwrap_or(300_000))
    }

    /// How often topics are looked for: librdkafka's own interval, where it is given.
    pub fn topic_look_interval(&self) -> Duration {
        let given = self.properties.get("topic.metadata.refresh.interval.ms");
        let given = given.and_then(|ms| ms.parse().ok()).filter(|ms| *ms > 0);
        Duration::from_millis(given.unwrap_or(10_000))
    }

    /// The dead-letter topic of `topic`, or `None` where dead letters are dropped.
    pub fn dead_letter_topic(&self, topic: &str) -> Option<String> {
        (self.dead_letters != "drop").then(|| self.dead_letters.replace("{topic}", topic))
    }

    /// The one regex, where topics are not listed by name.
    pub fn topic_regex(&self) -> Option<&str> {
        let first = self.topics.first()?;
        first.starts_with('^').then_some(first)
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            kafka: Kafka {
                brokers: "localhost:9092".into(),
                group: "tachograph".into(),
                topics: vec!["agent-events".into()],
                instance_id: String::new(),
                protocol: Protocol::Plaintext,
                sasl_mechanism: String::new(),
                username: String::new(),
                password: Secret::default(),
                ca_file: String::new(),
                certificate_file: String::new(),
                key_file: String::new(),
                group_protocol: GroupProtocol::Classic,
                dead_letters: "{topic}.dead-letters".into(),
                properties: BTreeMap::new(),
            },
            topics: Vec::new(),
            clickhouse: ClickHouse {
                url: "http://localhost:8123".into(),
                database: "tachograph".into(),
                user: "default".into(),
                password: Secret::default(),
                ca_file: String::new(),
                compression: Compression::Lz4,
            },
            http_listen: "127.0.0.1:9464".into(),
            state_file: String::new(),
            labels: Labels {
                max_values: 100,
                max_series_per_family: 5_000,
                known_models: Vec::new(),
            },
            price_book: String::new(),
            log_format: LogFormat::Auto,
            limits: Limits::OF_THE_CONTRACT,
        }
    }
}

/// A closed set of words in the file.
trait Choice {
    fn words(&self) -> &'static [&'static str];
    fn word(&self) -> &'static str;
    /// False where `word` is none of them.
    fn choose(&mut self, word: &str) -> bool;
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$default:meta])? $variant:ident = $word:literal),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name { $($(#[$default])? $variant),+ }

        impl $name {
            /// The word in the file.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl Choice for $name {
            fn words(&self) -> &'static [&'static str] { &[$($word),+] }
            fn word(&self) -> &'static str { self.as_str() }
            fn choose(&mut self, word: &str) -> bool {
                match word { $($word => *self = Self::$variant,)+ _ => return false }
                true
            }
        }
    };
}

choice!(
    /// `kafka.protocol`: librdkafka's `security.protocol`.
    Protocol {
        #[default] Plaintext = "plaintext",
        Ssl = "ssl",
        SaslPlaintext = "sasl_plaintext",
        SaslSsl = "sasl_ssl",
    }
);
choice!(
    /// `kafka.group_protocol`.
    GroupProtocol {
        #[default] Classic = "classic",
        Consumer = "consumer",
    }
);
choice!(
    /// `topic.event_time_semantics` (facts.md §4).
    EventTimeSemantics {
        Arrival = "arrival",
        #[default] Unknown = "unknown",
    }
);
choice!(
    /// `clickhouse.compression` of inserts.
    Compression {
        None = "none",
        #[default] Lz4 = "lz4",
    }
);
choice!(
    /// `log.format`.
    LogFormat {
        #[default] Auto = "auto",
        Human = "human",
        Json = "json",
    }
);

#[cfg(test)]
mod tests;
