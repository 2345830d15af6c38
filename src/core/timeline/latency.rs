//! When a call began, spoke and ended, and the spans between (facts.md §4, rules.md §5).

use super::model_call::{Attempt, ModelCall, RunView};
use super::stamp::Stamp;
use crate::core::Nanos;
use crate::core::fact::{CallStatus, Flag, Flags};

/// Latencies of the served attempt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latencies {
    pub ttfc: Option<Nanos>,
    pub ttft_visible: Option<Nanos>,
    pub completion: Option<Nanos>,
    pub total_with_retries: Option<Nanos>,
    /// A negative or impossible span was seen (anomaly `clock_skew`).
    pub is_skewed: bool,
    pub flags: Flags,
}

impl ModelCall {
    /// True where the call streamed, as far as anything tells.
    pub fn is_streaming(&self) -> Option<bool> {
        let streamed = self
            .attempts
            .iter()
            .any(|a| a.chunks > 0 || a.declared_first.is_some())
            || self.chunks_declared.is_some_and(|chunks| chunks > 0)
            || self.native.as_ref().is_some_and(|n| n.partials > 0);
        self.streaming.or(streamed.then_some(true))
    }

    /// The served attempt's start, first chunk and end, as the evidence says them.
    pub fn instants(&self) -> (Option<Stamp>, Option<Stamp>, Option<Stamp>) {
        let native = self.native.as_ref();
        let Some(last) = self.attempts.last() else {
            let native = native.filter(|n| n.first.is_some());
            let end = native.filter(|n| n.non_partials > 0).and_then(|n| n.last);
            return (
                native.and_then(|n| n.first),
                native.filter(|n| n.is_stream).and_then(|n| n.first_content),
                end,
            );
        };
        let end = match (last.end, &last.error) {
            (Some(end), _) => Some(last.declared_last.unwrap_or(end)),
            (None, Some(failure)) => Some(failure.at),
            (None, None) => native
                .filter(|n| n.non_partials > 0)
                .and_then(|n| n.last_content.or(n.last)),
        };
        let observed = if last.declared_start.is_some() {
            last.declared_first.or(last.first_content)
        } else {
            last.first_content.or(last.declared_first)
        };
        let first = observed.or(native
            .filter(|n| n.partials > 0)
            .and_then(|n| n.first_content));
        (last.request(), first, end)
    }

    /// Latencies of the served attempt (facts.md §4, rules.md §5).
    pub fn latencies(&self, run: RunView) -> Latencies {
        let mut out = Latencies::default();
        let (Some(start), first, end) = self.instants() else {
            return out;
        };
        let (status, _) = self.status(run);
        let has_end = !matches!(status, CallStatus::Cancelled | CallStatus::Incomplete);
        let from_native_only = self.attempts.is_empty();
        if from_native_only {
            return out;
        }
        let end = end.filter(|_| has_end);
        out.completion = end.and_then(|end| checked(end, start, &mut out));
        if self.is_streaming() == Some(true) {
            let visible = self
                .attempts
                .last()
                .and_then(|a| a.first_text)
                .or(self.native.as_ref().and_then(|n| n.first_text));
            let is_possible = |at: &Stamp| end.is_none_or(|end| !end.is_before(*at));
            if first.is_some_and(|at| !is_possible(&at)) {
                out.is_skewed = true;
            }
            out.ttfc = first.filter(is_possible).and_then(|at| {
                let span = checked(at, start, &mut out)?;
                if span < Nanos(1_000_000) {
                    out.flags.insert(Flag::ImplausibleLatency);
                    return None;
                }
                Some(span)
            });
            out.ttft_visible = visible
                .filter(is_possible)
                .and_then(|at| checked(at, start, &mut out));
        }
        if let (Some(end), Some(begun)) = (end, self.attempts.first().and_then(Attempt::request)) {
            out.total_with_retries = checked(end, begun, &mut out);
        }
        out
    }
}

/// A span that may be told: a negative one is none, and skews the clocks (facts.md §4).
fn checked(to: Stamp, from: Stamp, out: &mut Latencies) -> Option<Nanos> {
    let span = to.since(from, &mut out.flags)?;
    if span.0 < 0 {
        out.is_skewed = true;
        return None;
    }
    Some(span)
}
