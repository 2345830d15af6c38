//! One life of a pipeline over a log, and the sink that outlives it.

use crate::log::Logged;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tachograph::core::fact::{Fact, Table};
use tachograph::core::ledger::{Watermark, WorkId, take_over};
use tachograph::core::pipeline::{Action, Input, Outcomes, Pipeline, Record, Settings};
use tachograph::core::{Limits, LogSource, LogTime, Now, Offset, PartitionId, TopicDefaults};

pub const P: PartitionId = PartitionId(3);
/// Far shorter than by default, so that segments are released within a log.
pub const SILENCE_MS: i64 = 60;

pub fn limits() -> Limits {
    Limits {
        payload_bytes_max: 1 << 20,
        batch_facts_max: 5,
        batch_age_max: Duration::from_millis(20),
        silence_max: Duration::from_millis(SILENCE_MS as u64),
        tool_silence_max: Duration::from_millis(2 * SILENCE_MS as u64),
        held_records_max: 5_000,
        commit_interval: Duration::from_millis(5),
        ..Limits::OF_THE_CONTRACT
    }
}

/// Table, tenant, app, invocation, identity.
pub type RowKey = (Table, String, String, String, Vec<String>);

/// Rows collapsed by identity and version; equal versions must be equal rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sink(pub BTreeMap<RowKey, Fact>);

impl Sink {
    pub fn insert(&mut self, facts: Vec<Fact>) {
        for fact in facts {
            let key = (
                fact.body.table(),
                fact.tenant.to_string(),
                fact.app.to_string(),
                fact.invocation_id.to_string(),
                fact.identity(),
            );
            match self.0.get(&key) {
                Some(kept) if kept.version > fact.version => {}
                Some(kept) if kept.version == fact.version => {
                    assert_eq!(*kept, fact, "one version, two rows");
                }
                _ => {
                    self.0.insert(key, fact);
                }
            }
        }
    }

    /// What the rows say, without the offsets at which it was said.
    pub fn without_offsets(mut self) -> Sink {
        for fact in self.0.values_mut() {
            // rules.md: the version is revision, evidence, offset; the last 36 bits are the offset.
            fact.version >>= 36;
            fact.first.offset = Offset(0);
            fact.last.offset = Offset(0);
        }
        self
    }
}

/// How a life goes beside its records.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub batch_facts_max: usize,
    /// Work is settled once this much newer work waits behind it.
    pub settle_lag: usize,
    /// A `Tick` after every so many records; 0 is never.
    pub tick_every: usize,
    /// A `CaughtUp` without a time after every so many records; 0 is never.
    pub poll_every: usize,
}

impl Pace {
    pub const PLAIN: Pace = Pace {
        batch_facts_max: 5,
        settle_lag: 0,
        tick_every: 0,
        poll_every: 0,
    };
}

/// One pipeline with the partition assigned.
pub struct Life<'l> {
    pub pipeline: Pipeline,
    pace: Pace,
    log: &'l [Logged],
    next: i64,
    now: Now,
    in_flight: VecDeque<(WorkId, Vec<Fact>)>,
    /// Marks in the order of their commits.
    pub commits: Vec<Watermark>,
    pub letters: u64,
}

impl<'l> Life<'l> {
    pub fn begin(log: &'l [Logged], committed: Option<Watermark>, pace: Pace) -> Life<'l> {
        let range = Offset(0)..Offset(log.len() as i64);
        let next = take_over(committed, &range).start.0;
        let mut pipeline = Pipeline::new(Settings {
            limits: Limits {
                batch_facts_max: pace.batch_facts_max,
                ..limits()
            },
            hash_key: 7,
            is_strict: true,
            has_state_file: false,
        });
        let source = LogSource {
            topic: Arc::from("events"),
            partition: 0,
            defaults: TopicDefaults::default(),
        };
        let now = Now(Duration::ZERO);
        let assigned = Input::Assigned {
            partition: P,
            source,
            committed,
            log: range,
        };
        pipeline.handle(assigned, now);
        Life {
            pipeline,
            pace,
            log,
            next,
            now,
            in_flight: VecDeque::new(),
            commits: Vec::new(),
            letters: 0,
        }
    }

    fn tell(&mut self, input: Input<'_>, sink: &mut Sink) {
        self.pipeline.handle(input, self.now);
        loop {
            while let Some(action) = self.pipeline.poll_action() {
                match action {
                    Action::Insert(batch) => self.in_flight.push_back((batch.work, batch.facts)),
                    Action::DeadLetter(letter) => {
                        self.letters += 1;
                        self.in_flight.push_back((letter.work, Vec::new()));
                    }
                    Action::Commit { watermark, .. } => self.commits.push(watermark),
                    Action::Halt(invariant) => panic!("halted: {invariant:?}"),
                    Action::SaveState(_) => panic!("no state file is kept"),
                    Action::Observe(_) | Action::Pause | Action::Resume => {}
                }
            }
            // The bound on work in flight holds whatever the pace.
            if self.in_flight.len() <= self.pace.settle_lag.min(2) {
                return;
            }
            self.settle_one(sink);
        }
    }

    fn settle_one(&mut self, sink: &mut Sink) {
        if let Some((work, facts)) = self.in_flight.pop_front() {
            sink.insert(facts);
            self.pipeline.handle(Input::Settled { work }, self.now);
        }
    }

    /// Reads up to the record at `end`, exclusive.
    pub fn read_to(&mut self, end: usize, sink: &mut Sink) {
        while self.next < end as i64 {
            let logged = &self.log[self.next as usize];
            let record = Record {
                offset: Offset(self.next),
                logged_at: LogTime(logged.logged_at_ms),
                key: None,
                headers: &[],
                payload: logged.payload.as_deref(),
            };
            self.now = Now(self.now.0 + Duration::from_millis(1));
            let partition = P;
            self.tell(Input::Record { partition, record }, sink);
            self.next += 1;
            let next = self.next as usize;
            let is_turn = |every: usize| every > 0 && next.is_multiple_of(every);
            if is_turn(self.pace.tick_every) {
                self.now = Now(self.now.0 + Duration::from_millis(9));
                self.tell(Input::Tick, sink);
            }
            if is_turn(self.pace.poll_every) {
                let next = Offset(self.next);
                let caught_up = Input::CaughtUp {
                    partition: P,
                    next,
                    log_time: None,
                };
                self.tell(caught_up, sink);
            }
        }
    }

    /// Lets log time pass until everything is released, and settles everything.
    pub fn finish(mut self, sink: &mut Sink) -> (Outcomes, Vec<Watermark>) {
        self.read_to(self.log.len(), sink);
        let last = self.log.iter().map(|logged| logged.logged_at_ms).max();
        let log_time = last.map(|last| LogTime(last + 10 * SILENCE_MS));
        let next = Offset(self.next);
        let caught_up = Input::CaughtUp {
            partition: P,
            next,
            log_time,
        };
        self.tell(caught_up, sink);
        while !self.pipeline.is_drained() {
            self.tell(Input::Drain, sink);
            self.settle_one(sink);
        }
        let marks = self
            .pipeline
            .hand_over(P)
            .expect("the partition is assigned");
        assert_eq!(
            marks.resume_from, next,
            "nothing is held after everything was released"
        );
        self.commits.push(marks);
        (self.pipeline.totals().outcomes.clone(), self.commits)
    }

    /// Dies here. Work in flight lands in the sink or not, as `lands` says bit by bit; nobody
    /// hears of it.
    pub fn crash(self, lands: u32, sink: &mut Sink) -> Vec<Watermark> {
        for (number, (_, facts)) in self.in_flight.into_iter().enumerate() {
            if lands >> (number % 32) & 1 == 1 {
                sink.insert(facts);
            }
        }
        self.commits
    }
}
