//! Evidence to facts: what each row says now, when it may go out, and what its counters move by.

use super::branch::{self, Branch};
use super::counting::{self, sample, word};
use super::invocation::{AgentRun, Item, LocalAnswer, Segment};
use super::model_call::{ModelCall, RunView};
use super::row::RowState;
use super::stamp::Stamp;
use super::tool_call::ToolCall;
use crate::core::event::{AgentStatus, Dialect, ServedBy};
use crate::core::fact::{
    AgentRunFact, AgentRunStatus, AnomalyFact, AnomalyKind, BranchFact, Fact, FactBody, Flag,
    Flags, GuardrailFact, InvocationFact, LocalAnswerFact, ModelCallFact, RecoveryFact, Status,
    Sums, ToolCallFact,
};
use crate::core::sample::{Family, Move, Sample};
use crate::core::usage::{TokenClass, UsageContext, UsageState, UsageSum};
use crate::core::{Coordinates, EventTime, Limits, LogSource, Name, Nanos, Offset};
use std::sync::Arc;

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
    fn call_facts(&self, view: View<'_>) -> Vec<(usize, ModelCallFact)> {
        let run = self.run_view(view.limits);
        self.calls
            .iter()
            .enumerate()
            .filter(|(_, call)| !call.is_answered_locally && call.served_by != Some(ServedBy::None))
            .map(|(index, call)| (index, self.call_fact(call, run, view)))
            .collect()
    }

    fn call_fact(&self, call: &ModelCall, run: RunView, view: View<'_>) -> ModelCallFact {
        let runtime = self.runtime_name(&view.source.defaults);
        let (usage, usage_flags) = call.usage(runtime, run);
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
            tier,
            finish_reason: call
                .finish_reason
                .as_deref()
                .map(|raw| word(super::model_call::finish_word(raw))),
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

    fn tool_fact(&self, call: &ToolCall) -> ToolCallFact {
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

    fn answer_fact(&self, answer: &LocalAnswer, view: View<'_>) -> LocalAnswerFact {
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

    fn verdict_fact(&self, index: usize) -> GuardrailFact {
        let verdict = &self.verdicts[index];
        let (has_started_after, is_over) = self.followed(verdict);
        let enforced = verdict.enforced(has_started_after, is_over);
        let is_before_model = matches!(
            verdict.stage,
            crate::core::event::Stage::ModelInput | crate::core::event::Stage::RunInput
        );
        let prevented = is_before_model
            && enforced == Some(true)
            && verdict.basis != crate::core::fact::Basis::Provider
            && !matches!(verdict.target, super::guardrail::Target::Call(i) if self.calls[i].has_response());
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
            flags: verdict.flags,
        }
    }

    fn agent_fact(&self, index: usize, calls: &[(usize, ModelCallFact)]) -> AgentRunFact {
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

    fn branch_fact(&self, index: usize, calls: &[(usize, ModelCallFact)]) -> BranchFact {
        let this = &self.branches[index];
        let is_own = |branch: &Name, at: Option<EventTime>| {
            *branch == this.path && self.occurrence_at(this, at) == this.occurrence
        };
        let own_calls: Vec<&ModelCallFact> = calls
            .iter()
            .map(|(_, fact)| fact)
            .filter(|fact| is_own(&fact.branch, fact.started_at))
            .collect();
        let own_tools: Vec<&ToolCall> = self
            .tools
            .iter()
            .filter(|tool| is_own(&tool.branch, tool.started_at().map(|s| s.at)))
            .collect();
        let call_spans = own_calls
            .iter()
            .filter_map(|fact| Some((fact.started_at?, fact.ended_at?)));
        let tool_spans = own_tools
            .iter()
            .filter_map(|tool| Some((tool.started_at()?.at, tool.ended_at()?.at)));
        let busy = branch::covered(call_spans.chain(tool_spans).collect());
        let is_over = this.is_joined || self.is_over();
        let duration = match (this.first, this.last) {
            (Some(first), Some(last)) if is_over => Some(last.at.since(first.at)),
            _ => None,
        };
        BranchFact {
            branch: this.path.clone(),
            occurrence: this.occurrence,
            parent_branch: branch::parent(&this.path).map(Name::from),
            forked_at: this.first.map(|stamp| stamp.at),
            joined_at: this.last.filter(|_| is_over).map(|stamp| stamp.at),
            duration,
            own_time: duration.map(|_| busy),
            waiting_time: duration.map(|whole| Nanos((whole.0 - busy.0).max(0))),
            own: sums(own_calls.into_iter()),
            tool_call_count: own_tools.len() as u64,
            records: this.records,
            flags: Flags::default(),
        }
    }

    /// The occurrence of a branch in which an instant lies.
    fn occurrence_at(&self, of: &Branch, at: Option<EventTime>) -> u32 {
        let same = self.branches.iter().filter(|b| b.path == of.path);
        let begun = same.filter(|b| match (b.first, at) {
            (Some(first), Some(at)) => first.at <= at,
            _ => true,
        });
        begun.map(|b| b.occurrence).max().unwrap_or(0)
    }

    fn invocation_fact(&self, calls: &[(usize, ModelCallFact)]) -> InvocationFact {
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

    /// When it ended: at its end record; a declared or inferred pause at the last record before; an inferred
    /// completion at its final answer; an incomplete one at no known time (facts.md §8.1).
    fn ended_at(&self, status: Status) -> Option<Stamp> {
        match (&self.end, status) {
            (Some(end), _) => Some(end.at),
            (None, Status::Waiting) if self.is_over() => Some(self.last),
            (None, Status::CompletedInferred) => self.final_answer,
            _ => None,
        }
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

/// True where another model answered than was asked; a suffix of digits, dots and dashes is the same model (rules.md §6).
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

/// One row that is ready to go out, before the pipeline's marks decide whether it does.
pub struct Ready {
    /// `None` where only counters move: the row already says this.
    pub fact: Option<Fact>,
    pub samples: Vec<Sample>,
}

impl Segment {
    /// Exports what changed. `cause` is the offset that counts as evidence for a change that came from elsewhere.
    pub fn flush(&mut self, cause: Offset, view: View<'_>) -> Vec<Ready> {
        if self.dirty.is_empty() {
            return Vec::new();
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        let mut out = Vec::new();
        let needs_calls = dirty
            .iter()
            .any(|item| matches!(item, Item::Agent(_) | Item::Branch(_) | Item::Invocation));
        let calls = if needs_calls && self.rows_are_due(&dirty) {
            self.call_facts(view)
        } else {
            Vec::new()
        };
        for item in dirty {
            if let Some(ready) = self.export(item, cause, &calls, view) {
                out.push(ready);
            }
        }
        // Judging a verdict or a call may have found an anomaly.
        let found = std::mem::take(&mut self.dirty);
        for item in found {
            if let Some(ready) = self.export(item, cause, &calls, view) {
                out.push(ready);
            }
        }
        out
    }

    /// True where one of the rows that sum over calls may go out.
    fn rows_are_due(&self, dirty: &[Item]) -> bool {
        self.is_over()
            || dirty.iter().any(|item| match item {
                Item::Agent(index) => self.agents[*index].end.is_some(),
                Item::Branch(index) => self.branches[*index].is_joined,
                _ => false,
            })
    }

    fn export(
        &mut self,
        item: Item,
        cause: Offset,
        calls: &[(usize, ModelCallFact)],
        view: View<'_>,
    ) -> Option<Ready> {
        let body = self.body(item, calls, view)?;
        let row = self.row_of(item);
        let version = row.export(&body, cause);
        let (first, last) = (row.first, row.last);
        let samples = self.samples(item, &body, cause, view);
        let fact = version.map(|version| self.fact(body, first, last, version, view));
        (fact.is_some() || !samples.is_empty()).then_some(Ready { fact, samples })
    }

    /// The row's body, where facts.md §8.3 lets it go out now.
    fn body(
        &self,
        item: Item,
        calls: &[(usize, ModelCallFact)],
        view: View<'_>,
    ) -> Option<FactBody> {
        let over = self.is_over();
        Some(match item {
            Item::Call(index) => {
                let call = &self.calls[index];
                if !(call.is_exportable() || over && is_row(call)) {
                    return None;
                }
                let fact = self.call_fact(call, self.run_view(view.limits), view);
                FactBody::ModelCall(Box::new(fact))
            }
            Item::Answer(index) => {
                FactBody::LocalAnswer(Box::new(self.answer_fact(&self.answers[index], view)))
            }
            Item::Tool(index) => {
                let call = &self.tools[index];
                if !(call.is_answered() || self.is_released) {
                    return None;
                }
                FactBody::ToolCall(Box::new(self.tool_fact(call)))
            }
            Item::Verdict(index) => FactBody::GuardrailDecision(Box::new(self.verdict_fact(index))),
            Item::Recovery(index) => self.recovery_body(index),
            Item::Anomaly(index) => self.anomaly_body(index),
            Item::Agent(index) if over || self.agents[index].end.is_some() => {
                FactBody::AgentRun(Box::new(self.agent_fact(index, calls)))
            }
            Item::Branch(index) if over || self.branches[index].is_joined => {
                FactBody::Branch(Box::new(self.branch_fact(index, calls)))
            }
            Item::Invocation if over => FactBody::Invocation(Box::new(self.invocation_fact(calls))),
            Item::Agent(_) | Item::Branch(_) | Item::Invocation => return None,
        })
    }

    fn recovery_body(&self, index: usize) -> FactBody {
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

    fn anomaly_body(&self, index: usize) -> FactBody {
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

    fn row_of(&mut self, item: Item) -> &mut RowState {
        match item {
            Item::Call(index) => &mut self.calls[index].row,
            Item::Answer(index) => &mut self.answers[index].row,
            Item::Tool(index) => &mut self.tools[index].row,
            Item::Verdict(index) => &mut self.verdicts[index].row,
            Item::Recovery(index) => &mut self.recoveries[index].row,
            Item::Anomaly(index) => &mut self.anomalies[index].row,
            Item::Agent(index) => &mut self.agents[index].row,
            Item::Branch(index) => &mut self.branches[index].row,
            Item::Invocation => &mut self.row,
        }
    }

    fn fact(
        &self,
        body: FactBody,
        first: Offset,
        last: Offset,
        version: u64,
        view: View<'_>,
    ) -> Fact {
        let at = |offset| Coordinates {
            topic: view.source.topic.clone(),
            partition: view.source.partition,
            offset,
        };
        Fact {
            tenant: self.tenant_name(&view.source.defaults),
            app: self.app_name(&view.source.defaults),
            invocation_id: self.invocation_id.clone(),
            session_id: self.session_id.clone(),
            user_key: self.user_key.clone(),
            segment: self.id.clone(),
            segment_logged_at: self.logged_at,
            first: at(first),
            last: at(last),
            version,
            body,
        }
    }

    /// Every row as it stands, exported or not; changes nothing.
    pub fn facts(&self, view: View<'_>) -> Vec<Fact> {
        let calls = self.call_facts(view);
        let mut out = Vec::new();
        let mut push = |row: &RowState, body: FactBody| {
            out.push(self.fact(body, row.first, row.last, row.version(), view));
        };
        push(
            &self.row,
            FactBody::Invocation(Box::new(self.invocation_fact(&calls))),
        );
        for (index, branch) in self.branches.iter().enumerate() {
            push(
                &branch.row,
                FactBody::Branch(Box::new(self.branch_fact(index, &calls))),
            );
        }
        for (index, run) in self.agents.iter().enumerate() {
            push(
                &run.row,
                FactBody::AgentRun(Box::new(self.agent_fact(index, &calls))),
            );
        }
        for (index, fact) in &calls {
            push(
                &self.calls[*index].row,
                FactBody::ModelCall(Box::new(fact.clone())),
            );
        }
        for answer in &self.answers {
            push(
                &answer.row,
                FactBody::LocalAnswer(Box::new(self.answer_fact(answer, view))),
            );
        }
        for tool in &self.tools {
            push(
                &tool.row,
                FactBody::ToolCall(Box::new(self.tool_fact(tool))),
            );
        }
        for (index, verdict) in self.verdicts.iter().enumerate() {
            let fact = self.verdict_fact(index);
            push(&verdict.row, FactBody::GuardrailDecision(Box::new(fact)));
        }
        for (index, said) in self.recoveries.iter().enumerate() {
            push(&said.row, self.recovery_body(index));
        }
        for (index, seen) in self.anomalies.iter().enumerate() {
            push(&seen.row, self.anomaly_body(index));
        }
        out
    }
}

/// True where the call has a row of `model_calls` at all.
fn is_row(call: &ModelCall) -> bool {
    !call.is_answered_locally && call.served_by != Some(ServedBy::None)
}

impl Segment {
    /// What this export moves, and what it finds out on the way.
    fn samples(
        &mut self,
        item: Item,
        body: &FactBody,
        cause: Offset,
        view: View<'_>,
    ) -> Vec<Sample> {
        let app = self.app_name(&view.source.defaults);
        let tenant = self.tenant_name(&view.source.defaults);
        let mut out = Vec::new();
        match (item, body) {
            (Item::Call(index), FactBody::ModelCall(fact)) => {
                let is_final = self.is_over();
                let counted = &mut self.calls[index].counted;
                counted.count(&app, &tenant, fact, is_final, &mut out);
                self.call_findings(index, fact, cause, view);
            }
            (Item::Tool(index), FactBody::ToolCall(fact)) => {
                self.tools[index]
                    .counted
                    .count(&app, &tenant, fact, &mut out);
            }
            (Item::Answer(index), FactBody::LocalAnswer(fact)) => {
                if !std::mem::replace(&mut self.answers[index].is_counted, true) {
                    let actor = fact.actor_name.clone().unwrap_or_else(|| word(""));
                    let labels = vec![app, tenant, word(fact.served_by.as_str()), actor];
                    out.push(sample(Family::LocalAnswers, labels, Move::Add(1)));
                }
            }
            (Item::Verdict(index), FactBody::GuardrailDecision(fact)) => {
                self.verdict_samples(index, fact, &app, &tenant, cause, &mut out);
            }
            (Item::Recovery(index), FactBody::RecoveryDecision(fact)) => {
                if !std::mem::replace(&mut self.recoveries[index].is_counted, true) {
                    let labels = vec![app, tenant, fact.phase.clone(), fact.action.clone()];
                    out.push(sample(Family::RecoveryDecisions, labels, Move::Add(1)));
                }
            }
            (Item::Anomaly(index), FactBody::Anomaly(fact)) => {
                if !std::mem::replace(&mut self.anomalies[index].is_counted, true) {
                    let labels = vec![app, word(fact.kind.as_str())];
                    out.push(sample(Family::Anomalies, labels, Move::Add(1)));
                }
            }
            (Item::Agent(index), FactBody::AgentRun(fact)) => {
                counting::agent_run(&mut self.agents[index].is_observed, &app, fact, &mut out);
            }
            (Item::Invocation, FactBody::Invocation(fact)) => {
                self.invocation_samples(fact, &app, &mut out);
            }
            _ => {}
        }
        if self.is_headless {
            out.clear();
        }
        out
    }

    fn verdict_samples(
        &mut self,
        index: usize,
        fact: &GuardrailFact,
        app: &Name,
        tenant: &Name,
        cause: Offset,
        out: &mut Vec<Sample>,
    ) {
        let empty = || word("");
        let policy = fact.policy.clone().unwrap_or_else(empty);
        if !std::mem::replace(&mut self.verdicts[index].is_counted, true) {
            let labels = vec![
                app.clone(),
                tenant.clone(),
                policy.clone(),
                word(fact.stage.as_str()),
                word(fact.decision.map_or("none", |decision| decision.as_str())),
                fact.action.clone().unwrap_or_else(empty),
                fact.actor_name.clone().unwrap_or_else(empty),
            ];
            out.push(sample(Family::GuardrailDecisions, labels, Move::Add(1)));
        }
        let is_bypass = fact.enforced == Some(false) && self.verdicts[index].forbids();
        if is_bypass && !std::mem::replace(&mut self.verdicts[index].is_bypass_counted, true) {
            let labels = vec![
                app.clone(),
                tenant.clone(),
                policy,
                word(fact.stage.as_str()),
            ];
            out.push(sample(Family::GuardrailBypassed, labels, Move::Add(1)));
            let verdict = &self.verdicts[index];
            let about = format!("guardrail_decision/{}", verdict.order);
            let (branch, agent, at) = (verdict.branch.clone(), verdict.agent.clone(), verdict.at);
            let kind = AnomalyKind::VerdictNotEnforced;
            let seen = self.anomaly_at(kind, about, (&branch, &agent), at, cause);
            self.anomaly(seen);
        }
    }

    /// What a call's row shows to be wrong: clocks that contradict each other, usage that never came.
    fn call_findings(&mut self, index: usize, fact: &ModelCallFact, cause: Offset, view: View<'_>) {
        let is_skewed = self.calls[index]
            .latencies(self.run_view(view.limits))
            .is_skewed;
        let mut kinds = Vec::new();
        if is_skewed {
            kinds.push((AnomalyKind::ClockSkew, None));
        }
        if fact.is_unmetered && self.is_over() {
            let detail = counting::unmetered_reason(fact);
            kinds.push((AnomalyKind::UnmeteredCall, Some(word(detail))));
        }
        for (kind, detail) in kinds {
            let about = format!("model_call/{}", fact.call_key);
            let at = self.calls[index].last_seen;
            let known = self
                .anomalies
                .iter()
                .any(|a| a.kind == kind && *a.about == *about);
            if !known {
                let mut seen = self.anomaly_at(kind, about, (&fact.branch, &fact.agent), at, cause);
                seen.detail = detail;
                self.anomaly(seen);
            }
        }
    }

    /// Each end of an invocation under the status it was first exported with; a pause is no end (facts.md §5).
    fn invocation_samples(&mut self, fact: &InvocationFact, app: &Name, out: &mut Vec<Sample>) {
        match fact.status {
            Status::Waiting => {
                if !std::mem::replace(&mut self.is_wait_counted, true) {
                    out.push(sample(
                        Family::InvocationWaits,
                        vec![app.clone()],
                        Move::Add(1),
                    ));
                }
            }
            Status::Open => {}
            Status::Incomplete if self.is_superseded && self.end.is_none() => {}
            status => match self.counted_status {
                None => {
                    self.counted_status = Some(status);
                    let labels = vec![app.clone(), word(status.as_str())];
                    out.push(sample(Family::Invocations, labels, Move::Add(1)));
                }
                Some(counted) if counted != status => {
                    self.counted_status = Some(status);
                    counting::status_corrected(app, out);
                }
                Some(_) => {}
            },
        }
    }
}
