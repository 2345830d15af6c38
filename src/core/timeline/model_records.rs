//! Model records to model calls: which call a record is about, and what it adds.

use super::apply::{Place, code_of};
use super::counting;
use super::finish_word::is_block_word;
use super::invocation::{Context, Item, LIMITED, Segment};
use super::model_call::{Failure, ModelCall};
use super::row::{RowState, push_tight};
use super::stamp::{Stamp, latest};
use crate::core::event::{ModelChunk, ModelEnd, ModelError, ModelStart, RuntimeEvent, ServedBy};
use crate::core::fact::{AnomalyKind, Flag};
use crate::core::usage::{UsageReport, tier_word};
use crate::core::{EventTime, Name};

/// Attempts of one call at which runtimes give up (mission.md §3); reaching them is an anomaly.
pub(super) const RETRIES_MAX: usize = 10;

/// Attempts of one call, ten times as many; further ones fold into the last.
pub(super) const ATTEMPTS_MAX: usize = 100;

/// Which record of a call asks for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    Start,
    Middle,
    End,
}

impl Segment {
    pub(super) fn model_start(
        &mut self,
        said: &ModelStart<'_>,
        event: &RuntimeEvent<'_>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        self.something_started();
        let index = self.call_of(said.call_id.as_deref(), Asks::Start, None, place, cx);
        self.touch_branch(&place.branch, place.at, cx.offset, true, cx);
        let model = cx.names.optional(said.model.as_deref());
        let call = &mut self.calls[index];
        call.start(said.attempt, place.at);
        call.requested_model = model.clone().or_else(|| call.requested_model.take());
        cx.names.note(&mut call.provider, said.provider.as_deref());
        cx.names
            .note(&mut call.operation, said.operation.as_deref());
        call.streaming = said.streaming.or(call.streaming);
        self.distrust_timer(index, place, cx);
        self.note_call(index, event, place, cx);
        if let Some(model) = model {
            let (app, tenant) = (self.app_name(cx.defaults), self.tenant_name(cx.defaults));
            counting::announce(&app, &tenant, &model, &place.agent, &mut cx.samples);
        }
    }

    pub(super) fn model_chunk(
        &mut self,
        said: &ModelChunk<'_>,
        event: &RuntimeEvent<'_>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        let index = self.call_of(said.call_id.as_deref(), Asks::Middle, None, place, cx);
        let call = &mut self.calls[index];
        let shrank = call.chunk(said.attempt, said.content, said.usage.as_ref(), place.at);
        self.note_call(index, event, place, cx);
        if shrank {
            self.call_anomaly(index, AnomalyKind::UsageShrank, place.at, cx);
        }
    }

    pub(super) fn model_end(
        &mut self,
        said: &ModelEnd<'_>,
        event: &RuntimeEvent<'_>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        let index = self.call_of(
            said.call_id.as_deref(),
            Asks::End,
            said.usage.as_ref(),
            place,
            cx,
        );
        let served_by = said.served_by.unwrap_or(ServedBy::Model);
        let call = &mut self.calls[index];
        call.has_lifecycle = true;
        if matches!(served_by, ServedBy::Hook | ServedBy::Cache) && !call.has_told_response() {
            self.note_call(index, event, place, cx);
            self.call_answered_locally(index, served_by, said.usage.as_ref(), place, cx);
            return;
        }
        call.served_by = Some(served_by);
        call.row.end();
        let attempt = call.attempt(said.attempt);
        // Of two ends the one made later replaces the other, whichever came first.
        let is_newest = attempt.end.is_none_or(|known| !place.at.is_before(known));
        attempt.end = latest(attempt.end, place.at);
        let declare = |known: &mut Option<Stamp>, told: Option<EventTime>| {
            let told = told.map(|at| place.at.declared(at));
            *known = if is_newest {
                told.or(*known)
            } else {
                known.or(told)
            };
        };
        declare(&mut attempt.declared_start, said.started_at);
        declare(&mut attempt.declared_first, said.first_chunk_at);
        declare(&mut attempt.declared_last, said.last_chunk_at);
        let shrank = said
            .usage
            .as_ref()
            .is_some_and(|usage| attempt.report(usage, place.at));
        let tier = said.service_tier.as_deref().and_then(tier_word);
        for (known, told) in [
            (&mut call.response_model, said.model.as_deref()),
            (&mut call.provider, said.provider.as_deref()),
            (&mut call.operation, said.operation.as_deref()),
            (&mut call.finish_reason, said.finish_reason.as_deref()),
            (&mut call.service_tier, tier.as_deref()),
        ] {
            if is_newest || known.is_none() {
                cx.names.note(known, told);
            }
        }
        call.chunks_declared = said.chunks.or(call.chunks_declared);
        call.streaming = said.streaming.or(call.streaming);
        if let Some(error) = &said.error {
            call.response_error = code_of(error, cx);
        }
        self.distrust_timer(index, place, cx);
        self.note_call(index, event, place, cx);
        self.note_block(index, place, cx);
        if shrank {
            self.call_anomaly(index, AnomalyKind::UsageShrank, place.at, cx);
        }
    }

    pub(super) fn model_error(
        &mut self,
        said: &ModelError<'_>,
        event: &RuntimeEvent<'_>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        let index = self.call_of(
            said.call_id.as_deref(),
            Asks::End,
            said.usage.as_ref(),
            place,
            cx,
        );
        let code = code_of(&said.error, cx).unwrap_or_else(|| cx.names.name("unknown"));
        let model = cx.names.optional(said.model.as_deref());
        let call = &mut self.calls[index];
        call.has_lifecycle = true;
        call.requested_model = call.requested_model.take().or(model);
        cx.names.note(&mut call.provider, said.provider.as_deref());
        let attempt = call.attempt(said.attempt);
        let is_cancelled = said.error.kind.as_deref() == Some("cancelled");
        attempt.error = Some(Failure {
            at: place.at,
            code,
            is_cancelled,
        });
        if let Some(usage) = &said.usage {
            attempt.report(usage, place.at);
        }
        call.recovered |= said.recovered == Some(true);
        if !self.calls_failed.contains(&index) {
            push_tight(&mut self.calls_failed, index);
        }
        self.note_call(index, event, place, cx);
    }

    /// The call a record is about: by its call id, else by (branch, agent) and order (events.md
    /// §2.2).
    fn call_of(
        &mut self,
        call_id: Option<&str>,
        asks: Asks,
        usage: Option<&UsageReport>,
        place: &Place,
        cx: &mut Context<'_>,
    ) -> usize {
        self.has_told_calls = true;
        if let Some(id) = call_id {
            return self.call_by_id(id, asks, usage, place, cx);
        }
        if asks != Asks::Start
            && let Some(index) = self.open_call(usage, place)
        {
            return index;
        }
        let order = self.calls.len();
        let key = format!("{}/{}/{}/{order}", self.id, place.branch, place.agent);
        self.new_call(Name::from(key), place, cx)
    }

    /// The call of this id, which this record may be the first to tell of.
    fn call_by_id(
        &mut self,
        id: &str,
        asks: Asks,
        usage: Option<&UsageReport>,
        place: &Place,
        cx: &mut Context<'_>,
    ) -> usize {
        if let Some(index) = self.calls_by_id.get(id) {
            return *index;
        }
        if self.calls.len() > cx.limits.calls_per_run_max {
            return self.limited_call(place, cx);
        }
        // A start is of an answer that came before it only where it was made before it.
        let native_only = self.unclaimed_native(usage, place).filter(|index| {
            let side = self.calls[*index].native.as_ref();
            let first = side.and_then(|side| side.first);
            asks != Asks::Start || first.is_some_and(|first| place.at.is_before(first))
        });
        let index = match native_only {
            Some(index) => index,
            None => self.new_call(cx.names.id(id), place, cx),
        };
        let id = cx.names.id(id);
        self.calls[index].call_id = Some(id.clone());
        self.calls_by_id.insert(id, index);
        self.verdicts_on_call(index);
        index
    }

    /// The call whose answer a hook saw.
    pub(super) fn call_that_answered(
        &mut self,
        id: &str,
        place: &Place,
        cx: &mut Context<'_>,
    ) -> usize {
        self.call_by_id(id, Asks::Middle, None, place, cx)
    }

    /// The call that a record without call id goes on with: the oldest open one of (branch, agent),
    /// else one that only native events told of.
    fn open_call(&mut self, usage: Option<&UsageReport>, place: &Place) -> Option<usize> {
        let is_open = |call: &ModelCall| {
            call.has_lifecycle
                && !call.is_answered_locally
                && call.call_id.is_none()
                && call.branch == place.branch
                && call.agent == place.agent
                && call
                    .attempts
                    .last()
                    .is_some_and(|a| a.end.is_none() && a.error.is_none())
        };
        // A tool's answer or a user's message since its response: the start was the first call's
        // only, and hooks fired around the whole tool loop (rules.md §2, google/adk-java#1321).
        let (covered, open): (Vec<usize>, Vec<usize>) = (0..self.calls.len())
            .filter(|i| is_open(&self.calls[*i]))
            .partition(|i| {
                let side = self.calls[*i].native.as_ref();
                side.is_some_and(|side| side.is_closed && side.non_partials > 0)
            });
        let suspects = [
            (&open[..], Flag::AmbiguousPairing, 2),
            (&covered[..], Flag::LifecycleIncomplete, 1),
        ];
        for (calls, flag, count_min) in suspects {
            for index in calls.iter().filter(|_| calls.len() >= count_min) {
                if !self.calls[*index].flags.contains(flag) {
                    self.calls[*index].flags.insert(flag);
                    self.touch(Item::Call(*index));
                }
            }
        }
        let newest = || {
            let mut of_place = self.native_calls.iter().rev();
            let (.., index) = of_place
                .find(|(branch, _, author, _)| *branch == place.branch && *author == place.agent)?;
            let call = &self.calls[*index];
            (!call.has_lifecycle && call.may_be_of(usage)).then_some(*index)
        };
        match (open.first(), covered.first()) {
            (Some(index), _) => Some(*index),
            (None, Some(first)) => newest().or(Some(*first)),
            (None, None) => self.unclaimed_native(usage, place),
        }
    }

    /// The oldest call of (branch, agent) that only native events told of.
    fn unclaimed_native(&mut self, usage: Option<&UsageReport>, place: &Place) -> Option<usize> {
        let calls = &self.calls;
        self.calls_unclaimed
            .retain(|index| !calls[*index].has_lifecycle);
        let mut unclaimed = self.calls_unclaimed.iter().copied();
        unclaimed.find(|index| {
            let call = &self.calls[*index];
            call.may_be_of(usage) && call.may_be_at(place)
        })
    }

    /// The one row into which a run's further calls fold: what it says is a lower bound.
    fn limited_call(&mut self, place: &Place, cx: &mut Context<'_>) -> usize {
        self.reach("calls_per_run_max", cx);
        self.limited_call.unwrap_or_else(|| {
            let key = Name::from(format!("{}/{LIMITED}", self.id));
            let index = self.push_call(key, place, cx);
            self.calls[index].flags.insert(Flag::Limited);
            self.limited_call = Some(index);
            index
        })
    }

    pub(super) fn new_call(&mut self, key: Name, place: &Place, cx: &mut Context<'_>) -> usize {
        if self.calls.len() >= cx.limits.calls_per_run_max {
            return self.limited_call(place, cx);
        }
        self.push_call(key, place, cx)
    }

    fn push_call(&mut self, key: Name, place: &Place, cx: &mut Context<'_>) -> usize {
        self.settle_failed(&place.branch, &place.agent);
        let row = RowState::new(cx.offset);
        let branch = place.branch.clone();
        let mut call = ModelCall::new(row, key, branch, place.agent.clone(), place.at);
        call.node_path = place.node_path.clone();
        call.order = self.calls.len() as u32;
        call.agent_run = self.agent_run(&place.branch, &place.agent, place.at, cx.offset, true);
        push_tight(&mut self.calls, call);
        self.calls.len() - 1
    }

    /// Notes what every record of a call says, and that its row may have changed.
    pub(super) fn note_call(
        &mut self,
        index: usize,
        event: &RuntimeEvent<'_>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        let call = &mut self.calls[index];
        if call.attempts.len() >= ATTEMPTS_MAX {
            call.flags.insert(Flag::Limited);
            self.is_full = true;
        }
        call.row.speak(cx.offset);
        call.seen(place.at);
        call.measured = event.measured.or(call.measured);
        if call.trace_id.is_none() {
            call.trace_id = event.trace_id.as_deref().map(|id| cx.names.id(id));
            call.span_id = event.span_id.as_deref().map(|id| cx.names.id(id));
        }
        if !place.at.is_valid {
            call.flags.insert(Flag::InvalidEventTime);
        }
        if call.agent.is_empty() && !place.agent.is_empty() {
            call.agent = place.agent.clone();
        }
        if call.branch.is_empty() && !place.branch.is_empty() {
            call.branch = place.branch.clone();
        }
        if call.attributes.is_empty() && !event.attributes.is_empty() {
            call.attributes = event
                .attributes
                .iter()
                .take(cx.limits.attributes_max)
                .map(|(key, value)| (cx.names.name(key), cx.names.name(value)))
                .collect();
        }
        let run = call.agent_run;
        if let Some(run) = run {
            let run = &mut self.agents[run];
            run.last = super::stamp::latest(Some(run.last), place.at).unwrap_or(place.at);
        }
        self.touch(Item::Call(index));
        if let Some(run) = run {
            self.touch(Item::Agent(run));
        }
        if self.calls[index].has_attempts(RETRIES_MAX) {
            self.call_anomaly(index, AnomalyKind::RetryCap, place.at, cx);
        }
        self.judge_by_call(index);
    }

    /// No further attempt is expected of the failed calls of an agent: it ended, or went on
    /// with another call.
    pub(super) fn settle_failed(&mut self, branch: &Name, agent: &Name) {
        for index in std::mem::take(&mut self.calls_failed) {
            let call = &mut self.calls[index];
            let has_failed = call.attempts.last().is_some_and(|a| a.error.is_some());
            if call.is_settled || !has_failed {
                continue;
            }
            if call.branch == *branch && call.agent == *agent {
                call.is_settled = true;
                self.touch(Item::Call(index));
            } else {
                self.calls_failed.push(index);
            }
        }
    }

    /// No further attempt is expected of any call: the run ended.
    pub(super) fn settle_calls(&mut self) {
        for index in 0..self.calls.len() {
            if !self.calls[index].is_settled {
                self.calls[index].is_settled = true;
                self.touch(Item::Call(index));
            }
        }
    }

    pub(super) fn call_anomaly(
        &mut self,
        index: usize,
        kind: AnomalyKind,
        at: Stamp,
        cx: &mut Context<'_>,
    ) {
        let call = &self.calls[index];
        let about = format!("model_call/{}", call.key);
        let (branch, agent) = (call.branch.clone(), call.agent.clone());
        let seen = self.anomaly_at(kind, about, (&branch, &agent), at, cx.offset);
        self.anomaly(seen);
    }

    /// A provider's refusal is a verdict (rules.md §6).
    pub(super) fn note_block(&mut self, index: usize, place: &Place, cx: &mut Context<'_>) {
        let call = &self.calls[index];
        let finish = call
            .finish_reason
            .clone()
            .filter(|word| is_block_word(word));
        let code = call
            .response_error
            .clone()
            .filter(|word| is_block_word(word));
        let Some(reason) = finish.or(code) else {
            return;
        };
        self.provider_verdict(index, reason, place, cx);
    }

    pub(super) fn model_recovered(&mut self, call_id: Option<&str>, cx: &mut Context<'_>) {
        let Some(index) = call_id.and_then(|id| self.calls_by_id.get(id).copied()) else {
            return;
        };
        let call = &mut self.calls[index];
        call.recovered = true;
        call.is_settled = true;
        call.row.speak(cx.offset);
        self.touch(Item::Call(index));
    }
}
