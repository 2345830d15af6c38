//! What a hook's outcome proves beyond itself: that the model had answered, that a meter stood
//! behind a hook which ended the chain, that an edit never left (mission.md §2).
//!
//! It judges no guardrail: whether something was forbidden is `guardrail.rs`'s business.

use super::anomaly::AnomalySeen;
use super::apply::Place;
use super::invocation::{Context, Item, Segment};
use super::model_call::ModelCall;
use super::stamp::Stamp;
use super::tool_call::ToolCall;
use crate::core::Name;
use crate::core::event::{Decision, DecisionWord, HookOutcome, Returned, Stage};
use crate::core::fact::{AnomalyKind, Status};

/// Edits of one call that are kept: two prove a loss, further ones prove nothing new.
const EDITS_MAX: usize = 8;
/// Earlier calls of an agent among which the owner of a timer is looked for.
const TIMERS_MAX: usize = 16;
/// Two instants that lie closer than this are readings of one timer. Nanoseconds.
const SAME_READING_NS: i64 = 1_000_000;

/// Where in the life of a call a hook stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    Before,
    After,
    Error,
}

/// A value that a hook put in the place of what it guards.
#[derive(Clone, Debug)]
pub struct Edit {
    pub point: Point,
    /// Empty where the record names nobody.
    pub actor: Name,
    at: Stamp,
    /// Attempts that the call had then: another attempt asks its hooks anew.
    attempt: usize,
}

/// Notes an edit. Says who lost one, where this shows it: of two at one point of one attempt, by
/// two that are named, the later one, since every chain takes the first value.
fn note(edits: &mut Vec<Edit>, edit: Edit) -> Option<Name> {
    let is_same_point = |known: &&Edit| known.point == edit.point && known.attempt == edit.attempt;
    let is_known = edits
        .iter()
        .filter(is_same_point)
        .any(|known| known.actor == edit.actor);
    if is_known || edits.len() >= EDITS_MAX {
        return None;
    }
    let rival = edits
        .iter()
        .filter(is_same_point)
        .find(|known| !known.actor.is_empty());
    let loser = rival.filter(|_| !edit.actor.is_empty()).map(|rival| {
        let is_earlier = edit.at.is_before(rival.at);
        if is_earlier {
            &rival.actor
        } else {
            &edit.actor
        }
    });
    let loser = loser.cloned();
    edits.push(edit);
    loser
}

impl ModelCall {
    /// The hook whose value ended the chain of after-hooks before the meter's own had its turn: it
    /// told of a start, and never of an end.
    pub fn starved_by(&self) -> Option<&Name> {
        let is_measured = self.attempts.iter().any(|attempt| attempt.start.is_some());
        let has_end = self.attempts.iter().any(|attempt| attempt.end.is_some());
        let thief = self.edits.iter().find(|edit| edit.point == Point::After);
        thief
            .filter(|_| is_measured && !has_end)
            .map(|edit| &edit.actor)
    }
}

impl Segment {
    /// `hook.outcome`.
    pub(super) fn hook(&mut self, said: &HookOutcome<'_>, place: &Place, cx: &mut Context<'_>) {
        let hook = said.hook.as_deref().unwrap_or("");
        if said.returned == Returned::Error {
            self.hook_failed(said, hook, place, cx);
        }
        let actor = cx.names.name(said.actor_name.as_deref().unwrap_or(""));
        let edit = (said.returned == Returned::Value).then_some(actor);
        match (hook, edit) {
            ("after_model", edit) => {
                self.model_was_answered(said.call_id.as_deref(), edit, place, cx);
            }
            (hook, Some(actor)) => self.hook_answered(said, hook, actor, place, cx),
            (_, None) => {}
        }
    }

    fn hook_failed(
        &mut self,
        said: &HookOutcome<'_>,
        hook: &str,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        let about = format!("hook/{}", cx.names.name(hook));
        let (kind, of) = (AnomalyKind::HookError, (&place.branch, &place.agent));
        let mut seen = self.anomaly_at(kind, about, of, place.at, cx.offset);
        seen.detail = cx.names.optional(said.actor_name.as_deref());
        seen.count = Some(1);
        self.anomaly(seen);
    }

    /// A hook put a value in the place of what it guards.
    fn hook_answered(
        &mut self,
        said: &HookOutcome<'_>,
        hook: &str,
        actor: Name,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        let id = said.call_id.as_deref();
        match hook {
            "before_run" | "before_agent" => self.answered_by_hook(said, hook, place, cx),
            "before_model" => {
                self.answered_by_hook(said, hook, place, cx);
                self.model_edited(id, Point::Before, actor, place, cx);
            }
            "on_model_error" => {
                self.model_recovered(id, cx);
                self.model_edited(id, Point::Error, actor, place, cx);
            }
            "before_tool" => {
                self.tool_answered(said, cx);
                self.tool_edited(id, Point::Before, actor, place, cx);
            }
            "after_tool" => self.tool_edited(id, Point::After, actor, place, cx),
            "on_tool_error" => {
                self.tool_recovered(id, cx);
                self.tool_edited(id, Point::Error, actor, place, cx);
            }
            _ => {}
        }
    }

    /// An after-model hook ran: the model had answered. With `actor`, something else was put in the
    /// answer's place.
    pub(super) fn model_was_answered(
        &mut self,
        call_id: Option<&str>,
        actor: Option<Name>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        let index = match call_id {
            // The hook proves the call, also where nothing else was told of it yet.
            Some(id) => Some(self.call_that_answered(id, place, cx)),
            None => self.only_open_call(place),
        };
        let Some(index) = index else {
            return;
        };
        // A substitute of an error passes the after-hooks too (runtimes.md §3).
        if self.calls[index].has_failed() {
            return;
        }
        self.calls[index].was_answered = true;
        self.calls[index].has_lifecycle = true;
        self.calls[index].row.speak(cx.offset);
        self.touch(Item::Call(index));
        self.judge_by_call(index);
        if let Some(actor) = actor {
            self.edit_call(index, Point::After, actor, place, cx);
        }
    }

    /// A guard judged an output: the model had answered. What it rewrote, the hook that it stands
    /// in returned.
    pub(super) fn output_judged(
        &mut self,
        said: &Decision<'_>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        let is_hook = matches!(
            said.actor_type.as_deref(),
            Some("plugin" | "callback" | "hook")
        );
        let is_edit = is_hook
            && said.decision == Some(DecisionWord::Modify)
            && said.mode.as_deref() != Some("monitor");
        let actor = cx.names.name(said.actor_name.as_deref().unwrap_or(""));
        let edit = is_edit.then_some(actor);
        let id = said.target_call_id.as_deref();
        match (said.stage, edit) {
            (Some(Stage::ModelOutput), edit) => {
                let known = id.is_none_or(|id| self.calls_by_id.contains_key(id));
                if known && is_hook {
                    self.model_was_answered(id, edit, place, cx);
                }
            }
            (Some(Stage::ToolOutput), Some(actor)) => {
                self.tool_edited(id, Point::After, actor, place, cx);
            }
            _ => {}
        }
    }

    /// The call that an after-hook without call id speaks of: the only one of its agent that
    /// may have been answered just now.
    fn only_open_call(&self, place: &Place) -> Option<usize> {
        let is_open = |index: &usize| {
            let call = &self.calls[*index];
            call.branch == place.branch
                && call.agent == place.agent
                && call.has_lifecycle
                && !call.is_answered_locally
                && !call.has_ended()
        };
        let mut open = (0..self.calls.len()).filter(is_open);
        open.next().filter(|_| open.next().is_none())
    }

    fn model_edited(
        &mut self,
        call_id: Option<&str>,
        point: Point,
        actor: Name,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        if let Some(index) = call_id.and_then(|id| self.calls_by_id.get(id).copied()) {
            self.edit_call(index, point, actor, place, cx);
        }
    }

    fn edit_call(
        &mut self,
        index: usize,
        point: Point,
        actor: Name,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        let is_piped = self.is_piped(point, cx);
        let call = &mut self.calls[index];
        // After-hooks of a stream run for every chunk, and two may each have had theirs.
        let is_per_chunk = point == Point::After && call.is_streaming() == Some(true);
        let (at, attempt) = (place.at, call.attempts.len());
        let edit = Edit {
            point,
            actor,
            at,
            attempt,
        };
        let loser = note(&mut call.edits, edit).filter(|_| !is_piped && !is_per_chunk);
        let about = format!("model_call/{}", call.key);
        self.note_lost_edit(loser, about, place, cx);
    }

    /// A hook around a tool put something else in the place of what it guards.
    fn tool_edited(
        &mut self,
        call_id: Option<&str>,
        point: Point,
        actor: Name,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        let Some(index) = call_id.and_then(|id| self.newest(id)) else {
            return;
        };
        let is_piped = self.is_piped(point, cx);
        let call = &mut self.tools[index];
        let edit = Edit {
            point,
            actor,
            at: place.at,
            attempt: call.execution as usize,
        };
        let loser = note(&mut call.edits, edit).filter(|_| !is_piped);
        let about = format!("tool_call/{}", call.key);
        self.note_lost_edit(loser, about, place, cx);
    }

    /// True where each hook at this point gets what the one before it made, so that no edit is
    /// lost: after-hooks of every runtime but the ADKs (mission.md §2).
    fn is_piped(&self, point: Point, cx: &Context<'_>) -> bool {
        let runtime = self.runtime_name(cx.defaults).unwrap_or("");
        point == Point::After && !runtime.starts_with("adk-")
    }

    fn note_lost_edit(
        &mut self,
        loser: Option<Name>,
        about: String,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        if loser.is_some() {
            let (kind, of) = (AnomalyKind::EditLost, (&place.branch, &place.agent));
            let mut seen = self.anomaly_at(kind, about, of, place.at, cx.offset);
            seen.detail = loser;
            self.anomaly(seen);
        }
    }

    /// An end that reports the start of an earlier call of its agent was measured by a timer that
    /// nobody stopped: the call's own start record holds.
    pub(super) fn distrust_timer(&mut self, index: usize, place: &Place, cx: &mut Context<'_>) {
        let call = &self.calls[index];
        let Some(attempt) = call.attempts.last() else {
            return;
        };
        let (Some(declared), Some(own)) = (attempt.declared_start, attempt.start) else {
            return;
        };
        if declared.at.0.saturating_add(SAME_READING_NS) > own.at.0 {
            return;
        }
        let is_reading = |start: Stamp| (start.at.0 - declared.at.0).abs() < SAME_READING_NS;
        let earlier = self.calls[..index].iter().rev().filter(|other| {
            other.agent == call.agent && other.branch == call.branch && other.has_lifecycle
        });
        let timers = earlier.take(TIMERS_MAX).flat_map(|other| &other.attempts);
        let own_earlier = call.attempts.iter().rev().skip(1);
        let is_stale = timers
            .chain(own_earlier)
            .filter_map(|attempt| attempt.start)
            .any(is_reading);
        if is_stale && let Some(attempt) = self.calls[index].attempts.last_mut() {
            attempt.declared_start = None;
            self.call_anomaly(index, AnomalyKind::LeakedTimer, place.at, cx);
        }
    }

    /// Executions of tools that began and never ended although their run ended well: nobody stopped
    /// their timer, or a hook ended the chain before the meter had its turn.
    pub fn find_leaked_timers(&mut self) {
        if self.status() != Status::Completed || self.has_gap {
            return;
        }
        let is_running = |tool: &&ToolCall| tool.is_open() && tool.proof_of_start().is_some();
        let running = self.tools.iter().filter(is_running);
        let found: Vec<AnomalySeen> = running
            .map(|tool| {
                let thief = tool.edits.iter().find(|edit| edit.point == Point::After);
                let kind = match thief {
                    Some(_) => AnomalyKind::StarvedMeter,
                    None => AnomalyKind::LeakedTimer,
                };
                let about = format!("tool_call/{}", tool.key);
                let at = tool.start.unwrap_or(self.last);
                let of = (&tool.branch, &tool.agent);
                let mut seen = self.anomaly_at(kind, about, of, at, self.row.last);
                let actor = thief.map(|edit| edit.actor.clone());
                seen.detail = actor.filter(|actor| !actor.is_empty());
                seen
            })
            .collect();
        for seen in found {
            self.anomaly(seen);
        }
    }
}
