//! Parent links inferred from time: a child run inside one open tool call (rules.md §6).

use super::stamp::Stamp;
use super::{Slot, Timelines};
use crate::core::Offset;
use crate::core::fact::{Basis, ParentLink};

impl Timelines {
    /// A child's run.start that lies in exactly one open tool call of the tenant whose tool is the
    /// child's app or root agent (rules.md §6); fixed when the child opens.
    pub(super) fn infer_parent(&mut self, slot: Slot, stamp: Stamp) {
        let Some(child) = self.segments.get(&slot) else {
            return;
        };
        if child.parent.is_some() || child.records > 0 {
            return;
        }
        let app = child.app.clone();
        let names = [app, child.root_agent.clone()];
        let mut found = None;
        let mut is_single = true;
        let mut parents_from: Option<Offset> = None;
        for name in names.iter().flatten() {
            for candidate in self
                .open_tools
                .get(name)
                .into_iter()
                .flat_map(|by| by.keys())
            {
                let Some(parent) = self.segments.get(candidate) else {
                    continue;
                };
                let fits = *candidate != slot && parent.tenant == child.tenant;
                for tool in parent
                    .tools
                    .iter()
                    .filter(|t| fits && t.is_open() && t.tool == *name)
                {
                    let contains = tool.started_at().is_some_and(|at| !stamp.is_before(at));
                    let is_same = found.as_ref().is_some_and(|(other, id): &(Slot, _)| {
                        other == candidate && *id == tool.call_id
                    });
                    if contains {
                        let from = parent.evidence_from;
                        parents_from = Some(parents_from.map_or(from, |known| known.min(from)));
                    }
                    if contains && !is_same {
                        is_single &= found.is_none();
                        found = Some((*candidate, tool.call_id.clone()));
                    }
                }
            }
        }
        let Some(parent_from) = parents_from else {
            return;
        };
        let link = found.filter(|_| is_single).and_then(|(parent, call_id)| {
            let parent = self.segments.get(&parent)?;
            Some(ParentLink {
                invocation_id: Some(parent.invocation_id.clone()),
                run_id: parent.run_id.clone(),
                call_id,
                basis: Basis::Inferred,
            })
        });
        let Some(child) = self.segments.get_mut(&slot) else {
            return;
        };
        child.parent = link;
        // Also where several may be the parent: a successor that knew one of them only would choose
        // it.
        if parent_from < child.evidence_from {
            self.evidence.remove(&(child.evidence_from, slot));
            child.evidence_from = parent_from;
            self.evidence.insert((parent_from, slot));
        }
    }

    /// Keeps the table of open tools in step with the segment.
    pub(super) fn note_tools(&mut self, slot: Slot) {
        let Some(segment) = self.segments.get_mut(&slot) else {
            return;
        };
        let mut has_closed = false;
        for (tool, is_open) in std::mem::take(&mut segment.tool_changes) {
            has_closed |= !is_open;
            let by_slot = self.open_tools.entry(tool.clone()).or_default();
            if is_open {
                *by_slot.entry(slot).or_insert(0) += 1;
            } else if let Some(count) = by_slot.get_mut(&slot) {
                *count -= 1;
                if *count == 0 {
                    by_slot.remove(&slot);
                }
            }
            if by_slot.is_empty() {
                self.open_tools.remove(&tool);
            }
        }
        if has_closed && let Some(segment) = self.segments.get(&slot) {
            // Without an open tool it may be due earlier. A release that came late would lie before
            // `abandoned`, and a successor would take it for exported.
            self.deadlines.insert((self.deadline(segment), slot));
        }
    }
}
