//! One model call: its attempts as records tell them, its responses as native events tell them, and
//! what follows.
//!
//! Snapshots of usage replace each other within an attempt, attempts add up, and latency comes from
//! clocks that can be compared. It knows nothing of segments: whether the run ended well is an
//! argument.

use super::finish_word::{ERROR_WORDS, is_block_word, is_fine_word};
use super::hooks::Edit;
use super::model_records::ATTEMPTS_MAX;
use super::row::{RowState, push_tight};
use super::stamp::{Stamp, earliest, latest};
use crate::core::EventTime;
use crate::core::Name;
use crate::core::event::{ChunkContent, Measured, ServedBy};
use crate::core::fact::{CallStatus, Flag, Flags};
use crate::core::usage::{TokenUsage, UsageContext, UsageReport, UsageState};

/// One request to the provider, as records tell it.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub number: u32,
    pub start: Option<Stamp>,
    /// `started_at`: the instant the request left; wins over the start record.
    pub declared_start: Option<Stamp>,
    pub first_content: Option<Stamp>,
    pub first_text: Option<Stamp>,
    pub declared_first: Option<Stamp>,
    pub declared_last: Option<Stamp>,
    pub chunks: u32,
    pub usage: Option<UsageReport>,
    /// When the newest report of it was made.
    usage_at: Option<Stamp>,
    pub end: Option<Stamp>,
    pub error: Option<Failure>,
}

/// How an attempt failed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub at: Stamp,
    /// `code`, else `type`.
    pub code: Name,
    pub is_cancelled: bool,
}

impl Attempt {
    /// Takes a report of usage that was made at `at`. The newest one stands, field by field, in
    /// whatever order they come. True where a count shrank.
    pub fn report(&mut self, usage: &UsageReport, at: Stamp) -> bool {
        if self.usage_at.is_some_and(|newest| at.is_before(newest)) {
            let newer = self.usage.replace(usage.clone());
            return newer.is_some_and(|newer| merge(&mut self.usage, &newer));
        }
        self.usage_at = Some(at);
        merge(&mut self.usage, usage)
    }

    fn new(number: u32) -> Attempt {
        Attempt {
            number,
            start: None,
            declared_start: None,
            first_content: None,
            first_text: None,
            declared_first: None,
            declared_last: None,
            chunks: 0,
            usage_at: None,
            usage: None,
            end: None,
            error: None,
        }
    }

    /// When the request left, as well as is known.
    pub fn request(&self) -> Option<Stamp> {
        self.declared_start.or(self.start)
    }

    fn had_content(&self) -> bool {
        self.first_content.is_some() || self.declared_first.is_some()
    }
}

/// What native events told of the call (runtimes.md §18).
#[derive(Clone, Debug, Default)]
pub struct NativeSide {
    pub partials: u32,
    pub non_partials: u32,
    /// Seen with a partial, or with an explicit `partial: false` not of Go v1.
    pub is_stream: bool,
    pub is_closed: bool,
    /// Its turn is complete: not even a late usage report belongs to it.
    pub is_turn_over: bool,
    pub usage: Option<UsageReport>,
    /// The newest report came on a partial.
    pub usage_on_partial: bool,
    pub first: Option<Stamp>,
    pub last: Option<Stamp>,
    pub first_content: Option<Stamp>,
    pub first_text: Option<Stamp>,
    pub last_content: Option<Stamp>,
    /// Hash of the last non-partial content, for telling an echo.
    pub content_hash: u64,
    /// Id of the non-partial event that closed the call.
    pub event_id: Option<Name>,
}

/// One call that a model answered or may have answered.
#[derive(Clone, Debug)]
pub struct ModelCall {
    pub row: RowState,
    pub key: Name,
    pub call_id: Option<Name>,
    pub branch: Name,
    pub agent: Name,
    pub node_path: Option<Name>,
    pub agent_run: Option<usize>,
    pub order: u32,
    pub attempts: Vec<Attempt>,
    pub native: Option<NativeSide>,
    pub has_lifecycle: bool,
    pub requested_model: Option<Name>,
    pub response_model: Option<Name>,
    pub provider: Option<Name>,
    pub operation: Option<Name>,
    pub streaming: Option<bool>,
    /// What `model.end` said; `None` until then.
    pub served_by: Option<ServedBy>,
    pub measured: Option<Measured>,
    pub chunks_declared: Option<u64>,
    pub service_tier: Option<Name>,
    pub finish_reason: Option<Name>,
    /// Code of an error that a response carried (`errorCode`, `model.end.error`).
    pub response_error: Option<Name>,
    pub recovered: bool,
    pub trace_id: Option<Name>,
    pub span_id: Option<Name>,
    pub attributes: Vec<(Name, Name)>,
    pub flags: Flags,
    /// Last evidence of any kind, for `billed_at`.
    pub last_seen: Stamp,
    /// Nothing further is expected: the agent went on, or the segment ended.
    pub is_settled: bool,
    /// A local answer took this call's place; it has no row.
    pub is_answered_locally: bool,
    /// An after-model hook ran: the model had answered, whatever became of the answer.
    pub was_answered: bool,
    /// What hooks put in the place of the request, the answer or an error.
    pub edits: Vec<Edit>,
    pub counted: super::counting::CountedCall,
}

/// What the segment knows when it asks for the call as a fact.
#[derive(Clone, Copy, Debug)]
pub struct RunView {
    /// The run ended, and ended well, and no `emitter.gap` was seen.
    pub ended_well_without_gap: bool,
    pub was_cancelled: bool,
    pub plausible_tokens_max: u64,
}

impl ModelCall {
    /// A call whose first evidence is the record at `row`'s offset.
    pub fn new(row: RowState, key: Name, branch: Name, agent: Name, seen: Stamp) -> ModelCall {
        ModelCall {
            row,
            key,
            call_id: None,
            branch,
            agent,
            node_path: None,
            agent_run: None,
            order: 0,
            attempts: Vec::new(),
            native: None,
            has_lifecycle: false,
            requested_model: None,
            response_model: None,
            provider: None,
            operation: None,
            streaming: None,
            served_by: None,
            measured: None,
            chunks_declared: None,
            service_tier: None,
            finish_reason: None,
            response_error: None,
            recovered: false,
            trace_id: None,
            span_id: None,
            attributes: Vec::new(),
            flags: Flags::default(),
            last_seen: seen,
            is_settled: false,
            is_answered_locally: false,
            was_answered: false,
            edits: Vec::new(),
            counted: super::counting::CountedCall::default(),
        }
    }

    /// The attempt a record is about: the numbered one, or the one that is open then (events.md
    /// §2.2).
    pub fn attempt(&mut self, number: Option<u32>) -> &mut Attempt {
        let position = match number {
            Some(number) => self.attempts.iter().position(|a| a.number == number),
            None => self.attempts.len().checked_sub(1),
        };
        let is_full = self.attempts.len() >= ATTEMPTS_MAX;
        let position = position.or(is_full.then_some(ATTEMPTS_MAX - 1));
        let position = position.unwrap_or_else(|| {
            let next = self
                .attempts
                .last()
                .map_or(1, |last| last.number.saturating_add(1));
            push_tight(&mut self.attempts, Attempt::new(number.unwrap_or(next)));
            self.attempts.len() - 1
        });
        &mut self.attempts[position]
    }

    /// `model.start`: a further start after a failure, or another number, begins a further attempt.
    pub fn start(&mut self, number: Option<u32>, at: Stamp) {
        let has_failed = self.attempts.last().is_some_and(|last| {
            // A start that was made before the failure is the failed attempt's own, come late.
            let is_own = |error: &Failure| last.start.is_none() && at.is_before(error.at);
            last.error.as_ref().is_some_and(|error| !is_own(error))
        });
        let number = match number {
            None if has_failed => self
                .attempts
                .last()
                .map(|last| last.number.saturating_add(1)),
            number => number,
        };
        let attempt = self.attempt(number);
        attempt.start = earliest(attempt.start, at);
        self.has_lifecycle = true;
        self.is_settled = false;
    }

    /// `model.chunk`. Returns true where a count fell (anomaly `usage_shrank`).
    pub fn chunk(
        &mut self,
        number: Option<u32>,
        content: ChunkContent,
        usage: Option<&UsageReport>,
        at: Stamp,
    ) -> bool {
        self.has_lifecycle = true;
        let attempt = self.attempt(number);
        attempt.chunks += 1;
        if content != ChunkContent::None {
            attempt.first_content = earliest(attempt.first_content, at);
        }
        if content == ChunkContent::Text {
            attempt.first_text = earliest(attempt.first_text, at);
        }
        usage.is_some_and(|usage| attempt.report(usage, at))
    }

    /// True where an answer of the model was seen, by record or event, or is proved by a hook.
    pub fn has_response(&self) -> bool {
        self.was_answered
            || self
                .attempts
                .iter()
                .any(|a| a.chunks > 0 || a.end.is_some())
            || self
                .native
                .as_ref()
                .is_some_and(|n| n.partials + n.non_partials > 0)
    }

    /// True where the newest attempt failed and no hook answered in its place.
    pub fn has_failed(&self) -> bool {
        let last = self.attempts.last();
        last.is_some_and(|a| a.error.is_some() && a.end.is_none()) && !self.recovered
    }

    /// The number of the newest attempt, where that one failed.
    pub fn failed_attempt(&self) -> Option<u32> {
        let last = self.attempts.last()?;
        last.error.as_ref().map(|_| last.number)
    }

    /// True where at least so many attempts are known to have been made, by their number or by
    /// what the records call them.
    pub fn has_attempts(&self, count: usize) -> bool {
        let named = self.attempts.iter().map(|attempt| attempt.number as usize);
        self.attempts.len() >= count || named.max().is_some_and(|number| number >= count)
    }

    /// True where every record of the call so far is a start.
    pub fn is_only_start(&self) -> bool {
        !self.has_response() && self.attempts.iter().all(|a| a.error.is_none())
    }

    /// True where a model is known to have been asked: not by a start alone, which a hook may have
    /// answered, nor where the records do not know who answered.
    pub fn was_made(&self) -> bool {
        self.is_call() && self.served_by != Some(ServedBy::Unknown) && !self.is_only_start()
    }

    /// True where the call has evidence of its end.
    pub fn has_ended(&self) -> bool {
        self.served_by.is_some()
            || self
                .attempts
                .last()
                .is_some_and(|a| a.end.is_some() || a.error.is_some())
            || self.native.as_ref().is_some_and(|n| n.non_partials > 0)
    }

    /// True where facts.md §8.3 lets the row go out.
    pub fn is_exportable(&self) -> bool {
        let answered = self.attempts.last().is_some_and(|a| a.end.is_some())
            || self.native.as_ref().is_some_and(|n| n.non_partials > 0)
            || self.served_by.is_some();
        self.has_row() && (answered || self.is_settled)
    }

    /// True where the call has a row of `model_calls`: not where a hook or a cache answered, or
    /// nothing was sent. A row that was exported before that was known stays, as one of unknown
    /// origin.
    pub fn has_row(&self) -> bool {
        self.is_call() || self.row.is_exported()
    }

    /// False where records told that no model was asked.
    pub fn is_call(&self) -> bool {
        !self.is_answered_locally && self.served_by != Some(ServedBy::None)
    }

    /// True where records told of a response; a native event alone may be a hook's.
    pub fn has_told_response(&self) -> bool {
        let told = |attempt: &Attempt| attempt.chunks > 0 || attempt.end.is_some();
        self.attempts.iter().any(told)
    }

    /// Who answered: `model`, or `unknown` for a start that nothing followed in a run that ended
    /// well (rules.md §6).
    pub fn served_by(&self, run: RunView) -> ServedBy {
        match self.served_by {
            _ if !self.is_call() => ServedBy::Unknown,
            Some(ServedBy::Unknown) => ServedBy::Unknown,
            None if self.is_only_start() && run.ended_well_without_gap => ServedBy::Unknown,
            None if self.is_unknown_answer() => ServedBy::Unknown,
            _ => ServedBy::Model,
        }
    }

    /// A native answer of unknown origin (rules.md §2); marked by its maker with the flag of its
    /// kind.
    fn is_unknown_answer(&self) -> bool {
        self.served_by == Some(ServedBy::Unknown)
    }

    /// Status and error code (rules.md §6).
    pub fn status(&self, run: RunView) -> (CallStatus, Option<Name>) {
        let finish_blocks = self.finish_reason.as_deref().is_some_and(is_block_word);
        let error_blocks = self.response_error.as_deref().is_some_and(is_block_word);
        if finish_blocks || error_blocks {
            let code = self
                .response_error
                .clone()
                .or_else(|| self.finish_reason.clone());
            return (CallStatus::Blocked, code);
        }
        let last = self.attempts.last();
        let ended = last.is_some_and(|a| a.end.is_some());
        if let Some(failure) = last.and_then(|a| a.error.as_ref())
            && !ended
        {
            let cancelled = failure.is_cancelled;
            let status = if cancelled {
                CallStatus::Cancelled
            } else {
                CallStatus::Error
            };
            return (status, Some(failure.code.clone()));
        }
        let failed_word = self
            .finish_reason
            .clone()
            .filter(|word| ERROR_WORDS.contains(&&**word))
            .or_else(|| {
                self.response_error
                    .clone()
                    .filter(|code| !is_fine_word(code))
            });
        if let Some(code) = failed_word {
            return (CallStatus::Error, Some(code));
        }
        let answered = ended || self.native.as_ref().is_some_and(|n| n.non_partials > 0);
        if answered || self.served_by.is_some() {
            return (CallStatus::Ok, self.response_error.clone());
        }
        if run.was_cancelled {
            return (CallStatus::Cancelled, None);
        }
        (CallStatus::Incomplete, None)
    }

    /// Where a provider's refusal stands: at the output when it came as a finish reason, else at
    /// the input.
    pub fn block_at_output(&self) -> bool {
        self.finish_reason.as_deref().is_some_and(is_block_word)
    }

    /// True where content had been seen before the last evidence.
    pub fn has_delivered_content(&self) -> bool {
        self.attempts.iter().any(Attempt::had_content)
            || self
                .native
                .as_ref()
                .is_some_and(|n| n.first_content.is_some())
    }

    /// Usage of the call, from one source (rules.md §3, §4).
    pub fn usage(&self, runtime: Option<&str>, run: RunView) -> (TokenUsage, Flags) {
        let mut flags = Flags::default();
        let told = self.lifecycle_usage(runtime, run, &mut flags);
        let seen = self.native_usage(runtime, run, &mut flags);
        let usage = match (told, seen) {
            (Some(told), Some(seen)) => {
                if told.state == UsageState::Reported
                    && seen.state == UsageState::Reported
                    && told.total != seen.total
                {
                    flags.insert(Flag::SourceConflict);
                }
                if told.state != UsageState::Reported && seen.state == UsageState::Reported {
                    seen
                } else {
                    told
                }
            }
            (told, seen) => told.or(seen).unwrap_or_default(),
        };
        note_words(&usage, &mut flags);
        let mut usage = usage;
        if self.flags.contains(Flag::Limited) {
            usage.lower_to_partial();
        }
        if usage.state == UsageState::Partial {
            flags.insert(Flag::UsageFromPartial);
        }
        (usage, flags)
    }

    fn lifecycle_usage(
        &self,
        runtime: Option<&str>,
        run: RunView,
        flags: &mut Flags,
    ) -> Option<TokenUsage> {
        let mut sum: Option<TokenUsage> = None;
        for attempt in &self.attempts {
            let Some(report) = &attempt.usage else {
                continue;
            };
            let had_content = attempt.had_content() || attempt.end.is_some();
            let mut usage = report.normalise(&self.usage_context(runtime, had_content, run));
            if attempt.end.is_none() && usage.state == UsageState::Reported {
                usage.state = UsageState::Partial;
                flags.insert(Flag::UsageFromPartial);
            }
            match &mut sum {
                Some(sum) => sum.add(&usage),
                None => sum = Some(usage),
            }
        }
        if let Some(usage) = sum
            .as_ref()
            .filter(|usage| usage.state == UsageState::Missing)
        {
            note_words(usage, flags);
        }
        sum.filter(|usage| usage.state != UsageState::Missing)
    }

    fn native_usage(
        &self,
        runtime: Option<&str>,
        run: RunView,
        flags: &mut Flags,
    ) -> Option<TokenUsage> {
        let native = self.native.as_ref()?;
        let report = native.usage.as_ref()?;
        let had_content = native.first_content.is_some();
        let mut usage = report.normalise(&self.usage_context(runtime, had_content, run));
        if native.non_partials == 0 {
            if usage.state == UsageState::Reported {
                usage.state = UsageState::Partial;
            }
        } else if native.usage_on_partial {
            flags.insert(Flag::UsageFromPartial);
        }
        Some(usage)
    }

    fn usage_context<'a>(
        &'a self,
        runtime: Option<&'a str>,
        had_content: bool,
        run: RunView,
    ) -> UsageContext<'a> {
        UsageContext {
            provider: self.provider.as_deref(),
            model: self
                .response_model
                .as_deref()
                .or(self.requested_model.as_deref()),
            runtime,
            is_span: false,
            had_content,
            plausible_tokens_max: run.plausible_tokens_max,
        }
    }

    /// True where usage ought to have been told: not for a call that failed before any content
    /// (rules.md §4).
    pub fn usage_is_due(&self, run: RunView) -> bool {
        let (status, _) = self.status(run);
        status != CallStatus::Error || self.has_delivered_content()
    }

    /// Failed attempts by error code, in order of the code.
    pub fn attempt_errors(&self) -> Vec<(Name, u32)> {
        let mut counts: std::collections::BTreeMap<Name, u32> = std::collections::BTreeMap::new();
        for failure in self.attempts.iter().filter_map(|a| a.error.as_ref()) {
            *counts.entry(failure.code.clone()).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    }

    /// Notes evidence of any kind.
    pub fn seen(&mut self, at: Stamp) {
        self.last_seen = latest(Some(self.last_seen), at).unwrap_or(at);
    }

    /// End of the call, else its last evidence.
    pub fn billed_at(&self) -> EventTime {
        self.instants().2.unwrap_or(self.last_seen).at
    }
}

/// The words that normalising usage found.
fn note_words(usage: &TokenUsage, flags: &mut Flags) {
    for word in usage.flags.iter() {
        if let Some(flag) = Flag::ALL.into_iter().find(|flag| flag.as_str() == word) {
            flags.insert(flag);
        }
    }
}

/// Newest wins; true where a count fell.
pub fn merge(known: &mut Option<UsageReport>, newer: &UsageReport) -> bool {
    match known {
        Some(known) => {
            let shrank = newer.shrank_from(known);
            known.merge(newer);
            shrank
        }
        None => {
            *known = Some(newer.clone());
            false
        }
    }
}
