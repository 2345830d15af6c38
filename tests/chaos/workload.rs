//! What is written: recorded runs side by side, with all that a topic has besides.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use rand::Rng as _;
use rand::rngs::StdRng;
use tachograph::demo::corpus::{Recording, recordings};

use crate::stage::{PARTITIONS, Stage};
use crate::support::kafka::{self, Record};

/// In percent: an earlier record again, one that cannot be read, one without a value.
const AGAIN: u32 = 6;
const POISON: u32 = 3;
const TOMBSTONE: u32 = 3;
/// In percent of what is written: in a transaction, and beside it one that is aborted.
const TRANSACTION: u32 = 30;
const ABORTED: u32 = 20;

const UNREADABLE: [&str; 4] = ["not json", "{\"a\":1}", "", "[1,2"];

/// Where the ids of one recording's next pass come from.
pub struct Workload {
    recordings: Vec<Recording>,
    passes: u64,
}

impl Default for Workload {
    fn default() -> Workload {
        Workload {
            recordings: recordings(),
            passes: 0,
        }
    }
}

/// What one round writes, in order.
pub struct Round {
    queue: VecDeque<Record>,
    /// Of runs that never happened: written in transactions that are aborted.
    aborted: VecDeque<Record>,
    /// What one fault writes in all.
    share: usize,
}

impl Workload {
    /// A round of `count` recordings for `faults` faults, merged at random.
    pub fn round(&mut self, dice: &mut StdRng, count: usize, faults: usize) -> Round {
        let mut runs: Vec<VecDeque<Record>> = (0..count).map(|_| self.pass(dice)).collect();
        let mut queue = Vec::new();
        while !runs.is_empty() {
            let index = dice.random_range(0..runs.len());
            match runs[index].pop_front() {
                Some(record) => queue.push(record),
                None => drop(runs.swap_remove(index)),
            }
        }
        for at in 0..queue.len() {
            let place = dice.random_range(at..queue.len());
            let record = queue[at].clone();
            if chance(dice, AGAIN) {
                queue.insert(place + 1, record);
            } else if chance(dice, POISON) {
                let value = UNREADABLE[dice.random_range(0..UNREADABLE.len())];
                let partition = record.partition.unwrap_or(0);
                queue.insert(place, Record::new("poison", value).on(partition));
            } else if chance(dice, TOMBSTONE) {
                let value = None;
                queue.insert(place, Record { value, ..record });
            }
        }
        Round {
            share: queue.len() / (faults + 1),
            queue: queue.into(),
            aborted: self.pass(dice),
        }
    }

    /// A recording whose ids were never seen, each session on one partition.
    pub fn pass(&mut self, dice: &mut StdRng) -> VecDeque<Record> {
        self.passes += 1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = i64::try_from(now.expect("after 1970").as_nanos()).expect("before 2262");
        let recording = &self.recordings[dice.random_range(0..self.recordings.len())];
        let records = recording.records(self.passes, now);
        let record = |one: tachograph::demo::corpus::Sendable| {
            let partition = partition_of(&one.key);
            Record::new(&one.key, one.payload).on(partition)
        };
        records.into_iter().map(record).collect()
    }
}

fn partition_of(key: &str) -> i32 {
    let mixed = key.bytes().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    i32::try_from(mixed % PARTITIONS.unsigned_abs()).expect("few")
}

pub fn chance(dice: &mut StdRng, percent: u32) -> bool {
    dice.random_range(0..100) < percent
}

impl Round {
    /// Writes a third of what one fault has; each fault does so three times at most.
    pub fn write(&mut self, stage: &Stage, dice: &mut StdRng) {
        let count = (self.share / 3).max(1).min(self.queue.len());
        let records: Vec<Record> = self.queue.drain(..count).collect();
        if chance(dice, ABORTED) && !self.aborted.is_empty() {
            let few = self.aborted.len().min(5);
            let aborted: Vec<Record> = self.aborted.drain(..few).collect();
            kafka::transact(stage.brokers(), &stage.topic, &aborted, false);
        }
        match chance(dice, TRANSACTION) {
            true => kafka::transact(stage.brokers(), &stage.topic, &records, true),
            false => drop(kafka::produce_at(stage.brokers(), &stage.topic, &records)),
        }
    }

    /// Takes records off without writing them.
    pub fn take(&mut self, count: usize) -> Vec<Record> {
        let count = count.min(self.queue.len());
        self.queue.drain(..count).collect()
    }

    pub fn write_all(&mut self, stage: &Stage, dice: &mut StdRng) {
        while !self.queue.is_empty() {
            self.write(stage, dice);
        }
    }
}
