//! Evidence to facts: what each row says now. When it may go out stands in `export.rs`.

use super::branch::{self, Branch};
use super::counting::word;
use super::guardrail::Target;
use super::invocation::{AgentRun, LocalAnswer, Segment};
use super::model_call::{ModelCall, RunView};
use super::stamp::Stamp;
use super::tool_call::ToolCall;
use crate::core::event::Stage;
use crate::core::event::{AgentStatus, Dialect, ServedBy};
use crate::core::fact::{
    AgentRunFact, AgentRunStatus, AnomalyFact, Basis, BranchFact, FactBody, Flag, Flags,
    GuardrailFact, InvocationFact, LocalAnswerFact, ModelCallFact, RecoveryFact, Status, Sums,
    ToolCallFact,
};
use crate::core::usage::{TokenClass, UsageContext, UsageState, UsageSum};
use crate::core::{Limits, LogSource, Name, Nanos};
use std::sync::Arc;

/// The stretch of one occurrence of a branch; open at an end that nothing bounds.
struct Pass {
    from: Option<Stamp>,
    before: Option<Stamp>,
}

impl Pass {
    /// True where what began at this instant is of the pass; the last one has unknown instants.
    fn has(&self, at: Option<Stamp>) -> bool {
        let Some(at) = at else {
            return self.before.is_none();
        };
        self.from.is_none_or(|from| !at.is_before(from))
            && self.before.is_none_or(|before| at.is_before(before))
    }
}

/// What making a fact may use besides the segment.
#[derive(Clone, Copy)]
pub struct View<'v> {
    pub limits: &'v Limits,
    pub source: &'v LogSource,
}

/// Token sums and call counts over some of a segment's calls.
fn sums<'c>(facts: impl Iterator<Item = &'c ModelCallFact>) -> Sums {
    let mut out = Sums {
        usage_complete: true,
        ..Sums::default()
    };
    let mut sum = UsageSum::default();
    for fact in facts.filter(|fact| fact.served_by == ServedBy::Model) {
        out.model_call_count += 1;
        out.usage_missing_calls += u64::from(fact.is_unmetered);
        let has_none_by_nature = fact.usage.state == UsageState::Missing && !fact.is_unmetered;
        if !has_none_by_nature {
            sum.add(&fact.usage);
        }
    }
    out.usage_complete = sum.is_complete();
    out.input_total = sum.value(TokenClass::InputTotal);
    out.input_uncached = sum.value(TokenClass::InputUncached);
    out.cache_read = sum.value(TokenClass::CacheRead);
    out.cache_write = sum.value(TokenClass::CacheWrite);
    out.tool_use_input = sum.value(TokenClass::ToolUseInput);
    out.output_total = sum.value(TokenClass::OutputTotal);
    out.reasoning = sum.value(TokenClass::Reasoning);
    out.total = sum.value(TokenClass::Total);
    out
}

impl Segment {
    /// Every call that has a row, as a fact.
    pub(super) fn call_facts(&self, view: View<'_>) -> Vec<(usize, ModelCallFact)> {
        let run = self.run_view(view.limits);
        self.calls
            .iter()
            .enumerate()
            .filter(|(_, call)| call.has_row())
            .map(|(index, call)| (index, self.call_fact(call, run, view)))
            .collect()
    }

    pub(super) fn call_fact(
        &self,
        call: &ModelCall,
        run: RunView,
        view: View<'_>,
    ) -> ModelCallFact {
        let runtime = self.runtime_name(&view.source.defaults);
        let (usage, usage_flags) = match call.is_call() {
            true => call.usage(runtime, run),
            false => Default::default(),
        };
        let (status, error_code) = call.status(run);
        let latencies = call.latencies(run);
        let (start, first, end) = call.instants();
        let served_by = call.served_by(run);
        let mut flags = call.flags;
        flags.extend(usage_flags);
        flags.extend(latencies.flags);
        let only_native = !call.has_lifecycle && call.native.is_some();
        if only_native && !view.source.defaults.event_times_are_arrivals {
            flags.insert(Flag::EventTimeNotArrival);
        }
        if differs(
            call.requested_model.as_deref(),
            call.response_model.as_deref(),
        ) {
            flags.insert(Flag::ModelDiffers);
        }
        let is_unmetered = served_by == ServedBy::Model
            && matches!(usage.state, UsageState::Missing | UsageState::Invalid)
            && call.usage_is_due(run);
        let occurrence = call
            .agent_run
            .map_or(0, |index| self.agents[index].occurrence);
        let tier = call
            .service_tier
            .clone()
            .or_else(|| usage.service_tier.as_deref().map(Arc::from));
        ModelCallFact {
            call_key: call.key.clone(),
            call_id: call.call_id.clone(),
            branch: call.branch.clone(),
            agent: call.agent.clone(),
            agent_occurrence: occurrence,
            node_path: call.node_path.clone(),
            operation: call.operation.clone().unwrap_or_else(|| word("chat")),
            model: call
                .response_model
                .clone()
                .or_else(|| call.requested_model.clone()),
            requested_model: call.requested_model.clone(),
            provider: call.provider.clone(),
            served_by,
            status,
            attempts: (call.attempts.len() as u32).max(1),
            attempt_errors: call.attempt_errors(),
            streaming: call.is_streaming(),
            started_at: start.map(|stamp| stamp.at),
            first_chunk_at: first.map(|stamp| stamp.at),
            ended_at: end.map(|stamp| stamp.at),
            billed_at: call.billed_at(),
            ttfc: latencies.ttfc,
            ttft_visible: latencies.ttft_visible,
            completion: latencies.completion,
            total_with_retries: latencies.total_with_retries,
            measured: call.measured,
            chunks: call.chunks_declared.or_else(|| observed_chunks(call)),
            usage,
            is_unmetered,
            starved_by: call.starved_by().cloned(),
            tier,
            finish_reason: call
                .finish_reason
                .as_deref()
                .map(|raw| word(super::finish_word::finish_word(raw))),
            finish_reason_raw: call.finish_reason.clone(),
            error_code,
            recovered: call.recovered,
            sources: sources(call),
            trace_id: call.trace_id.clone(),
            span_id: call.span_id.clone(),
            event_id: call.native.as_ref().and_then(|side| side.event_id.clone()),
            order: call.order,
            attributes: call.attributes.clone(),
            flags,
        }
    }

    pub(super) fn tool_fact(&self, call: &ToolCall) -> ToolCallFact {
        let paused = self.is_over() && self.is_paused();
        let mut flags = call.flags;
        let duration = call.duration(paused, &mut flags);
        ToolCallFact {
            call_key: call.key.clone(),
            call_id: call.call_id.clone(),
            execution: call.execution,
            tool: call.tool.clone(),
            is_invented: call.is_invented(),
            origin: call.origin.clone(),
            agent: call.agent.clone(),
            branch: call.branch.clone(),
            agent_occurrence: call
                .agent_run
                .map_or(0, |index| self.agents[index].occurrence),
            status: call.status(paused),
            executed: call.executed(paused),
            started_at: call.started_at().map(|stamp| stamp.at),
            ended_at: call.ended_at().map(|stamp| stamp.at),
            duration,
            wait: call.wait(),
            long_running: call.long_running,
            retries: call.retries,
            error_code: call.end.as_ref().and_then(|end| end.error_code.clone()),
            flags,
        }
    }

    pub(super) fn answer_fact(&self, answer: &LocalAnswer, view: View<'_>) -> LocalAnswerFact {
        let context = UsageContext {
            had_content: true,
            plausible_tokens_max: view.limits.plausible_tokens_max,
            ..UsageContext::default()
        };
        LocalAnswerFact {
            branch: answer.branch.clone(),
            agent: answer.agent.clone(),
            order: answer.order,
            served_by: answer.served_by,
            hook: answer.hook.clone(),
            actor_type: answer.actor_type.clone(),
            actor_name: answer.actor_name.clone(),
            call_id: answer.call_id.clone(),
            requested_model: answer.requested_model.clone(),
            answered_at: Some(answer.at.at),
            replayed: answer
                .usage
                .as_ref()
                .map(|u| u.normalise(&context))
                .unwrap_or_default(),
            event_id: answer.event_id.clone(),
            flags: Flags::default(),
        }
    }

    pub(super) fn verdict_fact(&self, index: usize) -> GuardrailFact {
        let verdict = &self.verdicts[index];
        let (has_started_after, is_over) = self.followed(verdict);
        let enforced = verdict.enforced(has_started_after, is_over);
        let is_before_model = matches!(verdict.stage, Stage::ModelInput | Stage::RunInput);
        let has_answer = match verdict.target {
            Target::Call(index) => self.calls[index].has_response(),
            _ => false,
        };
        let prevented = is_before_model
            && enforced == Some(true)
            && verdict.basis != Basis::Provider
            && !has_answer;
        let (followed_kind, followed_key) = self.what_followed(verdict).unzip();
        GuardrailFact {
            stage: verdict.stage,
            decided_at: Some(verdict.at.at),
            decision: verdict.decision,
            decision_native: verdict.decision_native.clone(),
            action: verdict.action.clone(),
            mode: verdict.mode.clone(),
            outcome: verdict.outcome.clone(),
            enforced,
            policy: verdict.policy.clone(),
            policy_version: verdict.policy_version.clone(),
            rule: verdict.rule.clone(),
            reason_code: verdict.reason_code.clone(),
            reason: verdict.reason.clone(),
            actor_type: verdict.actor_type.clone(),
            actor_name: verdict.actor_name.clone(),
            target_kind: verdict.target_kind.clone(),
            target_call_id: verdict.target_call_id.clone(),
            target_name: verdict.target_name.clone(),
            order: verdict.order,
            branch: verdict.branch.clone(),
            agent: verdict.agent.clone(),
            findings: verdict.findings.clone(),
            entity_types: verdict.entity_types.clone(),
            duration: verdict.duration,
            basis: verdict.basis,
            model_call_prevented: prevented,
            content_already_delivered: verdict.content_already_delivered,
            followed_kind,
            followed_key,
            flags: verdict.flags,
        }
    }

    pub(super) fn agent_fact(
        &self,
        index: usize,
        calls: &[(usize, ModelCallFact)],
    ) -> AgentRunFact {
        let run = &self.agents[index];
        let own = calls
            .iter()
            .filter(|(i, _)| self.calls[*i].agent_run == Some(index));
        let own = sums(own.map(|(_, fact)| fact));
        let end = self.agent_end_of(run);
        let mut flags = Flags::default();
        let duration = match (run.start, run.end) {
            (Some(start), Some((end, _))) => end.since(start, &mut flags).filter(|s| s.0 >= 0),
            _ => None,
        };
        AgentRunFact {
            branch: run.branch.clone(),
            agent: run.agent.clone(),
            occurrence: run.occurrence,
            node_path: run.node_path.clone(),
            agent_kind: run.agent_kind.clone(),
            status: end,
            started_at: Some(run.start.unwrap_or(run.first).at),
            ended_at: run
                .end
                .map(|(stamp, _)| stamp.at)
                .or_else(|| (run.has_answered && run.start.is_none()).then_some(run.last.at)),
            duration,
            handoff_to: run.handoff_to.clone(),
            error_code: run.error_code.clone(),
            own,
            tool_call_count: self
                .tools
                .iter()
                .filter(|t| t.agent_run == Some(index))
                .count() as u64,
            flags,
        }
    }

    fn agent_end_of(&self, run: &AgentRun) -> AgentRunStatus {
        match run.end {
            Some((_, AgentStatus::Completed)) => AgentRunStatus::Completed,
            Some((_, AgentStatus::Error)) => AgentRunStatus::Error,
            Some((_, AgentStatus::Cancelled)) => AgentRunStatus::Cancelled,
            Some((_, AgentStatus::Transferred)) => AgentRunStatus::Transferred,
            Some((_, AgentStatus::Intercepted)) => AgentRunStatus::Intercepted,
            Some((_, AgentStatus::Unknown)) => AgentRunStatus::Unknown,
            None if run.handoff_to.is_some() => AgentRunStatus::Transferred,
            None if run.has_answered && run.start.is_none() => AgentRunStatus::Completed,
            None if run.error_code.is_some() && self.is_over() => AgentRunStatus::Error,
            None if self.has_ended() => AgentRunStatus::Unknown,
            None if self.is_released => AgentRunStatus::Incomplete,
            None => AgentRunStatus::Open,
        }
    }

    pub(super) fn branch_fact(&self, index: usize, calls: &[(usize, ModelCallFact)]) -> BranchFact {
        let this = &self.branches[index];
        let pass = self.pass_of(this);
        let is_own = |branch: &Name, at: Option<Stamp>| *branch == this.path && pass.has(at);
        let own_calls: Vec<&(usize, ModelCallFact)> = calls
            .iter()
            .filter(|(i, fact)| is_own(&fact.branch, self.calls[*i].instants().0))
            .collect();
        let own_tools: Vec<&ToolCall> = self
            .tools
            .iter()
            .filter(|tool| is_own(&tool.branch, tool.started_at()))
            .collect();
        let is_over = this.is_joined || self.is_over();
        let mut flags = Flags::default();
        let (first, last) = (this.first, this.last.filter(|_| is_over));
        let duration = first
            .zip(last)
            .and_then(|(first, last)| last.since(first, &mut flags))
            .filter(|span| span.0 >= 0);
        let call_spans = own_calls.iter().map(|(i, _)| {
            let (start, _, end) = self.calls[*i].instants();
            (start, end)
        });
        let tool_spans = own_tools
            .iter()
            .map(|tool| (tool.started_at(), tool.ended_at()));
        // By the clock that measures the branch, so that a step of the wall clock moves nothing.
        let spans = call_spans.chain(tool_spans).filter_map(|(from, to)| {
            let fork = first?;
            let from = from?.since(fork, &mut flags)?;
            Some((from, to?.since(fork, &mut flags)?))
        });
        let busy = branch::covered(spans.collect());
        BranchFact {
            branch: this.path.clone(),
            occurrence: this.occurrence,
            parent_branch: branch::parent(&this.path).map(Name::from),
            forked_at: first.map(|stamp| stamp.at),
            joined_at: last.map(|stamp| stamp.at),
            duration,
            own_time: duration.map(|_| busy),
            waiting_time: duration.map(|whole| Nanos((whole.0 - busy.0).max(0))),
            own: sums(own_calls.iter().map(|(_, fact)| fact)),
            tool_call_count: own_tools.len() as u64,
            records: this.records,
            flags,
        }
    }

    /// When one occurrence of a branch lasted: from its first evidence to that of the next one.
    fn pass_of(&self, this: &Branch) -> Pass {
        let next = self
            .branches
            .iter()
            .find(|other| other.path == this.path && other.occurrence == this.occurrence + 1);
        Pass {
            from: this.first.filter(|_| this.occurrence > 0),
            before: next.and_then(|next| next.first),
        }
    }

    pub(super) fn invocation_fact(&self, calls: &[(usize, ModelCallFact)]) -> InvocationFact {
        let status = self.status();
        let mut flags = self.flags;
        let started = self.start.unwrap_or(self.first);
        let is_unseen = self.is_start_due && self.start.is_none() && !self.is_headless;
        if is_unseen {
            flags.insert(Flag::StartUnseen);
        }
        if self.is_headless {
            flags.insert(Flag::Late);
        }
        let ended = self.ended_at(status);
        let mut clock_flags = Flags::default();
        let wall = ended
            .filter(|_| !is_unseen)
            .and_then(|end| end.since(started, &mut clock_flags))
            .filter(|span| span.0 >= 0);
        InvocationFact {
            status,
            headless: self.is_headless,
            run_id: self.run_id.clone(),
            started_at: Some(started.at),
            ended_at: ended.map(|stamp| stamp.at),
            wall,
            root_agent: self.root_agent.clone(),
            trigger: self.trigger.clone(),
            runtime: self.runtime.clone(),
            runtime_version: self.runtime_version.clone(),
            parent: self.parent.clone(),
            limit: self.end.as_ref().and_then(|end| end.limit.clone()),
            error_code: self.end.as_ref().and_then(|end| end.error_code.clone()),
            own: sums(calls.iter().map(|(_, fact)| fact)),
            local_answer_count: self.answers.len() as u64,
            tool_call_count: self.tools.len() as u64,
            records: u64::from(self.records),
            events: self.events,
            user_messages: self.user_messages.len() as u64,
            retries: self.retries,
            attributes: self.attributes.clone(),
            flags,
        }
    }

    /// When it ended: at its end record; a declared or inferred pause at the last record before; an
    /// inferred completion at its final answer; an incomplete one at no known time (facts.md §8.1).
    fn ended_at(&self, status: Status) -> Option<Stamp> {
        match (&self.end, status) {
            (Some(end), _) => Some(end.at),
            (None, Status::Waiting) if self.is_over() => Some(self.last),
            (None, Status::CompletedInferred) => self.final_answer,
            _ => None,
        }
    }

    pub(super) fn recovery_body(&self, index: usize) -> FactBody {
        let said = &self.recoveries[index];
        FactBody::RecoveryDecision(Box::new(RecoveryFact {
            phase: said.phase.clone(),
            call_id: said.call_id.clone(),
            attempt: said.attempt,
            handler: said.handler.clone(),
            action: said.action.clone(),
            decided_at: Some(said.at.at),
            branch: said.branch.clone(),
            agent: said.agent.clone(),
            error_code: said.error_code.clone(),
            flags: Flags::default(),
        }))
    }

    pub(super) fn anomaly_body(&self, index: usize) -> FactBody {
        let seen = &self.anomalies[index];
        FactBody::Anomaly(Box::new(AnomalyFact {
            kind: seen.kind,
            about: seen.about.clone(),
            branch: seen.branch.clone(),
            agent: seen.agent.clone(),
            at: seen.at.map(|stamp| stamp.at),
            count: seen.count,
            detail: seen.detail.clone(),
        }))
    }
}

/// The number of chunks that were seen, where any was.
fn observed_chunks(call: &ModelCall) -> Option<u64> {
    let told: u64 = call
        .attempts
        .iter()
        .map(|attempt| u64::from(attempt.chunks))
        .sum();
    let seen = call
        .native
        .as_ref()
        .map_or(0, |side| u64::from(side.partials));
    Some(told.max(seen)).filter(|chunks| *chunks > 0)
}

/// Dialects that told of a call, in alphabetical order.
fn sources(call: &ModelCall) -> Vec<&'static str> {
    let native = call.native.as_ref().map(|_| Dialect::Adk.as_str());
    let told = call.has_lifecycle.then_some(Dialect::Lifecycle.as_str());
    native.into_iter().chain(told).collect()
}

/// True where another model answered than was asked; a suffix of digits, dots and dashes is the
/// same model (rules.md §6).
fn differs(asked: Option<&str>, answered: Option<&str>) -> bool {
    let (Some(asked), Some(answered)) = (asked, answered) else {
        return false;
    };
    let suffix = answered.strip_prefix(asked);
    !suffix.is_some_and(|rest| {
        rest.chars()
            .all(|c| c.is_ascii_digit() || c == '.' || c == '-')
    })
}
