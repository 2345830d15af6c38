//! Work on its way to an edge, which may be slow, fail, or forget to say that it succeeded.

use super::faults::{Dice, Fault};
use super::hosts::File;
use super::world::{Daemon, World};
use tachograph::core::dialect::DeadLetterReason;
use tachograph::core::fact::Fact;
use tachograph::core::ledger::WorkId;
use tachograph::core::pipeline::Input;

/// Work on its way to an edge.
#[derive(Debug)]
pub struct Flight {
    pub work: WorkId,
    pub due_ms: i64,
    pub load: Load,
}

#[derive(Debug)]
pub enum Load {
    Facts(Vec<Fact>),
    Letter {
        at: (usize, i64),
        reason: DeadLetterReason,
        payload: Vec<u8>,
    },
    State(File),
}

impl World {
    pub fn launch(&mut self, daemon: &mut Daemon, work: WorkId, load: Load) {
        let slow = match load {
            Load::Facts(_) => Fault::SlowInserts,
            Load::Letter { .. } => Fault::SlowDeadLetters,
            Load::State(_) => Fault::SlowSaves,
        };
        let is_slow = !self.is_healthy() && self.faults.has(slow);
        let most_ms = match is_slow {
            true if slow == Fault::SlowSaves => 1_500,
            true if self.dice.percent(15) => 12_000,
            true => 4_000,
            false => 150,
        };
        let mut due_ms = self.now_ms + self.dice.range(1, most_ms);
        if !self.faults.has(Fault::AnyOrder) && slow != Fault::SlowSaves {
            let others = daemon.flights.iter();
            let last = others.map(|flight| flight.due_ms).max();
            due_ms = due_ms.max(last.unwrap_or(0));
        }
        daemon.flights.push(Flight { work, due_ms, load });
    }

    pub fn settle_flights(&mut self, daemon: &mut Daemon) {
        let mut flights = std::mem::take(&mut daemon.flights);
        flights.sort_by_key(|flight| flight.due_ms);
        let mut waiting = Vec::new();
        let mut settled = Vec::new();
        for mut flight in flights {
            if flight.due_ms > self.now_ms {
                waiting.push(flight);
            } else if self.land(daemon.host, &flight.load) {
                settled.push(flight.work);
            } else {
                flight.due_ms = self.now_ms + self.dice.range(20, 1_500);
                waiting.push(flight);
            }
        }
        daemon.flights = waiting;
        for work in settled {
            self.tell(daemon, Input::Settled { work });
        }
    }

    /// Tries to store something; true where the edge says that it is durable.
    fn land(&mut self, host: usize, load: &Load) -> bool {
        let is_healthy = self.is_healthy();
        let dice = &mut self.dice;
        let chance = |fault, percent, dice: &mut Dice| {
            !is_healthy && self.faults.has(fault) && dice.percent(percent)
        };
        match load {
            Load::Facts(facts) => {
                let is_down = !is_healthy
                    && self
                        .sink_down
                        .is_some_and(|(from, below)| (from..below).contains(&self.now_ms));
                if is_down || chance(Fault::FailingInserts, 40, dice) {
                    return false;
                }
                let is_lost = chance(Fault::LostAcks, 40, dice);
                self.insert(facts);
                !is_lost
            }
            Load::Letter {
                at,
                reason,
                payload,
            } => {
                if chance(Fault::SlowDeadLetters, 30, dice) {
                    return false;
                }
                self.letters.insert(*at, (*reason, payload.clone()));
                true
            }
            Load::State(file) => {
                self.hosts[host].write(file.clone());
                // It is on the disk, and may be scraped, before anybody hears of it.
                !chance(Fault::SlowSaves, 40, dice)
            }
        }
    }
}
