//! Dialects: bytes of a record in, what a runtime said out (events.md).
//!
//! Two paths. The fast one is strict JSON over flat structures that borrow; what it refuses goes
//! through `tolerant`, which rewrites the text, and then once more through the same structures.
//! Nothing here knows time lines or totals.
//!
//! A further dialect is a module with a wire structure, an `is_mine` and an `event`, a word of
//! `Dialect`, and an arm in `Reader::object`.

#[macro_use]
mod wire;
mod adk;
mod bounds;
mod content;
mod custom;
mod envelope;
pub(crate) mod guard;
mod instant;
mod lifecycle;
#[cfg(test)]
mod summary;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_native;
mod tolerant;

use super::event::{Dialect, EventKind, ReadFlags, RuntimeEvent};
use adk::AdkWire;
use envelope::CloudWire;
use lifecycle::LifecycleWire;
use serde::Deserializer as _;
use serde::de::{SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// How often a value may be wrapped in arrays, strings and CloudEvents before it is given up.
const NEST_MAX: u8 = 4;

/// The bytes of one record.
#[derive(Clone, Copy)]
pub struct RecordBytes<'p> {
    /// The value; a null value never gets here.
    pub payload: &'p [u8],
    /// Names and values of the headers; a value may be null.
    pub headers: &'p [(&'p str, Option<&'p [u8]>)],
}

/// What decoding has to know of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeContext {
    /// The dialect that the topic is configured for; `None` decides per record.
    pub dialect: Option<Dialect>,
    /// Largest payload in bytes.
    pub payload_bytes_max: usize,
    /// Secret of the content hashes.
    pub hash_key: u64,
    /// Bytes of an id; longer ones are cut.
    pub id_bytes_max: usize,
    /// Attributes of a record; further ones are dropped.
    pub attributes_max: usize,
    /// Bytes of an attribute's key or value; longer ones are cut.
    pub attribute_bytes_max: usize,
    /// Whether `reason` texts of verdicts may be read at all.
    pub store_reasons: bool,
}

/// Why a record is quarantined (rules.md §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeadLetterReason {
    InvalidJson,
    TooDeep,
    TooLarge,
    Empty,
    NoEnvelope,
    NoInvocationId,
}

impl DeadLetterReason {
    /// The word of rules.md §1.
    pub fn as_str(self) -> &'static str {
        match self {
            DeadLetterReason::InvalidJson => "invalid_json",
            DeadLetterReason::TooDeep => "too_deep",
            DeadLetterReason::TooLarge => "too_large",
            DeadLetterReason::Empty => "empty",
            DeadLetterReason::NoEnvelope => "no_envelope",
            DeadLetterReason::NoInvocationId => "no_invocation_id",
        }
    }
}

/// What came of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// At least one event that this build knows.
    Read { events: u32, flags: ReadFlags },
    /// Readable, but only kinds that this build does not know; they were still shown, as
    /// `EventKind::Unknown`.
    Ignored,
    /// For quarantine; no event was shown.
    Refused(DeadLetterReason),
}

/// Calls `each` for every event of the record, after the whole record has proved readable.
///
/// Never panics. Allocates at most a small multiple of the payload, and next to nothing for an
/// ordinary one.
pub fn decode(
    record: RecordBytes<'_>,
    context: &DecodeContext,
    each: &mut dyn FnMut(RuntimeEvent<'_>),
) -> Decoded {
    if record.payload.len() > context.payload_bytes_max {
        return Decoded::Refused(DeadLetterReason::TooLarge);
    }
    let mut flags = ReadFlags::default();
    let bytes = stripped(record.payload, &mut flags);
    if bytes.is_empty() {
        return Decoded::Refused(DeadLetterReason::Empty);
    }
    // The strict check has a fast way for ASCII, the lossy one has not.
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    };
    // Only bytes that had to be replaced make it an owned one.
    flags.invalid_utf8 = matches!(text, Cow::Owned(_));
    let cloud = CloudHeaders::read(record.headers);
    let mut reader = Reader {
        context,
        is_cloud_event: cloud.is_structured,
        each: Some(each),
        flags,
        events: 0,
        unknown: 0,
    };
    match reader.text(&text, 0, cloud.record_id.as_deref()) {
        Err(reason) => Decoded::Refused(reason),
        Ok(()) if reader.events == 0 => Decoded::Refused(DeadLetterReason::NoEnvelope),
        Ok(()) if reader.events == reader.unknown => Decoded::Ignored,
        Ok(()) => Decoded::Read {
            events: reader.events,
            flags: reader.flags,
        },
    }
}

/// The payload without a schema-registry prefix and one byte order mark.
fn stripped<'p>(mut bytes: &'p [u8], flags: &mut ReadFlags) -> &'p [u8] {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    if bytes.len() > 5 && bytes[0] == 0 {
        flags.schema_prefix = true;
        bytes = &bytes[5..];
    }
    if let Some(rest) = bytes.strip_prefix(MARK) {
        flags.bom = true;
        bytes = rest;
    }
    bytes
}

/// What the headers say about CloudEvents.
#[derive(Default)]
struct CloudHeaders {
    /// The payload is a CloudEvent.
    is_structured: bool,
    /// Binary mode: the payload is the data, the headers are the envelope.
    record_id: Option<String>,
}

impl CloudHeaders {
    fn read(headers: &[(&str, Option<&[u8]>)]) -> CloudHeaders {
        let value = |name: &str| {
            let is_it = |(key, _): &&(&str, Option<&[u8]>)| key.eq_ignore_ascii_case(name);
            headers
                .iter()
                .find(is_it)
                .and_then(|(_, value)| std::str::from_utf8((*value)?).ok())
        };
        if headers.is_empty() {
            return CloudHeaders::default();
        }
        let content_type = value("content-type").unwrap_or("").trim_start();
        let prefix = content_type
            .get(.."application/cloudevents".len())
            .unwrap_or("");
        CloudHeaders {
            is_structured: prefix.eq_ignore_ascii_case("application/cloudevents"),
            record_id: value("ce_id")
                .and_then(|id| envelope::cloud_record_id(value("ce_source").unwrap_or(""), id)),
        }
    }
}

/// Why reading stopped.
enum Stop {
    /// Strict JSON refused the text; the tolerant path may not.
    Unreadable,
    Refused(DeadLetterReason),
}

impl From<serde_json::Error> for Stop {
    fn from(_: serde_json::Error) -> Stop {
        Stop::Unreadable
    }
}

const NO_ENVELOPE: Stop = Stop::Refused(DeadLetterReason::NoEnvelope);

/// Reads one record.
struct Reader<'c, 'e> {
    context: &'c DecodeContext,
    is_cloud_event: bool,
    /// `None` while an array is proved readable before the first of its events is shown.
    each: Option<&'e mut dyn FnMut(RuntimeEvent<'_>)>,
    flags: ReadFlags,
    events: u32,
    unknown: u32,
}

impl Reader<'_, '_> {
    /// Both paths over one text, which holds an object, an array of values, or a string that is
    /// JSON again.
    fn text(
        &mut self,
        text: &str,
        nest: u8,
        record_id: Option<&str>,
    ) -> Result<(), DeadLetterReason> {
        let before = (self.events, self.unknown);
        if !tolerant::needs_care(text) {
            match self.value(text, nest, record_id) {
                Ok(()) => return Ok(()),
                Err(Stop::Refused(reason)) => return Err(reason),
                Err(Stop::Unreadable) => {}
            }
        }
        // What was counted before strict JSON stopped was not shown yet.
        (self.events, self.unknown) = before;
        let clean = tolerant::rewrite(text, &mut self.flags)?;
        self.value(&clean, nest, record_id)
            .map_err(|stop| match stop {
                Stop::Refused(reason) => reason,
                Stop::Unreadable => DeadLetterReason::InvalidJson,
            })
    }

    /// One value in strict JSON.
    fn value(&mut self, text: &str, nest: u8, record_id: Option<&str>) -> Result<(), Stop> {
        let text = text.trim_start_matches([' ', '\n', '\r', '\t']);
        match text.as_bytes().first() {
            Some(b'{') => self.object(text, nest, record_id),
            Some(b'[') if nest < NEST_MAX => self.array(text, nest, record_id),
            Some(b'"') if nest < NEST_MAX => {
                let inner: String = serde_json::from_str(text)?;
                // Text that is no JSON does not make the record invalid: it is a string, and no
                // envelope.
                self.text(&inner, nest + 1, record_id)
                    .map_err(|reason| match reason {
                        DeadLetterReason::InvalidJson => NO_ENVELOPE,
                        other => Stop::Refused(other),
                    })
            }
            _ => {
                serde_json::from_str::<serde::de::IgnoredAny>(text)?;
                Err(NO_ENVELOPE)
            }
        }
    }

    /// Every element of an array: first all of them unseen, then once more.
    fn array(&mut self, text: &str, nest: u8, record_id: Option<&str>) -> Result<(), Stop> {
        let each = self.each.take();
        let before = (self.events, self.unknown);
        let proved = self.elements(text, nest, record_id);
        self.each = each;
        proved?;
        if self.each.is_some() {
            (self.events, self.unknown) = before;
            self.elements(text, nest, record_id)?;
        }
        Ok(())
    }

    fn elements(&mut self, text: &str, nest: u8, record_id: Option<&str>) -> Result<(), Stop> {
        struct Elements<'v>(
            &'v mut dyn FnMut(&str) -> Result<(), Stop>,
            &'v mut Option<Stop>,
        );
        impl<'de> Visitor<'de> for Elements<'_> {
            type Value = ();
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
                while let Some(element) = seq.next_element::<&'de RawValue>()? {
                    if let Err(stop) = self.0(element.get()) {
                        *self.1 = Some(stop);
                        return Err(serde::de::Error::custom("refused"));
                    }
                }
                Ok(())
            }
        }
        let mut stopped = None;
        let mut read = |element: &str| self.value(element, nest + 1, record_id);
        let mut json = serde_json::Deserializer::from_str(text);
        let end = json.deserialize_seq(Elements(&mut read, &mut stopped));
        match stopped {
            Some(stop) => Err(stop),
            None => {
                end?;
                Ok(json.end()?)
            }
        }
    }

    /// One object: asks each dialect whether it is its own.
    fn object(&mut self, text: &str, nest: u8, record_id: Option<&str>) -> Result<(), Stop> {
        if self.is_cloud_event {
            // What stands inside says itself what it is.
            self.is_cloud_event = false;
            let read = self.cloud_event(text, nest);
            self.is_cloud_event = true;
            return read;
        }
        let asked = self.context.dialect;
        let is_asked = |dialect| asked.is_none_or(|asked| asked == dialect);
        // Our own emitters write `v` first; a wrong guess costs time only.
        let starts_ours = text.starts_with("{\"v\"");
        let order = match starts_ours {
            true => [Dialect::Lifecycle, Dialect::Adk],
            false => [Dialect::Adk, Dialect::Lifecycle],
        };
        for dialect in order.into_iter().filter(|dialect| is_asked(*dialect)) {
            let is_cloud_event = match dialect {
                Dialect::Lifecycle => {
                    let mut wire = LifecycleWire::default();
                    wire::read(text, &mut wire)?;
                    if wire.is_mine() && wire.is_wrapped() {
                        return self.wrapped(wire, record_id);
                    }
                    if wire.is_mine() {
                        let event = lifecycle::event(&mut wire, self.context);
                        return self.show(event, record_id);
                    }
                    wire.specversion.0
                }
                Dialect::Adk => {
                    let mut wire: AdkWire = serde_json::from_str(text)?;
                    if wire.is_ambiguous() {
                        return Err(Stop::Unreadable);
                    }
                    if wire.is_mine() {
                        let event = adk::event(&mut wire, self.context)?;
                        return self.show(event, record_id);
                    }
                    wire.specversion.0
                }
            };
            if is_cloud_event && nest < NEST_MAX {
                return self.cloud_event(text, nest);
            }
        }
        Err(NO_ENVELOPE)
    }

    /// A structured CloudEvent: its data is any of the others, its source and id are the record id.
    fn cloud_event(&mut self, text: &str, nest: u8) -> Result<(), Stop> {
        let mut wire: CloudWire = serde_json::from_str(text)?;
        let id = wire.id.take_text().unwrap_or_default();
        let source = wire.source.take_text().unwrap_or_default();
        let record_id = envelope::cloud_record_id(&source, &id);
        let data = wire.data.ok_or(NO_ENVELOPE)?;
        self.value(data.get(), nest + 1, record_id.as_deref())
    }

    /// A native event in our envelope.
    fn wrapped(&mut self, wire: LifecycleWire<'_>, record_id: Option<&str>) -> Result<(), Stop> {
        let raw = wire.event.ok_or(NO_ENVELOPE)?;
        let text = wire::object_text(raw.get()).ok_or(NO_ENVELOPE)?;
        let mut native: AdkWire = serde_json::from_str(&text)?;
        if native.is_ambiguous() {
            return Err(Stop::Unreadable);
        }
        if !native.is_mine_wrapped() {
            return Err(NO_ENVELOPE);
        }
        let mut event = adk::event(&mut native, self.context)?;
        let mut envelope = wire;
        envelope::wrap(&mut envelope, self.context, &mut event);
        self.show(event, record_id)
    }

    /// Shows one event, unless it lacks the one field without which it belongs nowhere.
    fn show(&mut self, mut event: RuntimeEvent<'_>, record_id: Option<&str>) -> Result<(), Stop> {
        let is_unknown = matches!(event.kind, EventKind::Unknown);
        let may_lack = is_unknown || matches!(event.kind, EventKind::EmitterGap { .. });
        if event.invocation_id.is_none() && !may_lack {
            return Err(Stop::Refused(DeadLetterReason::NoInvocationId));
        }
        self.events = self.events.saturating_add(1);
        self.unknown = self.unknown.saturating_add(u32::from(is_unknown));
        event.read_flags = self.flags;
        bounds::bound(&mut event, self.context.id_bytes_max);
        if let Some(each) = self.each.as_mut() {
            let mut event = event;
            if let Some(record_id) = record_id {
                event.record_id = Some(Cow::Borrowed(record_id));
            }
            each(event);
        }
        Ok(())
    }
}
