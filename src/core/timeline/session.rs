//! Records that speak for a session, not for a run: a compaction, a producer's loss.

use super::invocation::Context;
use super::{Applied, Derived, RecordAt, Slot, Timelines, apply};
use crate::core::Name;
use crate::core::event::{EventKind, RuntimeEvent};
use crate::core::fact::AnomalyKind;
use crate::core::ledger::Cause;
use std::collections::BTreeSet;

impl Timelines {
    /// A compaction under an id that no run has is no invocation but maintenance of a session: it
    /// speaks for the newest held run of that session, else for the only held run (runtimes.md §2).
    pub(super) fn compaction(
        &mut self,
        event: &RuntimeEvent<'_>,
        at: RecordAt,
        out: &mut Vec<Derived>,
    ) -> Applied {
        let session = event.session_id.as_deref();
        let newest = session.and_then(|id| newest_of(&self.by_session, id).next());
        let only = self
            .segments
            .keys()
            .next()
            .copied()
            .filter(|_| self.segments.len() == 1);
        let Some(slot) = newest.or(only) else {
            return Applied::Ignored;
        };
        let stamp = self.stamp(event, at);
        let Some(segment) = self.segments.get_mut(&slot) else {
            return Applied::Ignored;
        };
        segment.last_logged_at = segment.last_logged_at.max(at.log_time);
        segment.row.speak(at.offset);
        let (limits, defaults) = (&self.settings.limits, &self.source.defaults);
        let mut cx = Context::new(&mut self.names, limits, defaults, at.offset);
        let place = apply::Place {
            branch: cx.names.empty(),
            node_path: None,
            agent: cx.names.empty(),
            at: stamp,
        };
        segment.compaction(&place, &mut cx);
        self.flush(slot, Cause::Record(at.offset), at.offset, None, out);
        Applied::Applied
    }

    /// `emitter.gap`: speaks for the session's held runs, else for those of its emitter instance
    /// (events.md §2.2).
    pub(super) fn gap(
        &mut self,
        event: &RuntimeEvent<'_>,
        dropped: Option<u64>,
        at: RecordAt,
        out: &mut Vec<Derived>,
    ) -> Applied {
        let session = event.session_id.as_deref();
        let instance = event.emitter_instance.as_deref();
        let stamp = self.stamp(event, at);
        let (held, of) = match session {
            Some(session) => (&self.by_session, Some(session)),
            None => (&self.by_instance, instance),
        };
        // One record must not cost more than a big run does.
        let most = self.settings.limits.calls_per_run_max;
        let mut slots: Vec<Slot> = of
            .into_iter()
            .flat_map(|of| newest_of(held, of))
            .take(most + 1)
            .collect();
        let limit = (slots.len() > most).then_some("calls_per_run_max");
        slots.truncate(most);
        slots.reverse();
        for slot in &slots {
            let Some(segment) = self.segments.get_mut(slot) else {
                continue;
            };
            let is_first = !std::mem::replace(&mut segment.has_gap, true);
            segment.row.speak(at.offset);
            segment.last_logged_at = segment.last_logged_at.max(at.log_time);
            let empty = self.names.empty();
            let about = format!("emitter/{}", self.names.name(instance.unwrap_or("")));
            let kind = AnomalyKind::ProducerGap;
            let mut seen = segment.anomaly_at(kind, about, (&empty, &empty), stamp, at.offset);
            seen.count = dropped;
            segment.anomaly(seen);
            if segment.is_over() && is_first {
                segment.touch_all();
            }
            self.flush(*slot, Cause::Record(at.offset), at.offset, None, out);
        }
        if let Some((limit, derived)) = limit.zip(out.last_mut()) {
            derived.limit = derived.limit.or(Some(limit));
        }
        if slots.is_empty() {
            Applied::Ignored
        } else {
            Applied::Applied
        }
    }
}

/// The held segments under a name, newest first.
fn newest_of(held: &BTreeSet<(Name, Slot)>, name: &str) -> impl Iterator<Item = Slot> {
    let name = Name::from(name);
    let all = (name.clone(), Slot::MIN)..=(name, Slot::MAX);
    held.range(all).rev().map(|(_, slot)| *slot)
}

/// True for an event that only tells of a compaction.
pub(super) fn is_compaction(event: &RuntimeEvent<'_>) -> bool {
    matches!(&event.kind, EventKind::Native(native) if native.actions.is_compaction)
}
