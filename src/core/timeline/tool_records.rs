//! Tool records to tool calls: which execution a record is about, and what it adds.

use super::apply::{Place, code_of};
use super::invocation::{Context, Item, LIMITED, Segment};
use super::model_records::RETRIES_MAX;
use super::row::{RowState, push_tight};
use super::stamp::earliest;
use super::tool_call::{Answer, ToolCall};
use crate::core::Name;
use crate::core::event::{HookOutcome, Measured, RuntimeEvent, ToolEnd, ToolOutcome, ToolStart};
use crate::core::fact::{AnomalyKind, Flag};

impl Segment {
    pub(super) fn tool_start(
        &mut self,
        said: &ToolStart<'_>,
        event: &RuntimeEvent<'_>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        self.something_started();
        let tool = cx.names.name(said.tool.as_deref().unwrap_or(""));
        let known = match (said.call_id.as_deref(), said.execution) {
            (Some(id), Some(number)) => self.execution(id, number),
            (Some(id), None) => self
                .newest(id)
                .filter(|i| self.tools[*i].may_begin_at(place.at)),
            (None, _) => None,
        };
        let index = match known {
            Some(index) => index,
            None => self.new_tool(
                said.call_id.as_deref(),
                said.execution,
                tool.clone(),
                place,
                cx,
            ),
        };
        let call = &mut self.tools[index];
        call.start = earliest(call.start, place.at);
        call.start_is_hook = event.measured == Some(Measured::Hook);
        cx.names.note(&mut call.origin, said.origin.as_deref());
        if call.tool.is_empty() {
            call.tool = tool;
        }
        self.note_tool(index, place, cx);
    }

    pub(super) fn tool_end(&mut self, said: &ToolEnd<'_>, place: &Place, cx: &mut Context<'_>) {
        let tool = cx.names.name(said.tool.as_deref().unwrap_or(""));
        let id = said
            .answers
            .as_ref()
            .map(|(_, call)| &**call)
            .or(said.call_id.as_deref());
        let known = match (id, said.execution) {
            (Some(id), Some(number)) => self.execution(id, number),
            (Some(id), None) => self.newest(id).filter(|i| {
                let call = &self.tools[*i];
                call.end.is_none() || call.is_pending()
            }),
            (None, _) => self.oldest_open(&tool, place, cx),
        };
        let index = match known {
            Some(index) => index,
            None => self.new_tool(id, said.execution, tool.clone(), place, cx),
        };
        let kind = said.error.as_ref().and_then(|error| error.kind.as_deref());
        let answer = Answer {
            at: place.at,
            outcome: said.outcome,
            error_code: said.error.as_ref().and_then(|error| code_of(error, cx)),
            is_not_found: kind == Some("not_found"),
            is_cancelled: kind == Some("cancelled"),
        };
        let call = &mut self.tools[index];
        call.finish(answer);
        call.duration_declared = said.duration.or(call.duration_declared);
        call.retries = said.retries.or(call.retries);
        if call.tool.is_empty() {
            call.tool = tool;
        }
        self.note_tool(index, place, cx);
        if said.outcome == ToolOutcome::Refused {
            self.tool_refused(index, place, cx);
        }
    }

    /// A hook answered in a tool's place: if that was a refusal, it is who refused.
    pub(super) fn tool_answered(&mut self, said: &HookOutcome<'_>, cx: &mut Context<'_>) {
        let Some(index) = said.call_id.as_deref().and_then(|id| self.newest(id)) else {
            return;
        };
        let actor = (said.actor_type.as_deref(), said.actor_name.as_deref());
        self.tools[index].answered_by = (cx.names.optional(actor.0), cx.names.optional(actor.1));
    }

    pub(super) fn tool_recovered(&mut self, call_id: Option<&str>, cx: &mut Context<'_>) {
        let Some(index) = call_id.and_then(|id| self.newest(id)) else {
            return;
        };
        self.tools[index].recovered = true;
        self.tools[index].row.speak(cx.offset);
        self.touch(Item::Tool(index));
    }

    /// A given execution of a call id.
    pub(super) fn execution(&self, id: &str, number: u32) -> Option<usize> {
        let of_id = self.tools_by_id.get(id)?;
        of_id
            .iter()
            .copied()
            .find(|index| self.tools[*index].execution == number)
    }

    /// The newest execution of a call id.
    pub(super) fn newest(&self, id: &str) -> Option<usize> {
        self.tools_by_id
            .get(id)
            .and_then(|of_id| of_id.last().copied())
    }

    /// The oldest execution of a call id that records tell of and that fits: an event about it is
    /// another source of the same execution.
    pub(super) fn told(&self, id: &str, fits: impl Fn(&ToolCall) -> bool) -> Option<usize> {
        let of_id = self.tools_by_id.get(id)?;
        of_id.iter().copied().find(|index| {
            let call = &self.tools[*index];
            (call.start.is_some() || call.end.is_some()) && fits(call)
        })
    }

    /// Calls without ids pair by (agent, tool) in order; more than one open is flagged (rules.md
    /// §7).
    pub(super) fn oldest_open(
        &mut self,
        tool: &Name,
        place: &Place,
        _cx: &mut Context<'_>,
    ) -> Option<usize> {
        let is_open = |call: &ToolCall| {
            call.call_id.is_none()
                && !call.is_answered()
                && call.tool == *tool
                && call.agent == place.agent
        };
        let open: Vec<usize> = (0..self.tools.len())
            .filter(|index| is_open(&self.tools[*index]))
            .collect();
        if open.len() > 1 {
            for index in &open {
                if !self.tools[*index].flags.contains(Flag::AmbiguousPairing) {
                    self.tools[*index].flags.insert(Flag::AmbiguousPairing);
                    self.touch(Item::Tool(*index));
                }
            }
        }
        open.first().copied()
    }

    pub(super) fn new_tool(
        &mut self,
        id: Option<&str>,
        execution: Option<u32>,
        tool: Name,
        place: &Place,
        cx: &mut Context<'_>,
    ) -> usize {
        if self.tools.len() >= cx.limits.calls_per_run_max {
            return self.limited_tool(place, cx);
        }
        let index = self.tools.len();
        let key = match id {
            Some(id) => cx.names.id(id),
            None => Name::from(format!(
                "{}/{}/{}/{index}",
                self.id, place.branch, place.agent
            )),
        };
        let (agent, branch) = (place.agent.clone(), place.branch.clone());
        let mut call = ToolCall::new(RowState::new(cx.offset), key, tool, agent, branch);
        call.agent_run = self.agent_run(&place.branch, &place.agent, place.at, cx.offset, false);
        if let Some(id) = id {
            let id = cx.names.id(id);
            let of_id = self.tools_by_id.entry(id.clone()).or_default();
            let next = of_id
                .last()
                .map_or(1, |last| self.tools[*last].execution.saturating_add(1));
            call.execution = execution.unwrap_or(next);
            of_id.push(index);
            call.call_id = Some(id);
        }
        push_tight(&mut self.tools, call);
        self.verdicts_on_tool(index);
        index
    }

    /// The one row into which a run's further tool calls fold.
    fn limited_tool(&mut self, place: &Place, cx: &mut Context<'_>) -> usize {
        self.reach("calls_per_run_max", cx);
        self.limited_tool.unwrap_or_else(|| {
            let key = Name::from(format!("{}/{LIMITED}", self.id));
            let row = RowState::new(cx.offset);
            let tool = cx.names.name(LIMITED);
            let mut call = ToolCall::new(row, key, tool, place.agent.clone(), place.branch.clone());
            call.flags.insert(Flag::Limited);
            push_tight(&mut self.tools, call);
            self.limited_tool = Some(self.tools.len() - 1);
            self.tools.len() - 1
        })
    }

    /// Notes that a tool's row may have changed, and whether its execution opened or closed.
    pub(super) fn note_tool(&mut self, index: usize, place: &Place, cx: &mut Context<'_>) {
        let call = &mut self.tools[index];
        call.row.speak(cx.offset);
        if call.agent.is_empty() {
            call.agent = place.agent.clone();
        }
        if call.branch.is_empty() {
            call.branch = place.branch.clone();
        }
        let run = call.agent_run;
        let is_pending = call.is_pending();
        if is_pending != call.was_pending {
            call.was_pending = is_pending;
            self.tools_pending = if is_pending {
                self.tools_pending + 1
            } else {
                self.tools_pending - 1
            };
        }
        let is_open = call.is_open();
        if is_open != call.was_open {
            call.was_open = is_open;
            self.tools_open = if is_open {
                self.tools_open + 1
            } else {
                self.tools_open - 1
            };
            self.tool_changes
                .push((index, self.tools[index].tool.clone(), is_open));
        }
        if let Some(run) = run {
            let agent = &mut self.agents[run];
            agent.last = super::stamp::latest(Some(agent.last), place.at).unwrap_or(place.at);
            self.touch(Item::Agent(run));
        }
        self.touch_branch(&place.branch, place.at, cx.offset, false, cx);
        let at_cap = self.tools[index].execution as usize >= RETRIES_MAX;
        let found = [
            (self.tools[index].is_skewed(), AnomalyKind::ClockSkew),
            (at_cap, AnomalyKind::RetryCap),
        ];
        for (_, kind) in found.into_iter().filter(|(is_so, _)| *is_so) {
            let about = format!("tool_call/{}", self.tools[index].key);
            let (branch, agent) = (&place.branch, &place.agent);
            let seen = self.anomaly_at(kind, about, (branch, agent), place.at, cx.offset);
            self.anomaly(seen);
        }
        self.touch(Item::Tool(index));
        self.touch(Item::Invocation);
        self.judge_by_tool(index);
    }
}
