//! One verdict, and what followed it.

use super::row::RowState;
use super::stamp::Stamp;
use crate::core::event::{DecisionWord, Stage};
use crate::core::fact::{Basis, Flags};
use crate::core::{Name, Nanos};

/// What a verdict is about, once that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The whole run.
    Run,
    /// The model call at this index of its segment.
    Call(usize),
    /// The next model call of its agent and branch.
    NextCall,
    /// The tool call with the verdict's call id, in whatever execution.
    Tool,
    /// A local answer took the target's place.
    AnsweredLocally,
    /// Nothing that starts (an output, a tool's answer, an agent).
    Passive,
}

/// Which native event showed a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// None did: records or the provider told it.
    No,
    /// The answer of no known call: a local one, or the call that it is about to open.
    Alone,
    /// An answer of the model call at this index; more events of that call repeat it.
    With(usize),
}

/// One verdict of one guard.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub row: RowState,
    pub at: Stamp,
    pub stage: Stage,
    pub decision: Option<DecisionWord>,
    pub decision_native: Option<Name>,
    pub action: Option<Name>,
    pub mode: Option<Name>,
    pub outcome: Option<Name>,
    pub policy: Option<Name>,
    pub policy_version: Option<Name>,
    pub rule: Option<Name>,
    pub reason_code: Option<Name>,
    pub reason: Option<Name>,
    pub actor_type: Option<Name>,
    pub actor_name: Option<Name>,
    pub target_kind: Option<Name>,
    pub target_call_id: Option<Name>,
    pub target_name: Option<Name>,
    pub order: u32,
    pub branch: Name,
    pub agent: Name,
    pub findings: Vec<(DecisionWord, u32)>,
    pub entity_types: Vec<Name>,
    pub duration: Option<Nanos>,
    pub basis: Basis,
    pub target: Target,
    pub shown: Shown,
    /// A `guardrail.decision` declared it.
    pub is_recorded: bool,
    pub content_already_delivered: Option<bool>,
    pub flags: Flags,
    /// What the row said last.
    pub enforced_last: Option<bool>,
    pub is_counted: bool,
    pub is_bypass_counted: bool,
}

impl Verdict {
    /// True where two sources may speak of one verdict: what only one of them knows decides
    /// nothing.
    pub fn is_echoed_by(&self, other: &Verdict) -> bool {
        let fits = |a: &Option<Name>, b: &Option<Name>| a.is_none() || b.is_none() || a == b;
        self.stage == other.stage
            && self.decision == other.decision
            && self.branch == other.branch
            && self.agent == other.agent
            && fits(&self.actor_name, &other.actor_name)
            && fits(&self.policy, &other.policy)
    }

    /// Takes from another source's word what this one did not say. What identifies the row stays.
    pub fn complete_from(&mut self, other: Verdict) {
        fn fill<T>(known: &mut Option<T>, told: Option<T>) {
            if known.is_none() {
                *known = told;
            }
        }
        fill(&mut self.decision_native, other.decision_native);
        fill(&mut self.action, other.action);
        fill(&mut self.mode, other.mode);
        fill(&mut self.outcome, other.outcome);
        fill(&mut self.policy, other.policy);
        fill(&mut self.policy_version, other.policy_version);
        fill(&mut self.rule, other.rule);
        fill(&mut self.reason_code, other.reason_code);
        fill(&mut self.reason, other.reason);
        fill(&mut self.duration, other.duration);
        if self.findings.is_empty() {
            self.findings = other.findings;
        }
        if self.entity_types.is_empty() {
            self.entity_types = other.entity_types;
        }
        self.basis = self.basis.min(other.basis);
        self.is_recorded |= other.is_recorded;
    }

    /// True where a deny is meant to be enforced at all (rules.md §8).
    pub fn forbids(&self) -> bool {
        self.decision == Some(DecisionWord::Deny)
            && self.outcome.as_deref() != Some("failed_open")
            && self.mode.as_deref() != Some("monitor")
    }

    /// True while what follows may still decide whether it was enforced.
    pub fn is_unsettled(&self) -> bool {
        self.enforced_last.is_none() && self.forbids()
    }

    /// `enforced`: whether what the verdict forbids started after it. `started` is the start of the
    /// forbidden thing nearest after the verdict, `is_over` whether nothing more can start.
    pub fn enforced(&self, has_started_after: bool, is_over: bool) -> Option<bool> {
        if self.decision == Some(DecisionWord::Deny)
            && self.mode.as_deref() == Some("monitor")
            && self.outcome.as_deref() != Some("failed_open")
        {
            return Some(false);
        }
        if !self.forbids() {
            return None;
        }
        if self.basis == Basis::Provider {
            return Some(true);
        }
        if has_started_after {
            return Some(false);
        }
        is_over.then_some(true)
    }
}
