//! The envelopes: that of our own records (events.md §2.1) and CloudEvents around anything.
//!
//! What an envelope carries is read elsewhere: `lifecycle` for kinds, `adk` for native events.

use super::DecodeContext;
use super::bounds::shorten;
use super::instant::instant;
use super::lifecycle::LifecycleWire;
use super::wire::{Name, Object, Raw, Scalar};
use crate::core::event::{
    Dialect, EventKind, Measured, Parent, Reached, ReadFlags, RuntimeEvent, Str,
};
use serde::Deserialize;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// `emitter`; `runtime` has the same shape.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(super) struct Emitter<'p> {
    #[serde(borrow)]
    pub name: Scalar<'p>,
    pub version: Scalar<'p>,
    pub instance: Scalar<'p>,
}

/// `parent`, and with two of its fields `answers`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(super) struct ParentWire<'p> {
    #[serde(borrow)]
    pub invocation_id: Scalar<'p>,
    pub run_id: Scalar<'p>,
    pub call_id: Scalar<'p>,
}

/// A structured CloudEvent.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct CloudWire<'p> {
    #[serde(borrow)]
    pub id: Scalar<'p>,
    pub source: Scalar<'p>,
    pub data: Raw<'p>,
}

/// The redelivery key of a CloudEvent. A source is a URI reference and holds no space.
pub(super) fn cloud_record_id(source: &str, id: &str) -> Option<String> {
    (!id.is_empty()).then(|| format!("{source} {id}"))
}

/// An event that nothing is known of yet.
pub(super) fn blank<'p>(dialect: Dialect, kind: EventKind<'p>) -> RuntimeEvent<'p> {
    RuntimeEvent {
        dialect,
        has_envelope: false,
        at: None,
        mono_ns: None,
        record_id: None,
        seq: None,
        emitter_instance: None,
        runtime: None,
        runtime_version: None,
        app: None,
        tenant: None,
        session_id: None,
        user_key: None,
        invocation_id: None,
        run_id: None,
        parent: None,
        branch: Cow::Borrowed(""),
        node_path: Cow::Borrowed(""),
        agent: None,
        trace_id: None,
        span_id: None,
        measured: None,
        attributes: Vec::new(),
        read_flags: ReadFlags::default(),
        reached: Reached::default(),
        kind,
    }
}

/// Lays the envelope around `event`, which may be a native one that knows some of it better.
pub(super) fn wrap<'p>(
    wire: &mut LifecycleWire<'p>,
    context: &DecodeContext,
    event: &mut RuntimeEvent<'p>,
) {
    let emitter = wire.emitter.take();
    let runtime = wire.runtime.take();
    event.has_envelope = true;
    event.at = event.at.or_else(|| instant(wire.at?.get()));
    event.mono_ns = wire.mono_ns.integer();
    event.record_id = wire.record_id.take_text();
    event.seq = wire.seq.count();
    event.emitter_instance = emitter.and_then(|mut emitter| emitter.instance.take_text());
    if let Some(mut runtime) = runtime {
        event.runtime = runtime.name.take_text();
        event.runtime_version = runtime.version.take_text();
    }
    event.app = wire.app.take_text();
    event.tenant = wire.tenant.take_text();
    event.session_id = wire.session_id.take_text().or(event.session_id.take());
    event.user_key = wire.user_key.take_text();
    event.invocation_id = wire
        .invocation_id
        .take_text()
        .or(event.invocation_id.take());
    event.run_id = wire.run_id.take_text();
    event.parent = parent(&mut wire.parent);
    or_text(&mut event.branch, &mut wire.branch);
    or_text(&mut event.node_path, &mut wire.node_path);
    event.agent = event.agent.take().or_else(|| wire.agent.take_text());
    event.trace_id = wire.trace_id.take_text();
    event.span_id = wire.span_id.take_text();
    event.measured = measured(wire.measured.as_str());
    if let Some(raw) = wire.attributes {
        (event.attributes, event.reached.attributes) = attributes(raw, context);
    }
}

/// What the envelope says where nothing is known yet.
fn or_text<'p>(known: &mut Str<'p>, field: &mut Scalar<'p>) {
    if known.is_empty() {
        *known = field.take_text().unwrap_or_default();
    }
}

fn parent<'p>(field: &mut Object<ParentWire<'p>>) -> Option<Parent<'p>> {
    let mut wire = field.take()?;
    let parent = Parent {
        invocation_id: wire.invocation_id.take_text(),
        run_id: wire.run_id.take_text(),
        call_id: wire.call_id.take_text(),
    };
    (parent != Parent::default()).then_some(parent)
}

fn measured(word: &str) -> Option<Measured> {
    Some(match word {
        "wrapper" => Measured::Wrapper,
        "hook" => Measured::Hook,
        "native" => Measured::Native,
        "derived" => Measured::Derived,
        _ => return None,
    })
}

/// The scalars of `attributes` in the order of the record, at most as many and as long as the
/// limits say; true where they were more or longer.
fn attributes<'p>(raw: &'p RawValue, context: &DecodeContext) -> (Vec<(Str<'p>, String)>, bool) {
    struct Attributes<'c>(&'c DecodeContext);
    impl<'de> Visitor<'de> for Attributes<'_> {
        type Value = (Vec<(Str<'de>, String)>, bool);
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let bytes_max = self.0.attribute_bytes_max;
            let (mut found, mut is_cut) = (Vec::new(), false);
            while let Some((Name(mut name), value)) = map.next_entry::<Name, &'de RawValue>()? {
                let Some(value) = scalar_text(value.get()) else {
                    continue;
                };
                if name.is_empty() {
                    continue;
                }
                if found.len() >= self.0.attributes_max {
                    is_cut = true;
                    continue;
                }
                let mut value = value;
                is_cut |= shorten(&mut name, bytes_max) | shorten(&mut value, bytes_max);
                found.push((name, value.into_owned()));
            }
            Ok((found, is_cut))
        }
    }
    let mut reader = serde_json::Deserializer::from_str(raw.get());
    reader
        .deserialize_map(Attributes(context))
        .unwrap_or_default()
}

/// A scalar as text, a number as it was written; `None` for null, `""`, objects and arrays.
fn scalar_text(json: &str) -> Option<Cow<'_, str>> {
    match json.as_bytes().first()? {
        b'"' => {
            let text: String = serde_json::from_str(json).ok()?;
            (!text.is_empty()).then_some(Cow::Owned(text))
        }
        b'{' | b'[' | b'n' => None,
        _ => Some(Cow::Borrowed(json)),
    }
}
