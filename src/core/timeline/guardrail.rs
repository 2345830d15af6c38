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
    pub content_already_delivered: Option<bool>,
    pub flags: Flags,
    /// What the row said last.
    pub enforced_last: Option<bool>,
    pub is_counted: bool,
    pub is_bypass_counted: bool,
}

impl Verdict {
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
