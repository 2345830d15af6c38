//! Answers that a hook or a cache gave instead of the model, and which call they took the place of
//! (rules.md §8).

use super::apply::Place;
use super::guardrail::Target;
use super::invocation::{Context, Item, LocalAnswer, Proof, Segment};
use super::row::RowState;
use crate::core::event::{HookOutcome, ServedBy};
use crate::core::fact::Basis;
use crate::core::usage::UsageReport;

impl Segment {
    /// A hook or a cache answered in this call's place: it becomes a local answer and has no row of
    /// its own.
    pub(super) fn call_answered_locally(
        &mut self,
        index: usize,
        served_by: ServedBy,
        usage: Option<&UsageReport>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        self.calls[index].is_answered_locally = true;
        let call_id = self.calls[index].call_id.clone();
        let requested = self.calls[index].requested_model.clone();
        let known = self.answers.iter().position(|answer| {
            answer.call_id.is_some() && answer.call_id == call_id
                || answer.call_id.is_none()
                    && answer.event_id.is_none()
                    && answer.hook.is_some()
                    && answer.requested_model.is_none()
                    && answer.branch == place.branch
                    && answer.agent == place.agent
        });
        let answer = known.unwrap_or_else(|| self.new_answer(served_by, place, cx));
        let row = &mut self.answers[answer];
        row.call_id = call_id;
        row.requested_model = requested;
        row.served_by = served_by;
        let seen = self.calls[index].native.as_ref();
        let usage = usage.or(seen.and_then(|side| side.usage.as_ref()));
        if let Some(usage) = usage {
            row.usage = Some(usage.clone());
        }
        let event_id = seen.and_then(|side| side.event_id.clone());
        row.event_id = row.event_id.take().or(event_id);
        row.row.speak(cx.offset);
        let is_seen = seen.is_some();
        self.touch(Item::Answer(answer));
        let verdicts = self.verdicts.len();
        for verdict in 0..verdicts {
            self.verdict_answered(verdict, index);
        }
        if is_seen {
            return;
        }
        self.prove(Proof {
            branch: place.branch.clone(),
            agent: Some(place.agent.clone()),
            answer: Some(answer),
            verdict: None,
        });
    }

    /// A row for an answer that no model gave; beyond the limit the last one is of all others.
    pub(super) fn new_answer(
        &mut self,
        served_by: ServedBy,
        place: &Place,
        cx: &mut Context<'_>,
    ) -> usize {
        if self.answers.len() >= self.rows_max {
            self.is_full = true;
            return self.answers.len() - 1;
        }
        let same = |a: &&LocalAnswer| a.branch == place.branch && a.agent == place.agent;
        let order = self.answers.iter().filter(same).count() as u32;
        let mut row = RowState::new(cx.offset);
        row.speak(cx.offset);
        self.agent_run(&place.branch, &place.agent, place.at, cx.offset, true);
        self.answers.push(LocalAnswer {
            row,
            branch: place.branch.clone(),
            agent: place.agent.clone(),
            order,
            served_by,
            hook: None,
            actor_type: None,
            actor_name: None,
            call_id: None,
            requested_model: None,
            at: place.at,
            usage: None,
            event_id: None,
            is_counted: false,
        });
        let index = self.answers.len() - 1;
        self.touch(Item::Answer(index));
        index
    }

    /// `hook.outcome` of a hook that answers in the place of what it guards (rules.md §8).
    pub(super) fn answered_by_hook(
        &mut self,
        said: &HookOutcome<'_>,
        hook: &str,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        if hook == "before_run" {
            self.intercepted = Some(false);
        }
        if hook == "before_model" && self.has_answer_of(said.call_id.as_deref()) {
            // The first value ended the chain: a second one was never used.
            return;
        }
        let answer = self.new_answer(ServedBy::Hook, place, cx);
        let row = &mut self.answers[answer];
        row.hook = Some(cx.names.name(hook));
        row.actor_type = cx.names.optional(said.actor_type.as_deref());
        row.actor_name = cx.names.optional(said.actor_name.as_deref());
        row.call_id = said.call_id.as_deref().map(|id| cx.names.id(id));
        if hook == "before_model" {
            let by_id = said
                .call_id
                .as_deref()
                .and_then(|id| self.calls_by_id.get(id).copied());
            let waiting = by_id.or_else(|| self.waiting_start(place));
            if let Some(index) = waiting.filter(|index| self.calls[*index].is_only_start()) {
                self.calls[index].is_answered_locally = true;
                self.answers[answer].requested_model = self.calls[index].requested_model.clone();
                let id = self.calls[index].call_id.clone();
                let row = &mut self.answers[answer];
                row.call_id = row.call_id.take().or(id);
            }
        }
        let agent = (hook != "before_run").then(|| place.agent.clone());
        self.prove(Proof {
            branch: place.branch.clone(),
            agent,
            answer: Some(answer),
            verdict: None,
        });
    }

    /// True where a hook answered the call of this id already.
    fn has_answer_of(&self, call_id: Option<&str>) -> bool {
        let is_of =
            |answer: &LocalAnswer| answer.hook.is_some() && answer.call_id.as_deref() == call_id;
        call_id.is_some() && self.answers.iter().any(is_of)
    }

    /// The newest start of (branch, agent) that nothing followed yet.
    pub(super) fn waiting_start(&self, place: &Place) -> Option<usize> {
        self.calls.iter().rposition(|call| {
            call.branch == place.branch
                && call.agent == place.agent
                && call.has_lifecycle
                && !call.is_answered_locally
                && call.is_only_start()
                && call.served_by.is_none()
        })
    }

    /// True where a local answer, not the model, is what the verdict's target got.
    fn verdict_answered(&mut self, verdict: usize, call: usize) {
        let is_target = match self.verdicts[verdict].target {
            Target::Call(index) => index == call,
            Target::NextCall => {
                let v = &self.verdicts[verdict];
                v.branch == self.calls[call].branch && v.agent == self.calls[call].agent
            }
            _ => false,
        };
        if is_target && self.verdicts[verdict].basis != Basis::Provider {
            self.verdicts[verdict].target = Target::AnsweredLocally;
            self.touch(Item::Verdict(verdict));
        }
    }
}
