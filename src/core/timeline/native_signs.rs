//! What native events show of guards and of people: a guard's own word, a confirmation asked and
//! given.

use super::apply::Place;
use super::guardrail::{Shown, Target};
use super::invocation::{Context, Segment};
use super::native::{Response, is_synthetic};
use crate::core::Name;
use crate::core::dialect::guard::decision_word;
use crate::core::event::{DecisionWord, FunctionResponse, NativeEvent, Stage};
use crate::core::fact::{Basis, Flag};

/// The name under which ADK TypeScript's security plugin registers.
const SECURITY_PLUGIN: &str = "security_plugin";

impl Segment {
    /// What the guard itself volunteered about this answer (runtimes.md §7): a deny of an answer
    /// without usage stands in front of the model, everything else behind it. Returns the verdict
    /// that makes the answer a local one.
    pub(super) fn native_verdict(
        &mut self,
        native: &NativeEvent<'_>,
        response: &Response,
        place: &Place,
        cx: &mut Context<'_>,
    ) -> Option<usize> {
        let custom = &native.custom;
        let said = custom.guardrail.as_ref();
        if said.is_none() && !custom.model_armor_blocked {
            return None;
        }
        let word = said
            .and_then(|said| said.verdict.as_deref())
            .unwrap_or("block");
        let decision = decision_word(word);
        let is_deny = decision == Some(DecisionWord::Deny);
        let at_input = is_deny && !response.has_usage_object && native.model_version.is_none();
        let stage = if at_input {
            Stage::ModelInput
        } else {
            Stage::ModelOutput
        };
        let decider = said.and_then(|said| said.decider.as_deref());
        let armor = said.is_none().then_some("model_armor");
        let mut verdict =
            self.inferred_verdict(stage, decision.unwrap_or(DecisionWord::Allow), place, cx);
        verdict.decision = decision;
        if said.is_some() {
            verdict.basis = Basis::Declared;
        }
        if decision.is_none() {
            verdict.flags.insert(Flag::UnmappedDecision);
        }
        verdict.actor_type = Some(cx.names.name("hook"));
        verdict.actor_name = cx.names.optional(decider.or(armor));
        verdict.policy = cx
            .names
            .optional(said.and_then(|said| said.policy.as_deref()));
        verdict.target_kind = Some(cx.names.name("model"));
        let call = self.call_of_response(native, response, place);
        verdict.shown = call.map_or(Shown::Alone, Shown::With);
        let index = self.take_verdict(verdict, place, cx)?;
        // The answer itself is at hand: nothing is left to prove of the next one.
        self.proofs.retain(|proof| proof.verdict != Some(index));
        (at_input && self.verdicts[index].forbids()).then_some(index)
    }

    /// The call that an answer opened has a number now: further events of it repeat its verdict.
    pub(super) fn verdicts_shown_with(&mut self, call: usize, cx: &Context<'_>) {
        for verdict in &mut self.verdicts {
            if verdict.shown == Shown::Alone && verdict.row.last == cx.offset {
                verdict.shown = Shown::With(call);
                if verdict.stage == Stage::ModelOutput && verdict.target == Target::Passive {
                    verdict.target = Target::Answer(call);
                }
            }
        }
    }

    /// A person answered a request that ADK made up: yes or no to a confirmation.
    pub(super) fn human_answer(
        &mut self,
        answer: &FunctionResponse<'_>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        let id = answer.id.as_deref().unwrap_or("");
        let take = |requests: &mut Vec<(Name, Name, Name)>| {
            let at = requests.iter().position(|(request, ..)| &**request == id)?;
            Some(requests.remove(at))
        };
        let request = take(&mut self.requests).or_else(|| take(&mut self.requests_before));
        let Some(yes) = answer.confirmed else { return };
        let decision = if yes {
            DecisionWord::Allow
        } else {
            DecisionWord::Deny
        };
        let mut verdict = self.inferred_verdict(Stage::ToolInput, decision, place, cx);
        verdict.action = Some(cx.names.name(if yes { "allow" } else { "block" }));
        verdict.actor_type = Some(cx.names.name("human"));
        verdict.target_kind = Some(cx.names.name("tool"));
        verdict.reason_code = Some(cx.names.name("confirmation_answered"));
        if let Some((_, call_id, tool)) = request {
            verdict.target_call_id = Some(call_id);
            verdict.target_name = Some(tool);
        } else {
            // The request is no longer in memory: what was confirmed nobody knows.
            verdict.target = Target::Unknown;
        }
        self.take_verdict(verdict, place, cx);
    }

    /// What else a native event shows: the TypeScript security plugin's word, requests to a person.
    pub(super) fn native_signs(
        &mut self,
        native: &NativeEvent<'_>,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        self.security_words(native, place, cx);
        for call in native
            .function_calls
            .iter()
            .filter(|call| is_synthetic(&call.name))
        {
            let id = cx.names.id(call.id.as_deref().unwrap_or(""));
            if self.requests.len() >= self.rows_max {
                self.is_full = true;
                continue;
            }
            if self.requests.iter().any(|(known, ..)| *known == id) {
                continue;
            }
            let (of, tool) = match &call.confirms {
                Some((id, name)) => (cx.names.id(id), cx.names.name(name)),
                None => (cx.names.empty(), cx.names.empty()),
            };
            self.requests.push((id, of.clone(), tool));
            if !of.is_empty() {
                self.confirmation_asked(&of, place, cx);
            }
        }
        for id in &native.actions.requested_confirmations {
            let id = cx.names.id(id);
            self.confirmation_asked(&id, place, cx);
        }
    }

    /// What the TypeScript security plugin decided about the calls that the event answers or asks a
    /// person about. Its state goes on from event to event and from run to run: of every other call
    /// it only says again what was said.
    fn security_words(&mut self, native: &NativeEvent<'_>, place: &Place, cx: &mut Context<'_>) {
        for (id, word) in &native.actions.security_states {
            let mut answers = native.function_responses.iter();
            let mut requests = native.function_calls.iter();
            let is_here = answers.any(|answer| answer.id.as_deref() == Some(id))
                || requests.any(|call| call.confirms.as_ref().is_some_and(|(of, _)| of == id))
                || native.actions.requested_confirmations.contains(id);
            let Some(decision) = decision_word(word).filter(|_| is_here) else {
                continue;
            };
            let mut verdict = self.inferred_verdict(Stage::ToolInput, decision, place, cx);
            verdict.decision_native = Some(cx.names.name(word));
            verdict.actor_type = Some(cx.names.name("plugin"));
            verdict.actor_name = Some(cx.names.name(SECURITY_PLUGIN));
            verdict.target_kind = Some(cx.names.name("tool"));
            verdict.target_call_id = Some(cx.names.id(id));
            self.take_verdict(verdict, place, cx);
        }
    }

    /// A confirmation was asked for a tool call: one escalate per call, however many events show
    /// it.
    fn confirmation_asked(&mut self, call_id: &Name, place: &Place, cx: &mut Context<'_>) {
        let mut verdict =
            self.inferred_verdict(Stage::ToolInput, DecisionWord::Escalate, place, cx);
        verdict.action = Some(cx.names.name("confirm"));
        verdict.reason_code = Some(cx.names.name("confirmation_requested"));
        verdict.target_kind = Some(cx.names.name("tool"));
        verdict.target_call_id = Some(call_id.clone());
        self.take_verdict(verdict, place, cx);
    }
}
