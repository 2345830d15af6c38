//! Records that speak for a session, not for a run: a compaction, a producer's loss.

use super::invocation::{Context, Segment};
use super::{Applied, Derived, RecordAt, Slot, Timelines, apply};
use crate::core::event::{EventKind, RuntimeEvent};
use crate::core::fact::AnomalyKind;
use crate::core::ledger::Cause;

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
        let mut of_session =
            self.segments.iter().rev().filter(|(_, segment)| {
                session.is_some() && segment.session_id.as_deref() == session
            });
        let newest = of_session.next().map(|(slot, _)| *slot);
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
        let mut cx = Context {
            names: &mut self.names,
            limits: &self.settings.limits,
            defaults: &self.source.defaults,
            offset: at.offset,
            samples: Vec::new(),
            limit: None,
        };
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
        let speaks_for = |segment: &Segment| match session {
            Some(session) => segment.session_id.as_deref() == Some(session),
            None => instance.is_some_and(|i| segment.instances.iter().any(|known| &**known == i)),
        };
        let slots: Vec<Slot> = self
            .segments
            .iter()
            .filter(|(_, segment)| speaks_for(segment))
            .map(|(slot, _)| *slot)
            .collect();
        for slot in &slots {
            let Some(segment) = self.segments.get_mut(slot) else {
                continue;
            };
            segment.has_gap = true;
            segment.row.speak(at.offset);
            segment.last_logged_at = segment.last_logged_at.max(at.log_time);
            let empty = self.names.empty();
            let about = format!("emitter/{}", instance.unwrap_or(""));
            let kind = AnomalyKind::ProducerGap;
            let mut seen = segment.anomaly_at(kind, about, (&empty, &empty), stamp, at.offset);
            seen.count = dropped;
            segment.anomaly(seen);
            if segment.is_over() {
                segment.touch_all();
            }
            self.flush(*slot, Cause::Record(at.offset), at.offset, None, out);
        }
        if slots.is_empty() {
            Applied::Ignored
        } else {
            Applied::Applied
        }
    }
}

/// True for an event that only tells of a compaction.
pub(super) fn is_compaction(event: &RuntimeEvent<'_>) -> bool {
    matches!(&event.kind, EventKind::Native(native) if native.actions.is_compaction)
}
