//! One execution of one tool call: by call id and execution, never by stack position.

use super::hooks::Edit;
use super::row::RowState;
use super::stamp::Stamp;
use crate::core::event::ToolOutcome;
use crate::core::fact::{Executed, Flags, ToolStatus};
use crate::core::{Name, Nanos};

/// An answer to a tool call.
#[derive(Clone, Debug)]
pub struct Answer {
    pub at: Stamp,
    pub outcome: ToolOutcome,
    pub error_code: Option<Name>,
    pub is_not_found: bool,
    pub is_cancelled: bool,
}

/// One execution of one tool call.
#[derive(Clone, Debug)]
pub struct ToolCall {
    pub row: RowState,
    pub key: Name,
    pub call_id: Option<Name>,
    pub execution: u32,
    pub tool: Name,
    pub origin: Option<Name>,
    pub agent: Name,
    pub branch: Name,
    pub agent_run: Option<usize>,
    /// The model asked for it (a native function call).
    pub asked: Option<Stamp>,
    /// `tool.start`.
    pub start: Option<Stamp>,
    /// The start came from a hook that stands before the guards: it proves no execution.
    pub start_is_hook: bool,
    /// `tool.end`, the last one.
    pub end: Option<Answer>,
    /// A native function response, the last one.
    pub answer: Option<Answer>,
    /// A first answer that was only a promise (`deferred`).
    pub deferred_at: Option<Stamp>,
    pub duration_declared: Option<Nanos>,
    pub retries: Option<u64>,
    pub long_running: bool,
    /// Type and name of the hook that answered in its place.
    pub answered_by: (Option<Name>, Option<Name>),
    /// A deny names it.
    pub is_denied: bool,
    /// An escalate names it.
    pub is_escalated: bool,
    pub args_hash: u64,
    pub recovered: bool,
    /// What hooks put in the place of the call, its answer or an error.
    pub edits: Vec<Edit>,
    /// Whether the segment counts it as an open execution.
    pub was_open: bool,
    /// Whether the segment counts it as waiting for its answer.
    pub was_pending: bool,
    pub flags: Flags,
    pub counted: super::counting::CountedTool,
}

impl ToolCall {
    /// A call whose first evidence is the record at `row`'s offset.
    pub fn new(row: RowState, key: Name, tool: Name, agent: Name, branch: Name) -> ToolCall {
        ToolCall {
            row,
            key,
            call_id: None,
            execution: 1,
            tool,
            origin: None,
            agent,
            branch,
            agent_run: None,
            asked: None,
            start: None,
            start_is_hook: false,
            end: None,
            answer: None,
            deferred_at: None,
            duration_declared: None,
            retries: None,
            long_running: false,
            answered_by: (None, None),
            is_denied: false,
            is_escalated: false,
            args_hash: 0,
            recovered: false,
            edits: Vec::new(),
            was_open: false,
            was_pending: false,
            flags: Flags::default(),
            counted: super::counting::CountedTool::default(),
        }
    }

    /// `tool.end`: a later one replaces an earlier one, and a promise is remembered.
    pub fn finish(&mut self, answer: Answer) {
        if answer.outcome == ToolOutcome::Deferred {
            self.long_running = true;
            self.deferred_at.get_or_insert(answer.at);
        }
        self.end = Some(answer);
    }

    /// True while an execution is known to run or an answer is still to come in this run.
    pub fn is_open(&self) -> bool {
        self.end.is_none() && self.answer.is_none() && !self.long_running
    }

    /// True where a start at this instant is this execution's: nothing answered yet, or the answer
    /// only came first.
    pub fn may_begin_at(&self, at: Stamp) -> bool {
        let lacks_start = self.start.is_none();
        !self.is_answered() || lacks_start && self.ended_at().is_some_and(|end| !end.is_before(at))
    }

    /// True while a long-running call waits for its answer.
    pub fn is_pending(&self) -> bool {
        match (&self.end, &self.answer) {
            (Some(end), _) => end.outcome == ToolOutcome::Deferred,
            (None, Some(_)) => false,
            (None, None) => self.long_running,
        }
    }

    /// True where facts.md §8.3 lets the row go out.
    pub fn is_answered(&self) -> bool {
        self.end.is_some() || self.answer.is_some()
    }

    /// The answer that counts: the record's, else the event's.
    fn last_answer(&self) -> Option<&Answer> {
        self.end.as_ref().or(self.answer.as_ref())
    }

    /// Status (rules.md §7). `paused`: the segment ended or was released after a declared pause.
    pub fn status(&self, paused: bool) -> ToolStatus {
        let Some(answer) = self.last_answer() else {
            let waits = self.long_running || paused;
            return if waits {
                ToolStatus::Deferred
            } else {
                ToolStatus::Unanswered
            };
        };
        if answer.is_cancelled {
            return ToolStatus::Cancelled;
        }
        if self.is_denied && self.proof_of_start().is_none() {
            return ToolStatus::Refused;
        }
        match answer.outcome {
            ToolOutcome::Ok | ToolOutcome::Unknown => ToolStatus::Ok,
            ToolOutcome::Error if self.is_escalated => ToolStatus::Deferred,
            ToolOutcome::Error => ToolStatus::Error,
            ToolOutcome::Refused => ToolStatus::Refused,
            ToolOutcome::Deferred => ToolStatus::Deferred,
            ToolOutcome::Skipped => ToolStatus::Skipped,
            ToolOutcome::Timeout => ToolStatus::Timeout,
            ToolOutcome::Cancelled => ToolStatus::Cancelled,
        }
    }

    /// True where the answer is a failure.
    pub fn has_failed(&self) -> bool {
        let failed =
            |answer: &Answer| matches!(answer.outcome, ToolOutcome::Error | ToolOutcome::Timeout);
        self.last_answer().is_some_and(failed)
    }

    /// A start that proves execution.
    pub fn proof_of_start(&self) -> Option<Stamp> {
        self.start.filter(|_| !self.start_is_hook)
    }

    /// Whether it ran (rules.md §7).
    pub fn executed(&self, paused: bool) -> Executed {
        let status = self.status(paused);
        let invented = self.is_invented();
        match status {
            ToolStatus::Refused | ToolStatus::Skipped => Executed::No,
            _ if invented => Executed::No,
            ToolStatus::Deferred if self.is_escalated => Executed::No,
            _ if self.proof_of_start().is_some() => Executed::Yes,
            ToolStatus::Deferred => Executed::No,
            _ => Executed::Unknown,
        }
    }

    /// True where the tool was not found.
    pub fn is_invented(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.is_not_found)
    }

    /// First instant: the start, else when the model asked.
    pub fn started_at(&self) -> Option<Stamp> {
        self.start.or(self.asked)
    }

    /// Last instant, where an answer was seen.
    pub fn ended_at(&self) -> Option<Stamp> {
        self.last_answer().map(|answer| answer.at)
    }

    /// Time of execution: as declared, else from start to end by records, else between native
    /// events whose times are arrivals. Never of a long-running call, whose time is waiting, and
    /// never of one that did not run.
    pub fn duration(&self, paused: bool, flags: &mut Flags) -> Option<Nanos> {
        if self.executed(paused) == Executed::No || self.is_pending() {
            return None;
        }
        if self.duration_declared.is_some() {
            return self.duration_declared;
        }
        let from = self.start.or(self.asked)?;
        if self.long_running {
            let until = self.deferred_at?;
            return until.since(from, flags).filter(|span| span.0 >= 0);
        }
        let until = self.ended_at()?;
        until.since(from, flags).filter(|span| span.0 >= 0)
    }

    /// True where the two instants contradict each other.
    pub fn is_skewed(&self) -> bool {
        let mut flags = Flags::default();
        match (self.start, self.end.as_ref()) {
            (Some(from), Some(end)) => end
                .at
                .since(from, &mut flags)
                .is_some_and(|span| span.0 < 0),
            _ => false,
        }
    }

    /// Waiting of a long-running call: from the call to its answer.
    pub fn wait(&self) -> Option<Nanos> {
        if !self.long_running || self.is_pending() {
            return None;
        }
        let from = self.started_at()?;
        let until = self.ended_at()?;
        // Waiting spans hours and perhaps hosts: wall clocks, whatever they stand for, and never
        // below zero.
        (from.is_valid && until.is_valid)
            .then(|| until.at.since(from.at))
            .filter(|span| span.0 >= 0)
    }
}
