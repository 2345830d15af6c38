//! One verdict, and what followed it.

use super::row::RowState;
use super::stamp::Stamp;
use super::tool_call::ToolCall;
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
    /// The tool call with the verdict's call id, in whatever execution; without one the execution
    /// that it was found to be about.
    Tool,
    /// A local answer took the target's place.
    AnsweredLocally,
    /// What the model call at this index delivered.
    Answer(usize),
    /// What the tool call delivered.
    ToolAnswer,
    /// Something that no record names.
    Unknown,
    /// Nothing that ends before the segment does (the run's output, an agent).
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
    /// The tool execution that a verdict at tool_input is about, once there is one.
    pub tool: Option<usize>,
    pub shown: Shown,
    /// A `guardrail.decision` declared it.
    pub is_recorded: bool,
    pub content_already_delivered: Option<bool>,
    pub flags: Flags,
    pub is_counted: bool,
    pub is_bypass_counted: bool,
    /// What the row said last of it.
    pub is_bypass: bool,
}

impl Verdict {
    /// True where both tell of one decision: what only one of them knows decides nothing. A record
    /// is one decision of its own; every other source tells of what a record may declare as well.
    pub fn is_told_by(&self, other: &Verdict) -> bool {
        let is_same = self.stage == other.stage
            && self.decision == other.decision
            && !(self.is_recorded && other.is_recorded)
            && fits(&self.target_call_id, &other.target_call_id);
        if self.stage == Stage::ToolInput {
            return is_same && self.is_told_of_tool(other);
        }
        is_same
            && self.branch == other.branch
            && self.agent == other.agent
            && self.is_of_actor(other)
            && fits(&self.policy, &other.policy)
            && self.is_showing_of(other)
    }

    /// One call is refused once and gated once, whoever is known to have done it; that it may go on
    /// each guard says for itself, and a person apart from every guard.
    fn is_told_of_tool(&self, other: &Verdict) -> bool {
        let is_of_one_call = match (&self.target_call_id, &other.target_call_id) {
            (Some(_), Some(_)) => true,
            _ => self.tool.is_some() && self.tool == other.tool,
        };
        let is_human = |verdict: &Verdict| verdict.actor_type.as_deref() == Some("human");
        let is_one_kind = is_human(self) == is_human(other)
            || self.actor_type.is_none()
            || other.actor_type.is_none();
        let is_exclusive = matches!(
            self.decision,
            Some(DecisionWord::Deny | DecisionWord::Escalate)
        );
        is_of_one_call && is_one_kind && (is_exclusive || fits(&self.actor_name, &other.actor_name))
    }

    /// A provider refuses a call once, under whichever name it goes there; a record of a hook that
    /// gives the provider's own reason tells of the provider's refusal.
    fn is_of_actor(&self, other: &Verdict) -> bool {
        let is_provider = |verdict: &Verdict| verdict.actor_type.as_deref() == Some("provider");
        match (is_provider(self), is_provider(other)) {
            (true, true) => true,
            (false, false) => fits(&self.actor_name, &other.actor_name),
            _ => {
                let names_nobody = self.actor_type.is_none() || other.actor_type.is_none();
                names_nobody || self.reason_code.is_some() && self.reason_code == other.reason_code
            }
        }
    }

    /// True where native events show at most one of the two, or both with one call.
    fn is_showing_of(&self, other: &Verdict) -> bool {
        match (self.shown, other.shown) {
            (Shown::No, Shown::No) => false,
            (Shown::With(call), Shown::With(other)) => call == other,
            (Shown::No, _) => self.is_recorded,
            (_, Shown::No) => other.is_recorded,
            _ => false,
        }
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
        fill(
            &mut self.content_already_delivered,
            other.content_already_delivered,
        );
        if self.findings.is_empty() {
            self.findings = other.findings;
        }
        if self.entity_types.is_empty() {
            self.entity_types = other.entity_types;
        }
        if self.shown == Shown::No {
            self.shown = other.shown;
        }
        self.basis = self.basis.min(other.basis);
        self.is_recorded |= other.is_recorded;
    }

    /// True where it names the tool call: by id, else by what of tool and agent it says.
    pub fn names_tool(&self, call: &ToolCall) -> bool {
        match (&self.target_call_id, &self.target_name) {
            (Some(id), _) => call.call_id.as_ref() == Some(id),
            (None, Some(name)) => call.tool == *name && self.is_at(call),
            (None, None) => self.is_at(call),
        }
    }

    /// A source that names no branch or no agent matches any (rules.md §3).
    fn is_at(&self, call: &ToolCall) -> bool {
        let fits = |a: &Name, b: &Name| a == b || a.is_empty() || b.is_empty();
        fits(&self.branch, &call.branch) && fits(&self.agent, &call.agent)
    }

    /// True where the guard decided against what it stands before: it said so, or it failed closed
    /// and need not have said anything (events.md §2.2).
    pub fn denies(&self) -> bool {
        match self.decision {
            Some(decision) => decision == DecisionWord::Deny,
            None => self.outcome.as_deref() == Some("failed_closed"),
        }
    }

    /// True where a deny is meant to be enforced at all (rules.md §8).
    pub fn forbids(&self) -> bool {
        self.denies()
            && self.outcome.as_deref() != Some("failed_open")
            && self.mode.as_deref() != Some("monitor")
    }

    /// `enforced`: whether what the verdict forbids started after it. `is_over`: whether nothing
    /// more of it can.
    pub fn enforced(&self, has_started_after: bool, is_over: bool) -> Option<bool> {
        if self.outcome.as_deref() == Some("failed_open") || !self.denies() {
            return None;
        }
        if self.mode.as_deref() == Some("monitor") {
            return Some(false);
        }
        // What it forbids nobody knows.
        if self.stage == Stage::Unknown {
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

/// True where two sources do not contradict each other.
fn fits(a: &Option<Name>, b: &Option<Name>) -> bool {
    a.is_none() || b.is_none() || a == b
}
