//! Where the rows of a case go: a model of the tables always, and the real ClickHouse, through the
//! real sink, where the case asks for it.

use super::engine::{ClickHouse, Fault};
use super::support::rows::{RowKey, Sink, row_key};
use std::collections::BTreeSet;
use tachograph::core::fact::{Fact, Table};
use tachograph::core::ledger::WorkId;

/// How far an insert has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Not begun.
    Waits,
    /// On its way to a server that does not take it yet.
    Sent,
    /// Tried, and nobody heard how it went.
    Amiss,
}

/// A batch that is not settled.
#[derive(Debug)]
pub struct Flight {
    pub work: WorkId,
    pub facts: Vec<Fact>,
    /// Its place among the inserts of the case, from 1.
    pub number: u64,
    pub way: Way,
}

impl Flight {
    /// True where a row in it has this offset as its newest evidence.
    pub fn is_of(&self, offset: i64) -> bool {
        self.facts.iter().any(|fact| fact.last.offset.0 == offset)
    }
}

pub struct Tables {
    pub model: Sink,
    /// Rows that were written again with a higher version.
    pub amended: BTreeSet<RowKey>,
    pub real: Option<ClickHouse>,
}

impl Tables {
    pub fn new(real: Option<ClickHouse>) -> Tables {
        Tables {
            model: Sink::default(),
            amended: BTreeSet::new(),
            real,
        }
    }

    /// An insert is sent and acknowledged.
    pub fn insert(&mut self, flight: &Flight) -> Result<(), String> {
        if let Some(real) = &mut self.real {
            match flight.way {
                Way::Waits => real.insert(flight.work, flight.facts.clone())?,
                Way::Sent => real.await_settled(flight.work)?,
                Way::Amiss => real.heal(flight.work)?,
            }
        }
        self.write(flight)
    }

    /// An insert is sent to a server that will not take it before something changes.
    pub fn send(&mut self, flight: &mut Flight) -> Result<(), String> {
        flight.way = Way::Sent;
        match &mut self.real {
            Some(real) => real.send(flight.work, flight.facts.clone()),
            None => Ok(()),
        }
    }

    /// An insert is sent, and nobody hears how it went.
    pub fn insert_amiss(&mut self, flight: &mut Flight, fault: Fault) -> Result<(), String> {
        flight.way = Way::Amiss;
        if let Some(real) = &mut self.real {
            real.insert_amiss(flight.work, flight.facts.clone(), fault)?;
        }
        match fault {
            Fault::AnswerLost => self.write(flight),
            Fault::NotWritten => Ok(()),
        }
    }

    fn write(&mut self, flight: &Flight) -> Result<(), String> {
        for fact in &flight.facts {
            let key = row_key(fact);
            let is_newer = |kept: &Fact| kept.version < fact.version;
            if self.model.rows.get(&key).is_some_and(is_newer) {
                self.amended.insert(key);
            }
        }
        self.model.insert(&flight.facts)
    }

    /// Rows of a table that were written again.
    pub fn amended(&self, table: Table) -> impl Iterator<Item = &RowKey> {
        let of_table = move |key: &&RowKey| key.0 == table;
        self.amended.iter().filter(of_table)
    }

    /// The process that inserted is gone, and with it what it had not heard of.
    pub fn crash(&mut self) {
        if let Some(real) = &mut self.real {
            real.crash();
        }
    }

    /// Rows that were settled and that ClickHouse has not, by table.
    pub fn missing(&self) -> Result<Vec<String>, String> {
        let Some(real) = &self.real else {
            return Ok(Vec::new());
        };
        let mut missing = Vec::new();
        for table in Table::ALL {
            let of_table = |key: &&RowKey| key.0 == table;
            let settled = self.model.rows.keys().filter(of_table).count() as u64;
            let stored = real.rows(table)?;
            if stored != settled {
                missing.push(format!("{} has {stored} rows of {settled}", table.as_str()));
            }
        }
        Ok(missing)
    }
}
