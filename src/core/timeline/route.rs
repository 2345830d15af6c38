//! Which segment a record belongs to, and when it opens one (facts.md §8.1, §8.2).

use super::invocation::Segment;
use super::names::Names;
use super::row::RowState;
use super::stamp::Stamp;
use super::{RecordAt, Slot, Timelines};
use crate::core::Name;
use crate::core::event::{EventKind, NativeEvent, RuntimeEvent, Str, ToolOutcome};
use crate::core::fact::{Flag, Flags};
use std::collections::{BTreeMap, BTreeSet};

/// Where a record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To a held segment.
    Joins(Slot),
    /// It opens a segment, after one of the same invocation where there is one.
    Opens { after: Option<Slot>, is_split: bool },
}

/// Runs with an open tool call of one id among which the one that asked is looked for.
const ASKING_MAX: usize = 1_000;

/// What is known when a segment opens.
pub struct Opener {
    pub is_headless: bool,
    pub is_split: bool,
    pub rows_max: usize,
    pub at: RecordAt,
    pub stamp: Stamp,
}

impl Timelines {
    /// Decides where a record goes.
    pub(super) fn route(
        &mut self,
        event: &RuntimeEvent<'_>,
        invocation: &str,
        stamp: Stamp,
        is_elsewhere: bool,
    ) -> Route {
        let held = self.by_invocation.get(invocation);
        let only = held.and_then(|held| <[Slot; 1]>::try_from(held.as_slice()).ok());
        let several: Vec<Slot>;
        // Nearly always one segment of an invocation is held.
        let (candidates, is_split) = match only {
            Some(ref slots) if self.fits(slots[0], event) => (&slots[..], false),
            Some(_) => (&[][..], false),
            None => {
                let held = held.cloned().unwrap_or_default();
                let (fitting, is_split) = self.of_identity(event, &held);
                several = fitting;
                (&several[..], is_split)
            }
        };
        for slot in candidates.iter().filter(|_| !is_split) {
            self.adopt_names(*slot, event);
        }
        let opens = |after| Route::Opens { after, is_split };
        let Some(&latest) = candidates.last() else {
            return opens(None);
        };
        if let Some(run) = event.run_id.as_deref() {
            let same_run = candidates.iter().rev().find(|slot| {
                self.segments.get(slot).and_then(|s| s.run_id.as_deref()) == Some(run)
            });
            if let Some(slot) = same_run {
                return Route::Joins(*slot);
            }
        }
        if let Some(slot) = self.late_for(event, candidates, stamp) {
            return Route::Joins(slot);
        }
        let Some(segment) = self.segments.get(&latest) else {
            return opens(None);
        };
        // What came under another invocation resumes nothing in the one that it is about.
        if !is_elsewhere && self.begins_next(event, segment, stamp) {
            // A late word of another run stands apart; only a later start ends what is held.
            let is_start = matches!(event.kind, EventKind::RunStart { .. });
            let is_other_run = event.run_id.is_some() && segment.run_id.is_some();
            let is_late = is_other_run && (!is_start || stamp.is_before(segment.first));
            opens((!is_late).then_some(latest))
        } else {
            Route::Joins(latest)
        }
    }

    /// The earlier segment that a record without a run is late for: one that ended no earlier than
    /// the record was made.
    fn late_for(&self, event: &RuntimeEvent<'_>, held: &[Slot], stamp: Stamp) -> Option<Slot> {
        let (_, earlier) = held.split_last()?;
        let is_late = |slot: &&Slot| {
            let end = self.segments.get(slot).and_then(|s| s.end.as_ref());
            end.is_some_and(|end| !end.at.is_before(stamp))
        };
        let may_be_late = event.run_id.is_none() && stamp.is_valid;
        earlier
            .iter()
            .find(is_late)
            .copied()
            .filter(|_| may_be_late)
    }

    /// True where the record begins a further segment of an invocation whose newest is `segment`.
    fn begins_next(&self, event: &RuntimeEvent<'_>, segment: &Segment, stamp: Stamp) -> bool {
        let is_other_run = event.run_id.is_some() && segment.run_id.is_some();
        if is_other_run {
            return true;
        }
        match &event.kind {
            EventKind::RunStart { .. } => {
                let is_older = stamp.is_before(segment.first);
                let is_first = segment.start.is_none();
                let follows_end = segment
                    .end
                    .as_ref()
                    .is_some_and(|end| !stamp.is_before(end.at))
                    || segment.is_superseded;
                if event.run_id.is_some() {
                    // Another run than the one that started here, unless the start comes late.
                    return !(is_first && !follows_end || is_older);
                }
                follows_end && !is_older
            }
            EventKind::ToolEnd(end) if segment.has_ended() && segment.is_paused() => {
                end.outcome != ToolOutcome::Deferred
                    && end
                        .call_id
                        .as_deref()
                        .is_some_and(|id| is_pending(segment, id))
            }
            EventKind::Native(native) if segment.has_ended() && segment.is_paused() => {
                native.author.as_deref() == Some("user")
                    && native.function_responses.iter().any(|answer| {
                        answer
                            .id
                            .as_deref()
                            .is_some_and(|id| is_pending(segment, id))
                    })
            }
            _ => false,
        }
    }

    /// The held segments of the invocation that the record's tenant and app allow, oldest first;
    /// and whether several invocations of that id are held, so that a record without names must
    /// stand apart (facts.md §8.2).
    fn of_identity(&self, event: &RuntimeEvent<'_>, held: &[Slot]) -> (Vec<Slot>, bool) {
        let fits = |slot: &Slot| self.fits(*slot, event);
        let fitting: Vec<Slot> = held.iter().copied().filter(fits).collect();
        let names = |slot: &Slot| {
            let segment = self.segments.get(slot)?;
            Some((segment.tenant.as_deref(), segment.app.as_deref()))
        };
        let identities: BTreeSet<_> = fitting.iter().filter_map(names).collect();
        if identities.len() > 1 {
            let said = (event.tenant.as_deref(), event.app.as_deref());
            let exact = |slot: &Slot| names(slot) == Some(said);
            return (fitting.iter().copied().filter(exact).collect(), true);
        }
        (fitting, false)
    }

    /// True where the record may be of a held segment, by its tenant and app.
    fn fits(&self, slot: Slot, event: &RuntimeEvent<'_>) -> bool {
        let Some(segment) = self.segments.get(&slot) else {
            return false;
        };
        // Rows that went out keep their names: a record that names others stands apart.
        let adds = segment.tenant.is_none() && event.tenant.is_some()
            || segment.app.is_none() && event.app.is_some();
        !(self.contradicts(slot, event) || adds && segment.has_exported())
    }

    /// True where the record names another tenant or app than the held segment.
    pub(super) fn contradicts(&self, slot: Slot, event: &RuntimeEvent<'_>) -> bool {
        let Some(segment) = self.segments.get(&slot) else {
            return false;
        };
        let pairs = [
            (&segment.tenant, event.tenant.as_deref()),
            (&segment.app, event.app.as_deref()),
        ];
        pairs.iter().any(|(known, said)| match (known, said) {
            (Some(known), Some(said)) => **known != **said,
            _ => false,
        })
    }

    /// The event as one of the invocation that it is about, where that is another one than it
    /// bears: a late answer that says so (`answers`, events.md §2.2), or nothing but function
    /// responses that one other invocation asked for (rules.md §2). Its run is not that one's.
    pub(super) fn elsewhere<'p>(&self, event: &RuntimeEvent<'p>) -> Option<RuntimeEvent<'p>> {
        let own = event.invocation_id.as_deref()?;
        let other = match &event.kind {
            EventKind::ToolEnd(end) => end.answers.as_ref().map(|(id, _)| id.clone())?,
            EventKind::Native(native) => Str::from(self.asked_by(event, native, own)?.to_string()),
            _ => return None,
        };
        (*other != *own).then(|| RuntimeEvent {
            invocation_id: Some(other),
            run_id: None,
            ..event.clone()
        })
    }

    /// The one invocation whose tool calls an event answers that came under an id of its own:
    /// nothing but function responses, of a runtime and not of a person, whose answer begins a run
    /// (rules.md §2).
    fn asked_by(
        &self,
        event: &RuntimeEvent<'_>,
        native: &NativeEvent<'_>,
        invocation: &str,
    ) -> Option<Name> {
        let is_answer = !native.function_responses.is_empty()
            && native.function_calls.is_empty()
            && !native.content.is_some()
            && native.author.as_deref() != Some("user");
        if !is_answer || self.by_invocation.contains_key(invocation) {
            return None;
        }
        let mut found: Option<&Name> = None;
        for answer in &native.function_responses {
            let id = answer.id.as_deref()?;
            let asks = |segment: &&Segment| {
                let of_id = segment.tools_by_id.get(id).into_iter().flatten();
                let mut tools = of_id.map(|index| &segment.tools[*index]);
                tools.any(|tool| tool.is_open() && *tool.tool == *answer.name)
            };
            let id = Name::from(id);
            let all = (id.clone(), Slot::MIN)..=(id, Slot::MAX);
            let slots = self.open_calls.range(all).take(ASKING_MAX);
            let asked = slots.filter(|(_, slot)| self.fits(*slot, event));
            let asked = asked.filter_map(|(_, slot)| self.segments.get(slot).map(|s| &**s));
            let mut asking = asked.filter(asks).map(|segment| &segment.invocation_id);
            let here = asking.next()?;
            if asking.any(|other| other != here) || found.is_some_and(|known| known != here) {
                return None;
            }
            found = Some(here);
        }
        found.cloned()
    }

    fn adopt_names(&mut self, slot: Slot, event: &RuntimeEvent<'_>) {
        let Some(segment) = self.segments.get_mut(&slot) else {
            return;
        };
        if segment.tenant.is_none() {
            segment.tenant = event.tenant.as_deref().map(|name| self.names.name(name));
        }
        if segment.app.is_none() {
            segment.app = event.app.as_deref().map(|name| self.names.name(name));
        }
    }
}

fn is_pending(segment: &Segment, id: &str) -> bool {
    segment
        .requests
        .iter()
        .any(|(request, ..)| &**request == id)
        || segment
            .tools
            .iter()
            .any(|tool| tool.call_id.as_deref() == Some(id) && tool.is_pending())
}

impl Segment {
    /// A segment that a record opens. Its id is the run id where the run's start opens it, else
    /// the id of that record, never an offset. Any other opener of a run may follow a stretch that
    /// was released, whose rows bear the run's id already.
    pub(super) fn open(
        event: &RuntimeEvent<'_>,
        invocation: &str,
        opener: Opener,
        names: &mut Names,
    ) -> Segment {
        let native_id = match &event.kind {
            EventKind::Native(native) => native.id.as_deref(),
            _ => None,
        };
        let run_id = match &event.kind {
            EventKind::RunStart { .. } => event.run_id.as_deref(),
            _ => None,
        };
        let id = run_id.or(event.record_id.as_deref()).or(native_id);
        let id = match id {
            Some(id) => names.id(id),
            None => Name::from(format!("at-{}", opener.stamp.at.0)),
        };
        let root_agent = match &event.kind {
            EventKind::RunStart { root_agent, .. } => names.optional(root_agent.as_deref()),
            _ => None,
        };
        let mut flags = Flags::default();
        if opener.is_split {
            flags.insert(Flag::SplitInvocation);
        }
        let (at, stamp) = (opener.at, opener.stamp);
        Segment {
            id,
            run_id: event.run_id.as_deref().map(|id| names.id(id)),
            invocation_id: names.id(invocation),
            tenant: event.tenant.as_deref().map(|tenant| names.name(tenant)),
            app: event.app.as_deref().map(|app| names.name(app)),
            session_id: None,
            user_key: None,
            row: RowState::new(at.offset),
            records: 0,
            logged_at: at.log_time,
            last_logged_at: at.log_time,
            evidence_from: at.offset,
            is_headless: opener.is_headless,
            is_start_due: !matches!(event.kind, EventKind::Native(_)),
            start: None,
            first: stamp,
            last: stamp,
            root_agent,
            trigger: None,
            runtime: None,
            runtime_version: None,
            parent: None,
            end: None,
            is_superseded: false,
            is_released: false,
            final_answer: None,
            has_gap: false,
            intercepted: None,
            agents: Vec::new(),
            branches: Vec::new(),
            calls: Vec::new(),
            answers: Vec::new(),
            tools: Vec::new(),
            verdicts: Vec::new(),
            verdicts_forbidding: Vec::new(),
            recoveries: Vec::new(),
            anomalies: Vec::new(),
            anomalies_by_about: BTreeMap::new(),
            proofs: Vec::new(),
            limited_call: None,
            limited_tool: None,
            rows_max: opener.rows_max,
            is_full: false,
            calls_by_id: BTreeMap::new(),
            tools_by_id: BTreeMap::new(),
            calls_by_event: BTreeMap::new(),
            calls_failed: Vec::new(),
            calls_unclaimed: Vec::new(),
            has_told_calls: false,
            native_calls: Vec::new(),
            requests: Vec::new(),
            requests_before: Vec::new(),
            seen: BTreeSet::new(),
            instances: Vec::new(),
            attributes: Vec::new(),
            flags,
            events: 0,
            user_messages: BTreeSet::new(),
            retries: 0,
            dirty: Vec::new(),
            summed_at: 0,
            is_sum_put_off: false,
            tool_changes: Vec::new(),
            tools_open: 0,
            tools_pending: 0,
            counted_status: None,
            is_wait_counted: false,
            open_app: None,
        }
    }

    /// A release speaks once for every row.
    pub(super) fn speak_release(&mut self) {
        self.row.release();
        self.calls.iter_mut().for_each(|call| call.row.release());
        self.answers
            .iter_mut()
            .for_each(|answer| answer.row.release());
        self.tools.iter_mut().for_each(|tool| tool.row.release());
        self.verdicts
            .iter_mut()
            .for_each(|verdict| verdict.row.release());
        self.agents.iter_mut().for_each(|run| run.row.release());
        self.branches
            .iter_mut()
            .for_each(|branch| branch.row.release());
    }
}
