//! Parent links inferred from time: a child run inside one open tool call (rules.md §6).

use super::stamp::Stamp;
use super::tool_call::ToolCall;
use super::{Slot, Timelines};
use crate::core::Offset;
use crate::core::fact::{Basis, ParentLink};

/// What looking for a child's parent may cost, in tool calls looked at; a run costs some besides.
const LOOKED_AT_MAX: usize = 16_384;
const LOOK_COST: usize = 16;

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
        let names = [child.app.clone(), child.root_agent.clone()];
        let mut found = None;
        let mut is_single = true;
        let mut parents_from: Option<Offset> = None;
        let (mut looked_at, mut oldest) = (0, None);
        for name in names.iter().flatten() {
            let candidates = self.open_tools.get(name).into_iter();
            for candidate in candidates.flat_map(|by| by.keys()) {
                let Some(parent) = self.segments.get(candidate) else {
                    continue;
                };
                let from = Some(parent.evidence_from);
                // Among so many it is nobody's child; those looked at are enough to know it again.
                looked_at += LOOK_COST + parent.tools.len();
                if looked_at > LOOKED_AT_MAX {
                    is_single = false;
                    parents_from = oldest;
                    break;
                }
                oldest = oldest.or(from).min(from);
                let fits = *candidate != slot && parent.tenant == child.tenant;
                let is_candidate = |tool: &&ToolCall| fits && tool.is_open() && tool.tool == *name;
                for tool in parent.tools.iter().filter(is_candidate) {
                    let contains = tool.started_at().is_some_and(|at| !stamp.is_before(at));
                    let is_same = found.as_ref().is_some_and(|(other, id): &(Slot, _)| {
                        other == candidate && *id == tool.call_id
                    });
                    if contains {
                        parents_from = parents_from.or(from).min(from);
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
        for (index, tool, is_open) in std::mem::take(&mut segment.tool_changes) {
            has_closed |= !is_open;
            if let Some(id) = &segment.tools[index].call_id {
                let of_id = segment.tools_by_id.get(id).into_iter().flatten();
                let mut open = of_id.filter(|other| segment.tools[**other].was_open);
                match open.next() {
                    Some(_) => self.open_calls.insert((id.clone(), slot)),
                    None => self.open_calls.remove(&(id.clone(), slot)),
                };
            }
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
