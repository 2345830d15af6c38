//! Which model call a native response is of (runtimes.md §18, rules.md §2 and §3).

use super::apply::Place;
use super::finish_word::is_provider_word;
use super::invocation::Segment;
use super::model_call::{Attempt, ModelCall, NativeSide};
use super::native::Response;
use super::stamp::Stamp;
use super::tool_call::ToolCall;
use crate::core::Name;
use crate::core::event::{NativeEvent, ServedBy};
use crate::core::fact::Flag;
use crate::core::usage::UsageReport;

impl Segment {
    /// The call whose final response had the same event id: this is a newer version of it, and
    /// replaces what it said (rules.md §1).
    pub(super) fn replaced_by(
        &mut self,
        native: &NativeEvent<'_>,
        response: &Response,
    ) -> Option<usize> {
        let id = native.id.as_deref().filter(|_| !response.is_partial)?;
        let index = *self.calls_by_event.get(id)?;
        let call = &mut self.calls[index];
        call.flags.insert(Flag::IdConflict);
        if let Some(side) = call.native.as_mut() {
            side.usage = None;
            side.content_hash = 0;
        }
        Some(index)
    }

    /// A content-less event that completes the turn: what follows is another call (rules.md §2).
    pub(super) fn end_turn(&mut self, place: &Place) {
        for (branch, _, author, index) in &self.native_calls {
            if *branch == place.branch
                && *author == place.agent
                && let Some(side) = self.calls[*index].native.as_mut()
            {
                side.is_closed = true;
                side.is_turn_over = true;
            }
        }
    }

    /// The call a response joins (rules 2, 3 and 5 of runtimes.md §18), if any.
    pub(super) fn call_of_response(
        &self,
        native: &NativeEvent<'_>,
        response: &Response,
        place: &Place,
    ) -> Option<usize> {
        let code = native.error_code.as_deref();
        let is_exception = code.is_some_and(|code| !is_provider_word(code))
            && !response.has_content
            && !response.has_usage;
        let known = self.native_calls.iter().find(|(branch, path, author, _)| {
            *branch == place.branch
                && *author == place.agent
                && (path.is_empty() || place.node_path.as_ref().is_none_or(|p| p == path))
        });
        let newest = known.map(|(.., index)| *index);
        if is_exception {
            let is_open = |index: &usize| {
                let side = self.calls[*index].native.as_ref();
                side.is_some_and(|side| side.non_partials == 0 && !side.is_closed)
            };
            return newest.filter(is_open);
        }
        newest
            .filter(|index| self.calls[*index].is_followed_by(native, response, place.at))
            .or_else(|| self.waiting_call(native, response, place))
            .or_else(|| newest.filter(|index| self.calls[*index].goes_on_with(native, response)))
    }

    /// The oldest call that records told of and whose native answer is still to come.
    fn waiting_call(
        &self,
        native: &NativeEvent<'_>,
        response: &Response,
        place: &Place,
    ) -> Option<usize> {
        if !self.has_told_calls {
            return None;
        }
        // A tool that this response asks for was started by records already: by no later call.
        let is_unseen = |tool: &ToolCall| tool.asked.is_none();
        let asked = native.function_calls.iter().filter_map(|c| c.id.as_deref());
        let told = asked.filter_map(|id| self.told(id, is_unseen));
        let tool_start = told.filter_map(|index| self.tools[index].start).next();
        let is_too_late = |call: &ModelCall| {
            let start = call.attempts.first().and_then(Attempt::request);
            let pair = tool_start.zip(start);
            pair.is_some_and(|(tool, call)| tool.is_before(call))
        };
        let waits = |call: &ModelCall| {
            let side_is_free = call
                .native
                .as_ref()
                .is_none_or(|side| !side.is_closed && side.non_partials == 0);
            call.has_lifecycle
                && !call.is_answered_locally
                && side_is_free
                && !is_too_late(call)
                && call.may_be_of(native.usage.as_ref())
                && !matches!(call.served_by, Some(ServedBy::None | ServedBy::Unknown))
        };
        // What failed for good answers no more; only its chunks may still be on their way.
        let may_answer = |call: &ModelCall| waits(call) && !call.has_failed();
        let here = |call: &ModelCall| call.branch == place.branch && call.agent == place.agent;
        let first = |fits: &dyn Fn(&ModelCall) -> bool| self.calls.iter().position(fits);
        first(&|call| here(call) && may_answer(call))
            .or_else(|| first(&|call| call.may_be_at(place) && may_answer(call)))
            .or_else(|| first(&|call| here(call) && waits(call)).filter(|_| response.is_partial))
    }
}

impl ModelCall {
    /// False where the call has ended with another prompt than a report tells: order joins no two
    /// calls whose prompts differ (rules.md §3).
    pub fn may_be_of(&self, other: Option<&UsageReport>) -> bool {
        let ended = self.attempts.last().filter(|attempt| attempt.end.is_some());
        let told = ended
            .and_then(|attempt| attempt.usage.as_ref())
            .or(self.native.as_ref().and_then(|side| side.usage.as_ref()))
            .and_then(UsageReport::prompt_count);
        match (told, other.and_then(UsageReport::prompt_count)) {
            (Some(told), Some(other)) => told == other || ended.is_none() && self.has_lifecycle,
            _ => true,
        }
    }

    /// True where two sources may speak of one place: a source that names no branch or no agent
    /// matches any (rules.md §3).
    pub fn may_be_at(&self, place: &Place) -> bool {
        let fits = |a: &Name, b: &Name| a == b || a.is_empty() || b.is_empty();
        fits(&self.branch, &place.branch) && fits(&self.agent, &place.agent)
    }

    /// True where a response surely is one more of this call, which has a native answer already:
    /// usage without content (rule 5 of runtimes.md §18), or an event older than the end that
    /// records tell of the call.
    fn is_followed_by(&self, native: &NativeEvent<'_>, response: &Response, at: Stamp) -> bool {
        let has_answer = |side: &NativeSide| side.non_partials > 0 && !side.is_turn_over;
        if !self.native.as_ref().is_some_and(has_answer) || !self.may_be_of(native.usage.as_ref()) {
            return false;
        }
        let is_tail = !response.has_content && response.has_usage && native.error_code.is_none();
        let end = self.attempts.last().and_then(|attempt| attempt.end);
        is_tail || at.is_valid && end.is_some_and(|end| at.is_before(end))
    }

    /// True where a response may be one more of this call, the newest that events told of (rules 2,
    /// 3 and 5 of runtimes.md §18).
    fn goes_on_with(&self, native: &NativeEvent<'_>, response: &Response) -> bool {
        let Some(side) = &self.native else {
            return false;
        };
        let is_tail = !response.has_content && response.has_usage && native.error_code.is_none();
        if is_tail && !side.is_turn_over {
            return true;
        }
        if side.is_closed || self.served_by == Some(ServedBy::Unknown) {
            return false;
        }
        let is_in_lifecycle = self.attempts.last().is_some_and(|a| a.end.is_none());
        if side.non_partials == 0 || is_in_lifecycle {
            return true;
        }
        let repeats = side.is_stream && native.usage == side.usage;
        !response.is_partial && (!response.has_usage_object || repeats)
    }
}
