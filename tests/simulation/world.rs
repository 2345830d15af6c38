//! The world around the pipelines: a log, a broker, processes, a sink, two clocks.
//!
//! Every part is as plain as it can be and still refuse what the real one refuses. All of it follows from one seed.

use super::faults::{Dice, Fault, Faults, Mix, Strike, strikes};
use super::workload::{self, EPOCH_MS, Log, PARTITIONS, Silence};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tachograph::core::dialect::DeadLetterReason;
use tachograph::core::fact::{Fact, Table};
use tachograph::core::ledger::{Watermark, WorkId, take_over};
use tachograph::core::pipeline::{Action, Input, Pipeline, Record, Settings};
use tachograph::core::sample::{Family, Move, Sample};
use tachograph::core::{Limits, LogSource, LogTime, Now, Offset, PartitionId, TopicDefaults};

/// Processes of the consumer group.
const PROCESSES: usize = 3;

/// A series: its family and its label values.
pub type Series = (Family, Vec<String>);
/// What identifies a row: table, tenant, app, invocation and the rest.
pub type RowKey = (Table, String, String, String, Vec<String>);

/// The table that collapses by identity and version.
#[derive(Debug, Default)]
pub struct Sink {
    pub rows: BTreeMap<RowKey, Fact>,
    pub inserted: u64,
}

impl Sink {
    /// Takes facts; of two with one identity the larger version stays, and equal versions must be equal.
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

fn row_key(fact: &Fact) -> RowKey {
    (
        fact.body.table(),
        fact.tenant.to_string(),
        fact.app.to_string(),
        fact.invocation_id.to_string(),
        fact.identity(),
    )
}

/// Counters of every life of every process together.
#[derive(Debug, Default)]
pub struct Counters {
    /// Sums of counters; of histograms the number of samples.
    pub moved: BTreeMap<Series, u64>,
    /// The part that was moved again, by the pipelines' own word.
    pub replayed: BTreeMap<Series, u64>,
}

impl Counters {
    pub fn observe(&mut self, sample: &Sample) {
        let labels = sample
            .labels
            .iter()
            .map(|label| label.to_string())
            .collect();
        let by = match sample.change {
            Move::Create => 0,
            Move::Add(by) => by,
            Move::Observe(_) => 1,
        };
        let series = (sample.family, labels);
        if sample.is_replayed {
            *self.replayed.entry(series.clone()).or_insert(0) += by;
        }
        *self.moved.entry(series).or_insert(0) += by;
    }
}

/// What the group coordinator knows.
#[derive(Debug, Default)]
struct Broker {
    /// The life that may commit, by partition.
    owner: [Option<u64>; PARTITIONS],
    committed: [Option<Watermark>; PARTITIONS],
    /// When an unowned partition is given away, ms.
    assign_at: [i64; PARTITIONS],
}

/// Work on its way to an edge.
#[derive(Debug)]
struct Flight {
    work: WorkId,
    due_ms: i64,
    load: Load,
}

#[derive(Debug)]
enum Load {
    Facts(Vec<Fact>),
    Letter {
        at: (usize, i64),
        reason: DeadLetterReason,
        payload: Vec<u8>,
    },
}

/// One assigned partition as the source sees it.
#[derive(Debug)]
struct Position {
    next: i64,
    /// Log time of the newest record, and when it was read, ms.
    newest: Option<(i64, i64)>,
}

#[derive(Debug)]
struct Draining {
    partitions: Vec<usize>,
    deadline_ms: i64,
    is_leaving: bool,
}

/// One life of one process.
struct Daemon {
    life: u64,
    pipeline: Pipeline,
    started_ms: i64,
    positions: BTreeMap<usize, Position>,
    flights: Vec<Flight>,
    is_paused: bool,
    draining: Option<Draining>,
    /// Set while the group has moved on without it: until when it stands still, until when it does not know.
    zombie: Option<(i64, i64)>,
}

/// What happened in a run, for the report and for what may be expected of it.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub records: u64,
    pub deliveries: u64,
    pub inserted: u64,
    pub rows: u64,
    pub crashes: u64,
    pub losses: u64,
    pub handovers: u64,
    pub out_of_time: u64,
    pub commits: u64,
    pub refused: u64,
    pub letters: u64,
    pub resumes_after_release: u64,
    /// Commits that did not arrive.
    pub commits_lost: u64,
    pub segments: u64,
    pub headless: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.records += other.records;
        self.deliveries += other.deliveries;
        self.inserted += other.inserted;
        self.rows += other.rows;
        self.crashes += other.crashes;
        self.losses += other.losses;
        self.handovers += other.handovers;
        self.out_of_time += other.out_of_time;
        self.commits += other.commits;
        self.refused += other.refused;
        self.letters += other.letters;
        self.resumes_after_release += other.resumes_after_release;
        self.commits_lost += other.commits_lost;
        self.segments += other.segments;
        self.headless += other.headless;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally {
            records,
            deliveries,
            segments,
            headless,
            rows,
            inserted,
            ..
        } = self;
        write!(
            f,
            "{records} records read {deliveries} times, {segments} segments "
        )?;
        write!(
            f,
            "({headless} headless), {rows} rows inserted {inserted} times, "
        )?;
        let Tally {
            crashes,
            losses,
            handovers,
            out_of_time,
            commits,
            refused,
            letters,
            ..
        } = self;
        write!(
            f,
            "{crashes} crashes, {losses} losses, {handovers} handovers ({out_of_time} out "
        )?;
        write!(
            f,
            "of time), {commits} commits ({refused} refused), {letters} dead letters, "
        )?;
        write!(
            f,
            "{} partitions resumed after release",
            self.resumes_after_release
        )
    }
}

/// Everything there is.
pub struct World {
    dice: Dice,
    faults: Faults,
    pub settings: Settings,
    pub log: Log,
    now_ms: i64,
    /// Records written so far, by partition.
    written: [usize; PARTITIONS],
    broker: Broker,
    pub sink: Sink,
    pub letters: BTreeMap<(usize, i64), (DeadLetterReason, Vec<u8>)>,
    pub counters: Counters,
    processes: Vec<Option<Daemon>>,
    restart_at: [i64; PROCESSES],
    /// Inserts of dead processes that land later.
    orphans: Vec<(i64, Vec<Fact>)>,
    sink_down: Option<(i64, i64)>,
    is_calm: bool,
    is_traced: bool,
    lives: u64,
    poison: [BTreeSet<i64>; PARTITIONS],
    pub tally: Tally,
    error: Option<String>,
}

fn limits(faults: &Faults, dice: &mut Dice) -> Limits {
    let silence_ms = dice.range(2_500, 7_000);
    let is_tiny = faults.has(Fault::TinyLimits);
    let millis = |ms: i64| Duration::from_millis(u64::try_from(ms).expect("positive"));
    Limits {
        payload_bytes_max: 100_000,
        batch_facts_max: if is_tiny { 3 } else { dice.index(17) + 3 },
        batch_bytes_max: 1 << 20,
        batch_age_max: millis(dice.range(50, 1_500)),
        work_in_flight_max: if is_tiny { 2 } else { dice.index(3) + 2 },
        silence_max: millis(silence_ms),
        tool_silence_max: millis(silence_ms * dice.range(15, 30) / 10),
        held_records_max: 1_000_000,
        segments_open_max: 1_000_000,
        branches_per_run_max: 1_000,
        calls_per_run_max: 10_000,
        records_per_run_max: 100_000,
        id_bytes_max: 256,
        attributes_max: 16,
        attribute_bytes_max: 128,
        plausible_tokens_max: 100_000_000,
        names_interned_max: 100_000,
        commit_interval: millis(dice.range(200, 2_500)),
        drain_max: millis(2_000),
        quiet_margin: millis(dice.range(300, 1_500)),
        store_reasons: false,
    }
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

fn offset(index: usize) -> Offset {
    Offset(i64::try_from(index).expect("short log"))
}

/// An input in one line, the payload readable.
fn told(input: &Input<'_>) -> String {
    match input {
        Input::Record { partition, record } => {
            let text = record
                .payload
                .map_or("null".into(), String::from_utf8_lossy);
            format!("record {}/{} {text}", partition.0, record.offset.0)
        }
        Input::Assigned { partition, log, .. } => format!("assigned {} {log:?}", partition.0),
        other => format!("{other:?}"),
    }
}

impl World {
    /// The world of one seed, its log written and nobody reading yet.
    pub fn new(seed: u64, mix: &Mix) -> World {
        let mut dice = Dice::new(seed, 1);
        let faults = Faults::choose(mix, &mut dice);
        let limits = limits(&faults, &mut dice);
        let silence = Silence::new(limits.silence_max, limits.tool_silence_max);
        let log = workload::write(&mut Dice::new(seed, 2), &faults, silence);
        let sink_down = faults.has(Fault::SinkDown).then(|| {
            let from = dice.range(0, log.end_ms.max(2) / 2);
            (from, from + dice.range(1_000, 12_000))
        });
        World {
            settings: Settings {
                limits,
                hash_key: 7,
                is_strict: true,
            },
            processes: (0..PROCESSES).map(|_| None).collect(),
            dice,
            faults,
            log,
            now_ms: 0,
            written: [0; PARTITIONS],
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
        let end_ms = self.log.end_ms + 500;
        let mut strikes = strikes(&self.faults, &mut self.dice, end_ms, self.log.gap);
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

    /// True while no edge is in trouble: at the end, and in the second half of a gap, when the marks must catch up.
    fn is_healthy(&self) -> bool {
        let is_in_gap = |(from, below)| (from + (below - from) / 2..below).contains(&self.now_ms);
        self.is_calm || self.log.gap.is_some_and(is_in_gap)
    }

    /// Prints what happens where `SIM_TRACE` is set.
    fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            eprintln!("{} {}", EPOCH_MS + self.now_ms, what());
        }
    }

    fn fail(&mut self, error: String) {
        self.error.get_or_insert(error);
    }

    fn strike(&mut self, strike: Strike) {
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
            }
        }
        for flight in daemon.flights {
            if let Load::Facts(facts) = flight.load
                && self.dice.percent(50)
            {
                self.orphans
                    .push((self.now_ms + self.dice.range(0, 6_000), facts));
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

    /// One turn of everybody: starts, assignments, records, settlements.
    fn turn(&mut self) {
        for index in 0..PROCESSES {
            if self.processes[index].is_none() && self.restart_at[index] <= self.now_ms {
                self.start(index);
            }
        }
        self.give_away();
        for (_, facts) in self.orphans.extract_if(.., |(due, _)| *due <= self.now_ms) {
            if let Err(error) = self.sink.insert(&facts) {
                self.error.get_or_insert(error);
            }
        }
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
            let has_left = self.hand_over(&mut daemon, index);
            if !has_left {
                self.processes[index] = Some(daemon);
            }
        }
    }

    fn start(&mut self, index: usize) {
        self.lives += 1;
        self.processes[index] = Some(Daemon {
            life: self.lives,
            pipeline: Pipeline::new(self.settings.clone()),
            started_ms: self.now_ms,
            positions: BTreeMap::new(),
            flights: Vec::new(),
            is_paused: false,
            draining: None,
            zombie: None,
        });
    }

    /// Gives unowned partitions to whoever is up, in the group and not leaving.
    fn give_away(&mut self) {
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
                .collect();
            if able.is_empty() {
                return;
            }
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

    fn step(&mut self, daemon: &mut Daemon) {
        self.tell(daemon, Input::Tick);
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
        for _ in 0..self.dice.range(1, 40) {
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
    fn tell(&mut self, daemon: &mut Daemon, input: Input<'_>) {
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
                Action::Observe(sample) => self.counters.observe(&sample),
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

    fn launch(&mut self, daemon: &mut Daemon, work: WorkId, load: Load) {
        let is_letter = matches!(load, Load::Letter { .. });
        let slow = if is_letter {
            Fault::SlowDeadLetters
        } else {
            Fault::SlowInserts
        };
        let most_ms = if !self.is_healthy() && self.faults.has(slow) {
            4_000
        } else {
            150
        };
        let mut due_ms = self.now_ms + self.dice.range(1, most_ms);
        if !self.faults.has(Fault::AnyOrder) {
            let last = daemon.flights.iter().map(|flight| flight.due_ms).max();
            due_ms = due_ms.max(last.unwrap_or(0));
        }
        daemon.flights.push(Flight { work, due_ms, load });
    }

    fn settle_flights(&mut self, daemon: &mut Daemon) {
        let mut flights = std::mem::take(&mut daemon.flights);
        flights.sort_by_key(|flight| flight.due_ms);
        let mut waiting = Vec::new();
        let mut settled = Vec::new();
        for mut flight in flights {
            if flight.due_ms > self.now_ms {
                waiting.push(flight);
            } else if self.land(&flight.load) {
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
    fn land(&mut self, load: &Load) -> bool {
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
                if let Err(error) = self.sink.insert(facts) {
                    self.error.get_or_insert(error);
                }
                !chance(Fault::LostAcks, 40, dice)
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
        }
    }

    /// The coordinator takes a commit from the owner only.
    fn commit(&mut self, life: u64, partition: PartitionId, marks: Watermark) {
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

    /// Ends a drain that is done or out of time; true where the process has left.
    fn hand_over(&mut self, daemon: &mut Daemon, index: usize) -> bool {
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
            if let Some(marks) = daemon.pipeline.hand_over(id) {
                self.commit(daemon.life, id, marks);
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
            if end == Offset(0) {
                // A lost commit of an empty partition is not repeated: nothing changes that could be said.
                continue;
            }
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
