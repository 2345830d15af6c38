//! Verdicts and local answers against their truth.
//!
//! Who decided stands in the scripts; of it only a provider's own block, a declared verdict, a request to a person and
//! an answer in a model's place are ever told. What is told must be true.

use crate::compare::Comparison;
use serde_json::Value;
use tachograph::core::event::{DecisionWord, ServedBy, Stage};
use tachograph::core::fact::{Basis, Fact, FactBody, GuardrailFact};

impl Comparison {
    pub fn verdicts(&mut self, truth: &Value, facts: &[Fact]) {
        let told = truth["guardrail_verdicts"].as_array().unwrap();
        let mut pool: Vec<&Value> = told.iter().collect();
        for fact in facts {
            let FactBody::GuardrailDecision(verdict) = &fact.body else {
                continue;
            };
            if truth["verdicts_of_provider_only"] == true && verdict.basis != Basis::Provider {
                continue;
            }
            let found = pool.iter().position(|want| {
                self.is_of(fact, &want["invocation"]) && is_verdict(verdict, want)
            });
            let is_true = found.is_some() || is_request(verdict, &truth["tool_calls"]);
            self.holds(is_true, || {
                let (stage, word) = (verdict.stage, verdict.decision);
                format!("a verdict that never was: {stage:?} {word:?}")
            });
            if let Some(found) = found {
                pool.remove(found);
            }
        }
        for want in pool.into_iter().filter(|want| is_provider(want)) {
            let point = want["point"].as_str().unwrap_or_default();
            self.holds(false, || {
                format!("the provider's verdict on {point}: not told")
            });
        }
        self.answers(told, facts);
    }

    /// Answers in a model's place: records tell all, events alone may not know whose they are.
    fn answers(&mut self, told: &[Value], facts: &[Fact]) {
        if self.is_native {
            return;
        }
        let mut pool: Vec<(&Fact, ServedBy)> = facts
            .iter()
            .filter_map(|fact| match &fact.body {
                FactBody::LocalAnswer(answer) => Some((fact, answer.served_by)),
                _ => None,
            })
            .collect();
        for want in told {
            let Some(by) = serves(want) else {
                continue;
            };
            let found = pool
                .iter()
                .position(|(fact, served)| *served == by && self.is_of(fact, &want["invocation"]));
            let decider = want["decider"].as_str().unwrap_or_default();
            self.holds(found.is_some(), || {
                format!("an answer by {decider} in a model's place: not told")
            });
            if let Some(found) = found {
                pool.remove(found);
            }
        }
    }
}

/// Who answers where this verdict was an answer in a model's or an agent's place.
fn serves(want: &Value) -> Option<ServedBy> {
    let point = want["point"].as_str().unwrap_or_default();
    match want["verdict"].as_str().unwrap() {
        "answered_from_cache" => Some(ServedBy::Cache),
        "block" if matches!(point, "before_model" | "before_agent") => Some(ServedBy::Hook),
        _ => None,
    }
}

fn is_provider(want: &Value) -> bool {
    matches!(
        want["decider"].as_str(),
        Some("provider" | "model_provider")
    )
}

/// A request to a person, or the person's answer, of which some truths speak as of a tool call only.
fn is_request(told: &GuardrailFact, tools: &Value) -> bool {
    let is_asked = |tool: &Value| {
        tool["outcome"] == "confirmation_requested"
            && tool["function_call_id"].as_str() == told.target_call_id.as_deref()
    };
    let is_word = matches!(
        told.decision,
        Some(DecisionWord::Escalate | DecisionWord::Allow)
    );
    is_word && told.stage == Stage::ToolInput && tools.as_array().unwrap().iter().any(is_asked)
}

fn is_verdict(told: &GuardrailFact, want: &Value) -> bool {
    let word = match want["verdict"].as_str().unwrap() {
        "block" => DecisionWord::Deny,
        "transform" | "modify" => DecisionWord::Modify,
        "requested" | "escalate" => DecisionWord::Escalate,
        "confirmed" | "allow" | "pass" => DecisionWord::Allow,
        _ => return false,
    };
    let stages: &[Stage] = match want["point"].as_str().unwrap_or("") {
        "provider_output" | "model_output" | "after_model" => &[Stage::ModelOutput],
        "provider_prompt" | "model_input" | "before_model" => &[Stage::ModelInput],
        "before_tool" | "tool_confirmation" => &[Stage::ToolInput],
        "before_run" => &[Stage::RunInput],
        _ => &[Stage::ModelOutput, Stage::ModelInput],
    };
    let is_basis = is_provider(want) == (told.basis == Basis::Provider);
    told.decision == Some(word) && stages.contains(&told.stage) && is_basis
}
