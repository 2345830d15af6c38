//! When a row may go out, which version it has, and what its counters move by (facts.md §8.3, §5).

use super::counting::{self, sample, word};
use super::facts::View;
use super::invocation::{Item, Segment};
use super::row::RowState;
use crate::core::fact::{
    AnomalyKind, Fact, FactBody, Flag, GuardrailFact, InvocationFact, ModelCallFact, Status,
};
use crate::core::sample::{Family, Move, Sample};
use crate::core::{Coordinates, Name, Offset};

/// Why a call is unmetered, and what is known of the culprit: `starved/redactor`,
/// `stream_broken/503`.
fn unmetered_cause(fact: &ModelCallFact) -> Name {
    let reason = counting::unmetered_reason(fact);
    let culprit = match &fact.starved_by {
        Some(hook) => Some(hook),
        None => fact.error_code.as_ref(),
    };
    match culprit.filter(|name| !name.is_empty()) {
        Some(culprit) => Name::from(format!("{reason}/{culprit}")),
        None => word(reason),
    }
}

/// One row that is ready to go out, before the pipeline's marks decide whether it does.
pub struct Ready {
    /// `None` where only counters move: the row already says this.
    pub fact: Option<Fact>,
    pub samples: Vec<Sample>,
    /// A limit that the row shows to have been reached.
    pub limit: Option<&'static str>,
}

impl Segment {
    /// Exports what changed. `cause` is the offset that counts as evidence for a change that came
    /// from elsewhere.
    pub fn flush(&mut self, cause: Offset, view: View<'_>) -> Vec<Ready> {
        if self.dirty.is_empty() {
            return Vec::new();
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        let mut out = Vec::new();
        let calls = if self.makes_sums(&mut dirty) {
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

    /// True where rows that sum over calls are made now. In a big run they wait, and those that
    /// waited come with the next.
    fn makes_sums(&mut self, dirty: &mut Vec<Item>) -> bool {
        if !dirty.iter().any(|item| item.is_sum()) || !self.sums_may_go(dirty) {
            return false;
        }
        if self.summed_at != self.records && !self.is_sum_due() {
            self.is_sum_put_off = true;
            dirty.retain(|item| !item.is_sum());
            return false;
        }
        self.summed_at = self.records;
        if std::mem::take(&mut self.is_sum_put_off) {
            dirty.extend((0..self.agents.len()).map(Item::Agent));
            dirty.extend((0..self.branches.len()).map(Item::Branch));
            dirty.sort_unstable();
            dirty.dedup();
        }
        true
    }

    /// True where one of the rows that sum over calls may go out.
    fn sums_may_go(&self, dirty: &[Item]) -> bool {
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
        let limit = self.holds_back(item, &body);
        let fact = version.map(|version| self.fact(body, first, last, version, view));
        if let Some(fact) = &fact {
            self.row_of(item).keep_identity(fact);
        }
        (fact.is_some() || !samples.is_empty()).then_some(Ready {
            fact,
            samples,
            limit,
        })
    }

    /// `plausible_tokens_max`, once for a call of which a count is held back.
    fn holds_back(&mut self, item: Item, body: &FactBody) -> Option<&'static str> {
        let (Item::Call(index), FactBody::ModelCall(fact)) = (item, body) else {
            return None;
        };
        let is_new = fact.flags.contains(Flag::ImplausibleUsage)
            && !std::mem::replace(&mut self.calls[index].counted.is_held_back, true);
        is_new.then_some("plausible_tokens_max")
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
                if !(call.is_exportable() || over && call.has_row()) {
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
            (Item::Answer(index), FactBody::LocalAnswer(fact))
                if !std::mem::replace(&mut self.answers[index].is_counted, true) =>
            {
                let actor = fact.actor_name.clone().unwrap_or_else(|| word(""));
                let labels = vec![app, tenant, word(fact.served_by.as_str()), actor];
                out.push(sample(Family::LocalAnswers, labels, Move::Add(1)));
            }
            (Item::Verdict(index), FactBody::GuardrailDecision(fact)) => {
                self.verdict_samples(index, fact, &app, &tenant, cause, &mut out);
            }
            (Item::Recovery(index), FactBody::RecoveryDecision(fact))
                if !std::mem::replace(&mut self.recoveries[index].is_counted, true) =>
            {
                let labels = vec![app, tenant, fact.phase.clone(), fact.action.clone()];
                out.push(sample(Family::RecoveryDecisions, labels, Move::Add(1)));
            }
            (Item::Anomaly(index), FactBody::Anomaly(fact))
                if !std::mem::replace(&mut self.anomalies[index].is_counted, true) =>
            {
                let labels = vec![app, word(fact.kind.as_str())];
                out.push(sample(Family::Anomalies, labels, Move::Add(1)));
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
        let was_bypass = std::mem::replace(&mut self.verdicts[index].is_bypass, is_bypass);
        if was_bypass && !is_bypass {
            out.push(counting::correction(app, "guardrail_bypassed", 1));
        }
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

    /// What a call's row shows to be wrong: clocks that contradict each other, usage that never
    /// came.
    fn call_findings(&mut self, index: usize, fact: &ModelCallFact, cause: Offset, view: View<'_>) {
        let is_skewed = self.calls[index]
            .latencies(self.run_view(view.limits))
            .is_skewed;
        let mut kinds = Vec::new();
        if is_skewed {
            kinds.push((AnomalyKind::ClockSkew, None));
        }
        if fact.is_unmetered && self.is_over() {
            kinds.push((AnomalyKind::UnmeteredCall, Some(unmetered_cause(fact))));
        }
        if fact.starved_by.is_some() && self.is_over() {
            let thief = fact.starved_by.clone().filter(|name| !name.is_empty());
            kinds.push((AnomalyKind::StarvedMeter, thief));
        }
        for (kind, detail) in kinds {
            let about = format!("model_call/{}", fact.call_key);
            let at = self.calls[index].last_seen;
            let mut seen = self.anomaly_at(kind, about, (&fact.branch, &fact.agent), at, cause);
            let key = (kind, seen.about.clone());
            if !self.anomalies_by_about.contains_key(&key) {
                seen.detail = detail;
                self.anomaly(seen);
            }
        }
    }

    /// Each end of an invocation under the status it was first exported with; a pause is no end
    /// (facts.md §5).
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
