//! Which work is settled, and therefore what may be committed.
//!
//! A partition remembers four marks (architecture.md §6). This is the only code that says what is
//! safe to commit: it knows offsets and log times, and neither events nor facts.

use super::invariant::{Invariant, Violations};
use super::{LogTime, Offset, PartitionId};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;

/// One unit of work that an edge must settle: a batch or a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(pub u64);

/// What caused something: a record, or the passing of log time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The record at this offset.
    Record(Offset),
    /// A deadline that log time reached.
    Deadline(LogTime),
}

/// What one partition's share of a piece of work keeps back until the work is settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// The oldest record needed to make the work again.
    pub evidence_from: Option<Offset>,
    /// The oldest record that caused part of it.
    pub caused_from: Option<Offset>,
    /// The oldest deadline that caused part of it.
    pub deadline_from: Option<LogTime>,
    /// Log time when the oldest part of it was caused.
    pub logged_from: Option<LogTime>,
}

impl Hold {
    /// The hold of one fact or dead letter.
    pub fn of(evidence_from: Offset, cause: Cause, log_time: LogTime) -> Hold {
        let mut hold = Hold {
            evidence_from: Some(evidence_from),
            logged_from: Some(log_time),
            ..Hold::default()
        };
        match cause {
            Cause::Record(offset) => hold.caused_from = Some(offset),
            Cause::Deadline(at) => hold.deadline_from = Some(at),
        }
        hold
    }

    /// Keeps back what either keeps back.
    pub fn merge(&mut self, other: Hold) {
        self.evidence_from = oldest(self.evidence_from, other.evidence_from);
        self.caused_from = oldest(self.caused_from, other.caused_from);
        self.deadline_from = oldest(self.deadline_from, other.deadline_from);
        self.logged_from = oldest(self.logged_from, other.logged_from);
    }
}

fn oldest<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The marks of one partition, as they are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// Where reading must start again: the oldest record still needed as evidence. The committed
    /// offset.
    pub resume_from: Offset,
    /// Everything caused by records below it is durable.
    pub exported_below: Offset,
    /// Everything caused by deadlines before it is durable.
    pub abandoned_before: LogTime,
    /// Counters have been moved for every record below this offset …
    pub observed_below: Offset,
    /// … and for every deadline before this log time.
    pub observed_before: LogTime,
    /// Written on an orderly hand-over: nothing was counted beyond `observed`.
    pub is_clean: bool,
}

impl Watermark {
    /// What a commit without our metadata means: exported and counted up to its offset, nothing
    /// abandoned.
    pub fn bare(offset: Offset) -> Watermark {
        Watermark {
            resume_from: offset,
            exported_below: offset,
            abandoned_before: LogTime(i64::MIN),
            observed_below: offset,
            observed_before: LogTime(i64::MIN),
            is_clean: false,
        }
    }
}

impl fmt::Display for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "resume {}, exported <{}, abandoned <{}, observed <{} <{}{}",
            self.resume_from.0,
            self.exported_below.0,
            self.abandoned_before.0,
            self.observed_below.0,
            self.observed_before.0,
            if self.is_clean { ", clean" } else { "" }
        )
    }
}

/// Up to where the counters of one process have been moved for a partition: by itself, or by others
/// whose word it took over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// For every record below this offset …
    pub below: Offset,
    /// … and for every deadline before this log time.
    pub before: LogTime,
}

/// How a partition is taken over from its committed marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeOver {
    /// The first offset to read.
    pub start: Offset,
    /// What the predecessor had reached; all at the beginning where there was none.
    pub floor: Watermark,
    /// Records that retention removed before they were read.
    pub lost_records: u64,
    /// The marks lay beyond the log's end: the topic was made anew (facts.md §8.5).
    pub is_void: bool,
    /// Records below this offset may have been counted by a predecessor that did not say so.
    pub uncertain_below: Offset,
}

/// Decides where to read from, given the committed marks and the log as it is now.
pub fn take_over(committed: Option<Watermark>, log: &Range<Offset>) -> TakeOver {
    let fresh = Watermark {
        resume_from: log.start,
        exported_below: Offset(0),
        abandoned_before: LogTime(i64::MIN),
        observed_below: Offset(0),
        observed_before: LogTime(i64::MIN),
        is_clean: true,
    };
    let Some(marks) = committed else {
        return TakeOver {
            start: log.start,
            floor: fresh,
            lost_records: 0,
            is_void: false,
            uncertain_below: Offset(0),
        };
    };
    let furthest = marks
        .resume_from
        .max(marks.exported_below)
        .max(marks.observed_below);
    if furthest > log.end {
        return TakeOver {
            start: log.start,
            floor: fresh,
            lost_records: 0,
            is_void: true,
            uncertain_below: Offset(0),
        };
    }
    let start = marks.resume_from.max(log.start);
    let unread = marks.exported_below.max(marks.resume_from);
    TakeOver {
        start,
        floor: marks,
        lost_records: u64::try_from(log.start.0 - unread.0).unwrap_or(0),
        is_void: false,
        uncertain_below: if marks.is_clean { Offset(0) } else { log.end },
    }
}

impl TakeOver {
    /// The same with what this process remembers to have counted itself, in this life or by its
    /// state file: whoever said more wins, so that nothing is counted twice. What was counted in
    /// another log says nothing. Who else counted meanwhile without a word is as uncertain as ever.
    pub fn remembering(mut self, counted: Option<Counted>, log: &Range<Offset>) -> TakeOver {
        let is_of_this_log = |counted: &Counted| !self.is_void && counted.below <= log.end;
        let Some(counted) = counted.filter(is_of_this_log) else {
            return self;
        };
        let floor = &mut self.floor;
        floor.observed_below = floor.observed_below.max(counted.below);
        floor.observed_before = floor.observed_before.max(counted.before);
        self
    }
}

/// Work sealed and handed to an edge, with what it keeps back.
#[derive(Debug)]
struct Sealed {
    work: WorkId,
    is_settled: bool,
    holds: BTreeMap<PartitionId, Hold>,
}

/// One partition's position and floors.
#[derive(Debug)]
struct Reading {
    /// The next offset to read: everything below has been given to the timeline.
    next: Offset,
    log_time: LogTime,
    floor: Watermark,
    uncertain_below: Offset,
    /// The `exported_below` given last, which must never fall.
    exported_last: Offset,
}

impl Reading {
    /// Deadlines before this log time have been passed.
    fn passed(&self) -> LogTime {
        LogTime(self.log_time.0.saturating_add(1))
    }

    fn counted(&self) -> Counted {
        Counted {
            below: self.next.max(self.floor.observed_below),
            before: self.passed().max(self.floor.observed_before),
        }
    }
}

/// Everything that decides what may be committed.
#[derive(Debug, Default)]
pub struct Ledger {
    partitions: BTreeMap<PartitionId, Reading>,
    /// Seal order. Settled work leaves from the front only.
    queue: VecDeque<Sealed>,
    work_next: u64,
}

impl Ledger {
    /// Begins a partition at its take-over.
    pub fn assign(&mut self, partition: PartitionId, taken: &TakeOver) {
        let floor = taken.floor;
        self.partitions.insert(
            partition,
            Reading {
                next: taken.start,
                log_time: LogTime(i64::MIN),
                floor,
                uncertain_below: taken.uncertain_below,
                exported_last: floor.exported_below,
            },
        );
    }

    /// Forgets a partition; work in flight no longer holds anything of it.
    pub fn forget(&mut self, partition: PartitionId) {
        self.partitions.remove(&partition);
        for sealed in &mut self.queue {
            sealed.holds.remove(&partition);
        }
    }

    /// Notes that everything below `next` was read, and the log time reached. Neither ever goes
    /// back.
    pub fn advance(&mut self, partition: PartitionId, next: Offset, log_time: LogTime) {
        if let Some(reading) = self.partitions.get_mut(&partition) {
            reading.next = reading.next.max(next);
            reading.log_time = reading.log_time.max(log_time);
        }
    }

    /// The next offset to read, while the partition is assigned.
    pub fn next_offset(&self, partition: PartitionId) -> Option<Offset> {
        self.partitions.get(&partition).map(|reading| reading.next)
    }

    /// The log time reached, while the partition is assigned.
    pub fn log_time(&self, partition: PartitionId) -> Option<LogTime> {
        self.partitions
            .get(&partition)
            .map(|reading| reading.log_time)
    }

    /// True where a row of this cause is durable already: a predecessor exported it.
    pub fn is_exported(&self, partition: PartitionId, cause: Cause) -> bool {
        self.partitions
            .get(&partition)
            .is_some_and(|reading| match cause {
                Cause::Record(offset) => offset < reading.floor.exported_below,
                Cause::Deadline(at) => at < reading.floor.abandoned_before,
            })
    }

    /// True where a predecessor moved the counters for this cause, and said so.
    pub fn is_observed(&self, partition: PartitionId, cause: Cause) -> bool {
        self.partitions
            .get(&partition)
            .is_some_and(|reading| match cause {
                Cause::Record(offset) => offset < reading.floor.observed_below,
                Cause::Deadline(at) => at < reading.floor.observed_before,
            })
    }

    /// True where a predecessor may have moved the counters for this cause without having said so.
    /// A deadline is as uncertain as the record `last` that set it: log time may have passed it
    /// before the predecessor died, and no offset says how far.
    pub fn is_uncertain(&self, partition: PartitionId, cause: Cause, last: Offset) -> bool {
        self.partitions
            .get(&partition)
            .is_some_and(|reading| match cause {
                Cause::Record(offset) => offset < reading.uncertain_below,
                Cause::Deadline(_) => last < reading.uncertain_below,
            })
    }

    /// True where the next owner need not doubt what was counted: nothing is left that an earlier
    /// owner may have counted without saying so.
    pub fn is_certain(&self, partition: PartitionId, marks: &Watermark) -> bool {
        self.partitions
            .get(&partition)
            .is_some_and(|reading| marks.resume_from >= reading.uncertain_below)
    }

    /// True until the predecessor's `observed` mark is passed.
    pub fn is_replaying(&self, partition: PartitionId) -> bool {
        self.partitions
            .get(&partition)
            .is_some_and(|reading| reading.next < reading.floor.observed_below)
    }

    /// A number for the next piece of work.
    pub fn next_work(&mut self) -> WorkId {
        self.work_next += 1;
        WorkId(self.work_next)
    }

    /// Takes sealed work into the queue.
    pub fn seal(&mut self, work: WorkId, holds: BTreeMap<PartitionId, Hold>) {
        self.queue.push_back(Sealed {
            work,
            is_settled: false,
            holds,
        });
    }

    /// Holds back something more of a partition until the newest work in the queue is settled, and
    /// so all before it.
    pub fn hold_newest(&mut self, partition: PartitionId, hold: Hold) {
        if let Some(sealed) = self.queue.back_mut() {
            sealed.holds.entry(partition).or_default().merge(hold);
        }
    }

    /// Work sealed and not yet gone from the queue.
    pub fn in_flight(&self) -> usize {
        self.queue.len()
    }

    /// Notes that an edge settled `work`, and lets go of what is settled at the front.
    pub fn settle(&mut self, work: WorkId, violations: &mut Violations) {
        match self.queue.iter_mut().find(|sealed| sealed.work == work) {
            Some(sealed) if !sealed.is_settled => sealed.is_settled = true,
            _ => violations.report(Invariant::SettledExactlyOnce),
        }
        while self.queue.front().is_some_and(|sealed| sealed.is_settled) {
            self.queue.pop_front();
        }
    }

    /// Everything that the partition's log caused before this log time is durable.
    pub fn complete_up_to(&self, partition: PartitionId, filling: Option<Hold>) -> LogTime {
        let mut hold = filling.unwrap_or_default();
        for other in self
            .queue
            .iter()
            .filter_map(|sealed| sealed.holds.get(&partition))
        {
            hold.merge(*other);
        }
        let reached = self.log_time(partition).unwrap_or(LogTime(i64::MIN));
        hold.logged_from.map_or(reached, |from| from.min(reached))
    }

    /// Up to where counters have been moved, while the partition is assigned.
    pub fn counted(&self, partition: PartitionId) -> Option<Counted> {
        self.partitions.get(&partition).map(Reading::counted)
    }

    /// What may be committed for `partition`, given the first record of its oldest held segment and
    /// what the batch that is being filled keeps back. `None` where the partition is not assigned.
    pub fn watermark(
        &mut self,
        partition: PartitionId,
        held_from: Option<Offset>,
        filling: Option<Hold>,
        violations: &mut Violations,
    ) -> Option<Watermark> {
        let mut hold = filling.unwrap_or_default();
        for sealed in &self.queue {
            if let Some(other) = sealed.holds.get(&partition) {
                hold.merge(*other);
            }
        }
        let reading = self.partitions.get_mut(&partition)?;
        let evidence_from = oldest(hold.evidence_from, held_from);
        let resume_from = evidence_from.map_or(reading.next, |from| from.min(reading.next));
        let caused = hold
            .caused_from
            .map_or(reading.next, |from| from.min(reading.next));
        let passed = reading.passed();
        let counted = reading.counted();
        let deadline = hold.deadline_from.map_or(passed, |from| from.min(passed));
        let marks = Watermark {
            resume_from,
            exported_below: caused.max(reading.floor.exported_below),
            abandoned_before: deadline.max(reading.floor.abandoned_before),
            observed_below: counted.below,
            observed_before: counted.before,
            is_clean: false,
        };
        if marks.exported_below < reading.exported_last {
            violations.report(Invariant::ExportedNeverFalls);
        }
        if evidence_from.is_some_and(|from| marks.resume_from > from) {
            violations.report(Invariant::ResumeNotAheadOfEvidence);
        }
        reading.exported_last = marks.exported_below;
        Some(marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PartitionId = PartitionId(1);

    fn ledger(committed: Option<Watermark>, log: Range<i64>) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.assign(
            P,
            &take_over(committed, &(Offset(log.start)..Offset(log.end))),
        );
        ledger
    }

    fn marks(ledger: &mut Ledger, held_from: Option<i64>) -> String {
        let mut violations = Violations::strict();
        ledger
            .watermark(P, held_from.map(Offset), None, &mut violations)
            .map_or("unassigned".to_owned(), |marks| marks.to_string())
    }

    #[test]
    fn resumes_at_the_oldest_evidence_of_unsettled_work() {
        let mut ledger = ledger(None, 0..100);
        ledger.advance(P, Offset(50), LogTime(1000));
        let work = ledger.next_work();
        ledger.seal(
            work,
            BTreeMap::from([(
                P,
                Hold::of(Offset(10), Cause::Record(Offset(40)), LogTime(0)),
            )]),
        );
        assert_eq!(
            marks(&mut ledger, Some(20)),
            "resume 10, exported <40, abandoned <1001, observed <50 <1001"
        );
        ledger.settle(work, &mut Violations::strict());
        assert_eq!(
            marks(&mut ledger, Some(20)),
            "resume 20, exported <50, abandoned <1001, observed <50 <1001"
        );
    }

    #[test]
    fn settled_work_leaves_from_the_front_only() {
        let mut ledger = ledger(None, 0..100);
        ledger.advance(P, Offset(50), LogTime(0));
        let (first, second) = (ledger.next_work(), ledger.next_work());
        for (work, from) in [(first, 10), (second, 5)] {
            let hold = Hold::of(Offset(from), Cause::Record(Offset(from + 30)), LogTime(0));
            ledger.seal(work, BTreeMap::from([(P, hold)]));
        }
        ledger.settle(second, &mut Violations::strict());
        assert_eq!(
            marks(&mut ledger, None),
            "resume 5, exported <35, abandoned <1, observed <50 <1"
        );
    }

    #[test]
    fn never_falls_below_the_floor() {
        let floor = Watermark {
            exported_below: Offset(80),
            abandoned_before: LogTime(7),
            ..Watermark::bare(Offset(60))
        };
        let mut ledger = ledger(Some(floor), 0..100);
        ledger.advance(P, Offset(61), LogTime(3));
        assert_eq!(
            marks(&mut ledger, Some(60)),
            "resume 60, exported <80, abandoned <7, observed <61 <4"
        );
        assert!(ledger.is_exported(P, Cause::Record(Offset(79))));
        assert!(!ledger.is_exported(P, Cause::Record(Offset(80))));
        assert!(ledger.is_exported(P, Cause::Deadline(LogTime(6))));
    }

    #[test]
    fn marks_beyond_the_end_are_void() {
        let taken = take_over(Some(Watermark::bare(Offset(30))), &(Offset(0)..Offset(20)));
        assert!(taken.is_void);
        assert_eq!(taken.start, Offset(0));
    }

    #[test]
    fn what_was_counted_here_is_not_counted_again() {
        let log = Offset(0)..Offset(100);
        let counted = |below, before| {
            Some(Counted {
                below: Offset(below),
                before: LogTime(before),
            })
        };
        let committed = Watermark {
            observed_before: LogTime(50),
            ..Watermark::bare(Offset(30))
        };
        let floor = |counted| {
            let taken = take_over(Some(committed), &log).remembering(counted, &log);
            let (below, before) = (taken.floor.observed_below.0, taken.floor.observed_before.0);
            (below, before)
        };
        assert_eq!(floor(None), (30, 50));
        assert_eq!(floor(counted(40, 60)), (40, 60), "the file knows more");
        assert_eq!(floor(counted(20, 40)), (30, 50), "others have gone on");
        assert_eq!(floor(counted(101, 60)), (30, 50), "of another log");
        let anew = take_over(Some(Watermark::bare(Offset(101))), &log);
        let anew = anew.remembering(counted(40, 60), &log);
        assert_eq!(anew.floor.observed_below, Offset(0), "the commit is void");
        // A crash before the first commit.
        let first = take_over(None, &log).remembering(counted(40, 60), &log);
        assert_eq!(
            (first.start, first.floor.observed_below),
            (Offset(0), Offset(40))
        );
    }

    #[test]
    fn records_that_retention_ate_are_counted() {
        let taken = take_over(Some(Watermark::bare(Offset(30))), &(Offset(40)..Offset(50)));
        assert_eq!((taken.start, taken.lost_records), (Offset(40), 10));
    }

    #[test]
    #[should_panic(expected = "settled_exactly_once")]
    fn settling_twice_is_a_bug() {
        let mut ledger = ledger(None, 0..10);
        let work = ledger.next_work();
        ledger.seal(work, BTreeMap::new());
        ledger.settle(work, &mut Violations::strict());
        ledger.settle(work, &mut Violations::strict());
    }
}
