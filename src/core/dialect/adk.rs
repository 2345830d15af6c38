//! Native events of the four Agent Development Kits: camelCase, snake_case and the Go names of ADK
//! Go v1.
//!
//! Only fixed paths are read: keys inside arguments, answers, state and content mean nothing here
//! (events.md §3).

use super::content::{self, CallWire};
use super::envelope::blank;
use super::instant::instant;
use super::lifecycle::usage;
use super::wire::{Name, Object, Raw, Scalar, Seen, drain_map};
use super::{DecodeContext, custom, guard};
use crate::core::event::{Dialect, EventKind, NativeActions, NativeEvent, RuntimeEvent, Str};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// The top level of a native event (runtimes.md §2).
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct AdkWire<'p> {
    /// Foreign keys that decide what the record is.
    #[serde(borrow)]
    pub kind: Scalar<'p>,
    pub specversion: Seen,
    #[serde(alias = "ID")]
    id: Scalar<'p>,
    #[serde(rename = "invocationId", alias = "invocation_id")]
    invocation_id: Scalar<'p>,
    #[serde(rename = "InvocationID")]
    go_invocation_id: Scalar<'p>,
    #[serde(alias = "Author")]
    author: Scalar<'p>,
    #[serde(alias = "Timestamp")]
    timestamp: Raw<'p>,
    #[serde(alias = "Branch")]
    branch: Scalar<'p>,
    #[serde(alias = "Partial")]
    partial: Scalar<'p>,
    #[serde(
        rename = "turnComplete",
        alias = "turn_complete",
        alias = "TurnComplete"
    )]
    turn_complete: Scalar<'p>,
    #[serde(alias = "Interrupted")]
    interrupted: Scalar<'p>,
    #[serde(alias = "Content")]
    content: Raw<'p>,
    #[serde(
        rename = "usageMetadata",
        alias = "usage_metadata",
        alias = "UsageMetadata"
    )]
    usage: Raw<'p>,
    #[serde(
        rename = "modelVersion",
        alias = "model_version",
        alias = "ModelVersion"
    )]
    model_version: Scalar<'p>,
    #[serde(
        rename = "finishReason",
        alias = "finish_reason",
        alias = "FinishReason"
    )]
    finish_reason: Scalar<'p>,
    #[serde(rename = "errorCode", alias = "error_code", alias = "ErrorCode")]
    error_code: Scalar<'p>,
    #[serde(
        rename = "longRunningToolIds",
        alias = "long_running_tool_ids",
        alias = "LongRunningToolIDs"
    )]
    long_running_tool_ids: Texts<'p>,
    #[serde(alias = "Actions")]
    actions: Object<ActionsWire<'p>>,
    #[serde(alias = "Output")]
    output: Seen,
    #[serde(rename = "nodeInfo", alias = "node_info", alias = "NodeInfo")]
    node_info: Object<NodeWire<'p>>,
    #[serde(
        rename = "customMetadata",
        alias = "custom_metadata",
        alias = "CustomMetadata"
    )]
    custom_metadata: Raw<'p>,
    #[serde(rename = "liveSessionId", alias = "live_session_id")]
    live_session_id: Scalar<'p>,
    #[serde(rename = "sessionId", alias = "session_id")]
    session_id: Scalar<'p>,
    #[serde(rename = "inputTranscription", alias = "input_transcription")]
    #[serde(alias = "InputTranscription")]
    input_transcription: Raw<'p>,
    #[serde(rename = "outputTranscription", alias = "output_transcription")]
    #[serde(alias = "OutputTranscription")]
    output_transcription: Raw<'p>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct NodeWire<'p> {
    #[serde(borrow, alias = "Path")]
    path: Scalar<'p>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct ActionsWire<'p> {
    #[serde(borrow)]
    #[serde(
        rename = "transferToAgent",
        alias = "transfer_to_agent",
        alias = "TransferToAgent"
    )]
    transfer_to_agent: Scalar<'p>,
    #[serde(alias = "Escalate")]
    escalate: Scalar<'p>,
    #[serde(rename = "skipSummarization", alias = "skip_summarization")]
    #[serde(alias = "SkipSummarization")]
    skip_summarization: Scalar<'p>,
    compaction: Seen,
    #[serde(rename = "endOfAgent", alias = "end_of_agent")]
    end_of_agent: Scalar<'p>,
    #[serde(rename = "agentState", alias = "agent_state")]
    agent_state: Seen,
    #[serde(
        rename = "requestedToolConfirmations",
        alias = "requested_tool_confirmations"
    )]
    #[serde(alias = "RequestedToolConfirmations")]
    requested_tool_confirmations: Keys<'p>,
    #[serde(rename = "stateDelta", alias = "state_delta", alias = "StateDelta")]
    state_delta: Object<StateWire<'p>>,
}

/// The one key of the state that means something: the verdicts of TypeScript's security plugin.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct StateWire<'p> {
    #[serde(borrow)]
    orcas_tool_call_security_check_states: Words<'p>,
}

impl AdkWire<'_> {
    /// An invocation id and an author, whatever they hold, and no `kind` (events.md §1).
    pub(super) fn is_mine(&self) -> bool {
        let has_id = self.invocation_id.is_there() || self.go_invocation_id.is_there();
        has_id && self.author.is_there() && !self.kind.is_there()
    }

    /// True where an envelope has already said what is inside: the author alone will do.
    pub(super) fn is_mine_wrapped(&self) -> bool {
        self.author.is_there() && !self.kind.is_there()
    }

    /// True where one key stands there in two spellings that the wire structure keeps apart.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.invocation_id.is_there() && self.go_invocation_id.is_there()
    }
}

/// The event of a native record; without an invocation id where it carries none.
pub(super) fn event<'p>(
    wire: &mut AdkWire<'p>,
    context: &DecodeContext,
) -> Result<RuntimeEvent<'p>, serde_json::Error> {
    let is_go_v1 = wire.go_invocation_id.is_there();
    let mut native = NativeEvent {
        id: wire.id.take_text(),
        author: wire.author.take_text(),
        partial: wire.partial.flag(),
        turn_complete: wire.turn_complete.flag(),
        interrupted: wire.interrupted.flag(),
        is_go_v1,
        usage: usage(wire.usage),
        model_version: wire.model_version.take_text(),
        finish_reason: wire.finish_reason.take_text(),
        error_code: wire.error_code.take_text(),
        long_running_tool_ids: std::mem::take(&mut wire.long_running_tool_ids.0),
        actions: actions(wire.actions.take_or_default()),
        has_output: wire.output.0,
        custom: custom::metadata(wire.custom_metadata)?,
        live_session_id: wire.live_session_id.take_text(),
        ..NativeEvent::default()
    };
    let transcripts = [wire.input_transcription, wire.output_transcription];
    content::read(wire.content, transcripts, context.hash_key, &mut native)?;
    let author = native.author.clone();
    let node_path = wire.node_info.take_or_default().path.take_text();
    let mut event = blank(Dialect::Adk, EventKind::Native(Box::new(native)));
    event.at = wire.timestamp.and_then(|raw| instant(raw.get()));
    event.session_id = wire.session_id.take_text();
    let id = if is_go_v1 {
        &mut wire.go_invocation_id
    } else {
        &mut wire.invocation_id
    };
    event.invocation_id = id.take_text();
    event.branch = wire.branch.take_text().unwrap_or_default();
    event.node_path = node_path.unwrap_or_default();
    event.agent = author;
    Ok(event)
}

fn actions<'p>(mut wire: ActionsWire<'p>) -> NativeActions<'p> {
    let states = wire
        .state_delta
        .take_or_default()
        .orcas_tool_call_security_check_states;
    let security_states = states
        .0
        .into_iter()
        .filter(|(_, word)| guard::is_word(word));
    NativeActions {
        transfer_to_agent: wire.transfer_to_agent.take_text(),
        escalate: wire.escalate.flag() == Some(true),
        skip_summarization: wire.skip_summarization.flag() == Some(true),
        is_compaction: wire.compaction.0,
        end_of_agent: wire.end_of_agent.flag() == Some(true),
        has_agent_state: wire.agent_state.0,
        requested_confirmations: wire.requested_tool_confirmations.0,
        security_states: security_states.collect(),
    }
}

/// The call that a confirmation asks about.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfirmationWire<'p> {
    #[serde(
        borrow,
        rename = "originalFunctionCall",
        alias = "original_function_call"
    )]
    original: Object<CallWire<'p>>,
}

/// Id and name of the call that the arguments of `adk_request_confirmation` name.
pub(super) fn confirms<'p>(args: Raw<'p>) -> Option<(Str<'p>, Str<'p>)> {
    let mut wire: ConfirmationWire = serde_json::from_str(args?.get()).ok()?;
    let mut call = wire.original.take()?;
    let id = call.id.take_text()?;
    Some((id, call.name.take_text().unwrap_or_default()))
}

/// The person's answer to a confirmation, also where a web client wraps it as text under
/// `response`.
pub(super) fn confirmed(response: Raw<'_>) -> Option<bool> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct AnswerWire<'p> {
        #[serde(borrow)]
        confirmed: Scalar<'p>,
        response: Scalar<'p>,
    }
    let answer: AnswerWire = serde_json::from_str(response?.get()).ok()?;
    answer.confirmed.flag().or_else(|| {
        let inner: AnswerWire = serde_json::from_str(answer.response.as_str()).ok()?;
        inner.confirmed.flag()
    })
}

/// A list of strings; null and anything else is an empty one.
#[derive(Clone, Debug, Default, PartialEq)]
struct Texts<'p>(Vec<Str<'p>>);

/// The keys of an object, in order.
#[derive(Clone, Debug, Default, PartialEq)]
struct Keys<'p>(Vec<Str<'p>>);

/// The entries of an object whose values are strings, in order.
#[derive(Clone, Debug, Default, PartialEq)]
struct Words<'p>(Vec<(Str<'p>, Str<'p>)>);

impl<'de: 'p, 'p> Deserialize<'de> for Texts<'p> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextsVisitor;
        impl<'de> Visitor<'de> for TextsVisitor {
            type Value = Texts<'de>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("any value")
            }
            loose_scalars!(Texts::default());
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Texts<'de>, A::Error> {
                let mut texts = Vec::new();
                while let Some(mut value) = seq.next_element::<Scalar>()? {
                    texts.extend(value.take_text());
                }
                Ok(Texts(texts))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Texts<'de>, A::Error> {
                drain_map(map).map(|()| Texts::default())
            }
        }
        deserializer.deserialize_any(TextsVisitor)
    }
}

impl<'de: 'p, 'p> Deserialize<'de> for Keys<'p> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeysVisitor;
        impl<'de> Visitor<'de> for KeysVisitor {
            type Value = Keys<'de>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("any value")
            }
            loose_scalars!(Keys::default());
            loose_seq!(Keys::default());
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys<'de>, A::Error> {
                let mut keys = Vec::new();
                while let Some((Name(name), IgnoredAny)) = map.next_entry::<Name, _>()? {
                    keys.push(name);
                }
                Ok(Keys(keys))
            }
        }
        deserializer.deserialize_any(KeysVisitor)
    }
}

impl<'de: 'p, 'p> Deserialize<'de> for Words<'p> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordsVisitor;
        impl<'de> Visitor<'de> for WordsVisitor {
            type Value = Words<'de>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("any value")
            }
            loose_scalars!(Words::default());
            loose_seq!(Words::default());
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Words<'de>, A::Error> {
                let mut words = Vec::new();
                while let Some((Name(name), mut value)) = map.next_entry::<Name, Scalar>()? {
                    words.extend(value.take_text().map(|word| (name, word)));
                }
                Ok(Words(words))
            }
        }
        deserializer.deserialize_any(WordsVisitor)
    }
}
