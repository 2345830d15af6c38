//! A model of the tables in ClickHouse: of the rows of one identity the largest version stays.
//!
//! Deliberately without sockets, so that whoever crashes daemons by the thousand can afford it.

use std::collections::BTreeMap;
use tachograph::core::fact::{Fact, Table};

/// What identifies a row: table, tenant, app, invocation and the rest.
pub type RowKey = (Table, String, String, String, Vec<String>);

/// The table that collapses by identity and version.
#[derive(Debug, Default)]
pub struct Sink {
    pub rows: BTreeMap<RowKey, Fact>,
    pub inserted: u64,
}

impl Sink {
    /// Takes facts; of two with one identity the larger version stays, and equal versions must be
    /// equal.
    pub fn insert(&mut self, facts: &[Fact]) -> Result<(), String> {
        for fact in facts {
            self.inserted += 1;
            let key = row_key(fact);
            match self.rows.get(&key) {
                Some(kept) if kept.version > fact.version => {}
                Some(kept) if kept.version == fact.version && kept != fact => {
                    return Err(format!(
                        "one version, two contents:\n  {kept:?}\n  {fact:?}"
                    ));
                }
                _ => {
                    self.rows.insert(key, fact.clone());
                }
            }
        }
        Ok(())
    }
}

/// The key of the row that a fact is a version of.
pub fn row_key(fact: &Fact) -> RowKey {
    (
        fact.body.table(),
        fact.tenant.to_string(),
        fact.app.to_string(),
        fact.invocation_id.to_string(),
        fact.identity(),
    )
}
