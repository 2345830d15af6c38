//! The consumer group: who starts, dies, is left behind, drains, and gets which partition.
//!
//! It decides nothing about records; the marks that it hands over are the pipelines' own.

use super::faults::{Dice, Fault, Silence, Strike};
use super::flights::Load;
use super::rows::Sink;
use super::tables::Counters;
use super::workload::{self, Begin, PARTITIONS};
use super::world::{Daemon, Draining, PROCESSES, Position, World, offset, partition_id, source};
use serde_json::Value;
use std::collections::BTreeMap;
use tachograph::core::Offset;
use tachograph::core::ledger::{TakeOver, take_over};
use tachograph::core::pipeline::{Input, Pipeline, Settings};

/// Sessions and runs of a topic that was made anew are numbered from here.
const ANEW_SERIAL: u64 = 1_000_000;

impl World {
    pub fn strike(&mut self, strike: Strike) {
        let up: Vec<usize> = (0..PROCESSES)
            .filter(|&i| {
                self.processes[i]
                    .as_ref()
                    .is_some_and(|d| d.zombie.is_none())
            })
            .collect();
        if up.is_empty() {
            return;
        }
        let index = self.dice.pick(&up);
        match strike.fault {
            Fault::Crash => self.crash(index),
            Fault::Lost if up.len() > 1 => self.lose(index),
            Fault::Handover => self.revoke(index, false),
            Fault::OrderlyRestart => self.revoke(index, true),
            Fault::Retention => self.retain(),
            _ => {}
        }
    }

    fn crash(&mut self, index: usize) {
        let Some(daemon) = self.processes[index].take() else {
            return;
        };
        self.tally.crashes += 1;
        for partition in daemon.positions.keys().copied() {
            if self.broker.owner[partition] == Some(daemon.life) {
                self.broker.owner[partition] = None;
                self.broker.assign_at[partition] = self.now_ms + self.dice.range(100, 4_000);
                let is_static = self.faults.has(Fault::StaticMembers);
                self.broker.awaits[partition] = is_static.then_some(index);
            }
        }
        for flight in daemon.flights {
            match flight.load {
                Load::Facts(facts) if self.dice.percent(50) => {
                    let due_ms = self.now_ms + self.dice.range(0, 6_000);
                    self.orphans.push((due_ms, facts));
                }
                // Renamed in the last moment, or not any more.
                Load::State(file) if self.dice.percent(50) => self.hosts[index].write(file),
                _ => {}
            }
        }
        self.restart_at[index] = self.now_ms + self.dice.range(50, 8_000);
    }

    /// The group's session with a process ends, and the process does not know.
    fn lose(&mut self, index: usize) {
        let stall_ms = if self.dice.percent(50) {
            self.dice.range(200, 5_000)
        } else {
            0
        };
        let stands_until = self.now_ms + stall_ms;
        let believes_until = stands_until + self.dice.range(100, 6_000);
        let Some(daemon) = &mut self.processes[index] else {
            return;
        };
        if daemon.draining.is_some() {
            return;
        }
        self.tally.losses += 1;
        daemon.zombie = Some((stands_until, believes_until));
        for partition in daemon.positions.keys().copied() {
            if self.broker.owner[partition] == Some(daemon.life) {
                self.broker.owner[partition] = None;
                self.broker.assign_at[partition] = self.now_ms;
            }
        }
    }

    fn revoke(&mut self, index: usize, is_leaving: bool) {
        let is_short = self.faults.has(Fault::OutOfTime) && self.dice.percent(70);
        let allowed_ms = if is_short {
            self.dice.range(0, 300)
        } else {
            2_000
        };
        let all = self.dice.percent(40);
        let one = self.dice.index(PARTITIONS);
        let Some(mut daemon) = self.processes[index].take() else {
            return;
        };
        let mut partitions: Vec<usize> = daemon.positions.keys().copied().collect();
        if !is_leaving && !all && !partitions.is_empty() {
            partitions = vec![partitions[one % partitions.len()]];
        }
        if daemon.draining.is_none() {
            let deadline_ms = self.now_ms + allowed_ms;
            daemon.draining = Some(Draining {
                partitions,
                deadline_ms,
                is_leaving,
            });
            self.tell(&mut daemon, Input::Drain);
        }
        self.processes[index] = Some(daemon);
    }

    /// The log of a partition loses its oldest records. Who has not read them finds nothing there, and
    /// begins anew at what is left.
    fn retain(&mut self) {
        let partition = self.dice.index(PARTITIONS);
        let (start, end) = (self.log_start[partition], offset(self.written[partition]).0);
        self.log_start[partition] = self.dice.range(start, end + 1);
        let start = self.log_start[partition];
        for index in 0..PROCESSES {
            let Some(mut daemon) = self.processes[index].take() else {
                continue;
            };
            let is_behind = |position: &Position| position.next < start;
            if daemon.positions.get(&partition).is_some_and(is_behind) {
                daemon.positions.remove(&partition);
                let id = partition_id(partition);
                self.tell(&mut daemon, Input::Lost { partition: id });
                self.broker.owner[partition] = None;
                self.broker.assign_at[partition] = self.now_ms;
            }
            self.processes[index] = Some(daemon);
        }
    }

    /// Notes whose records are gone before they were settled, and that their number is told.
    fn bereave(&mut self, partition: usize, resume_from: i64, taken: &TakeOver) {
        let gone = resume_from..self.log_start[partition];
        if taken.is_void || gone.is_empty() {
            return;
        }
        let records = &self.log.partitions[partition];
        for index in gone.clone() {
            let index = usize::try_from(index).expect("offsets are not negative");
            let payload = records[index].payload.as_deref().unwrap_or_default();
            let value: Value = serde_json::from_slice(payload).unwrap_or_default();
            let invocation = value["invocation_id"].as_str().unwrap_or_default();
            self.bereft.insert(invocation.to_owned());
        }
        let unread = gone.end - self.most_read[partition].max(gone.start);
        let told = i64::try_from(taken.lost_records).expect("a short log");
        if told < unread {
            self.fail(format!("{unread} records lost unread, {told} told"));
        }
    }

    /// The topic is deleted and made anew while everybody is away. What the group had committed stays.
    pub fn make_anew(&mut self, seed: u64) {
        self.processes
            .iter_mut()
            .for_each(|process| *process = None);
        self.broker.owner = [None; PARTITIONS];
        self.broker.assign_at = [self.now_ms; PARTITIONS];
        for at_ms in &mut self.restart_at {
            *at_ms = self.now_ms + self.dice.range(50, 3_000);
        }
        let limits = &self.settings.limits;
        let silence = Silence::new(limits.silence_max, limits.tool_silence_max);
        let begin = Begin {
            ms: self.now_ms + 6_000,
            serial: ANEW_SERIAL,
        };
        self.log = workload::write(&mut Dice::new(seed, 3), &self.faults, silence, begin);
        self.written = [0; PARTITIONS];
        self.most_read = [0; PARTITIONS];
        self.poison = Default::default();
        self.letters.clear();
        self.sink = Sink::default();
        self.counters = Counters::default();
        self.is_calm = false;
    }

    pub fn start(&mut self, index: usize) {
        self.lives += 1;
        let settings = Settings {
            has_state_file: self.hosts[index].keeps_file,
            ..self.settings.clone()
        };
        let mut daemon = Daemon {
            life: self.lives,
            host: index,
            pipeline: Pipeline::new(settings),
            started_ms: self.now_ms,
            positions: BTreeMap::new(),
            flights: Vec::new(),
            is_paused: false,
            reads_most: self.dice.pick(&[3, 6, 40, 40]),
            draining: None,
            zombie: None,
        };
        if let Some(counted) = self.hosts[index].begin() {
            self.tell(&mut daemon, Input::Restored { counted });
        }
        self.processes[index] = Some(daemon);
    }

    /// Gives unowned partitions to whoever is up, in the group and not leaving.
    pub fn give_away(&mut self) {
        for partition in 0..PARTITIONS {
            let is_due = self.broker.assign_at[partition] <= self.now_ms;
            if self.broker.owner[partition].is_some() || !is_due {
                continue;
            }
            let able: Vec<usize> = (0..PROCESSES)
                .filter(|&i| {
                    self.processes[i]
                        .as_ref()
                        .is_some_and(|d| d.zombie.is_none() && d.draining.is_none())
                })
                .filter(|&i| self.broker.awaits[partition].is_none_or(|awaited| awaited == i))
                .collect();
            if able.is_empty() {
                continue;
            }
            self.broker.awaits[partition] = None;
            let index = self.dice.pick(&able);
            let Some(mut daemon) = self.processes[index].take() else {
                return;
            };
            self.broker.owner[partition] = Some(daemon.life);
            let committed = self.broker.committed[partition];
            let log = Offset(self.log_start[partition])..offset(self.written[partition]);
            let taken = take_over(committed, &log);
            self.bereave(
                partition,
                committed.map_or(0, |marks| marks.resume_from.0),
                &taken,
            );
            let next = taken.start.0;
            daemon
                .positions
                .insert(partition, Position { next, newest: None });
            let input = Input::Assigned {
                partition: partition_id(partition),
                source: source(partition),
                committed,
                log,
            };
            self.tell(&mut daemon, input);
            self.processes[index] = Some(daemon);
        }
    }

    /// Ends a drain that is done or out of time; true where the process has left.
    pub fn hand_over(&mut self, daemon: &mut Daemon, index: usize) -> bool {
        let Some(draining) = daemon.draining.take() else {
            return false;
        };
        let is_drained = daemon.pipeline.is_drained();
        if !is_drained && self.now_ms < draining.deadline_ms {
            daemon.draining = Some(draining);
            return false;
        }
        self.tally.handovers += 1;
        self.tally.out_of_time += u64::from(!is_drained);
        for partition in draining.partitions {
            let id = partition_id(partition);
            match daemon.pipeline.hand_over(id) {
                Some(marks) => self.commit(daemon.life, id, marks),
                None => self.tally.unsaved += u64::from(daemon.positions.contains_key(&partition)),
            }
            daemon.positions.remove(&partition);
            self.broker.owner[partition] = None;
            self.broker.assign_at[partition] = self.now_ms + self.dice.range(0, 300);
            self.tell(daemon, Input::Revoked { partition: id });
        }
        if draining.is_leaving {
            for flight in std::mem::take(&mut daemon.flights) {
                if let Load::Facts(facts) = flight.load {
                    self.orphans.push((self.now_ms + 100, facts));
                }
            }
            self.restart_at[index] = self.now_ms + self.dice.range(50, 3_000);
        }
        draining.is_leaving
    }
}
