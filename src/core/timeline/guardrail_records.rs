//! Decisions to verdicts: declared ones, a provider's refusals, and what native events show of a
//! guard.

use super::apply::Place;
use super::guardrail::{Shown, Target, Verdict};
use super::invocation::{Context, Item, Proof, Segment};
use super::row::{RowState, push_tight};
use super::tool_call::ToolCall;
use crate::core::Name;
use crate::core::event::{Decision, DecisionWord, Stage};
use crate::core::fact::{Basis, Flag, Flags};
use std::sync::Arc;

/// Longest native decision word that is kept (facts.md §1).
const NATIVE_WORD_MAX: usize = 64;

impl Segment {
    /// `guardrail.decision`.
    pub(super) fn decide(&mut self, said: &Decision<'_>, place: &Place, cx: &mut Context<'_>) {
        self.output_judged(said, place, cx);
        let stage = said.stage.unwrap_or(Stage::Unknown);
        let mut verdict = self.new_verdict(stage, Basis::Declared, place, cx);
        verdict.decision = said.decision;
        verdict.decision_native = said.decision_native.as_deref().map(native_word);
        verdict.action = cx.names.optional(said.action.as_deref());
        verdict.mode = cx.names.optional(said.mode.as_deref());
        verdict.outcome = cx.names.optional(said.outcome.as_deref());
        verdict.policy = cx.names.optional(said.policy.as_deref());
        verdict.policy_version = cx.names.optional(said.policy_version.as_deref());
        verdict.rule = cx.names.optional(said.rule.as_deref());
        verdict.reason_code = cx.names.optional(said.reason_code.as_deref());
        verdict.reason = said
            .reason
            .as_deref()
            .filter(|_| cx.limits.store_reasons)
            .map(Name::from);
        verdict.actor_type = cx.names.optional(said.actor_type.as_deref());
        verdict.actor_name = cx.names.optional(said.actor_name.as_deref());
        verdict.target_kind = cx.names.optional(said.target_kind.as_deref());
        verdict.target_call_id = said.target_call_id.as_deref().map(|id| cx.names.id(id));
        verdict.target_name = cx.names.optional(said.target_name.as_deref());
        verdict.findings = said.findings.clone();
        verdict.entity_types = said
            .entity_types
            .iter()
            .map(|kind| cx.names.name(kind))
            .collect();
        verdict.duration = said.duration;
        if said.is_unmapped {
            verdict.flags.insert(Flag::UnmappedDecision);
        }
        verdict.is_recorded = true;
        let shown = self.verdicts.iter().position(|known| {
            known.shown != Shown::No && !known.is_recorded && known.is_echoed_by(&verdict)
        });
        match shown {
            Some(known) => {
                self.verdicts[known].row.speak(cx.offset);
                self.verdicts[known].complete_from(verdict);
                self.touch(Item::Verdict(known));
            }
            None => self.take_verdict(verdict, place),
        }
    }

    /// A provider refused the prompt or withheld the answer: one verdict per call.
    pub(super) fn provider_verdict(
        &mut self,
        index: usize,
        reason: Name,
        place: &Place,
        cx: &mut Context<'_>,
    ) {
        let call = &self.calls[index];
        let at_output = call.block_at_output();
        let stage = if at_output {
            Stage::ModelOutput
        } else {
            Stage::ModelInput
        };
        let known = self.verdicts.iter().position(|verdict| {
            verdict.basis == Basis::Provider && verdict.target == Target::Call(index)
        });
        let delivered = call.has_delivered_content();
        let (call_id, name, provider) = (
            call.call_id.clone(),
            call.requested_model.clone(),
            call.provider.clone(),
        );
        let mut verdict = match known {
            Some(known) => self.verdicts.remove(known),
            None => self.new_verdict(stage, Basis::Provider, place, cx),
        };
        verdict.decision = Some(DecisionWord::Deny);
        verdict.action = Some(cx.names.name("block"));
        verdict.reason_code = Some(reason);
        verdict.actor_type = Some(cx.names.name("provider"));
        verdict.actor_name = provider;
        verdict.target_kind = Some(cx.names.name("model"));
        verdict.target_call_id = call_id;
        verdict.target_name = name;
        verdict.target = Target::Call(index);
        verdict.content_already_delivered = Some(delivered);
        match known {
            Some(known) => {
                verdict.row.speak(cx.offset);
                self.verdicts.insert(known, verdict);
                self.touch(Item::Verdict(known));
            }
            None => self.push_verdict(verdict),
        }
    }

    /// A verdict that a native event shows: a guard's own word about a call or a tool.
    pub(super) fn inferred_verdict(
        &mut self,
        stage: Stage,
        decision: DecisionWord,
        place: &Place,
        cx: &mut Context<'_>,
    ) -> Verdict {
        let mut verdict = self.new_verdict(stage, Basis::Inferred, place, cx);
        verdict.decision = Some(decision);
        verdict
    }

    /// Takes a verdict in, once its target is known.
    pub(super) fn take_verdict(&mut self, mut verdict: Verdict, place: &Place) {
        verdict.target = self.target_of(&verdict);
        self.effects_of(&verdict, place);
        self.push_verdict(verdict);
    }

    fn push_verdict(&mut self, verdict: Verdict) {
        push_tight(&mut self.verdicts, verdict);
        self.touch(Item::Verdict(self.verdicts.len() - 1));
    }

    fn new_verdict(
        &mut self,
        stage: Stage,
        basis: Basis,
        place: &Place,
        cx: &mut Context<'_>,
    ) -> Verdict {
        let mut row = RowState::new(cx.offset);
        row.speak(cx.offset);
        Verdict {
            row,
            at: place.at,
            stage,
            decision: None,
            decision_native: None,
            action: None,
            mode: None,
            outcome: None,
            policy: None,
            policy_version: None,
            rule: None,
            reason_code: None,
            reason: None,
            actor_type: None,
            actor_name: None,
            target_kind: None,
            target_call_id: None,
            target_name: None,
            order: self.verdicts.len() as u32,
            branch: place.branch.clone(),
            agent: place.agent.clone(),
            findings: Vec::new(),
            entity_types: Vec::new(),
            duration: None,
            basis,
            target: Target::Passive,
            shown: Shown::No,
            is_recorded: false,
            content_already_delivered: None,
            flags: Flags::default(),
            enforced_last: None,
            is_counted: false,
            is_bypass_counted: false,
        }
    }

    fn target_of(&self, verdict: &Verdict) -> Target {
        match verdict.stage {
            Stage::RunInput => Target::Run,
            Stage::ModelInput => {
                let by_id = verdict
                    .target_call_id
                    .as_ref()
                    .and_then(|id| self.calls_by_id.get(id));
                by_id.map_or(Target::NextCall, |index| Target::Call(*index))
            }
            Stage::ToolInput => Target::Tool,
            Stage::ModelOutput | Stage::ToolOutput | Stage::RunOutput | Stage::Unknown => {
                Target::Passive
            }
        }
    }

    /// What a verdict does to its target: a denied or gated tool, a start that a deny answers.
    fn effects_of(&mut self, verdict: &Verdict, place: &Place) {
        let index = self.verdicts.len();
        if verdict.stage == Stage::ToolInput {
            for tool in 0..self.tools.len() {
                let call = &mut self.tools[tool];
                if mark(verdict, call) {
                    self.touch(Item::Tool(tool));
                }
            }
        }
        if verdict.forbids() && matches!(verdict.stage, Stage::ModelInput | Stage::RunInput) {
            let agent = (verdict.stage == Stage::ModelInput).then(|| place.agent.clone());
            self.proofs.push(Proof {
                branch: place.branch.clone(),
                agent,
                answer: None,
                verdict: Some(index),
            });
        }
    }

    /// What the verdicts so far say about a tool call that appears only now.
    pub(super) fn verdicts_on_tool(&self, call: &mut ToolCall) {
        for verdict in &self.verdicts {
            if verdict.stage == Stage::ToolInput && call.execution == 1 {
                mark(verdict, call);
            }
        }
    }

    /// A deny at model_input whose target is a start that nothing answered closes that start
    /// (rules.md §8): when the agent is known to have gone on.
    pub(super) fn close_denied_starts(&mut self, cx: &mut Context<'_>) {
        for index in 0..self.verdicts.len() {
            let verdict = &self.verdicts[index];
            let Target::Call(call) = verdict.target else {
                continue;
            };
            let is_deny = verdict.forbids() && verdict.basis != Basis::Provider;
            let waits = self.calls[call].is_only_start() && !self.calls[call].is_answered_locally;
            if !is_deny || !waits || self.calls[call].served_by.is_some() {
                continue;
            }
            let place = Place {
                branch: self.calls[call].branch.clone(),
                node_path: None,
                agent: self.calls[call].agent.clone(),
                at: verdict.at,
            };
            let actor = (verdict.actor_type.clone(), verdict.actor_name.clone());
            let hook = crate::core::event::ServedBy::Hook;
            self.call_answered_locally(call, hook, None, &place, cx);
            if let Some(answer) = self.answers.last_mut() {
                (answer.actor_type, answer.actor_name) = actor;
            }
        }
    }

    /// Whether something that the verdict forbids started after it, and whether nothing more of it
    /// can.
    pub(super) fn followed(&self, verdict: &Verdict) -> (bool, bool) {
        let after = |at: Option<super::stamp::Stamp>| at.is_some_and(|at| verdict.at.is_before(at));
        let over = self.is_over();
        match verdict.target {
            Target::Run => {
                let calls = self.calls.iter().filter(|call| !call.is_answered_locally);
                let call = calls
                    .filter(|call| !call.is_only_start())
                    .any(|c| after(c.instants().0));
                let tool = self.tools.iter().any(|tool| after(tool.proof_of_start()));
                (call || tool, over)
            }
            Target::Call(index) => {
                let call = &self.calls[index];
                let answered = !call.is_answered_locally && call.has_response();
                let ended = call.has_ended() || call.is_answered_locally;
                (answered && after(call.instants().0), ended || over)
            }
            Target::NextCall => {
                let next = self.calls.iter().find(|call| {
                    call.branch == verdict.branch
                        && call.agent == verdict.agent
                        && !call.is_answered_locally
                        && after(call.instants().0)
                });
                (next.is_some_and(|call| !call.is_only_start()), over)
            }
            Target::Tool => {
                let mut named = self
                    .tools
                    .iter()
                    .filter(|call| is_target(verdict, call))
                    .peekable();
                let known = named.peek().is_some();
                let started = named.clone().any(|call| after(call.proof_of_start()));
                let ended = known && named.all(ToolCall::is_answered);
                (started, ended || over)
            }
            Target::AnsweredLocally => (false, true),
            Target::Passive => (false, over),
        }
    }
}

fn is_target(verdict: &Verdict, call: &ToolCall) -> bool {
    match (&verdict.target_call_id, &verdict.target_name) {
        (Some(id), _) => call.call_id.as_ref() == Some(id),
        (None, Some(name)) => call.tool == *name && call.agent == verdict.agent,
        (None, None) => false,
    }
}

/// Marks the tool call that a verdict names; true where it did.
fn mark(verdict: &Verdict, call: &mut ToolCall) -> bool {
    if !is_target(verdict, call) {
        return false;
    }
    match verdict.decision {
        Some(DecisionWord::Deny) if verdict.forbids() => call.is_denied = true,
        Some(DecisionWord::Escalate) => call.is_escalated = true,
        _ => return false,
    }
    true
}

/// The provider's or guard's own word, cut to what cannot be content (facts.md §1).
fn native_word(word: &str) -> Name {
    let is_word = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let kept: String = word.chars().filter(is_word).take(NATIVE_WORD_MAX).collect();
    Arc::from(kept)
}
