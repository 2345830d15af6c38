//! What the records themselves said, in order: the native events behind the facts, and short
//! circuits.
//!
//! The core keeps no list of events, so `replay` looks at each record once more. Nothing here
//! changes a fact.

use super::gaps::Stretch;
use crate::core::dialect::{self, DecodeContext, RecordBytes};
use crate::core::event::{EventKind, HookOutcome, NativeEvent, Returned, RuntimeEvent, Str};
use crate::core::time::stand_in;
use crate::core::{EventTime, LogTime, Name};
use std::collections::BTreeMap;

/// 2015-01-01, before which no event time is believed (events.md §3).
const OLDEST: EventTime = EventTime(1_420_070_400_000_000_000);
/// 2100-01-01, after which none may move the log time of a file that has no broker's times.
const NEWEST: EventTime = EventTime(4_102_444_800_000_000_000);
const DAY_NS: i64 = 86_400_000_000_000;

/// One entry of the timeline: a native event, or a hook that answered instead of what it guards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub tenant: Option<Name>,
    pub app: Option<Name>,
    pub invocation_id: Option<Name>,
    pub branch: Name,
    pub author: Option<Name>,
    /// Id of the native event.
    pub id: Option<Name>,
    /// Its own time, else the broker's.
    pub at: EventTime,
    pub what: What,
    /// 0 without content.
    pub content_hash: u64,
    pub is_partial: bool,
    /// A model's report stands there: usage, model version or finish reason.
    pub has_report: bool,
}

/// What an entry is (cases README §7.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    UserMessage,
    ModelResponse,
    ToolResponse,
    Compaction,
    /// `short_circuit:<hook>:<actor>`.
    ShortCircuit(String),
    Other,
}

impl Seen {
    /// True for a native event.
    pub fn is_native(&self) -> bool {
        !matches!(self.what, What::ShortCircuit(_))
    }
}

/// What one record said.
#[derive(Debug, Default)]
pub struct Look {
    pub entries: Vec<Seen>,
    /// The newest believable event time: the record's own time.
    pub own_time: Option<LogTime>,
    /// Usage fields that were no count.
    pub invalid_usage_fields: u64,
    /// Numbers of the emitter that it accounts for.
    pub stretches: Vec<Stretch>,
}

/// The newest believable event time of a record, which stands for its log time where the log
/// gives none.
pub fn own_time(record: RecordBytes<'_>, context: &DecodeContext) -> Option<LogTime> {
    Look::at(record, context).own_time
}

impl Look {
    /// Reads one record.
    pub fn at(record: RecordBytes<'_>, context: &DecodeContext) -> Look {
        let mut look = Look::default();
        dialect::decode(record, context, &mut |event| look.take(&event));
        look
    }

    /// Settles the times of the entries once the record's log time is known.
    pub fn settle(&mut self, log_time: LogTime) {
        let stand_in = stand_in(log_time);
        for entry in &mut self.entries {
            let is_future = entry.at.0 > stand_in.0.saturating_add(DAY_NS);
            if entry.at < OLDEST || is_future {
                entry.at = stand_in;
            }
        }
    }

    fn take(&mut self, event: &RuntimeEvent<'_>) {
        self.stretches.extend(Stretch::of(event));
        if let Some(at) = event.at.filter(|at| (OLDEST..NEWEST).contains(at)) {
            let at = LogTime(at.0.div_euclid(1_000_000));
            self.own_time = self.own_time.max(Some(at));
        }
        let usage = match &event.kind {
            EventKind::Native(native) => native.usage.as_ref(),
            EventKind::ModelChunk(chunk) => chunk.usage.as_ref(),
            EventKind::ModelEnd(end) => end.usage.as_ref(),
            EventKind::ModelError(error) => error.usage.as_ref(),
            _ => None,
        };
        self.invalid_usage_fields += usage.map_or(0, |usage| u64::from(usage.invalid_fields()));
        let what = match &event.kind {
            EventKind::Native(native) => what_of(native),
            EventKind::HookOutcome(outcome) => match short_circuit(outcome) {
                Some(words) => What::ShortCircuit(words),
                None => return,
            },
            _ => return,
        };
        let mut entry = Seen {
            tenant: name(event.tenant.as_ref()),
            app: name(event.app.as_ref()),
            invocation_id: name(event.invocation_id.as_ref()),
            branch: Name::from(&*event.branch),
            author: name(event.agent.as_ref()),
            id: None,
            at: event.at.unwrap_or_default(),
            what,
            content_hash: 0,
            is_partial: false,
            has_report: false,
        };
        if let EventKind::Native(native) = &event.kind {
            entry.author = name(native.author.as_ref()).or(entry.author);
            entry.id = name(native.id.as_ref());
            entry.content_hash = native.content_hash;
            entry.is_partial = native.partial == Some(true);
            entry.has_report = native.usage.is_some()
                || native.model_version.is_some()
                || native.finish_reason.is_some();
        }
        self.entries.push(entry);
    }
}

fn name(text: Option<&Str<'_>>) -> Option<Name> {
    text.filter(|text| !text.is_empty())
        .map(|text| Name::from(&**text))
}

fn what_of(native: &NativeEvent<'_>) -> What {
    if native.actions.is_compaction {
        What::Compaction
    } else if !native.function_responses.is_empty() {
        What::ToolResponse
    } else if native.author.as_deref() == Some("user") {
        What::UserMessage
    } else if native.content.is_some() || !native.function_calls.is_empty() {
        What::ModelResponse
    } else {
        What::Other
    }
}

fn short_circuit(outcome: &HookOutcome<'_>) -> Option<String> {
    let hook = outcome.hook.as_deref()?;
    let answers = matches!(
        hook,
        "before_run" | "before_agent" | "before_model" | "before_tool"
    );
    (answers && outcome.returned == Returned::Value).then(|| {
        let actor = outcome.actor_name.as_deref().unwrap_or("");
        format!("short_circuit:{hook}:{actor}")
    })
}

/// One line of the report's `timeline`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'s> {
    pub seen: &'s Seen,
    pub kind: &'s str,
    /// Id of the event it repeats.
    pub echo_of: Option<Name>,
}

/// The entries in timeline order: by time, then as they arrived.
pub fn timeline(seen: &[Seen]) -> Vec<Entry<'_>> {
    let mut order: Vec<&Seen> = seen.iter().collect();
    order.sort_by_key(|entry| entry.at);
    // Content of finished answers by invocation, branch and author.
    let mut answered: BTreeMap<_, &Seen> = BTreeMap::new();
    let mut entries = Vec::with_capacity(order.len());
    for seen in order {
        let mut echo_of = None;
        let mut kind = match &seen.what {
            What::UserMessage => "user_message",
            What::ModelResponse => "model_response",
            What::ToolResponse => "tool_response",
            What::Compaction => "compaction",
            What::ShortCircuit(words) => words,
            What::Other => "event",
        };
        if seen.what == What::ModelResponse && !seen.is_partial && seen.content_hash != 0 {
            let key = (
                &seen.invocation_id,
                &seen.branch,
                &seen.author,
                seen.content_hash,
            );
            if let (Some(earlier), false) = (answered.get(&key), seen.has_report) {
                kind = "callback_output";
                echo_of = earlier.id.clone();
            }
            answered.entry(key).or_insert(seen);
        }
        entries.push(Entry {
            seen,
            kind,
            echo_of,
        });
    }
    entries
}
