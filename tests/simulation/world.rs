//! The world around the pipelines: a log, a broker, processes, a sink, two clocks.
//!
//! Each part is as plain as can be and refuses what the real one refuses. All follows from one seed.

use super::faults::{Dice, Fault, Faults, Mix, Silence, strikes};
use super::flights::{Flight, Load};
use super::hosts::{File, Host};
use super::rows::Sink;
use super::tables::{Counters, Tally, told};
use super::workload::{self, Begin, EPOCH_MS, Log, PARTITIONS};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tachograph::core::dialect::DeadLetterReason;
use tachograph::core::fact::Fact;
use tachograph::core::ledger::Watermark;
use tachograph::core::pipeline::{Action, Input, Pipeline, Record, Settings};
use tachograph::core::{Limits, LogSource, LogTime, Now, Offset, PartitionId, TopicDefaults};

/// Processes of the consumer group.
pub const PROCESSES: usize = 3;

/// What the group coordinator knows.
#[derive(Debug, Default)]
pub struct Broker {
    /// The life that may commit, by partition.
    pub owner: [Option<u64>; PARTITIONS],
    pub committed: [Option<Watermark>; PARTITIONS],
    /// When an unowned partition is given away, ms.
    pub assign_at: [i64; PARTITIONS],
    /// The process that an unowned partition waits for, where members are static.
    pub awaits: [Option<usize>; PARTITIONS],
}

/// One assigned partition as the source sees it.
#[derive(Debug)]
pub struct Position {
    pub next: i64,
    /// Log time of the newest record, and when it was read, ms.
    pub newest: Option<(i64, i64)>,
}

#[derive(Debug)]
pub struct Draining {
    pub partitions: Vec<usize>,
    pub deadline_ms: i64,
    pub is_leaving: bool,
}

/// One life of one process.
pub struct Daemon {
    pub life: u64,
    /// The index of its process, and of its host.
    pub host: usize,
    pub pipeline: Pipeline,
    pub started_ms: i64,
    pub positions: BTreeMap<usize, Position>,
    pub flights: Vec<Flight>,
    pub is_paused: bool,
    /// Records that it reads in a turn, less one: some are slow to rebuild what they took over.
    pub reads_most: i64,
    pub draining: Option<Draining>,
    /// Set while the group has moved on without it: until when it stands still, until when it does
    /// not know.
    pub zombie: Option<(i64, i64)>,
}

/// Everything there is.
pub struct World {
    pub dice: Dice,
    pub faults: Faults,
    pub settings: Settings,
    pub log: Log,
    pub now_ms: i64,
    /// Records written so far, by partition.
    pub written: [usize; PARTITIONS],
    /// The oldest records that are still there.
    pub log_start: [i64; PARTITIONS],
    /// Records that somebody has read, by partition.
    pub most_read: [i64; PARTITIONS],
    /// Invocations that retention took records of before those were settled.
    pub bereft: BTreeSet<String>,
    pub broker: Broker,
    pub sink: Sink,
    pub letters: BTreeMap<(usize, i64), (DeadLetterReason, Vec<u8>)>,
    pub counters: Counters,
    pub processes: Vec<Option<Daemon>>,
    pub hosts: Vec<Host>,
    pub restart_at: [i64; PROCESSES],
    /// Inserts of dead processes that land later.
    pub orphans: Vec<(i64, Vec<Fact>)>,
    pub sink_down: Option<(i64, i64)>,
    pub is_calm: bool,
    pub is_traced: bool,
    pub lives: u64,
    pub poison: [BTreeSet<i64>; PARTITIONS],
    pub tally: Tally,
    pub error: Option<String>,
}

fn limits(faults: &Faults, dice: &mut Dice) -> Limits {
    let silence_ms = dice.range(1_600, 5_000);
    let is_tiny = faults.has(Fault::TinyLimits);
    let millis = |ms: i64| Duration::from_millis(u64::try_from(ms).expect("positive"));
    Limits {
        batch_facts_max: if is_tiny { 3 } else { dice.index(17) + 3 },
        batch_age_max: millis(dice.range(50, 1_500)),
        work_in_flight_max: if is_tiny { 2 } else { dice.index(3) + 2 },
        silence_max: millis(silence_ms),
        tool_silence_max: millis(silence_ms * dice.range(15, 40) / 10),
        commit_interval: millis(dice.range(200, 2_500)),
        quiet_margin: millis(dice.range(300, 1_500)),
        ..Limits::OF_THE_CONTRACT
    }
}

/// What can be compared of rows: where producers say the time, the log time of a segment's first
/// record hangs on where reading began (facts.md §8.1).
pub fn comparable(facts: &[Fact], faults: &Faults) -> Vec<Fact> {
    let mut facts = facts.to_vec();
    if faults.has(Fault::CreateTime) {
        facts
            .iter_mut()
            .for_each(|fact| fact.segment_logged_at = LogTime(0));
    }
    facts
}

/// The topic partition as every process sees it.
pub fn source(partition: usize) -> LogSource {
    LogSource {
        topic: Arc::from("agent-events"),
        partition: i32::try_from(partition).expect("few partitions"),
        defaults: TopicDefaults::default(),
    }
}

pub fn partition_id(partition: usize) -> PartitionId {
    PartitionId(u32::try_from(partition).expect("few partitions"))
}

pub fn offset(index: usize) -> Offset {
    Offset(i64::try_from(index).expect("short log"))
}

impl World {
    /// The world of one seed, its log written and nobody reading yet.
    pub fn new(seed: u64, mix: &Mix) -> World {
        let mut dice = Dice::new(seed, 1);
        let faults = Faults::choose(mix, &mut dice);
        let limits = limits(&faults, &mut dice);
        let hosts = Host::all(&faults, &mut dice);
        let silence = Silence::new(limits.silence_max, limits.tool_silence_max);
        let log = workload::write(&mut Dice::new(seed, 2), &faults, silence, Begin::default());
        let sink_down = faults.has(Fault::SinkDown).then(|| {
            let from = dice.range(0, log.end_ms.max(2) / 2);
            (from, from + dice.range(1_000, 8_000))
        });
        World {
            settings: Settings {
                limits,
                hash_key: 7,
                is_strict: true,
                has_state_file: false,
            },
            hosts,
            processes: (0..PROCESSES).map(|_| None).collect(),
            dice,
            faults,
            log,
            now_ms: 0,
            written: [0; PARTITIONS],
            log_start: [0; PARTITIONS],
            most_read: [0; PARTITIONS],
            bereft: BTreeSet::new(),
            broker: Broker::default(),
            sink: Sink::default(),
            letters: BTreeMap::new(),
            counters: Counters::default(),
            restart_at: [0; PROCESSES],
            orphans: Vec::new(),
            sink_down,
            is_calm: false,
            is_traced: std::env::var_os("SIM_TRACE").is_some(),
            lives: 0,
            poison: Default::default(),
            tally: Tally::default(),
            error: None,
        }
    }

    /// Says which records must be dead letters, so that no commit passes one that is not.
    pub fn expect_letters(&mut self, letters: impl Iterator<Item = (usize, i64)>) {
        for (partition, offset) in letters {
            self.poison[partition].insert(offset);
        }
    }

    /// Log time at which nothing can be held any more, by partition alike.
    pub fn settled_at(&self) -> LogTime {
        let silence = self.settings.limits.silence_max + self.settings.limits.tool_silence_max;
        LogTime(EPOCH_MS + self.log.end_ms + 10_000).plus(silence)
    }

    /// Lives through the whole log with its faults, then lets everything settle.
    pub fn run(&mut self) -> Result<(), String> {
        self.tally.records = self.log.partitions.iter().map(|p| p.len() as u64).sum();
        let end_ms = self.log.end_ms.max(self.now_ms) + 500;
        let span = (self.now_ms, end_ms.max(self.now_ms + 501));
        let mut strikes = strikes(&self.faults, &mut self.dice, span, self.log.gap);
        strikes.reverse();
        while self.now_ms < end_ms {
            self.pass_time();
            while strikes
                .last()
                .is_some_and(|strike| strike.at_ms <= self.now_ms)
            {
                let strike = strikes.pop().expect("just seen");
                self.strike(strike);
            }
            self.turn();
            if let Some(error) = self.error.take() {
                return Err(error);
            }
        }
        self.settle()?;
        self.scrape_all()?;
        self.tally.inserted = self.sink.inserted;
        self.tally.rows = self.sink.rows.len() as u64;
        Ok(())
    }

    fn pass_time(&mut self) {
        let is_in_gap = self
            .log
            .gap
            .is_some_and(|(from, below)| self.now_ms > from + 1_000 && self.now_ms < below - 1_000);
        let before = self.now_ms;
        self.now_ms += if is_in_gap {
            self.dice.range(50, 900)
        } else {
            self.dice.range(5, 180)
        };
        for partition in 0..PARTITIONS {
            let records = &self.log.partitions[partition];
            let written = &mut self.written[partition];
            while records
                .get(*written)
                .is_some_and(|r| r.logged_at <= EPOCH_MS + self.now_ms)
            {
                *written += 1;
            }
        }
        if let Some((_, below)) = self.log.gap
            && (before..self.now_ms).contains(&below)
        {
            self.check_gap();
        }
    }

    /// Before anything resumes, the marks must have passed everything that paused.
    fn check_gap(&mut self) {
        let Some((from, _)) = self.log.gap else {
            return;
        };
        for partition in 0..PARTITIONS {
            let records = &self.log.partitions[partition];
            let before = records
                .iter()
                .filter(|r| r.logged_at <= EPOCH_MS + from)
                .count();
            let resume = self.broker.committed[partition].map_or(0, |marks| marks.resume_from.0);
            if resume < offset(before).0 {
                self.fail(format!(
                    "partition {partition} holds {resume} of {before} through a pause"
                ));
            }
            self.tally.resumes_after_release += u64::from(before > 0);
        }
    }

    /// True while no edge is in trouble: at the end, and in the second half of a gap, when the
    /// marks must catch up.
    pub fn is_healthy(&self) -> bool {
        let is_in_gap = |(from, below)| (from + (below - from) / 2..below).contains(&self.now_ms);
        self.is_calm || self.log.gap.is_some_and(is_in_gap)
    }

    /// Prints what happens where `SIM_TRACE` is set.
    fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            eprintln!("{} {}", EPOCH_MS + self.now_ms, what());
        }
    }

    pub fn fail(&mut self, error: String) {
        self.error.get_or_insert(error);
    }

    /// One turn of everybody: starts, assignments, records, settlements.
    fn turn(&mut self) {
        for index in 0..PROCESSES {
            if self.processes[index].is_none() && self.restart_at[index] <= self.now_ms {
                self.start(index);
            }
        }
        self.give_away();
        let due: Vec<_> = self
            .orphans
            .extract_if(.., |(due, _)| *due <= self.now_ms)
            .collect();
        due.iter().for_each(|(_, facts)| self.insert(facts));
        for index in 0..PROCESSES {
            let Some(mut daemon) = self.processes[index].take() else {
                continue;
            };
            if daemon
                .zombie
                .is_some_and(|(stands_until, _)| self.now_ms < stands_until)
            {
                self.processes[index] = Some(daemon);
                continue;
            }
            self.step(&mut daemon);
            self.scrape_now_and_then(&mut daemon);
            let has_left = self.hand_over(&mut daemon, index);
            if !has_left {
                self.processes[index] = Some(daemon);
            }
        }
    }

    fn step(&mut self, daemon: &mut Daemon) {
        // Else the time is heard with a record, in the midst of what it moves.
        if !self.faults.has_state_files() || self.dice.percent(50) {
            self.tell(daemon, Input::Tick);
        }
        self.settle_flights(daemon);
        if let Some((_, believes_until)) = daemon.zombie
            && self.now_ms >= believes_until
        {
            daemon.zombie = None;
            for partition in std::mem::take(&mut daemon.positions).into_keys() {
                self.tell(
                    daemon,
                    Input::Lost {
                        partition: partition_id(partition),
                    },
                );
            }
        }
        if daemon.draining.is_some() {
            return;
        }
        let most = if self.is_healthy() {
            40
        } else {
            daemon.reads_most
        };
        for _ in 0..self.dice.range(1, most) {
            if daemon.is_paused || !self.deliver(daemon) {
                break;
            }
        }
        self.catch_up(daemon);
    }

    /// Hands the next record of some partition over; false where there is none.
    fn deliver(&mut self, daemon: &mut Daemon) -> bool {
        let waiting: Vec<usize> = daemon
            .positions
            .iter()
            .filter(|(p, position)| position.next < offset(self.written[**p]).0)
            .map(|(p, _)| *p)
            .collect();
        if waiting.is_empty() {
            return false;
        }
        let partition = self.dice.pick(&waiting);
        let position = daemon.positions.get_mut(&partition).expect("it was listed");
        let index = usize::try_from(position.next).expect("offsets are not negative");
        let record = self.log.partitions[partition][index].clone();
        position.next += 1;
        self.most_read[partition] = self.most_read[partition].max(position.next);
        position.newest = Some((record.logged_at, self.now_ms));
        self.tally.deliveries += 1;
        let input = Input::Record {
            partition: partition_id(partition),
            record: Record {
                offset: offset(index),
                logged_at: LogTime(record.logged_at),
                key: Some(record.key.as_bytes()),
                headers: &[],
                payload: record.payload.as_deref(),
            },
        };
        self.tell(daemon, input);
        true
    }

    /// On a partition read to its end, log time goes on by the process's clock, less a margin.
    fn catch_up(&mut self, daemon: &mut Daemon) {
        if daemon.is_paused {
            return;
        }
        let margin = i64::try_from(self.settings.limits.quiet_margin.as_millis()).expect("short");
        let quiet: Vec<(usize, i64, Option<i64>)> = daemon
            .positions
            .iter()
            .filter(|(p, position)| position.next == offset(self.written[**p]).0)
            .map(|(p, position)| {
                let log_time = position.newest.map(|(logged_at, read_ms)| {
                    (logged_at + self.now_ms - read_ms - margin).max(logged_at)
                });
                (*p, position.next, log_time)
            })
            .collect();
        for (partition, next, log_time) in quiet {
            if self.is_calm || self.dice.percent(30) {
                let input = Input::CaughtUp {
                    partition: partition_id(partition),
                    next: Offset(next),
                    log_time: log_time.map(LogTime),
                };
                self.tell(daemon, input);
            }
        }
    }

    /// Tells a pipeline something and does what it says.
    pub fn tell(&mut self, daemon: &mut Daemon, input: Input<'_>) {
        let ms = u64::try_from(self.now_ms - daemon.started_ms).expect("time goes on");
        self.trace(|| format!("life {} is told {}", daemon.life, told(&input)));
        daemon
            .pipeline
            .handle(input, Now(Duration::from_millis(ms)));
        while let Some(action) = daemon.pipeline.poll_action() {
            match action {
                Action::Insert(batch) => {
                    let load = Load::Facts(batch.facts);
                    self.launch(daemon, batch.work, load);
                }
                Action::DeadLetter(letter) => {
                    let partition = usize::try_from(letter.at.partition).expect("not negative");
                    let load = Load::Letter {
                        at: (partition, letter.at.offset.0),
                        reason: letter.reason,
                        payload: letter.payload,
                    };
                    self.launch(daemon, letter.work, load);
                }
                Action::Observe(sample) => {
                    self.counters.observe(&sample);
                    self.hosts[daemon.host].observe(&sample);
                }
                Action::SaveState(save) => {
                    let cells = self.hosts[daemon.host].cells.clone();
                    let counted = save.counted;
                    self.launch(daemon, save.work, Load::State(File { cells, counted }));
                }
                Action::Commit {
                    partition,
                    watermark,
                } => {
                    let is_lost = !self.is_healthy()
                        && self.faults.has(Fault::LostCommits)
                        && self.dice.percent(30);
                    self.tally.commits_lost += u64::from(is_lost);
                    if !is_lost {
                        self.commit(daemon.life, partition, watermark);
                    }
                }
                Action::Pause => daemon.is_paused = true,
                Action::Resume => daemon.is_paused = false,
                Action::Halt(invariant) => self.fail(format!("halted: {}", invariant.as_str())),
            }
        }
    }

    /// Rows arrive in the table. Of a run that lost records nothing can be said.
    pub fn insert(&mut self, facts: &[Fact]) {
        let mut facts = comparable(facts, &self.faults);
        facts.retain(|fact| !self.bereft.contains(&*fact.invocation_id));
        if let Err(error) = self.sink.insert(&facts) {
            self.fail(error);
        }
    }

    /// The coordinator takes a commit from the owner only.
    pub fn commit(&mut self, life: u64, partition: PartitionId, marks: Watermark) {
        let partition = usize::try_from(partition.0).expect("few partitions");
        if self.broker.owner[partition] != Some(life) {
            self.tally.refused += 1;
            return;
        }
        self.tally.commits += 1;
        self.trace(|| format!("life {life} commits {partition}: {marks}"));
        let missing = self.poison[partition]
            .range(..marks.resume_from.0)
            .find(|offset| !self.letters.contains_key(&(partition, **offset)))
            .copied();
        if let Some(missing) = missing {
            self.fail(format!(
                "committed {marks} past dead letter {partition}/{missing}"
            ));
        }
        self.broker.committed[partition] = Some(marks);
    }

    /// Faults stop; everything must come to rest, or it is not live.
    fn settle(&mut self) -> Result<(), String> {
        self.is_calm = true;
        self.sink_down = None;
        let until = self.settled_at().0 - EPOCH_MS + 60_000;
        while self.now_ms < until {
            self.now_ms += self.dice.range(100, 600);
            self.turn();
            if let Some(error) = self.error.take() {
                return Err(error);
            }
        }
        self.tally.letters = self.letters.len() as u64;
        for daemon in self.processes.iter_mut().flatten() {
            let seen = daemon.pipeline.snapshot();
            let held: usize = seen.partitions.iter().map(|p| p.segments_held).sum();
            if held + seen.work_in_flight + seen.facts_waiting > 0 || seen.is_paused {
                return Err(format!("not live: {held} segments held, {seen:?}"));
            }
        }
        for partition in 0..PARTITIONS {
            let end = offset(self.log.partitions[partition].len());
            let marks = self.broker.committed[partition];
            let is_passed = marks.is_some_and(|m| m.resume_from == end && m.exported_below == end);
            if !is_passed {
                return Err(format!(
                    "not live: partition {partition} of {}: {marks:?}",
                    end.0
                ));
            }
        }
        Ok(())
    }
}
