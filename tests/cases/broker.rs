//! The broker of a case: its logs with their transactions, and what the group committed.
//!
//! It decides nothing. What a consumer is given of a log is what `read_committed` gives it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use tachograph::core::ledger::Watermark;
use tachograph::core::{LogTime, Name, Offset};
use tachograph::replay::LogRecord;

/// Topic and partition number.
pub type Place = (Name, i32);

/// A record with the broker's time, which no second reading changes.
#[derive(Debug)]
pub struct Logged {
    pub record: LogRecord,
    pub logged_at: LogTime,
    txn: Option<String>,
}

/// One partition's log.
#[derive(Debug, Default)]
pub struct Log {
    records: BTreeMap<Offset, Rc<Logged>>,
    start: Offset,
    end: Offset,
    /// Transactions that are not over, by their first offsets.
    open: BTreeMap<String, Offset>,
    aborted: BTreeSet<String>,
}

impl Log {
    /// An empty log that begins and ends at these offsets.
    pub fn of(range: Range<Offset>) -> Log {
        Log {
            start: range.start,
            end: range.end,
            ..Log::default()
        }
    }

    /// True where the record stands there already: it is given a second time.
    pub fn has(&self, offset: Offset) -> bool {
        self.records.contains_key(&offset)
    }

    pub fn append(&mut self, record: LogRecord, logged_at: LogTime, txn: Option<String>) {
        let offset = record.offset;
        if self.records.is_empty() && self.end == Offset(0) {
            // What stood before was removed by retention, unless the case says else.
            self.start = offset;
        }
        self.reaches(offset.next());
        if let Some(txn) = &txn {
            self.open.entry(txn.clone()).or_insert(offset);
        }
        let logged = Logged {
            record,
            logged_at,
            txn,
        };
        self.records.insert(offset, Rc::new(logged));
    }

    /// The marker that ends a transaction.
    pub fn mark(&mut self, offset: Offset, txn: &str, is_commit: bool) {
        self.reaches(offset.next());
        self.open.remove(txn);
        if !is_commit {
            self.aborted.insert(txn.to_owned());
        }
    }

    pub fn reaches(&mut self, end: Offset) {
        self.end = self.end.max(end);
    }

    pub fn range(&self) -> Range<Offset> {
        self.start..self.end
    }

    /// The first record whose time is not before `time`.
    pub fn first_since(&self, time: LogTime) -> Option<Offset> {
        let mut records = self.records.iter();
        let found = records.find(|(_, logged)| logged.logged_at >= time);
        found.map(|(offset, _)| *offset)
    }

    /// Up to where a consumer may read: an open transaction holds back what follows it.
    pub fn stable_end(&self) -> Offset {
        let open = self.open.values().min().copied();
        open.map_or(self.end, |first| first.min(self.end))
    }

    /// The first record at or after `from` and below `below` that a consumer is given.
    pub fn next(&self, from: Offset, below: Offset) -> Option<Rc<Logged>> {
        let below = below.min(self.stable_end());
        let is_aborted = |logged: &Logged| {
            let txn = logged.txn.as_ref();
            txn.is_some_and(|txn| self.aborted.contains(txn))
        };
        let mut rest = self.records.range(from..below.max(from));
        let found = rest.find(|(_, logged)| !is_aborted(logged));
        found.map(|(_, logged)| Rc::clone(logged))
    }
}

/// Logs and commits.
#[derive(Debug, Default)]
pub struct Broker {
    pub logs: BTreeMap<Place, Log>,
    commits: BTreeMap<Place, Vec<Watermark>>,
}

impl Broker {
    pub fn log(&mut self, place: &Place) -> &mut Log {
        self.logs.entry(place.clone()).or_default()
    }

    pub fn commit(&mut self, place: &Place, marks: Watermark) {
        self.commits.entry(place.clone()).or_default().push(marks);
    }

    pub fn committed(&self, place: &Place) -> Option<Watermark> {
        self.commits.get(place)?.last().copied()
    }

    /// The highest offset that was ever committed.
    pub fn committed_most(&self) -> Option<Offset> {
        let all = self.commits.values().flatten();
        all.map(|marks| marks.resume_from).max()
    }

    /// Commits after the one at this offset did not arrive: what stands is the first of those that
    /// say it, else of those that say less, since what is open holds offsets back, else a commit of
    /// somebody else.
    pub fn committed_only(&mut self, place: &Place, offset: Offset) {
        let all = self.commits.entry(place.clone()).or_default();
        let below = all.iter().map(|marks| marks.resume_from);
        let most = below.filter(|from| *from <= offset).max();
        let first = all
            .iter()
            .find(|marks| Some(marks.resume_from) == most)
            .copied();
        *all = vec![first.unwrap_or_else(|| Watermark::bare(offset))];
    }

    /// What an operator, or an earlier build, committed.
    pub fn committed_anew(&mut self, place: &Place, offset: Offset) {
        self.commits
            .insert(place.clone(), vec![Watermark::bare(offset)]);
    }
}
