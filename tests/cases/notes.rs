//! What is noticed while a case is lived through: the names that only the steps harness can tell
//! (README, section 7.3).

use super::broker::Place;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;
use tachograph::core::fact::{Fact, Table};
use tachograph::core::ledger::{TakeOver, Watermark};
use tachograph::core::{Now, Offset};

#[derive(Debug, Default)]
pub struct Notes {
    /// The first offset that was ever read.
    pub first_offset: Option<Offset>,
    /// Where reading resumed after the last restart.
    pub resumed_from: Option<Offset>,
    /// The highest offset committed before the last crash.
    pub committed_at_crash: Option<Offset>,
    /// Take-overs that found records gone before they were read.
    pub gaps: u64,
    /// Take-overs that could not begin at the committed offset.
    pub resets: u64,
    pub alerts: BTreeSet<&'static str>,
    /// Status of the only invocation, by instant.
    pub status_at: Map<String, Value>,
    pub readiness: Option<&'static str>,
    /// Something was committed that is not in the sink.
    pub has_lost: bool,
    pub on_too_many_parts: Vec<&'static str>,
    /// Longest time from a record's arrival to its row.
    pub delay: Duration,
    /// Most memory that one record took, in KiB.
    pub memory_kib: u64,
    arrived: BTreeMap<(Place, Offset), Now>,
}

impl Notes {
    /// A partition is taken over. Kafka's edge says in its log what is noted here as an alert
    /// (`kafka_source`), by the same decision of the core.
    pub fn taken_over(&mut self, committed: Option<Watermark>, taken: &TakeOver) {
        self.resumed_from = self.resumed_from.max(Some(taken.start));
        let wanted = committed.map(|marks| marks.resume_from);
        self.resets += u64::from(wanted.is_some_and(|wanted| wanted != taken.start));
        self.gaps += u64::from(taken.lost_records > 0);
        if taken.is_void {
            self.alerts.insert("offset_out_of_range_reset_to_start");
        }
    }

    pub fn read(&mut self, place: &Place, offset: Offset, now: Now) {
        self.first_offset.get_or_insert(offset);
        self.arrived.entry((place.clone(), offset)).or_insert(now);
    }

    /// Rows are in the table: sealed at `sealed`, inserted within `took`.
    pub fn visible(&mut self, facts: &[Fact], sealed: Now, took: Duration) {
        for fact in facts {
            let at = &fact.last;
            let key = ((at.topic.clone(), at.partition), at.offset);
            let arrived = self.arrived.get(&key).copied().unwrap_or(sealed);
            let is_call = fact.body.table() == Table::ModelCalls;
            if is_call {
                let waited = sealed.0.saturating_sub(arrived.0);
                self.delay = self.delay.max(waited + took);
            }
        }
    }
}

/// Memory of this process, measured from one moment on.
pub struct Memory {
    before_kib: u64,
}

impl Memory {
    /// The peak so far is forgotten.
    pub fn begin() -> Memory {
        // Where the kernel does not let us, the peak stays and the growth is too large: noticed.
        let _ = fs::write("/proc/self/clear_refs", "5");
        Memory {
            before_kib: status("VmRSS").unwrap_or(0),
        }
    }

    /// By how much the peak lies above the beginning, in KiB.
    ///
    /// # Errors
    /// A system that does not tell.
    pub fn growth_kib(&self) -> Result<u64, String> {
        let peak = status("VmHWM").ok_or("/proc/self/status does not tell the peak of memory")?;
        Ok(peak.saturating_sub(self.before_kib))
    }
}

fn status(key: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
