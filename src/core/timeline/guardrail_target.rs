//! What a verdict is about, and what followed it.

use super::apply::Place;
use super::guardrail::{Shown, Target, Verdict};
use super::invocation::{Item, Proof, Segment};
use super::model_call::ModelCall;
use super::stamp::Stamp;
use super::tool_call::ToolCall;
use crate::core::Name;
use crate::core::event::{DecisionWord, Stage};
use crate::core::fact::Flag;

/// Verdicts that are judged again when something happens that they may be about.
const JUDGED_MAX: usize = 64;
/// Rows that may be looked at for judging them.
const JUDGED_ROWS: usize = 65_536;

impl Segment {
    pub(super) fn target_of(&self, verdict: &Verdict) -> Target {
        if verdict.target == Target::Unknown {
            return Target::Unknown;
        }
        let by_id = verdict
            .target_call_id
            .as_ref()
            .and_then(|id| self.calls_by_id.get(id).copied());
        match verdict.stage {
            Stage::RunInput => Target::Run,
            Stage::ModelInput => by_id.map_or(Target::NextCall, Target::Call),
            Stage::ModelOutput => {
                let shown = match verdict.shown {
                    Shown::With(call) => Some(call),
                    _ => None,
                };
                let newest = || {
                    self.calls.iter().rposition(|call| {
                        call.branch == verdict.branch && call.agent == verdict.agent
                    })
                };
                let is_named = verdict.target_call_id.is_some();
                let call = by_id.or(shown).or_else(|| newest().filter(|_| !is_named));
                call.map_or(Target::Passive, Target::Answer)
            }
            Stage::ToolInput => Target::Tool,
            Stage::ToolOutput => Target::ToolAnswer,
            Stage::RunOutput | Stage::Unknown => Target::Passive,
        }
    }

    /// Finds the execution that a verdict at tool_input is about: the first that was not over
    /// before it, else, since who watches may tell of it late, the newest of its call that no guard
    /// gated and that nothing proves to have run. One that names no call passes over what already
    /// runs and what another verdict of its guard is about; more than one candidate is flagged
    /// (events.md §2.2).
    pub(super) fn find_tool(&self, verdict: &mut Verdict) {
        if verdict.stage != Stage::ToolInput || verdict.target == Target::Unknown {
            return;
        }
        let has_id = verdict.target_call_id.is_some();
        let is_open = |index: &usize| {
            let call = &self.tools[*index];
            let is_over = call.ended_at().is_some_and(|end| end.is_before(verdict.at));
            let runs = call
                .proof_of_start()
                .is_some_and(|start| start.is_before(verdict.at));
            verdict.names_tool(call)
                && (!is_over || call.is_pending())
                && (has_id || !runs && !self.is_taken(verdict, *index))
        };
        let open: Vec<usize> = (0..self.tools.len()).filter(is_open).take(2).collect();
        let late = |index: &usize| {
            let call = &self.tools[*index];
            has_id
                && verdict.names_tool(call)
                && !call.is_escalated
                && call.proof_of_start().is_none()
        };
        let newest = || (0..self.tools.len()).rev().find(late);
        verdict.tool = open.first().copied().or_else(newest);
        if !has_id && open.len() > 1 {
            verdict.flags.insert(Flag::AmbiguousPairing);
        }
    }

    /// True where another verdict of the same guard that names no call is about the execution.
    fn is_taken(&self, verdict: &Verdict, tool: usize) -> bool {
        self.verdicts.iter().any(|known| {
            known.tool == Some(tool)
                && known.target_call_id.is_none()
                && known.actor_name == verdict.actor_name
        })
    }

    /// What a verdict does to its target: a denied or gated tool, a start that a deny answers.
    pub(super) fn effects_of(&mut self, verdict: &Verdict, place: &Place) {
        if let Some(tool) = verdict.tool
            && mark(verdict, &mut self.tools[tool])
        {
            self.touch(Item::Tool(tool));
        }
        let has_row = self.verdicts.len() < self.rows_max;
        let is_input = matches!(verdict.stage, Stage::ModelInput | Stage::RunInput);
        if has_row && is_input && verdict.forbids() {
            let agent = (verdict.stage == Stage::ModelInput).then(|| place.agent.clone());
            self.prove(Proof {
                branch: place.branch.clone(),
                agent,
                answer: None,
                verdict: Some(self.verdicts.len()),
            });
        }
    }

    /// What the verdicts so far say about a tool call that appears only now.
    pub(super) fn verdicts_on_tool(&mut self, index: usize) {
        for waiting in 0..self.verdicts.len() {
            let verdict = &self.verdicts[waiting];
            let is_waiting = verdict.stage == Stage::ToolInput
                && verdict.target == Target::Tool
                && verdict.tool.is_none()
                && verdict.names_tool(&self.tools[index])
                && (verdict.target_call_id.is_some() || !self.is_taken(verdict, index));
            if is_waiting {
                mark(verdict, &mut self.tools[index]);
                self.verdicts[waiting].tool = Some(index);
            }
        }
    }

    /// What the verdicts so far say about a model call whose id appears only now.
    pub(super) fn verdicts_on_call(&mut self, index: usize) {
        for waiting in 0..self.verdicts.len() {
            let verdict = &self.verdicts[waiting];
            let is_waiting = matches!(verdict.target, Target::NextCall | Target::Passive)
                && verdict.target_call_id.is_some()
                && verdict.target_call_id == self.calls[index].call_id;
            if is_waiting {
                self.verdicts[waiting].target = self.target_of(verdict);
                self.touch(Item::Verdict(waiting));
            }
        }
    }

    /// The verdicts that what happens judges at once: those that forbid something, of a run with
    /// many the newest. The others are judged when the run is looked through.
    fn judged_at_once(&self) -> Vec<usize> {
        let rows = (self.calls.len() + self.tools.len()).max(1);
        let most = (JUDGED_ROWS / rows).clamp(4, JUDGED_MAX);
        let from = self.verdicts_forbidding.len().saturating_sub(most);
        self.verdicts_forbidding[from..].to_vec()
    }

    /// What happened to a call judges the verdicts about it, once more where it comes late. A run
    /// that is known to have gone on needs no judging before its end.
    pub(super) fn judge_by_call(&mut self, index: usize) {
        for position in self.judged_at_once() {
            let verdict = &self.verdicts[position];
            let call = &self.calls[index];
            let is_about = match verdict.target {
                Target::Run => !verdict.is_bypass,
                Target::Call(target) | Target::Answer(target) => target == index,
                Target::NextCall => {
                    let is_here = verdict.branch == call.branch && verdict.agent == call.agent;
                    is_here && !verdict.is_bypass
                }
                _ => false,
            };
            if is_about && verdict.forbids() {
                self.touch(Item::Verdict(position));
            }
        }
    }

    /// What happened to a tool judges the verdicts about it, once more where it comes late.
    pub(super) fn judge_by_tool(&mut self, index: usize) {
        for position in self.judged_at_once() {
            let verdict = &self.verdicts[position];
            let is_about = match verdict.target {
                Target::Run => !verdict.is_bypass,
                Target::Tool | Target::ToolAnswer => self.is_about_tool(verdict, index),
                _ => false,
            };
            if is_about && verdict.forbids() {
                self.touch(Item::Verdict(position));
            }
        }
    }

    fn is_about_tool(&self, verdict: &Verdict, index: usize) -> bool {
        match verdict.target_call_id {
            None if verdict.stage == Stage::ToolInput => verdict.tool == Some(index),
            _ => verdict.names_tool(&self.tools[index]),
        }
    }

    /// Whether something that the verdict forbids started after it, and whether nothing more of it
    /// can.
    pub(super) fn followed(&self, verdict: &Verdict) -> (bool, bool) {
        let after = |at: Option<Stamp>| at.is_some_and(|at| verdict.at.is_before(at));
        let over = self.is_over();
        match verdict.target {
            Target::Run => {
                let mut calls = self.calls.iter().filter(|call| call.was_made());
                let call = calls.any(|call| after(call.instants().0));
                let tool = self.tools.iter().any(|tool| after(tool.proof_of_start()));
                (call || tool, over)
            }
            Target::Call(index) => {
                let call = &self.calls[index];
                let ended = call.has_ended() || call.is_answered_locally;
                (call.was_made() && after(call.instants().0), ended || over)
            }
            Target::NextCall => {
                let next = self.next_call(verdict);
                (next.is_some_and(|call| call.was_made()), over)
            }
            Target::Answer(index) => (false, self.calls[index].has_ended() || over),
            Target::Tool | Target::ToolAnswer => {
                let tools = 0..self.tools.len();
                let mut about = tools
                    .filter(|index| self.is_about_tool(verdict, *index))
                    .map(|index| &self.tools[index])
                    .peekable();
                let is_known = about.peek().is_some();
                let is_input = verdict.target == Target::Tool;
                // An execution begins after every guard, so also one that shares its instant.
                let started = about.clone().any(|call| {
                    let start = call.proof_of_start();
                    start.is_some_and(|start| !start.is_before(verdict.at))
                });
                let ended = is_known && about.all(ToolCall::is_answered);
                (is_input && started, ended || over)
            }
            Target::AnsweredLocally => (false, true),
            Target::Unknown => (false, false),
            Target::Passive => (false, over),
        }
    }
}

impl Segment {
    /// The first call of the verdict's agent and branch that starts after it.
    fn next_call(&self, verdict: &Verdict) -> Option<&ModelCall> {
        let here = self
            .calls
            .iter()
            .filter(|call| call.branch == verdict.branch && call.agent == verdict.agent);
        earliest_of(here.filter_map(|call| started_after(verdict, call.instants().0, call)))
    }

    /// Kind and key of the call that a deny turned out to be about, or that started after it all
    /// the same; `None` where the target as it was told names that call.
    pub(super) fn what_followed(&self, verdict: &Verdict) -> Option<(&'static str, Name)> {
        if !verdict.denies() {
            return None;
        }
        let (kind, key) = match verdict.target {
            Target::Run => {
                let calls = self.calls.iter().filter(|call| call.was_made());
                let calls = calls.map(|call| (call.instants().0, ("model", &call.key)));
                let tools = self.tools.iter();
                let tools = tools.map(|call| (call.proof_of_start(), ("tool", &call.key)));
                let started = calls.chain(tools);
                earliest_of(started.filter_map(|(start, of)| started_after(verdict, start, of)))?
            }
            Target::Call(index) | Target::Answer(index) => {
                let call = Some(&self.calls[index]).filter(|call| call.has_row())?;
                ("model", &call.key)
            }
            Target::NextCall => {
                let call = self.next_call(verdict).filter(|call| call.has_row())?;
                ("model", &call.key)
            }
            Target::Tool | Target::ToolAnswer => {
                let mut tools = 0..self.tools.len();
                let index = tools.find(|index| self.is_about_tool(verdict, *index))?;
                ("tool", &self.tools[index].key)
            }
            Target::AnsweredLocally | Target::Unknown | Target::Passive => return None,
        };
        let is_told = verdict.target_call_id.as_ref() == Some(key)
            && verdict.target_kind.as_deref() == Some(kind);
        (!is_told).then(|| (kind, key.clone()))
    }
}

/// The thing with its start, where that lies after the verdict.
fn started_after<T>(verdict: &Verdict, start: Option<Stamp>, of: T) -> Option<(Stamp, T)> {
    let start = start.filter(|start| verdict.at.is_before(*start))?;
    Some((start, of))
}

/// The thing that started first; of equal ones the one that was told first.
fn earliest_of<T>(started: impl Iterator<Item = (Stamp, T)>) -> Option<T> {
    let first = started.reduce(|a, b| if b.0.is_before(a.0) { b } else { a });
    first.map(|(_, of)| of)
}

/// Marks the tool call that a verdict is about; true where it did.
fn mark(verdict: &Verdict, call: &mut ToolCall) -> bool {
    if verdict.forbids() {
        call.is_denied = true;
    } else if verdict.decision == Some(DecisionWord::Escalate) {
        call.is_escalated = true;
    } else {
        return false;
    }
    true
}
