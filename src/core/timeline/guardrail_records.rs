//! Decisions to verdicts: declared ones, a provider's refusals, and what native events show of a
//! guard.

use super::apply::Place;
use super::guardrail::{Shown, Target, Verdict};
use super::invocation::{Context, Item, Segment};
use super::row::{RowState, push_tight};
use super::tool_call::ToolCall;
use crate::core::Name;
use crate::core::event::{Decision, DecisionWord, Stage, ToolOutcome};
use crate::core::fact::{Basis, Flag, Flags};

impl Segment {
    /// `guardrail.decision`.
    pub(super) fn decide(&mut self, said: &Decision<'_>, place: &Place, cx: &mut Context<'_>) {
        self.output_judged(said, place, cx);
        let stage = said.stage.unwrap_or(Stage::Unknown);
        let mut verdict = self.new_verdict(stage, Basis::Declared, place, cx);
        verdict.decision = said.decision;
        verdict.decision_native = said.decision_native.as_deref().map(Name::from);
        verdict.action = cx.names.optional(said.action.as_deref());
        verdict.mode = cx.names.optional(said.mode.as_deref());
        verdict.outcome = cx.names.optional(said.outcome.as_deref());
        verdict.policy = cx.names.optional(said.policy.as_deref());
        verdict.policy_version = cx.names.optional(said.policy_version.as_deref());
        verdict.rule = cx.names.optional(said.rule.as_deref());
        verdict.reason_code = cx.names.optional(said.reason_code.as_deref());
        verdict.reason = said.reason.as_deref().map(Name::from);
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
        // A guard that failed allowed nothing, whatever it says.
        let has_failed = matches!(
            verdict.outcome.as_deref(),
            Some("failed_open" | "failed_closed")
        );
        verdict.decision = verdict
            .decision
            .filter(|word| !(has_failed && *word == DecisionWord::Allow));
        verdict.is_recorded = true;
        self.take_verdict(verdict, place, cx);
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
        let delivered = call.has_delivered_content();
        let (branch, agent) = (call.branch.clone(), call.agent.clone());
        let (call_id, name, provider) = (
            call.call_id.clone(),
            call.requested_model.clone(),
            call.provider.clone(),
        );
        let known = self.verdicts.iter().position(|verdict| {
            verdict.basis == Basis::Provider && verdict.target == Target::Call(index)
        });
        if let Some(known) = known {
            // What identifies the row stays as the first evidence said it.
            let verdict = &mut self.verdicts[known];
            verdict.reason_code = Some(reason);
            verdict.content_already_delivered = Some(delivered);
            verdict.row.speak(cx.offset);
            self.touch(Item::Verdict(known));
            return;
        }
        let mut verdict = self.new_verdict(stage, Basis::Provider, place, cx);
        verdict.decision = Some(DecisionWord::Deny);
        verdict.action = Some(cx.names.name("block"));
        verdict.reason_code = Some(reason);
        verdict.actor_type = Some(cx.names.name("provider"));
        verdict.actor_name = provider;
        verdict.target_kind = Some(cx.names.name("model"));
        verdict.target_call_id = call_id;
        verdict.target_name = name;
        verdict.target = Target::Call(index);
        verdict.shown = Shown::With(index);
        verdict.content_already_delivered = Some(delivered);
        (verdict.branch, verdict.agent) = (branch, agent);
        if self.tells_known(&verdict, cx).is_none() {
            self.push_verdict(verdict);
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

    /// A tool's answer says that it was refused: so somebody denied it, whether or not a record
    /// tells who. One deny for each execution that was refused.
    pub(super) fn tool_refused(&mut self, index: usize, place: &Place, cx: &mut Context<'_>) {
        let call = &self.tools[index];
        let is_refused = |other: &&ToolCall| {
            let is_same = other.key == call.key && other.call_id == call.call_id;
            let end = other.end.as_ref();
            is_same && end.is_some_and(|end| end.outcome == ToolOutcome::Refused)
        };
        let refused = self.tools.iter().filter(is_refused).count();
        let denies = |verdict: &&Verdict| {
            let is_of_call = match &verdict.target_call_id {
                Some(id) => call.call_id.as_ref() == Some(id),
                None => verdict.tool == Some(index),
            };
            verdict.stage == Stage::ToolInput && verdict.forbids() && is_of_call
        };
        if self.verdicts.iter().filter(denies).count() >= refused {
            return;
        }
        let (call_id, name) = (call.call_id.clone(), call.tool.clone());
        let (actor_type, actor_name) = call.answered_by.clone();
        let mut verdict = self.inferred_verdict(Stage::ToolInput, DecisionWord::Deny, place, cx);
        verdict.action = Some(cx.names.name("block"));
        (verdict.actor_type, verdict.actor_name) = (actor_type, actor_name);
        verdict.target_kind = Some(cx.names.name("tool"));
        verdict.target_call_id = call_id;
        verdict.target_name = Some(name).filter(|name| !name.is_empty());
        verdict.tool = Some(index);
        verdict.target = Target::Tool;
        self.effects_of(&verdict, place);
        self.push_verdict(verdict);
    }

    /// Takes a verdict in, once its target is known, unless another source told of it already.
    /// Returns its index; beyond the limit it has its effect on a tool, and no row.
    pub(super) fn take_verdict(
        &mut self,
        mut verdict: Verdict,
        place: &Place,
        cx: &mut Context<'_>,
    ) -> Option<usize> {
        self.find_tool(&mut verdict);
        verdict.target = self.target_of(&verdict);
        if let Some(known) = self.tells_known(&verdict, cx) {
            return Some(known);
        }
        self.effects_of(&verdict, place);
        self.push_verdict(verdict)
    }

    /// The verdict that another source told of already; it takes what this one knows besides.
    fn tells_known(&mut self, verdict: &Verdict, cx: &Context<'_>) -> Option<usize> {
        let known = self
            .verdicts
            .iter()
            .position(|known| known.is_told_by(verdict))?;
        let row = &mut self.verdicts[known].row;
        // Several signs of one event are one record's.
        if row.last != cx.offset {
            row.speak(cx.offset);
        }
        self.verdicts[known].complete_from(verdict.clone());
        self.touch(Item::Verdict(known));
        Some(known)
    }

    fn push_verdict(&mut self, verdict: Verdict) -> Option<usize> {
        let index = self.verdicts.len();
        if index >= self.rows_max {
            self.is_full = true;
            return None;
        }
        if verdict.forbids() {
            push_tight(&mut self.verdicts_forbidding, index);
        }
        push_tight(&mut self.verdicts, verdict);
        self.touch(Item::Verdict(index));
        Some(index)
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
            tool: None,
            shown: Shown::No,
            is_recorded: false,
            content_already_delivered: None,
            flags: Flags::default(),
            is_counted: false,
            is_bypass_counted: false,
            is_bypass: false,
        }
    }

    /// A deny at model_input whose target is a start that nothing answered closes that start
    /// (rules.md §8): when the agent is known to have gone on.
    pub(super) fn close_denied_starts(&mut self, cx: &mut Context<'_>) {
        for position in 0..self.verdicts_forbidding.len() {
            let verdict = &self.verdicts[self.verdicts_forbidding[position]];
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
}
