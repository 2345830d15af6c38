//! The whole daemon without its sockets: inputs in, actions out.
//!
//! The pipeline composes everything below it. It has no clock, no error type and no opinion about
//! transport: the driver tells it what happened and performs what it says.

mod room;
mod saving;

use super::batch::{Batch, Batcher};
use super::dialect::{self, DeadLetterReason, DecodeContext, Decoded, RecordBytes};
use super::fact::Fact;
use super::invariant::{Invariant, Violations};
use super::ledger::{self, Cause, Hold, Ledger, TakeOver, Watermark, WorkId};
pub use super::record::{DeadLetter, Record};
use super::sample::{Move, Sample};
pub use super::status::{Outcomes, PartitionStatus, Snapshot, Totals};
use super::timeline::{Applied, Derived, RecordAt, Timelines};
use super::{Coordinates, Limits, LogSource, LogTime, Name, Now, Offset, PartitionId};
use saving::Saving;
pub use saving::{CountedMarks, Save};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// What the driver tells the pipeline.
#[derive(Debug)]
pub enum Input<'p> {
    /// A partition is ours from now on, with what its last owner committed and the log as it is.
    Assigned {
        partition: PartitionId,
        source: LogSource,
        committed: Option<Watermark>,
        log: Range<Offset>,
    },
    /// A partition was handed over in order: its marks are committed.
    Revoked { partition: PartitionId },
    /// A partition was taken away: nothing of it may be committed any more.
    Lost { partition: PartitionId },
    /// The next record of a partition.
    Record {
        partition: PartitionId,
        record: Record<'p>,
    },
    /// Everything below `next` was read, and the log time of the quiet partition is at least
    /// `log_time`.
    CaughtUp {
        partition: PartitionId,
        next: Offset,
        log_time: Option<LogTime>,
    },
    /// An edge settled a piece of work.
    Settled { work: WorkId },
    /// Time has passed.
    Tick,
    /// Seal what waits, now.
    Drain,
    /// The counters are wanted in the state file, now.
    Save,
    /// What this process counted in an earlier life, by its state file. Before any `Assigned`.
    Restored { counted: CountedMarks },
    /// The log of a partition is another one than that of which anything was counted.
    MadeAnew { topic: Name, partition: i32 },
}

/// What the driver must do.
#[derive(Debug)]
pub enum Action {
    /// Insert these facts, then say `Settled`.
    Insert(Batch),
    /// Move one series.
    Observe(Sample),
    /// Write the counters as moved by the actions before this one, with these marks, to the state
    /// file, then say `Settled`.
    SaveState(Save),
    /// Produce a dead letter, then say `Settled`.
    DeadLetter(Box<DeadLetter>),
    /// Commit these marks for a partition.
    Commit {
        partition: PartitionId,
        watermark: Watermark,
    },
    /// Stop reading every partition.
    Pause,
    /// Go on reading.
    Resume,
    /// Stop the daemon: going on could falsify rows.
    Halt(Invariant),
}

/// How a pipeline is built.
#[derive(Clone, Debug)]
pub struct Settings {
    pub limits: Limits,
    /// Key of the content hashes, which never leave the process.
    pub hash_key: u64,
    /// Broken invariants panic (tests, simulation) instead of being counted.
    pub is_strict: bool,
    /// Commits wait until a state file has what they say was counted.
    pub has_state_file: bool,
}

struct Assigned {
    source: LogSource,
    records_read: u64,
    timelines: Timelines,
    commit_due: Now,
}

/// Places kept for what one record brings, between records.
const KEPT_MAX: usize = 1_024;

/// The pure state machine.
pub struct Pipeline {
    settings: Arc<Settings>,
    ledger: Ledger,
    batcher: Batcher,
    assigned: BTreeMap<PartitionId, Assigned>,
    actions: VecDeque<Action>,
    derived: Vec<Derived>,
    totals: Totals,
    saving: Saving,
    is_draining: bool,
    is_paused: bool,
    has_halted: bool,
    violations: Violations,
}

impl Pipeline {
    /// A pipeline with nothing assigned.
    pub fn new(settings: Settings) -> Pipeline {
        let violations = if settings.is_strict {
            Violations::strict()
        } else {
            Violations::counting()
        };
        Pipeline {
            settings: Arc::new(settings),
            ledger: Ledger::default(),
            batcher: Batcher::default(),
            assigned: BTreeMap::new(),
            actions: VecDeque::new(),
            derived: Vec::new(),
            totals: Totals::default(),
            saving: Saving::default(),
            is_draining: false,
            is_paused: false,
            has_halted: false,
            violations,
        }
    }

    /// Tells the pipeline what happened.
    pub fn handle(&mut self, input: Input<'_>, now: Now) {
        match input {
            Input::Assigned {
                partition,
                source,
                committed,
                log,
            } => {
                let counted = self.saving.counted(&source.topic, source.partition);
                let taken = ledger::take_over(committed, &log).remembering(counted, &log);
                self.assign(partition, source, &taken, now);
            }
            Input::Revoked { partition } | Input::Lost { partition } => self.forget(partition),
            Input::Record { partition, record } => self.record(partition, record, now),
            Input::CaughtUp {
                partition,
                next,
                log_time,
            } => {
                self.caught_up(partition, next, log_time, now);
            }
            Input::Settled { work } => self.settle(work),
            Input::Tick => {}
            Input::Drain => {
                self.is_draining = true;
                self.saving.want();
            }
            Input::Save => self.saving.want(),
            Input::Restored { counted } => self.saving.restore(counted),
            Input::MadeAnew { topic, partition } => self.saving.made_anew(topic, partition),
        }
        self.seal_due(now);
        self.commit_due(now);
        self.balance();
        if let Some(invariant) = self.violations.fatal()
            && !self.has_halted
        {
            self.has_halted = true;
            self.actions.push_back(Action::Halt(invariant));
        }
    }

    /// The next thing the driver must do.
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front();
        if action.is_none() {
            self.actions.shrink_to(KEPT_MAX);
        }
        action
    }

    /// When the pipeline wants to be told the time again.
    pub fn poll_deadline(&self) -> Option<Now> {
        let commits = self.assigned.values().map(|assigned| assigned.commit_due);
        // What comes when it is settled, no clock brings nearer.
        let commit = commits.min().filter(|_| !self.saving.is_waiting());
        let batch = self
            .has_place()
            .then(|| self.batcher.deadline(&self.settings.limits))
            .flatten();
        match (commit, batch) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// True where nothing waits, nothing is in flight and what was counted is written down.
    pub fn is_drained(&self) -> bool {
        let is_settled = self.batcher.is_empty() && self.ledger.in_flight() == 0;
        is_settled && self.is_saved()
    }

    /// The facts of every held segment as they stand, exported or not; releases nothing. For
    /// `replay`.
    pub fn held_facts(&self) -> Vec<Fact> {
        self.assigned
            .values()
            .flat_map(|assigned| assigned.timelines.held_facts())
            .collect()
    }

    /// Everything that can be seen from outside.
    pub fn snapshot(&mut self) -> Snapshot {
        let ids: Vec<PartitionId> = self.assigned.keys().copied().collect();
        let partitions = ids
            .into_iter()
            .filter_map(|id| self.partition_status(id))
            .collect();
        let mut invocations_open = BTreeMap::new();
        for assigned in self.assigned.values() {
            for (app, count) in assigned.timelines.open_by_app() {
                *invocations_open.entry(app.clone()).or_insert(0) += count;
            }
        }
        Snapshot {
            totals: self.totals.clone(),
            partitions,
            work_in_flight: self.ledger.in_flight(),
            facts_waiting: self.batcher.len(),
            is_paused: self.is_paused,
            invocations_open,
            violations: self.violations.iter().collect(),
        }
    }

    /// The bounds and keys this pipeline was built with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What became of the records so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    fn partition_status(&mut self, partition: PartitionId) -> Option<PartitionStatus> {
        let watermark = self.watermark(partition)?;
        let next = self.ledger.next_offset(partition)?;
        let log_time = self.ledger.log_time(partition)?;
        let is_replaying = self.ledger.is_replaying(partition);
        let complete_up_to = self
            .ledger
            .complete_up_to(partition, self.batcher.hold(partition));
        let assigned = self.assigned.get(&partition)?;
        let held_from = assigned.timelines.held_from().unwrap_or(next);
        Some(PartitionStatus {
            partition,
            source: assigned.source.clone(),
            records_read: assigned.records_read,
            next,
            log_time,
            is_replaying,
            segments_held: assigned.timelines.segments_held(),
            held_records: (next.0 - held_from.0).max(0),
            complete_up_to,
            watermark,
        })
    }

    fn assign(&mut self, partition: PartitionId, source: LogSource, taken: &TakeOver, now: Now) {
        self.ledger.assign(partition, taken);
        let timelines = Timelines::new(source.clone(), Arc::clone(&self.settings));
        // At once: the marks stay, but a `clean` of the last owner must not speak for what is
        // counted from here on.
        let commit_due = now;
        self.assigned.insert(
            partition,
            Assigned {
                source,
                records_read: 0,
                timelines,
                commit_due,
            },
        );
        if self.is_paused {
            self.actions.push_back(Action::Pause);
        }
    }

    fn forget(&mut self, partition: PartitionId) {
        if let (Some(gone), Some(counted)) = (
            self.assigned.remove(&partition),
            self.ledger.counted(partition),
        ) {
            self.saving.forget(partition, &gone.source, counted);
        }
        self.batcher.forget(partition);
        self.ledger.forget(partition);
    }

    fn record(&mut self, partition: PartitionId, record: Record<'_>, now: Now) {
        let Some(assigned) = self.assigned.get_mut(&partition) else {
            return;
        };
        let Some(next) = self.ledger.next_offset(partition) else {
            return;
        };
        if record.offset < next {
            self.violations.report(Invariant::OffsetsRise);
            return;
        }
        self.totals.outcomes.read += 1;
        assigned.records_read += 1;
        let log_time = self
            .ledger
            .log_time(partition)
            .map_or(record.logged_at, |t| t.max(record.logged_at));
        self.ledger.advance(partition, record.offset, log_time);
        let held_from = assigned.timelines.held_from();
        assigned.timelines.pass(log_time, &mut self.derived);
        self.absorb(partition, now);
        self.hold_released(partition, held_from);
        let held_from = self.held_from(partition);
        match record.payload {
            None => self.totals.outcomes.tombstones += 1,
            Some(payload) => self.read(partition, &record, payload, log_time, now),
        }
        self.ledger
            .advance(partition, record.offset.next(), log_time);
        if let Some(assigned) = self.assigned.get_mut(&partition) {
            assigned.timelines.bound(record.offset, &mut self.derived);
        }
        self.absorb(partition, now);
        self.hold_released(partition, held_from);
        self.bound(now);
        let ended = &self.totals.outcomes;
        let ways = ended.applied + ended.ignored + ended.tombstones + ended.duplicates;
        let conserved = ended.read == ways + ended.dead_lettered;
        self.violations
            .check(Invariant::RecordsConserved, conserved);
    }

    fn held_from(&self, partition: PartitionId) -> Option<Offset> {
        self.assigned.get(&partition)?.timelines.held_from()
    }

    fn read(
        &mut self,
        partition: PartitionId,
        record: &Record<'_>,
        payload: &[u8],
        log_time: LogTime,
        now: Now,
    ) {
        let Some(assigned) = self.assigned.get_mut(&partition) else {
            return;
        };
        let limits = &self.settings.limits;
        let context = DecodeContext {
            dialect: assigned.source.defaults.dialect,
            payload_bytes_max: limits.payload_bytes_max,
            hash_key: self.settings.hash_key,
            id_bytes_max: limits.id_bytes_max,
            attributes_max: limits.attributes_max,
            attribute_bytes_max: limits.attribute_bytes_max,
            store_reasons: limits.store_reasons,
        };
        let at = RecordAt {
            offset: record.offset,
            log_time,
        };
        let (timelines, derived) = (&mut assigned.timelines, &mut self.derived);
        let mut applied = Applied::Ignored;
        let decoded = dialect::decode(
            RecordBytes {
                payload,
                headers: record.headers,
            },
            &context,
            &mut |event| applied = applied.max(timelines.apply(&event, at, derived)),
        );
        match decoded {
            Decoded::Refused(reason) => self.refuse(partition, record, payload, reason),
            Decoded::Ignored => self.totals.outcomes.ignored += 1,
            Decoded::Read { flags, .. } => {
                self.count_flags(flags);
                match applied {
                    Applied::Applied => self.totals.outcomes.applied += 1,
                    Applied::Duplicate => self.totals.outcomes.duplicates += 1,
                    Applied::Ignored => self.totals.outcomes.ignored += 1,
                }
            }
        }
        self.absorb(partition, now);
    }

    fn count_flags(&mut self, flags: super::event::ReadFlags) {
        let totals = &mut self.totals;
        totals.schema_prefixes += u64::from(flags.schema_prefix);
        totals.boms += u64::from(flags.bom);
        totals.duplicate_keys += u64::from(flags.duplicate_keys);
        totals.invalid_utf8 += u64::from(flags.invalid_utf8);
        totals.lone_surrogates += u64::from(flags.lone_surrogate);
        totals.nonstandard_json += u64::from(flags.nonstandard_json);
    }

    fn refuse(
        &mut self,
        partition: PartitionId,
        record: &Record<'_>,
        payload: &[u8],
        reason: DeadLetterReason,
    ) {
        self.totals.outcomes.dead_lettered += 1;
        if reason == DeadLetterReason::TooLarge {
            self.totals.reach("payload_bytes_max");
        }
        let cause = Cause::Record(record.offset);
        if !self.ledger.is_observed(partition, cause) {
            *self.totals.dead_letters.entry(reason).or_insert(0) += 1;
        }
        if self.ledger.is_exported(partition, cause) {
            return;
        }
        let Some(assigned) = self.assigned.get(&partition) else {
            return;
        };
        let work = self.ledger.next_work();
        let log_time = self.ledger.log_time(partition).unwrap_or(record.logged_at);
        let hold = Hold::of(record.offset, cause, log_time);
        self.ledger.seal(work, BTreeMap::from([(partition, hold)]));
        self.actions
            .push_back(Action::DeadLetter(Box::new(DeadLetter {
                work,
                reason,
                at: Coordinates {
                    topic: assigned.source.topic.clone(),
                    partition: assigned.source.partition,
                    offset: record.offset,
                },
                logged_at: record.logged_at,
                key: record.key.map(<[u8]>::to_vec),
                headers: record
                    .headers
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), value.map(<[u8]>::to_vec)))
                    .collect(),
                payload: payload.to_vec(),
            })));
    }

    fn caught_up(
        &mut self,
        partition: PartitionId,
        next: Offset,
        log_time: Option<LogTime>,
        now: Now,
    ) {
        let Some(assigned) = self.assigned.get_mut(&partition) else {
            return;
        };
        let reached = self.ledger.log_time(partition).unwrap_or(LogTime(i64::MIN));
        let log_time = log_time.map_or(reached, |t| t.max(reached));
        self.ledger.advance(partition, next, log_time);
        let held_from = assigned.timelines.held_from();
        assigned.timelines.pass(log_time, &mut self.derived);
        self.absorb(partition, now);
        self.hold_released(partition, held_from);
    }

    /// Takes what the timelines derived: rows to the batch unless a predecessor exported them,
    /// samples to the exporter unless a predecessor counted them.
    fn absorb(&mut self, partition: PartitionId, now: Now) {
        let mut derived = std::mem::take(&mut self.derived);
        let log_time = self.ledger.log_time(partition).unwrap_or(LogTime(i64::MIN));
        for item in derived.drain(..) {
            let Derived {
                fact,
                samples,
                evidence_from,
                cause,
                is_late,
                limit,
            } = item;
            let is_observed = self.ledger.is_observed(partition, cause);
            let last = fact.as_ref().map_or(evidence_from, |fact| fact.last.offset);
            let is_uncertain = !is_observed && self.ledger.is_uncertain(partition, cause, last);
            for mut sample in samples {
                if is_observed && sample.change != Move::Create {
                    continue;
                }
                sample.logged_at = log_time;
                sample.is_replayed = is_uncertain;
                self.actions.push_back(Action::Observe(sample));
            }
            if let Some(limit) = limit {
                self.totals.reach(limit);
            }
            let Some(fact) = fact else { continue };
            if !is_observed {
                *self.totals.facts.entry(fact.body.table()).or_insert(0) += 1;
                self.totals.facts_late += u64::from(is_late);
                self.totals.facts_replayed += u64::from(is_uncertain);
            }
            if !self.ledger.is_exported(partition, cause) {
                let hold = Hold::of(evidence_from, cause, log_time);
                self.batcher.push(*fact, partition, hold, now);
            }
        }
        // A record may be an array of very many.
        derived.shrink_to(KEPT_MAX);
        self.derived = derived;
    }

    /// What was released gives up its evidence, `held_from`, only with the newest work that waits:
    /// `exported` stays behind older work, and whoever resumed between the two would rebuild half a
    /// segment and export it.
    fn hold_released(&mut self, partition: PartitionId, held_from: Option<Offset>) {
        let Some(assigned) = self.assigned.get(&partition) else {
            return;
        };
        let Some(from) = held_from.filter(|_| assigned.timelines.held_from() != held_from) else {
            return;
        };
        let hold = Hold {
            evidence_from: Some(from),
            ..Hold::default()
        };
        if self.batcher.is_empty() {
            self.ledger.hold_newest(partition, hold);
        } else {
            self.batcher.keep(partition, hold);
        }
    }

    /// Work in flight has a bound, so that sending it to an edge cannot block.
    fn has_place(&self) -> bool {
        self.ledger.in_flight() < self.settings.limits.work_in_flight_max
    }

    fn seal_due(&mut self, now: Now) {
        let is_due = self.is_draining || self.batcher.is_due(&self.settings.limits, now);
        if !self.batcher.is_empty() && is_due && self.has_place() {
            let (facts, holds) = self.batcher.seal();
            let work = self.ledger.next_work();
            self.ledger.seal(work, holds);
            self.actions
                .push_back(Action::Insert(Batch { work, facts }));
        }
        self.is_draining &= !self.batcher.is_empty();
        // One record refused while the last place was taken is the only excess.
        let bound = self.settings.limits.work_in_flight_max + 1;
        let is_bounded = self.ledger.in_flight() <= bound;
        self.violations
            .check(Invariant::WorkInFlightBounded, is_bounded);
    }

    /// Backpressure is limits meeting: pause at `work_in_flight_max`, resume at half.
    fn balance(&mut self) {
        let (in_flight, max) = (
            self.ledger.in_flight(),
            self.settings.limits.work_in_flight_max,
        );
        if !self.is_paused && in_flight >= max {
            self.is_paused = true;
            self.actions.push_back(Action::Pause);
        } else if self.is_paused && in_flight <= max / 2 {
            self.is_paused = false;
            self.actions.push_back(Action::Resume);
        }
    }
}
