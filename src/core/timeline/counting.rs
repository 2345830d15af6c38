//! What was counted for a fact, so that a later version moves counters by the difference only.
//!
//! Counted is what a fact says now less the most ever counted for it, if positive, on the series
//! chosen at its first count; each fall goes by its amount to `tachograph_corrections_total`
//! (facts.md §5).

use crate::core::event::ServedBy;
use crate::core::fact::{
    AgentRunFact, AgentRunStatus, CallStatus, Executed, ModelCallFact, ToolCallFact, ToolStatus,
};
use crate::core::sample::{Family, Move, Sample};
use crate::core::usage::{TokenUsage, UsageState};
use crate::core::{LogTime, Name, Nanos};
use std::sync::Arc;

/// Token classes of `tachograph_tokens_total`, disjoint.
pub const TOKEN_CLASSES: [&str; 6] = [
    "input_uncached",
    "cache_read",
    "cache_write",
    "tool_use_input",
    "answer",
    "reasoning",
];

/// A sample of a counter or histogram.
pub fn sample(family: Family, labels: Vec<Name>, change: Move) -> Sample {
    debug_assert_eq!(labels.len(), family.labels().len());
    Sample {
        family,
        labels: labels.into_boxed_slice(),
        change,
        logged_at: LogTime(i64::MIN),
        is_replayed: false,
    }
}

/// A closed word as a label value.
pub fn word(text: &'static str) -> Name {
    Arc::from(text)
}

/// The tokens of one call by class, in the order of [`TOKEN_CLASSES`].
fn token_classes(usage: &TokenUsage) -> [u64; 6] {
    let reasoning = usage.reasoning.unwrap_or(0);
    let output = usage.output_total.unwrap_or(0);
    [
        usage.input_uncached.unwrap_or(0),
        usage.cache_read.unwrap_or(0),
        usage.cache_write.unwrap_or(0),
        usage.tool_use_input.unwrap_or(0),
        output.saturating_sub(reasoning),
        reasoning,
    ]
}

/// A fall of what was counted, by its amount.
pub fn correction(app: &Name, field: &'static str, by: u64) -> Sample {
    sample(
        Family::Corrections,
        vec![app.clone(), word(field)],
        Move::Add(by),
    )
}

/// What was counted for one model call.
#[derive(Clone, Debug, Default)]
pub struct CountedCall {
    series: Option<CallSeries>,
    tokens_most: [u64; 6],
    tokens_now: [u64; 6],
    is_unmetered: bool,
    has_duration: bool,
    has_first_chunk: bool,
    has_input: bool,
    has_output: bool,
    /// A count was held back (`plausible_tokens_max`), and that was counted.
    pub is_held_back: bool,
}

#[derive(Clone, Debug)]
struct CallSeries {
    model: Name,
    agent: Name,
    status: CallStatus,
}

impl CountedCall {
    /// The samples that this version of the call moves. `is_final`: nothing more is expected of its
    /// run, so that usage which is missing now is missing.
    pub fn count(
        &mut self,
        app: &Name,
        tenant: &Name,
        fact: &ModelCallFact,
        is_final: bool,
        out: &mut Vec<Sample>,
    ) {
        let model = fact.model.clone().unwrap_or_else(|| word("unknown"));
        let agent = fact.agent.clone();
        let labels = |model: &Name, agent: &Name| {
            vec![app.clone(), tenant.clone(), model.clone(), agent.clone()]
        };
        let Some(series) = &mut self.series else {
            let mut call_labels = labels(&model, &agent);
            call_labels.extend([word(fact.served_by.as_str()), word(fact.status.as_str())]);
            out.push(sample(Family::ModelCalls, call_labels, Move::Add(1)));
            self.series = Some(CallSeries {
                model,
                agent,
                status: fact.status,
            });
            self.count_rest(app, tenant, fact, is_final, out);
            return;
        };
        if series.status != fact.status {
            series.status = fact.status;
            out.push(correction(app, "model_call_status", 1));
        }
        self.count_rest(app, tenant, fact, is_final, out);
    }

    fn count_rest(
        &mut self,
        app: &Name,
        tenant: &Name,
        fact: &ModelCallFact,
        is_final: bool,
        out: &mut Vec<Sample>,
    ) {
        let Some(series) = self.series.clone() else {
            return;
        };
        if fact.is_unmetered && is_final && !self.is_unmetered {
            self.is_unmetered = true;
            let reason = word(unmetered_reason(fact));
            let labels = vec![app.clone(), tenant.clone(), series.model.clone(), reason];
            out.push(sample(Family::ModelCallsUnmetered, labels, Move::Add(1)));
        } else if !fact.is_unmetered && self.is_unmetered {
            self.is_unmetered = false;
            out.push(correction(app, "unmetered", 1));
        }
        if fact.served_by != ServedBy::Model {
            if self.tokens_now.iter().any(|tokens| *tokens > 0) {
                self.count_tokens(app, tenant, &series, &TokenUsage::default(), out);
            }
            return;
        }
        if fact.usage.is_countable() {
            self.count_tokens(app, tenant, &series, &fact.usage, out);
        }
        self.observe(app, fact, out);
    }

    fn count_tokens(
        &mut self,
        app: &Name,
        tenant: &Name,
        series: &CallSeries,
        usage: &TokenUsage,
        out: &mut Vec<Sample>,
    ) {
        for (class, now) in token_classes(usage).into_iter().enumerate() {
            let most = self.tokens_most[class];
            if now > most {
                let labels = vec![
                    app.clone(),
                    tenant.clone(),
                    series.model.clone(),
                    series.agent.clone(),
                    word(TOKEN_CLASSES[class]),
                ];
                out.push(sample(Family::Tokens, labels, Move::Add(now - most)));
                self.tokens_most[class] = now;
            }
            if now < self.tokens_now[class] {
                out.push(correction(app, "tokens", self.tokens_now[class] - now));
            }
            self.tokens_now[class] = now;
        }
    }

    fn observe(&mut self, app: &Name, fact: &ModelCallFact, out: &mut Vec<Sample>) {
        let error_type = match fact.status {
            CallStatus::Error => fact.error_code.clone().unwrap_or_else(|| word("unknown")),
            _ => word(""),
        };
        let base = |last: Name| {
            vec![
                app.clone(),
                fact.operation.clone(),
                fact.provider.clone().unwrap_or_else(|| word("")),
                fact.model.clone().unwrap_or_else(|| word("unknown")),
                last,
            ]
        };
        let is_embedding = &*fact.operation == "embeddings";
        if let Some(span) = fact
            .completion
            .filter(|_| !self.has_duration && !is_embedding)
        {
            self.has_duration = true;
            let labels = base(error_type.clone());
            out.push(sample(Family::OperationDuration, labels, observed(span)));
        }
        if let Some(span) = fact.ttfc.filter(|_| !self.has_first_chunk && !is_embedding) {
            self.has_first_chunk = true;
            out.push(sample(
                Family::TimeToFirstChunk,
                base(error_type),
                observed(span),
            ));
        }
        if !fact.usage.is_countable() {
            return;
        }
        if let Some(tokens) = fact.usage.input_total.filter(|_| !self.has_input) {
            self.has_input = true;
            out.push(sample(
                Family::TokenUsage,
                base(word("input")),
                Move::Observe(tokens),
            ));
        }
        if let Some(tokens) = fact.usage.output_total.filter(|_| !self.has_output) {
            self.has_output = true;
            out.push(sample(
                Family::TokenUsage,
                base(word("output")),
                Move::Observe(tokens),
            ));
        }
    }
}

fn observed(span: Nanos) -> Move {
    Move::Observe(span.0.max(0).cast_unsigned())
}

/// Why a call is unmetered, as far as is known.
pub fn unmetered_reason(fact: &ModelCallFact) -> &'static str {
    match fact.status {
        _ if fact.starved_by.is_some() => "starved",
        _ if fact.usage.state == UsageState::Invalid => "invalid",
        CallStatus::Cancelled => "cancelled",
        CallStatus::Incomplete => "not_ended",
        CallStatus::Error => "stream_broken",
        CallStatus::Ok | CallStatus::Blocked => "not_reported",
    }
}

/// The series that a start record announces, at 0 (facts.md §5).
pub fn announce(app: &Name, tenant: &Name, model: &Name, agent: &Name, out: &mut Vec<Sample>) {
    let base = || vec![app.clone(), tenant.clone(), model.clone(), agent.clone()];
    for class in TOKEN_CLASSES {
        let mut labels = base();
        labels.push(word(class));
        out.push(sample(Family::Tokens, labels, Move::Create));
    }
    let mut labels = base();
    labels.extend([word("model"), word("ok")]);
    out.push(sample(Family::ModelCalls, labels, Move::Create));
}

/// What was counted for one tool call.
#[derive(Clone, Debug, Default)]
pub struct CountedTool {
    status: Option<ToolStatus>,
    has_duration: bool,
}

impl CountedTool {
    /// The samples that this version of the tool call moves.
    pub fn count(&mut self, app: &Name, tenant: &Name, fact: &ToolCallFact, out: &mut Vec<Sample>) {
        let tool = if fact.is_invented {
            word("other")
        } else {
            fact.tool.clone()
        };
        match self.status {
            None => {
                let labels = vec![
                    app.clone(),
                    tenant.clone(),
                    tool.clone(),
                    word(fact.status.as_str()),
                ];
                out.push(sample(Family::ToolCalls, labels, Move::Add(1)));
            }
            Some(status) if status != fact.status => {
                out.push(correction(app, "tool_call_status", 1));
            }
            Some(_) => {}
        }
        self.status = Some(fact.status);
        if let Some(span) = fact.duration.filter(|_| !self.has_duration)
            && fact.executed != Executed::No
            && !fact.long_running
        {
            self.has_duration = true;
            let error_type = match fact.status {
                ToolStatus::Error => fact.error_code.clone().unwrap_or_else(|| word("unknown")),
                _ => word(""),
            };
            let labels = vec![app.clone(), tool, error_type];
            out.push(sample(Family::ExecuteToolDuration, labels, observed(span)));
        }
    }
}

/// What was counted for one agent run: its duration, once.
pub fn agent_run(is_observed: &mut bool, app: &Name, fact: &AgentRunFact, out: &mut Vec<Sample>) {
    let Some(span) = fact.duration.filter(|_| !*is_observed) else {
        return;
    };
    *is_observed = true;
    let error_type = match fact.status {
        AgentRunStatus::Error => fact.error_code.clone().unwrap_or_else(|| word("unknown")),
        _ => word(""),
    };
    let labels = vec![app.clone(), fact.agent.clone(), error_type];
    out.push(sample(Family::InvokeAgentDuration, labels, observed(span)));
}

/// A correction of an invocation's status, counted once per change.
pub fn status_corrected(app: &Name, out: &mut Vec<Sample>) {
    out.push(correction(app, "invocation_status", 1));
}
