//! Steps that go wrong or change hands: crashes, restarts, rebalances, topics made anew, and how
//! inserts go.

use super::broker::{Log, Place};
use super::engine::{Fault, PATIENCE};
use super::feed::TOPIC;
use super::logs;
use super::support::wait;
use super::tables::{Flight, Way};
use super::world::{Process, World};
use serde_json::Value;
use std::time::Duration;
use tachograph::core::Offset;
use tachograph::core::fact::{FactBody, Table};
use tachograph::core::pipeline::Input;

/// Refusals of one batch that are waited for.
const REFUSALS: usize = 4;
/// The least that the waits between them may be: half of a tenth of a second, doubling.
const BACK_OFF_LEAST: [Duration; REFUSALS - 1] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
];

/// A partition of the topic that records come from by default.
pub fn place_of(partition: i64) -> Place {
    (TOPIC.into(), i32::try_from(partition).unwrap_or(0))
}

impl World {
    /// The process that started last dies without warning, with all that it had not heard of.
    pub fn crash(&mut self, committed: Option<Offset>) {
        self.notes.committed_at_crash = self.broker.committed_most();
        let Some(dead) = self.processes.remove(&self.active) else {
            return;
        };
        for (place, _) in dead.held() {
            if let Some(offset) = committed {
                self.broker.committed_only(&place, offset);
            }
        }
        self.tables.crash();
    }

    /// It starts again on its host and goes on from what is committed; one that still runs leaves
    /// in order first.
    pub fn restart(&mut self) -> Result<(), String> {
        let host = self.active.clone();
        self.leave(&host)?;
        self.start(&host)?;
        self.notes.resumed_from = None;
        self.read_all()
    }

    /// Finishes what is in hand, hands its partitions over and ends.
    fn leave(&mut self, host: &str) -> Result<(), String> {
        if !self.processes.contains_key(host) {
            return Ok(());
        }
        self.tell(host, Input::Drain)?;
        self.land_all(host)?;
        let Some(mut process) = self.processes.remove(host) else {
            return Ok(());
        };
        if !process.pipeline.is_drained() {
            return Err(format!("{host} is not drained"));
        }
        for (place, partition) in process.held() {
            let marks = process.pipeline.hand_over(partition);
            let marks = marks.ok_or_else(|| format!("{place:?} is not handed over"))?;
            self.broker.commit(&place, marks);
        }
        Ok(())
    }

    pub fn rebalance(&mut self, step: &Value) -> Result<(), String> {
        let place = place_of(step["lost_partition"].as_i64().unwrap_or(0));
        let owner = step["new_owner"].as_str();
        let owner = owner.ok_or("rebalance.new_owner: a host")?.to_owned();
        let committed = step["committed_offset"].as_i64();
        if let Some(offset) = committed {
            self.broker.committed_only(&place, Offset(offset));
        }
        self.lose(&place)?;
        if !self.processes.contains_key(&owner) {
            self.start(&owner)?;
        }
        self.owners.insert(place.clone(), owner);
        self.read(&place)
    }

    /// A partition is taken away from whoever has it.
    fn lose(&mut self, place: &Place) -> Result<(), String> {
        let hosts: Vec<String> = self.processes.keys().cloned().collect();
        for host in hosts {
            let process = self.processes.get_mut(&host);
            if let Some(partition) = process.and_then(|process| process.forget(place)) {
                self.tell(&host, Input::Lost { partition })?;
            }
        }
        Ok(())
    }

    /// The topic is another one; whoever reads it finds that out.
    pub fn recreate(&mut self, log: Log) -> Result<(), String> {
        let place = place_of(0);
        self.broker.logs.insert(place.clone(), log);
        self.lose(&place)
    }

    /// An operator stops the daemon, sets the group's offset and starts it again.
    pub fn replay_from(&mut self, offset: Offset) -> Result<(), String> {
        let host = self.active.clone();
        self.leave(&host)?;
        let places: Vec<Place> = self.broker.logs.keys().cloned().collect();
        for place in places {
            self.broker.committed_anew(&place, offset);
        }
        self.start(&host)?;
        self.read_all()
    }

    /// The next insert goes as the case says.
    pub fn insert_goes(&mut self, step: &Value) -> Result<(), String> {
        self.flush()?;
        self.inserts_told -= 1;
        let result = step["result"].as_str().unwrap_or("ok");
        let fault = match result {
            "ok" => None,
            "timeout_but_applied" => Some(Fault::AnswerLost),
            "connection_reset" => Some(Fault::NotWritten),
            other => return Err(format!("clickhouse_insert: unknown result {other}")),
        };
        let host = self.active.clone();
        let flights = self.processes.get_mut(&host);
        let flights = flights.map(|process| std::mem::take(&mut process.flights));
        let (meant, mut others): (Vec<Flight>, Vec<Flight>) = flights
            .unwrap_or_default()
            .into_iter()
            .partition(|flight| is_meant(flight, step));
        if fault.is_some() && meant.is_empty() {
            return Err(format!("clickhouse_insert: no insert is there for {step}"));
        }
        let mut settled = Vec::new();
        for mut flight in meant {
            match fault {
                None => {
                    self.tables.insert(&flight)?;
                    settled.push(flight.work);
                }
                Some(fault) => {
                    self.tables.insert_amiss(&mut flight, fault)?;
                    others.push(flight);
                }
            }
        }
        if let Some(process) = self.processes.get_mut(&host) {
            process.flights = others;
        }
        for work in settled {
            self.tell(&host, Input::Settled { work })?;
        }
        // Whatever may be committed now is, before anything else can happen.
        self.pass(self.config.limits.commit_interval)?;
        self.read_all()
    }

    pub fn take_column(&mut self, column: &str) -> Result<(), String> {
        self.is_refusing = true;
        match &mut self.tables.real {
            Some(real) => real.take_column(column),
            None => Ok(()),
        }
    }

    /// The column is there again, after the daemon has met tables without it.
    pub fn give_column(&mut self, column: &str) -> Result<(), String> {
        self.flush()?;
        self.pass(self.config.limits.commit_interval)?;
        self.check_nothing_is_lost();
        let host = self.active.clone();
        self.scrape()?;
        if let (Some(real), Some(process)) = (&mut self.tables.real, self.processes.get(&host)) {
            let reason = real.await_behind();
            wait::until(
                "log and metric tell that the schema is behind",
                PATIENCE,
                || {
                    let shown = process.exporter.render(self.clock);
                    let is_shown =
                        shown.contains("tachograph_insert_errors_total{reason=\"schema\"}");
                    (is_shown && logs::text().contains(&reason)).then_some(())
                },
            );
            self.notes.alerts.insert("schema_behind");
            let ready = real.ready(&process.exporter)?;
            if ready.status == 503 && ready.body.contains(column) {
                self.notes.readiness = Some("degraded");
            }
            real.give_column(column)?;
        }
        self.is_refusing = false;
        self.land_all(&host)
    }

    /// What is on its way and not acknowledged must not be committed.
    fn check_nothing_is_lost(&mut self) -> bool {
        let mut is_kept = true;
        for process in self.processes.values() {
            for fact in process.flights.iter().flat_map(|flight| &flight.facts) {
                let place = (fact.last.topic.clone(), fact.last.partition);
                let marks = self.broker.committed(&place);
                let below = marks.map_or(Offset(0), |marks| marks.exported_below);
                is_kept &= below <= fact.last.offset;
            }
        }
        if !is_kept {
            self.notes.has_lost = true;
        }
        is_kept
    }

    /// The last batch meets a server that has too many parts, and then one that has not.
    pub fn meet_too_many_parts(&mut self) -> Result<(), String> {
        let Some(real) = &self.tables.real else {
            return Err("too many parts: no ClickHouse".to_owned());
        };
        real.refuse_parts(Table::ModelCalls, true)?;
        self.is_refusing = true;
        self.flush()?;
        let mut words = Vec::new();
        if let Some(real) = &self.tables.real {
            let waits = real.await_refusals(REFUSALS);
            let least = BACK_OFF_LEAST.iter();
            if least.zip(&waits).all(|(least, wait)| wait >= least) {
                words.push("back_off");
            }
        }
        self.pass(self.config.limits.commit_interval)?;
        if self.check_nothing_is_lost() {
            words.push("no_commit");
        }
        let is_sent = |process: &Process| {
            let mut flights = process.flights.iter();
            flights.any(|flight| flight.way == Way::Sent)
        };
        let is_kept = self.processes.values().any(is_sent);
        if let Some(real) = &self.tables.real {
            real.refuse_parts(Table::ModelCalls, false)?;
        }
        self.is_refusing = false;
        let hosts: Vec<String> = self.processes.keys().cloned().collect();
        hosts.iter().try_for_each(|host| self.land_all(host))?;
        // It was the same batch that went in after all.
        if is_kept {
            words.push("keep_batch");
        }
        if self.tables.missing()?.is_empty() {
            words.push("no_drop");
        }
        self.notes.on_too_many_parts = words;
        Ok(())
    }

    /// Everything is read, inserted and shown.
    pub fn finish(&mut self) -> Result<(), String> {
        self.inserts_told = 0;
        loop {
            self.read_all()?;
            self.flush()?;
            let hosts: Vec<String> = self.processes.keys().cloned().collect();
            let is_done = |process: &Process| process.flights.is_empty();
            if self.is_refusing || self.processes.values().all(is_done) {
                break;
            }
            hosts.iter().try_for_each(|host| self.land_all(host))?;
        }
        self.catch_up(None)?;
        self.scrape()
    }

    /// The silence limits pass: nothing is held any more, and all that can be committed is.
    pub fn come_to_rest(&mut self) -> Result<(), String> {
        let limits = self.config.limits.clone();
        self.clock = self
            .clock
            .plus(limits.silence_max)
            .plus(limits.tool_silence_max);
        self.catch_up(Some(self.clock))?;
        self.finish()?;
        self.pass(limits.commit_interval)
    }
}

/// True where a step that says how an insert goes means this one.
fn is_meant(flight: &Flight, step: &Value) -> bool {
    let list = |key: &str| step[key].as_array().map_or(&[][..], Vec::as_slice);
    if let Some(number) = step["batch"].as_u64() {
        return flight.number == number;
    }
    let offsets = list("rows_from_offsets");
    let rows = list("rows");
    if offsets.is_empty() && rows.is_empty() {
        return true;
    }
    let has_row = |row: &Value| {
        let mut facts = flight.facts.iter();
        facts.any(|fact| match &fact.body {
            FactBody::ModelCall(call) => call.event_id.as_deref() == row.as_str(),
            _ => false,
        })
    };
    let mut offsets = offsets.iter().filter_map(Value::as_i64);
    offsets.any(|offset| flight.is_of(offset)) || rows.iter().any(has_row)
}
