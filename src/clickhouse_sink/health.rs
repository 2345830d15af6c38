//! What the sink tells about itself while it works.
//!
//! It holds no metrics: whoever shows them gets each observation as it happens, or a snapshot.

use super::error::FailureReason;
use crate::core::fact::Table;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Told of each insert as it happens; called on the sink's task, so it must not block.
pub trait SinkObserver: Send + Sync {
    /// One insert was acknowledged: `rows` of `table` in `took`.
    fn inserted(&self, table: Table, rows: u64, took: Duration);
    /// One insert, or one look at the server, failed.
    fn failed(&self, reason: FailureReason);
    /// Whether inserts are taken now; told at each change.
    fn up(&self, is_up: bool);
}

/// An observer that looks away.
pub struct Unobserved;

impl SinkObserver for Unobserved {
    fn inserted(&self, _table: Table, _rows: u64, _took: Duration) {}
    fn failed(&self, _reason: FailureReason) {}
    fn up(&self, _is_up: bool) {}
}

/// Whether the tables are what the daemon writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SchemaState {
    /// Not looked at yet.
    #[default]
    Unknown,
    /// Everything that is written is there.
    Current,
    /// Something is missing; the text says what, and what to do.
    Behind(String),
}

/// The state of the sink at one moment.
#[derive(Clone, Debug, Default)]
pub struct HealthSnapshot {
    /// True while inserts are taken.
    pub is_up: bool,
    /// Why it is not up, without secrets; `None` while it is.
    pub trouble: Option<String>,
    /// Whether the tables are what the daemon writes.
    pub schema: SchemaState,
    /// Rows acknowledged, by table.
    pub rows_inserted: BTreeMap<Table, u64>,
    /// Inserts acknowledged.
    pub inserts: u64,
    /// Failures, by reason.
    pub failures: BTreeMap<FailureReason, u64>,
}

impl HealthSnapshot {
    /// Why no rows go in now, without secrets; `None` while they do.
    pub fn reason(&self) -> Option<String> {
        match &self.schema {
            SchemaState::Behind(reason) => Some(reason.clone()),
            SchemaState::Unknown if self.trouble.is_none() && !self.is_up => {
                Some("not looked at yet".to_owned())
            }
            _ => self.trouble.clone(),
        }
    }
}

/// The state that the sink's task writes and everyone may read.
#[derive(Default)]
pub struct SinkHealth {
    state: Mutex<HealthSnapshot>,
}

impl SinkHealth {
    /// The state now.
    pub fn snapshot(&self) -> HealthSnapshot {
        self.with(|state| state.clone())
    }

    pub(super) fn inserted(&self, table: Table, rows: u64) {
        self.with(|state| {
            *state.rows_inserted.entry(table).or_default() += rows;
            state.inserts += 1;
        });
    }

    pub(super) fn failed(&self, reason: FailureReason) {
        self.with(|state| *state.failures.entry(reason).or_default() += 1);
    }

    /// Sets up or down; true where that is a change.
    pub(super) fn set_up(&self, trouble: Option<String>) -> bool {
        self.with(|state| {
            let was_up = state.is_up;
            state.is_up = trouble.is_none();
            state.trouble = trouble;
            was_up != state.is_up
        })
    }

    pub(super) fn set_schema(&self, schema: SchemaState) {
        self.with(|state| state.schema = schema);
    }

    fn with<T>(&self, act: impl FnOnce(&mut HealthSnapshot) -> T) -> T {
        // Every write leaves the state whole, so a panic elsewhere does not spoil it.
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
