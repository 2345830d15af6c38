//! The pure core: what the daemon thinks, without a clock, a socket or a thread.
//!
//! Time, records and results are arguments; what should happen comes out as values. The core never
//! asks, and no `Result` leaves it: whatever a stranger's bytes say, the answer is a state and a
//! list of actions.
#![deny(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used
)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod batch;
pub mod dialect;
pub mod event;
pub mod fact;
#[cfg(test)]
pub mod fixture;
pub mod invariant;
pub mod ledger;
pub mod limits;
pub mod pipeline;
pub mod record;
pub mod sample;
pub mod status;
pub mod time;
pub mod timeline;
pub mod usage;

pub use limits::Limits;
pub use time::{EventTime, LogTime, Nanos, Now};

use std::sync::Arc;

/// A shared, immutable name: an id, an agent, a model.
pub type Name = Arc<str>;

/// A position in one partition of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub i64);

impl Offset {
    /// The offset after this one.
    pub fn next(self) -> Offset {
        Offset(self.0 + 1)
    }
}

/// A partition as the source numbers it for the core, unique within the process's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u32);

/// Where a partition's records come from, and what the configuration says about them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSource {
    /// Kafka topic.
    pub topic: Name,
    /// Kafka partition number.
    pub partition: i32,
    /// What records of the topic mean where they do not say so themselves.
    pub defaults: TopicDefaults,
}

/// Defaults of one topic (config.md `[[topic]]`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicDefaults {
    /// The dialect of every record; `None` decides per record.
    pub dialect: Option<event::Dialect>,
    /// Tenant of records that carry none; empty is none.
    pub tenant: Name0,
    /// App of records that carry none; empty is none.
    pub app: Name0,
    /// Runtime of native events, such as `adk-python`; empty: as the records say.
    pub producer: Name0,
    /// True where the operator states that native event times are arrival times (facts.md §4).
    pub event_times_are_arrivals: bool,
}

/// A name that may be empty, for unknown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name0(pub Name);

impl Default for Name0 {
    fn default() -> Self {
        Name0(Arc::from(""))
    }
}

/// The coordinates of one record in the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Coordinates {
    /// Kafka topic.
    pub topic: Name,
    /// Kafka partition number.
    pub partition: i32,
    /// Offset in that partition.
    pub offset: Offset,
}
