//! What spoils a log: late and lonely records, poison, tombstones, and what was sent twice.
//!
//! It adds lines to those that are written; it changes none.

use super::faults::{Dice, Fault, Faults};
use super::workload::{Line, Log, MODELS, PARTITIONS, Writer};
use serde_json::json;

/// By how much the clocks of producers differ, ms.
const CLOCKS_DIFFER_MS: i64 = 250;

/// Where producers say the times of their records, those differ as their clocks do.
pub fn clocks(mut log: Log, faults: &Faults, dice: &mut Dice) -> Log {
    if faults.has(Fault::CreateTime) {
        let records = log.partitions.iter_mut().flatten();
        records.for_each(|record| record.logged_at -= dice.range(0, CLOCKS_DIFFER_MS));
    }
    log
}

impl Writer<'_> {
    /// Records that come late, alone, or for nothing anybody knows.
    pub fn strays(&mut self) {
        let end_ms = self.last_ms();
        for _ in 0..self.dice.range(3, 12) {
            let Some((ended_ms, who)) = self.past.get(self.dice.index(self.past.len().max(1)))
            else {
                return;
            };
            let (ended_ms, mut who) = (*ended_ms, who.clone());
            let late_ms = ended_ms + self.silence.longest() + self.dice.range(0, 20_000);
            self.serial += 1;
            let call = format!("stray-{}", self.serial);
            let (at_ms, logged_ms) = match self.dice.range(0, 4) {
                // Within the silence: amends.
                0 => (
                    ended_ms,
                    ended_ms + self.dice.range(50, self.silence.max_ms * 6 / 10),
                ),
                // Long after: headless. Long after and fresh: an ordinary segment, its start
                // unseen.
                1 => (ended_ms, late_ms),
                2 => (late_ms - 20, late_ms),
                _ => {
                    who.invocation = format!("x-{}", self.serial);
                    let earliest = self.begin_ms + self.silence.longest();
                    let logged_ms = self.dice.range(self.begin_ms, end_ms + 1).max(earliest);
                    (
                        self.dice
                            .pick(&[logged_ms - 10, logged_ms - self.silence.longest()]),
                        logged_ms,
                    )
                }
            };
            who.run = None;
            let usage = self.usage();
            let end = json!({
                "call_id": call, "model": MODELS[0], "usage": usage, "finish_reason": "STOP",
            });
            self.append(&who, "model.end", end, at_ms, logged_ms);
        }
    }

    /// Poison, tombstones and what the producer sent twice.
    pub fn spoil(&mut self) {
        let end_ms = self.last_ms().max(1);
        const POISON: [&str; 6] = [
            "",
            "not json",
            "{\"v\":1,\"kind\":",
            "{\"hello\":1}",
            "[1,2]",
            "{\"v\":1,\"kind\":\"run.start\",\"at\":1772445600000}",
        ];
        let mut spoilt = Vec::new();
        if self.faults.has(Fault::Poison) {
            for _ in 0..self.dice.range(3, 20) {
                spoilt.push(Some(self.dice.pick(&POISON).as_bytes().to_vec()));
            }
        }
        if self.faults.has(Fault::Tombstones) {
            spoilt.extend((0..self.dice.range(2, 10)).map(|_| None));
        }
        for payload in spoilt {
            let partition = self.dice.index(PARTITIONS);
            let logged_ms = self
                .dice
                .range(self.begin_ms, end_ms.max(self.begin_ms + 1));
            self.lines.push(Line {
                partition,
                logged_ms,
                key: "poison".to_owned(),
                payload,
            });
        }
        if self.faults.has(Fault::Duplicates) && !self.lines.is_empty() {
            for _ in 0..self.dice.range(3, 15) {
                let line = &self.lines[self.dice.index(self.lines.len())];
                let (partition, key) = (line.partition, line.key.clone());
                // A repeated tool.start, re-read alone, holds its segment for longer: near.
                let text = String::from_utf8_lossy(line.payload.as_deref().unwrap_or_default());
                let is_near = text.contains("tool.start");
                let most_ms = if is_near {
                    200
                } else {
                    self.silence.max_ms - 200
                };
                let (payload, logged_ms) = (line.payload.clone(), line.logged_ms);
                let logged_ms = logged_ms + self.dice.range(1, most_ms);
                self.lines.push(Line {
                    partition,
                    logged_ms,
                    key,
                    payload,
                });
            }
        }
    }
}
