//! The consumer group: who starts, dies, is left behind, drains, and gets which partition.
//!
//! It decides nothing about records; the marks that it hands over are the pipelines' own.

use super::faults::{Fault, Strike};
use super::flights::Load;
use super::workload::PARTITIONS;
use super::world::{Daemon, Draining, PROCESSES, Position, World, offset, partition_id, source};
use std::collections::BTreeMap;
use tachograph::core::Offset;
use tachograph::core::ledger::take_over;
use tachograph::core::pipeline::{Input, Pipeline, Settings};

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
            let log = Offset(0)..offset(self.written[partition]);
            let next = take_over(committed, &log).start.0;
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
