//! Events to facts, one partition at a time: which segment an event belongs to, and how long a
//! segment is held.
//!
//! Timelines know no batches and no rows. Whether a fact is exported or counted again is the
//! pipeline's business: what follows from the evidence is derived on every replay alike.

mod anomaly;
mod apply;
pub mod branch;
mod counting;
mod export;
mod facts;
mod finish_word;
mod guardrail;
mod guardrail_records;
mod guardrail_target;
mod hooks;
mod invocation;
mod latency;
mod local_answers;
mod model_call;
mod model_records;
mod names;
mod native;
mod native_pairing;
mod native_signs;
mod parent;
mod recovery;
mod redelivery;
mod route;
mod row;
mod session;
mod stamp;
#[cfg(test)]
mod tests;
mod tool_call;
mod tool_records;

pub use row::{RULES_REVISION, version_at};

use super::event::{EventKind, RuntimeEvent};
use super::fact::{AnomalyKind, Fact};
use super::ledger::Cause;
use super::pipeline::Settings;
use super::sample::Sample;
use super::time;
use super::{LogSource, LogTime, Name, Offset};
use facts::View;
use invocation::{Context, Segment};
use names::Names;
use route::Route;
use stamp::Stamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Event times before 2015 are no times of agents (events.md §3). Nanoseconds since 1970.
const EARLIEST_EVENT_NS: i64 = 1_420_070_400_000_000_000;
/// An event time may run ahead of the broker by this much (events.md §3).
const AHEAD_MAX_NS: i64 = 86_400_000_000_000;
/// An event time that lies further behind its append is flagged (rules.md §1).
const BEHIND_MAX_NS: i64 = 86_400_000_000_000;

/// Held segments of one invocation id.
const SIBLINGS_MAX: usize = 256;

/// What the timelines made of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Applied {
    Ignored,
    Duplicate,
    Applied,
}

/// Where in the log an event stands.
#[derive(Clone, Copy, Debug)]
pub struct RecordAt {
    pub offset: Offset,
    /// Log time of the partition at the record: never backwards.
    pub log_time: LogTime,
}

/// One thing that follows from the evidence: a row, its samples, and what it keeps back.
#[derive(Debug)]
pub struct Derived {
    pub fact: Option<Box<Fact>>,
    pub samples: Vec<Sample>,
    /// First record of the segment that speaks for it.
    pub evidence_from: Offset,
    pub cause: Cause,
    /// Written but not counted (facts.md §8.1).
    pub is_late: bool,
    /// Name of a limit that was reached on the way.
    pub limit: Option<&'static str>,
}

/// A segment's number within its partition's timelines; never leaves the process.
type Slot = u64;

/// The held segments of one partition.
#[derive(Debug)]
pub struct Timelines {
    source: LogSource,
    settings: Arc<Settings>,
    names: Names,
    /// Boxed: the tree moves its entries whenever one comes or goes.
    segments: BTreeMap<Slot, Box<Segment>>,
    by_invocation: BTreeMap<Name, Vec<Slot>>,
    /// When each segment may be released at the earliest; looked at again when the time has come.
    deadlines: BTreeSet<(LogTime, Slot)>,
    /// First evidence of each segment, oldest first.
    evidence: BTreeSet<(Offset, Slot)>,
    /// Open tool executions by tool, for parent links inferred from time.
    open_tools: BTreeMap<Name, BTreeMap<Slot, u32>>,
    /// The same by call id, for answers that came under an invocation of their own.
    open_calls: BTreeSet<(Name, Slot)>,
    by_session: BTreeSet<(Name, Slot)>,
    by_instance: BTreeSet<(Name, Slot)>,
    open_by_app: BTreeMap<Name, u64>,
    slot_next: Slot,
}

impl Timelines {
    /// A partition with nothing held.
    pub fn new(source: LogSource, settings: Arc<Settings>) -> Timelines {
        let limits = &settings.limits;
        let names = Names::new(limits.names_interned_max, limits.id_bytes_max);
        Timelines {
            source,
            names,
            settings,
            segments: BTreeMap::new(),
            by_invocation: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            evidence: BTreeSet::new(),
            open_tools: BTreeMap::new(),
            open_calls: BTreeSet::new(),
            by_session: BTreeSet::new(),
            by_instance: BTreeSet::new(),
            open_by_app: BTreeMap::new(),
            slot_next: 0,
        }
    }

    /// Takes one event in. What follows from it is appended to `out`.
    pub fn apply(
        &mut self,
        event: &RuntimeEvent<'_>,
        at: RecordAt,
        out: &mut Vec<Derived>,
    ) -> Applied {
        match &event.kind {
            EventKind::Unknown => return Applied::Ignored,
            EventKind::EmitterGap { dropped, .. } => return self.gap(event, *dropped, at, out),
            _ => {}
        }
        if session::is_compaction(event)
            && !self
                .by_invocation
                .contains_key(event.invocation_id.as_deref().unwrap_or(""))
        {
            return self.compaction(event, at, out);
        }
        let elsewhere = self.elsewhere(event);
        let event = elsewhere.as_ref().unwrap_or(event);
        let Some(invocation) = event.invocation_id.as_deref() else {
            return Applied::Ignored;
        };
        let stamp = self.stamp(event, at);
        let route = self.route(event, invocation, stamp, elsewhere.is_some());
        let key = redelivery::keys(event);
        if self.is_redelivery(event, invocation, &key, &route) {
            self.refresh(&route, at);
            return Applied::Duplicate;
        }
        let slot = match route {
            Route::Joins(slot) => slot,
            Route::Opens { after, is_split } => {
                if let Some(after) = after {
                    self.supersede(after, at, out);
                }
                self.make_room(invocation, at, out);
                // What came under another invocation begins nothing in the one that it is about.
                let is_headless = elsewhere.is_some() || self.is_headless(event, stamp, at);
                let opener = route::Opener {
                    is_headless,
                    is_split,
                    rows_max: self.settings.limits.calls_per_run_max,
                    at,
                    stamp,
                };
                self.open(event, opener)
            }
        };
        if elsewhere.is_some()
            && matches!(event.kind, EventKind::Native(_))
            && let Some(segment) = self.segments.get_mut(&slot)
        {
            segment
                .flags
                .insert(super::fact::Flag::InvocationIdRepaired);
        }
        self.take(slot, event, stamp, &key, at, out);
        self.bound(at.offset, out);
        Applied::Applied
    }

    /// Segments of one invocation are looked through at each of its records: of too many the oldest
    /// is released.
    fn make_room(&mut self, invocation: &str, at: RecordAt, out: &mut Vec<Derived>) {
        let held = self.by_invocation.get(invocation);
        if let Some(oldest) = held.filter(|held| held.len() >= SIBLINGS_MAX) {
            let (oldest, cause) = (oldest[0], Cause::Record(at.offset));
            self.release(oldest, cause, Some("segments_open_max"), out);
        }
    }

    /// Log time has reached `log_time`: releases what has been silent for too long, in order of
    /// their deadlines.
    pub fn pass(&mut self, log_time: LogTime, out: &mut Vec<Derived>) {
        while let Some(&(due, slot)) = self.deadlines.first() {
            if due > log_time {
                return;
            }
            self.deadlines.remove(&(due, slot));
            let Some(segment) = self.segments.get(&slot) else {
                continue;
            };
            let deadline = self.deadline(segment);
            if deadline > log_time {
                self.deadlines.insert((deadline, slot));
            } else {
                self.release(slot, Cause::Deadline(deadline), None, out);
            }
        }
    }

    /// Releases the oldest segment for the sake of the process, after the record at `offset`.
    pub fn release_oldest(&mut self, offset: Offset, out: &mut Vec<Derived>) {
        if let Some(&(_, slot)) = self.evidence.first() {
            let limit = Some("segments_open_max");
            self.release(slot, Cause::Record(offset), limit, out);
        }
    }

    /// The record at `offset` was read: releases what lies too far behind, or is too much.
    pub fn bound(&mut self, offset: Offset, out: &mut Vec<Derived>) {
        let held_max = self.settings.limits.held_records_max;
        let open_max = self.settings.limits.segments_open_max;
        while let Some(&(from, slot)) = self.evidence.first() {
            let limit = if offset.0 - from.0 >= held_max {
                "held_records_max"
            } else if self.segments.len() > open_max {
                "segments_open_max"
            } else {
                return;
            };
            self.release(slot, Cause::Record(offset), Some(limit), out);
        }
    }

    /// First record that held segments need.
    pub fn held_from(&self) -> Option<Offset> {
        self.evidence.first().map(|(offset, _)| *offset)
    }

    /// Segments in memory.
    pub fn segments_held(&self) -> usize {
        self.segments.len()
    }

    /// Invocations in memory and not ended, by app.
    pub fn open_by_app(&self) -> &BTreeMap<Name, u64> {
        &self.open_by_app
    }

    /// The facts of every held segment as they stand, exported or not; releases nothing.
    pub fn held_facts(&self) -> Vec<Fact> {
        let view = View {
            limits: &self.settings.limits,
            source: &self.source,
        };
        self.segments
            .values()
            .flat_map(|segment| segment.facts(view))
            .collect()
    }

    /// When an event happened, by what its clocks allow (events.md §3).
    fn stamp(&self, event: &RuntimeEvent<'_>, at: RecordAt) -> Stamp {
        let stand_in = time::stand_in(at.log_time);
        let is_usable = |time: &super::EventTime| {
            time.0 >= EARLIEST_EVENT_NS && time.0 <= stand_in.0.saturating_add(AHEAD_MAX_NS)
        };
        let usable = event.at.filter(is_usable);
        let is_native = matches!(event.kind, EventKind::Native(_));
        Stamp {
            at: usable.unwrap_or(stand_in),
            mono_ns: event.mono_ns,
            instance: 0,
            is_valid: usable.is_some(),
            is_arrival: !is_native || self.source.defaults.event_times_are_arrivals,
        }
    }

    fn deadline(&self, segment: &Segment) -> LogTime {
        let limits = &self.settings.limits;
        let silence = if segment.tools_open > 0 {
            limits.tool_silence_max.max(limits.silence_max)
        } else {
            limits.silence_max
        };
        // Released once log time has *passed* the silence, hence the millisecond more.
        LogTime(segment.last_logged_at.plus(silence).0.saturating_add(1))
    }

    /// Any record of a segment, also a redelivery, starts its silence anew: whoever re-reads a part
    /// of a released segment must find the same deadline.
    fn refresh(&mut self, route: &Route, at: RecordAt) {
        if let Route::Joins(slot) = route
            && let Some(segment) = self.segments.get_mut(slot)
        {
            segment.last_logged_at = segment.last_logged_at.max(at.log_time);
        }
    }

    fn is_redelivery(
        &self,
        event: &RuntimeEvent<'_>,
        invocation: &str,
        keys: &redelivery::Keys,
        route: &Route,
    ) -> bool {
        let held = self.by_invocation.get(invocation);
        let joined = match route {
            Route::Joins(slot) => Some(*slot),
            Route::Opens { .. } => None,
        };
        held.into_iter()
            .flatten()
            .filter_map(|slot| {
                let may_be_same = match joined {
                    Some(joined) => self.same_identity(joined, *slot),
                    None => !self.contradicts(*slot, event),
                };
                self.segments.get(slot).filter(|_| may_be_same)
            })
            .any(|segment| keys.are_in(&segment.seen))
    }

    fn same_identity(&self, a: Slot, b: Slot) -> bool {
        match (self.segments.get(&a), self.segments.get(&b)) {
            (Some(a), Some(b)) => a.tenant == b.tenant && a.app == b.app,
            _ => false,
        }
    }

    /// True where a record that opens a segment begins nothing: it is no start, and older than any
    /// silence. Never by what else is held: a successor that re-reads from here holds less.
    fn is_headless(&self, event: &RuntimeEvent<'_>, stamp: Stamp, at: RecordAt) -> bool {
        let is_start = matches!(event.kind, EventKind::RunStart { .. });
        let silence = self.settings.limits.silence_max.as_nanos();
        let silence = silence.min(i64::MAX as u128) as i64;
        let lateness = time::lateness(stamp.at, at.log_time).0;
        !is_start && stamp.is_valid && lateness > silence
    }

    /// Opens a segment for the record that could not join one.
    fn open(&mut self, event: &RuntimeEvent<'_>, opener: route::Opener) -> Slot {
        let invocation = event.invocation_id.as_deref().unwrap_or("");
        let (at, stamp, is_split) = (opener.at, opener.stamp, opener.is_split);
        let slot = self.slot_next;
        self.slot_next += 1;
        let mut segment = Segment::open(event, invocation, opener, &mut self.names);
        let id = segment.invocation_id.clone();
        let siblings = self.by_invocation.entry(id).or_default();
        // Records of a sibling may still come, and go to the sibling: while this one is held, both
        // must be rebuilt.
        let sibling_from = siblings
            .iter()
            .filter_map(|sibling| self.segments.get(sibling))
            .map(|sibling| sibling.evidence_from)
            .min();
        let asked = siblings.iter().filter_map(|slot| self.segments.get(slot));
        segment.requests_before = asked.flat_map(|s| s.requests.iter().cloned()).collect();
        siblings.push(slot);
        segment.evidence_from = sibling_from.map_or(at.offset, |from| from.min(at.offset));
        if is_split {
            let (empty, about) = (self.names.empty(), "invocation".to_owned());
            let kind = AnomalyKind::SplitInvocation;
            let seen = segment.anomaly_at(kind, about, (&empty, &empty), stamp, at.offset);
            segment.anomaly(seen);
        }
        self.evidence.insert((segment.evidence_from, slot));
        self.deadlines.insert((self.deadline(&segment), slot));
        self.segments.insert(slot, Box::new(segment));
        slot
    }

    /// A further run of the invocation begins: what had not ended ends (facts.md §8.1).
    fn supersede(&mut self, slot: Slot, at: RecordAt, out: &mut Vec<Derived>) {
        let Some(segment) = self.segments.get_mut(&slot) else {
            return;
        };
        if segment.has_ended() {
            return;
        }
        segment.is_superseded = true;
        segment.settle_calls();
        segment.touch_all();
        self.flush(slot, Cause::Record(at.offset), at.offset, None, out);
    }

    fn take(
        &mut self,
        slot: Slot,
        event: &RuntimeEvent<'_>,
        stamp: Stamp,
        keys: &redelivery::Keys,
        at: RecordAt,
        out: &mut Vec<Derived>,
    ) {
        let is_first_start = matches!(event.kind, EventKind::RunStart { .. });
        if is_first_start && event.parent.is_none() {
            self.infer_parent(slot, stamp);
        }
        let Some(segment) = self.segments.get_mut(&slot) else {
            return;
        };
        segment.last_logged_at = segment.last_logged_at.max(at.log_time);
        if segment.records < self.settings.limits.records_per_run_max {
            keys.remember(&mut segment.seen);
        }
        let defaults = &self.source.defaults;
        let limits = &self.settings.limits;
        let mut cx = Context::new(&mut self.names, limits, defaults, at.offset);
        let instances = segment.instances.len();
        let had_session = segment.session_id.is_some();
        let instance = segment.instance(event.emitter_instance.as_deref(), cx.names);
        let stamp = Stamp { instance, ..stamp };
        segment.note_envelope(event, stamp, &mut cx);
        if let Some(session) = segment.session_id.as_ref().filter(|_| !had_session) {
            self.by_session.insert((session.clone(), slot));
        }
        if let Some(instance) = segment.instances.get(instances) {
            self.by_instance.insert((instance.clone(), slot));
        }
        if stamp.is_valid && time::lateness(stamp.at, at.log_time).0 > BEHIND_MAX_NS {
            segment
                .flags
                .insert(super::fact::Flag::EventTimeFarFromAppend);
        }
        segment.apply(event, stamp, &mut cx);
        if segment.is_over() {
            segment.close_denied_starts(&mut cx);
        }
        let mut samples = if segment.is_headless {
            Vec::new()
        } else {
            cx.samples
        };
        let mut limits = cx.limits_reached.into_iter();
        let evidence_from = segment.evidence_from;
        loop {
            let limit = limits.next();
            if samples.is_empty() && limit.is_none() {
                break;
            }
            out.push(Derived {
                fact: None,
                samples: std::mem::take(&mut samples),
                evidence_from,
                cause: Cause::Record(at.offset),
                is_late: false,
                limit,
            });
        }
        self.note_tools(slot);
        self.flush(slot, Cause::Record(at.offset), at.offset, None, out);
    }

    fn release(
        &mut self,
        slot: Slot,
        cause: Cause,
        limit: Option<&'static str>,
        out: &mut Vec<Derived>,
    ) {
        let Some(segment) = self.segments.get_mut(&slot) else {
            return;
        };
        segment.is_released = true;
        segment.speak_release();
        let (limits, defaults) = (&self.settings.limits, &self.source.defaults);
        let mut cx = Context::new(&mut self.names, limits, defaults, segment.row.last);
        segment.settle_calls();
        segment.close_denied_starts(&mut cx);
        segment.find_orphans();
        segment.find_leaked_timers();
        segment.touch_all();
        let last = segment.row.last;
        if limit.is_some() {
            let empty = self.names.empty();
            let (stamp, kind) = (segment.last, AnomalyKind::LimitReached);
            let about = "invocation".to_owned();
            let mut seen = segment.anomaly_at(kind, about, (&empty, &empty), stamp, last);
            seen.detail = limit.map(Name::from);
            segment.anomaly(seen);
        }
        self.flush(slot, cause, last, limit, out);
        self.forget(slot);
    }

    fn forget(&mut self, slot: Slot) {
        let Some(segment) = self.segments.remove(&slot) else {
            return;
        };
        self.evidence.remove(&(segment.evidence_from, slot));
        if let Some(slots) = self.by_invocation.get_mut(&segment.invocation_id) {
            slots.retain(|known| *known != slot);
            if slots.is_empty() {
                self.by_invocation.remove(&segment.invocation_id);
            }
        }
        if let Some(session) = segment.session_id {
            self.by_session.remove(&(session, slot));
        }
        for instance in segment.instances {
            self.by_instance.remove(&(instance, slot));
        }
        for tool in segment.tools.iter().filter(|tool| tool.was_open) {
            if let Some(id) = &tool.call_id {
                self.open_calls.remove(&(id.clone(), slot));
            }
            if let Some(by_slot) = self.open_tools.get_mut(&tool.tool) {
                by_slot.remove(&slot);
                if by_slot.is_empty() {
                    self.open_tools.remove(&tool.tool);
                }
            }
        }
        self.count_open(segment.open_app, None);
    }

    fn count_open(&mut self, from: Option<Name>, to: Option<Name>) {
        if from == to {
            return;
        }
        if let Some(from) = from
            && let Some(count) = self.open_by_app.get_mut(&from)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.open_by_app.remove(&from);
            }
        }
        if let Some(to) = to {
            *self.open_by_app.entry(to).or_insert(0) += 1;
        }
    }

    /// Exports what changed in one segment.
    fn flush(
        &mut self,
        slot: Slot,
        cause: Cause,
        offset: Offset,
        limit: Option<&'static str>,
        out: &mut Vec<Derived>,
    ) {
        let Some(segment) = self.segments.get_mut(&slot) else {
            return;
        };
        let view = View {
            limits: &self.settings.limits,
            source: &self.source,
        };
        let ready = segment.flush(offset, view);
        let (evidence_from, is_late) = (segment.evidence_from, segment.is_headless);
        let is_open = !segment.is_over();
        let before = segment.open_app.clone();
        let after = is_open.then(|| segment.app_name(&self.source.defaults));
        segment.open_app = after.clone();
        let mut limit = limit;
        for item in ready {
            let fact = item.fact.map(Box::new);
            let samples = item.samples;
            let limit = limit.take().or(item.limit);
            out.push(Derived {
                fact,
                samples,
                evidence_from,
                cause,
                is_late,
                limit,
            });
        }
        self.count_open(before, after);
    }
}
