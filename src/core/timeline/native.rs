//! Native ADK events to evidence: which responses make one model call, which tool answers which
//! call, what a guard let be seen (runtimes.md §18, rules.md §2).

use super::apply::{Place, code_word};
use super::finish_word::is_provider_word;
use super::invocation::{Context, Item, Segment};
use super::model_call::{NativeSide, merge};
use super::stamp::{Stamp, earliest, latest};
use super::tool_call::{Answer, ToolCall};
use crate::core::Name;
use crate::core::event::{
    AgentStatus, FunctionCall, FunctionResponse, NativeEvent, RuntimeEvent, ServedBy, ToolOutcome,
};
use crate::core::fact::{AnomalyKind, Flag};

/// Calls that ADK makes up to ask a person; they pass no tool hook (runtimes.md §2).
pub(super) fn is_synthetic(name: &str) -> bool {
    name.starts_with("adk_request_")
}

/// What a native event is as a response of a model.
pub(super) struct Response {
    pub(super) has_content: bool,
    pub(super) asks_for_tools: bool,
    pub(super) has_usage_object: bool,
    pub(super) has_usage: bool,
    pub(super) is_partial: bool,
    /// Content-less, and completes the turn: what follows is another call (rules.md §2). A partial
    /// never does: ADK Go says `turnComplete` on the last partial, and the final is still to come
    /// (runtimes.md §2).
    ends_turn: bool,
}

impl Response {
    fn of(native: &NativeEvent<'_>) -> Response {
        let asks_for_tools = native
            .function_calls
            .iter()
            .any(|call| !is_synthetic(&call.name));
        let has_content = native.content.is_some() || asks_for_tools;
        let is_partial = native.partial == Some(true);
        Response {
            has_content,
            asks_for_tools,
            has_usage_object: native.usage.is_some(),
            has_usage: native.usage.as_ref().is_some_and(|usage| !usage.is_empty()),
            is_partial,
            ends_turn: native.turn_complete == Some(true) && !has_content && !is_partial,
        }
    }

    /// A model's own report, even where it says nothing: what tells it from an answer of unknown
    /// origin.
    fn is_report(&self, native: &NativeEvent<'_>) -> bool {
        native.model_version.is_some() || native.finish_reason.is_some() || self.has_usage_object
    }
}

impl Segment {
    pub(super) fn native(
        &mut self,
        native: &NativeEvent<'_>,
        event: &RuntimeEvent<'_>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        self.events += 1;
        if native.actions.is_compaction {
            self.compaction(place, cx);
            return;
        }
        let is_user = native.author.as_deref() == Some("user");
        let response = Response::of(native);
        let goes_on = !is_user && response.has_content && !response.is_partial;
        self.touch_branch(&place.branch, place.at, cx.offset, goes_on, cx);
        self.touch(Item::Invocation);
        let shared = place.shared_by(native.function_responses.len());
        for answer in &native.function_responses {
            self.native_answer(answer, is_user, &shared, cx);
        }
        self.native_signs(native, place, cx);
        if is_user {
            if native.function_responses.is_empty() && native.content.is_some() {
                self.user_message(native.content_hash);
            }
            self.close_native(None);
            return;
        }
        if !native.function_responses.is_empty() {
            self.close_native(Some(place));
        }
        let only_answers = !native.function_responses.is_empty() && !response.has_content;
        if !only_answers {
            self.native_response(native, &response, event, place, cx);
        }
        if !response.is_partial {
            let shared = place.shared_by(native.function_calls.len());
            for call in native
                .function_calls
                .iter()
                .filter(|call| !is_synthetic(&call.name))
            {
                self.native_call(call, native, &shared, cx);
            }
        }
        self.native_transfer(native, place, cx);
    }

    /// A compaction called a model behind every hook's back (runtimes.md §12).
    pub(super) fn compaction(&mut self, place: &Place, cx: &mut Context<'_>) {
        let about = format!("compaction/{}", cx.offset.0);
        let kind = AnomalyKind::UnmeteredCall;
        let mut seen = self.anomaly_at(
            kind,
            about,
            (&place.branch, &place.agent),
            place.at,
            cx.offset,
        );
        seen.detail = Some(cx.names.name("compaction"));
        self.anomaly(seen);
    }

    fn user_message(&mut self, hash: u64) {
        if !self.user_messages.insert(hash) {
            self.retries += 1;
        }
    }

    /// A function response, or a person's message, closes what already has a final response (rule 4
    /// of §18).
    fn close_native(&mut self, of: Option<&Place>) {
        for (branch, _, author, index) in &self.native_calls {
            let is_of = of.is_none_or(|place| *branch == place.branch && *author == place.agent);
            if let Some(side) = self.calls[*index].native.as_mut()
                && is_of
                && side.non_partials > 0
            {
                side.is_closed = true;
            }
        }
    }

    /// Finds the call a response belongs to, or what else it is, and notes it.
    fn native_response(
        &mut self,
        native: &NativeEvent<'_>,
        response: &Response,
        event: &RuntimeEvent<'_>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        let code = native.error_code.as_deref();
        let says_something = response.has_content
            || response.has_usage_object
            || code.is_some()
            || response.is_report(native);
        if !says_something {
            if response.ends_turn {
                self.end_turn(place);
            }
            return;
        }
        if response.has_content && self.is_local_answer(native, response, place, cx) {
            return;
        }
        let newer = self.replaced_by(native, response);
        let index = match newer.or_else(|| self.call_of_response(native, response, place)) {
            Some(index) => index,
            None => {
                let is_exception = code.is_some_and(|code| !is_provider_word(code));
                let is_nothing = !response.has_content && !response.has_usage;
                if is_exception && is_nothing && !response.is_report(native)
                    || native.has_output && !response.is_report(native)
                    || is_nothing && code.is_none() && !response.is_report(native)
                {
                    return;
                }
                let key = match &native.id {
                    Some(id) if !self.calls.iter().any(|call| *call.key == **id) => cx.names.id(id),
                    _ => {
                        let order = self.calls.len();
                        let (branch, agent) = (&place.branch, &place.agent);
                        Name::from(format!("{}/{branch}/{agent}/{order}", self.id))
                    }
                };
                let index = self.new_call(key, place, cx);
                let is_unknown = !response.has_usage_object
                    && !response.asks_for_tools
                    && !response.is_partial
                    && !response.is_report(native)
                    && code.is_none();
                if is_unknown {
                    self.calls[index].served_by = Some(ServedBy::Unknown);
                }
                index
            }
        };
        if native.custom.guardrail.is_some() || native.custom.model_armor_blocked {
            self.verdicts_shown_with(index, cx);
        }
        self.join_response(index, native, response, event, place, cx);
    }

    fn join_response(
        &mut self,
        index: usize,
        native: &NativeEvent<'_>,
        response: &Response,
        event: &RuntimeEvent<'_>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        let path = place.node_path.clone().unwrap_or_else(|| cx.names.empty());
        let key = (place.branch.clone(), path, place.agent.clone());
        self.native_calls
            .retain(|(b, p, a, _)| (b, p, a) != (&key.0, &key.1, &key.2));
        if self.native_calls.len() >= cx.limits.branches_per_run_max {
            self.native_calls.remove(0);
        }
        self.native_calls.push((key.0, key.1, key.2, index));
        let call = &mut self.calls[index];
        if call.native.is_none() && !call.has_lifecycle {
            self.calls_unclaimed.push(index);
        }
        let is_echo = {
            let side = call.native.get_or_insert_with(NativeSide::default);
            let is_echo = !response.is_partial
                && !response.has_usage_object
                && side.non_partials > 0
                && native.content_hash != 0
                && side.content_hash == native.content_hash;
            note_side(side, native, response, place.at);
            is_echo
        };
        let mut shrank = false;
        if let Some(usage) = native.usage.as_ref().filter(|usage| !usage.is_empty()) {
            let side = call.native.get_or_insert_with(NativeSide::default);
            shrank = merge(&mut side.usage, usage);
            side.usage_on_partial = response.is_partial;
        }
        let model = native
            .model_version
            .as_deref()
            .or(native.custom.model.as_deref());
        cx.names.note(&mut call.response_model, model);
        if let Some(reason) = native.finish_reason.as_deref() {
            call.finish_reason = Some(cx.names.name(reason));
        }
        if let Some(code) = native.error_code.as_deref() {
            call.response_error = Some(cx.names.name(code_word(code)));
        }
        if !response.is_partial {
            call.row.end();
            if let Some(id) = native.id.as_deref() {
                let id = cx.names.id(id);
                let side = call.native.get_or_insert_with(NativeSide::default);
                if let Some(older) = side.event_id.replace(id.clone()) {
                    self.calls_by_event.remove(&older);
                }
                self.calls_by_event.insert(id, index);
            }
        }
        self.note_call(index, event, place, cx);
        self.note_block(index, place, cx);
        self.note_final(index, native, response, place);
        if is_echo {
            self.call_anomaly(index, AnomalyKind::DuplicateAnswer, place.at, cx);
        }
        if shrank {
            self.call_anomaly(index, AnomalyKind::UsageShrank, place.at, cx);
        }
    }

    /// A final answer: content, not partial, asking for no tool.
    fn note_final(
        &mut self,
        index: usize,
        native: &NativeEvent<'_>,
        response: &Response,
        place: &Place,
    ) {
        if response.is_partial || !response.has_content {
            return;
        }
        let is_final = !response.asks_for_tools && native.error_code.is_none();
        self.final_answer = is_final.then_some(place.at);
        if let Some(run) = self.calls[index].agent_run {
            self.agents[run].has_answered = is_final;
            self.touch(Item::Agent(run));
        }
    }

    /// An answer that is proved to be no model's becomes a row of `local_answers` (rules.md §8).
    fn is_local_answer(
        &mut self,
        native: &NativeEvent<'_>,
        response: &Response,
        place: &Place,
        cx: &mut Context<'_>,
    ) -> bool {
        let own_word = self.native_verdict(native, response, place, cx);
        let position = self.proofs.iter().position(|proof| {
            proof.branch == place.branch && proof.agent.as_ref().is_none_or(|a| *a == place.agent)
        });
        let proof = position.map(|position| self.proofs.remove(position));
        let is_cache = native.custom.cache_hit;
        let model_answers = || {
            self.calls.iter().any(|call| {
                call.has_lifecycle
                    && call.has_response()
                    && call
                        .native
                        .as_ref()
                        .is_none_or(|side| side.non_partials == 0)
            })
        };
        let (answer, verdict) = match &proof {
            Some(proof) if proof.answer.is_some() => (proof.answer, own_word),
            Some(proof) if !response.has_usage && !model_answers() => (None, proof.verdict),
            _ if (is_cache || own_word.is_some()) && !model_answers() => (None, own_word),
            _ => return false,
        };
        let answer = answer.unwrap_or_else(|| self.new_answer(ServedBy::Hook, place, cx));
        if let Some(waiting) = self.waiting_start(place) {
            self.calls[waiting].is_answered_locally = true;
            self.answers[answer].call_id = self.calls[waiting].call_id.clone();
            self.answers[answer].requested_model = self.calls[waiting].requested_model.clone();
        }
        if let Some(verdict) = verdict {
            self.verdicts[verdict].target = super::guardrail::Target::AnsweredLocally;
            let actor = &self.verdicts[verdict];
            let (kind, name) = (actor.actor_type.clone(), actor.actor_name.clone());
            let row = &mut self.answers[answer];
            row.actor_type = row.actor_type.take().or(kind);
            row.actor_name = row.actor_name.take().or(name);
            self.touch(Item::Verdict(verdict));
        }
        let row = &mut self.answers[answer];
        row.row.speak(cx.offset);
        row.event_id = native.id.as_deref().map(|id| cx.names.id(id));
        if response.has_usage {
            row.usage = native.usage.clone();
        }
        if response.has_usage || is_cache {
            row.served_by = ServedBy::Cache;
        }
        self.touch(Item::Answer(answer));
        if !response.is_partial && !response.asks_for_tools {
            self.final_answer = Some(place.at);
        }
        true
    }

    /// A function call of the model.
    fn native_call(
        &mut self,
        call: &FunctionCall<'_>,
        native: &NativeEvent<'_>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        self.something_started();
        let tool = cx.names.name(&call.name);
        let known = call.id.as_deref().and_then(|id| self.newest(id));
        let is_unseen = |tool: &ToolCall| tool.asked.is_none();
        let told = call.id.as_deref().and_then(|id| self.told(id, is_unseen));
        let open = told.or(known.filter(|index| {
            let known = &self.tools[*index];
            !known.is_answered() || known.asked.is_none() && known.execution == 1
        }));
        let index = match open {
            Some(index) => index,
            None => self.new_tool(call.id.as_deref(), None, tool.clone(), place, cx),
        };
        let long_running = call
            .id
            .as_deref()
            .is_some_and(|id| native.long_running_tool_ids.iter().any(|known| known == id));
        let row = &mut self.tools[index];
        row.asked = earliest(row.asked, place.at);
        row.long_running |= long_running;
        let first_hash = known.map_or(0, |known| self.tools[known].args_hash);
        if first_hash != 0 && call.args_hash != 0 && first_hash != call.args_hash {
            self.tools[index].flags.insert(Flag::ToolIdReused);
        }
        let row = &mut self.tools[index];
        row.args_hash = call.args_hash;
        if row.tool.is_empty() {
            row.tool = tool;
        }
        self.note_tool(index, place, cx);
    }

    /// A function response: what records told already, the oldest execution first; else the answer
    /// of the newest unanswered call of its id (rules.md §7).
    fn native_answer(
        &mut self,
        answer: &FunctionResponse<'_>,
        is_user: bool,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        if is_synthetic(&answer.name) {
            self.human_answer(answer, place, cx);
            return;
        }
        let tool = cx.names.name(&answer.name);
        let known = match answer.id.as_deref() {
            Some(id) => {
                let is_unseen = |tool: &ToolCall| tool.end.is_some() && tool.answer.is_none();
                let open = self.newest(id).filter(|index| {
                    let call = &self.tools[*index];
                    call.answer.is_none() || call.is_pending()
                });
                self.told(id, is_unseen).or(open)
            }
            None => self.oldest_open(&tool, place, cx),
        };
        let index = match known {
            Some(index) => index,
            None => self.new_tool(answer.id.as_deref(), None, tool, place, cx),
        };
        let call = &mut self.tools[index];
        let is_promise = call.long_running && !is_user && call.end.is_none();
        if is_promise {
            if !answer.is_empty {
                call.deferred_at.get_or_insert(place.at);
            }
        } else {
            let outcome = if answer.is_error {
                ToolOutcome::Error
            } else {
                ToolOutcome::Ok
            };
            call.answer = Some(Answer {
                at: place.at,
                outcome,
                error_code: None,
                is_not_found: false,
                is_cancelled: false,
            });
        }
        self.note_tool(index, place, cx);
    }

    /// A hand-over ends the agent's part, unless agent records tell its end themselves.
    fn native_transfer(&mut self, native: &NativeEvent<'_>, place: &Place, cx: &mut Context<'_>) {
        let Some(target) = native.actions.transfer_to_agent.as_deref() else {
            return;
        };
        let run = self.agent_run(&place.branch, &place.agent, place.at, cx.offset, false);
        if let Some(index) = run {
            let run = &mut self.agents[index];
            run.handoff_to = cx.names.optional(Some(target));
            if run.start.is_none() && run.end.is_none() {
                run.end = Some((place.at, AgentStatus::Transferred));
            }
            self.touch(Item::Agent(index));
        }
    }
}

/// Notes one response on the native side of its call.
fn note_side(side: &mut NativeSide, native: &NativeEvent<'_>, response: &Response, at: Stamp) {
    side.first = earliest(side.first, at);
    side.last = latest(side.last, at);
    if response.is_partial {
        side.partials += 1;
    } else {
        side.non_partials += 1;
    }
    // Go v1 writes `Partial: false` on everything, so it proves no stream.
    side.is_stream |= response.is_partial || native.partial == Some(false) && !native.is_go_v1;
    if response.has_content {
        side.first_content = earliest(side.first_content, at);
        side.last_content = latest(side.last_content, at);
        if native.content.has_text {
            side.first_text = earliest(side.first_text, at);
        }
        if !response.is_partial {
            side.content_hash = native.content_hash;
        }
    }
    if response.ends_turn {
        side.is_closed = true;
        side.is_turn_over = true;
    }
}
