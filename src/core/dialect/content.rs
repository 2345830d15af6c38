//! The parts of a native event: which kinds there were, the calls and answers, and one hash over
//! all of it.
//!
//! Text is hashed where it lies and never copied. Equal content in camelCase and snake_case hashes
//! equal.

use super::adk;
use super::wire::{Name, Object, Raw, Scalar, drain_map};
use crate::core::event::{FunctionCall, FunctionResponse, NativeContent, NativeEvent};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::hash::{DefaultHasher, Hasher};

const CONFIRMATION: &str = "adk_request_confirmation";

/// `functionCall`.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallWire<'p> {
    #[serde(borrow)]
    pub id: Scalar<'p>,
    pub name: Scalar<'p>,
    pub args: Raw<'p>,
}

/// `functionResponse`.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct ResponseWire<'p> {
    #[serde(borrow)]
    id: Scalar<'p>,
    name: Scalar<'p>,
    response: Raw<'p>,
}

/// The one part of an inline blob or a file that is read.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct BlobWire<'p> {
    #[serde(borrow, rename = "mimeType", alias = "mime_type")]
    mime_type: Scalar<'p>,
    #[serde(alias = "fileUri", alias = "file_uri")]
    data: Raw<'p>,
}

/// Reads `content` and, for the hash only, the transcripts of live audio into `event`.
pub(super) fn read<'p>(
    content: Raw<'p>,
    transcripts: [Raw<'p>; 2],
    key: u64,
    event: &mut NativeEvent<'p>,
) -> Result<(), serde_json::Error> {
    let mut seen = Parts {
        key,
        hash: 0,
        event,
    };
    if let Some(raw) = content {
        let mut reader = serde_json::Deserializer::from_str(raw.get());
        reader.deserialize_any(ContentVisitor(&mut seen))?;
    }
    for (tag, raw) in [(b'i', transcripts[0]), (b'o', transcripts[1])] {
        let Some(raw) = raw else { continue };
        let hash = canonical(raw.get(), key)?;
        seen.add(tag, &[hash]);
    }
    seen.event.content_hash = seen.hash;
    Ok(())
}

/// A hash of any JSON value that does not depend on white space, the order of keys or their casing.
fn canonical(json: &str, key: u64) -> Result<u64, serde_json::Error> {
    Canonical(key).deserialize(&mut serde_json::Deserializer::from_str(json))
}

fn hash_of(key: u64, tag: u8, bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(key);
    hasher.write_u8(tag);
    hasher.write(bytes);
    hasher.finish()
}

fn hash_of_hashes(key: u64, tag: u8, hashes: &[u64]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(key);
    hasher.write_u8(tag);
    for hash in hashes {
        hasher.write_u64(*hash);
    }
    hasher.finish()
}

/// What the parts gave so far.
struct Parts<'e, 'p> {
    key: u64,
    hash: u64,
    event: &'e mut NativeEvent<'p>,
}

impl<'p> Parts<'_, 'p> {
    fn add(&mut self, tag: u8, hashes: &[u64]) {
        let part = hash_of_hashes(self.key, tag, hashes);
        self.hash = hash_of_hashes(self.key, b'+', &[self.hash, part]).max(1);
    }

    fn kinds(&mut self) -> &mut NativeContent {
        &mut self.event.content
    }

    fn call(&mut self, mut wire: CallWire<'p>) -> Result<(), serde_json::Error> {
        let args_hash = wire
            .args
            .map_or(Ok(0), |raw| canonical(raw.get(), self.key))?;
        let id = wire.id.take_text();
        let name = wire.name.take_text().unwrap_or_default();
        let id_hash = hash_of(self.key, b'i', id.as_deref().unwrap_or_default().as_bytes());
        let name_hash = hash_of(self.key, b'n', name.as_bytes());
        self.add(b'c', &[id_hash, name_hash, args_hash]);
        let confirms = if name == CONFIRMATION {
            adk::confirms(wire.args)
        } else {
            None
        };
        self.event.function_calls.push(FunctionCall {
            id,
            name,
            args_hash,
            confirms,
        });
        Ok(())
    }

    fn response(&mut self, mut wire: ResponseWire<'p>) -> Result<(), serde_json::Error> {
        let answer = match wire.response {
            Some(raw) => AnswerSeed(self.key)
                .deserialize(&mut serde_json::Deserializer::from_str(raw.get()))?,
            None => Answer::default(),
        };
        let id = wire.id.take_text();
        let name = wire.name.take_text().unwrap_or_default();
        let id_hash = hash_of(self.key, b'i', id.as_deref().unwrap_or_default().as_bytes());
        let name_hash = hash_of(self.key, b'n', name.as_bytes());
        self.add(b'r', &[id_hash, name_hash, answer.hash]);
        let is_confirmation = name == CONFIRMATION;
        self.event.function_responses.push(FunctionResponse {
            id,
            name,
            is_error: answer.is_error,
            is_empty: !answer.is_some,
            confirmed: if is_confirmation {
                adk::confirmed(wire.response)
            } else {
                None
            },
        });
        Ok(())
    }

    fn blob(&mut self, mut wire: BlobWire<'p>) {
        let mime_type = wire.mime_type.take_text().unwrap_or_default();
        let data = wire.data.map_or("", |raw| raw.get());
        let hashes = [
            hash_of(self.key, b'm', mime_type.as_bytes()),
            hash_of(self.key, b'd', data.as_bytes()),
        ];
        self.add(b'b', &hashes);
        match mime_type.starts_with("audio/") {
            true => self.kinds().has_audio = true,
            false => self.kinds().has_other = true,
        }
    }
}

/// `content`: an object with `parts`, or something that holds nothing.
struct ContentVisitor<'s, 'e, 'p>(&'s mut Parts<'e, 'p>);

impl<'de> Visitor<'de> for ContentVisitor<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any value")
    }
    loose_scalars!(());
    loose_seq!(());

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = false;
        while let Some(Name(name)) = map.next_key::<Name>()? {
            match name.as_ref() {
                "parts" | "Parts" => {
                    once(&mut seen)?;
                    map.next_value_seed(PartsSeed(self.0))?;
                }
                _ => {
                    let _: IgnoredAny = map.next_value()?;
                }
            }
        }
        Ok(())
    }
}

/// A second value under one key sends the record to the tolerant path, where the last wins.
fn once<E: Error>(seen: &mut bool) -> Result<(), E> {
    if std::mem::replace(seen, true) {
        Err(E::custom("duplicate key"))
    } else {
        Ok(())
    }
}

struct PartsSeed<'s, 'e, 'p>(&'s mut Parts<'e, 'p>);

impl<'de> DeserializeSeed<'de> for PartsSeed<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PartsSeed<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any value")
    }
    loose_scalars!(());

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(PartSeed(&mut *self.0))?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        drain_map(map)
    }
}

struct PartSeed<'s, 'e, 'p>(&'s mut Parts<'e, 'p>);

impl<'de> DeserializeSeed<'de> for PartSeed<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PartSeed<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any value")
    }
    loose_scalars!(());
    loose_seq!(());

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let parts = self.0;
        let (mut text, mut thought) = (None, None);
        let (mut has_text, mut has_thought, mut has_call, mut has_response) = Default::default();
        while let Some(Name(name)) = map.next_key::<Name>()? {
            match name.as_ref() {
                "text" => {
                    once(&mut has_text)?;
                    text = map.next_value_seed(TextSeed(parts.key))?;
                }
                "thought" => {
                    once(&mut has_thought)?;
                    thought = map.next_value::<Scalar>()?.flag();
                }
                "functionCall" | "function_call" => {
                    once(&mut has_call)?;
                    if let Some(wire) = map.next_value::<Object<CallWire>>()?.take() {
                        parts.call(wire).map_err(A::Error::custom)?;
                    }
                }
                "functionResponse" | "function_response" => {
                    once(&mut has_response)?;
                    if let Some(wire) = map.next_value::<Object<ResponseWire>>()?.take() {
                        parts.response(wire).map_err(A::Error::custom)?;
                    }
                }
                "inlineData" | "inline_data" | "fileData" | "file_data" => {
                    if let Some(wire) = map.next_value::<Object<BlobWire>>()?.take() {
                        parts.blob(wire);
                    }
                }
                // What stands beside a part and is none itself.
                "thoughtSignature" | "thought_signature" | "videoMetadata" | "video_metadata"
                | "partMetadata" | "part_metadata" | "mediaResolution" | "media_resolution" => {
                    let _: IgnoredAny = map.next_value()?;
                }
                other => {
                    let name_hash = folded(parts.key, other);
                    let value = map.next_value_seed(Canonical(parts.key))?;
                    if value != 0 {
                        parts.add(b'x', &[name_hash, value]);
                        parts.kinds().has_other = true;
                    }
                }
            }
        }
        let is_thought = thought == Some(true);
        if let Some(hash) = text {
            parts.add(b't', &[u64::from(is_thought), hash]);
            match is_thought {
                true => parts.kinds().has_thought = true,
                false => parts.kinds().has_text = true,
            }
        }
        Ok(())
    }
}

/// The hash of a text that is not empty.
struct TextSeed(u64);

impl<'de> DeserializeSeed<'de> for TextSeed {
    type Value = Option<u64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<u64>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TextSeed {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any value")
    }
    loose_numbers!(None);
    loose_seq!(None);
    fn visit_str<E: Error>(self, text: &str) -> Result<Option<u64>, E> {
        Ok((!text.is_empty()).then(|| hash_of(self.0, b's', text.as_bytes())))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<u64>, A::Error> {
        drain_map(map).map(|()| None)
    }
}

/// Walks any value; null is 0 and counts as absent inside an object.
struct Canonical(u64);

impl<'de> DeserializeSeed<'de> for Canonical {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Canonical {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_bool<E: Error>(self, flag: bool) -> Result<u64, E> {
        Ok(hash_of(self.0, b'b', &[u8::from(flag)]))
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(hash_of(self.0, b'n', &number.to_le_bytes()))
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        Ok(hash_of(self.0, b'n', &number.to_le_bytes()))
    }
    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;
        // 3.0 is 3 to another serializer.
        if number.fract() == 0.0 && number.abs() < EXACT_BELOW {
            return self.visit_i64(number as i64);
        }
        Ok(hash_of(self.0, b'f', &number.to_bits().to_le_bytes()))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        Ok(hash_of(self.0, b's', text.as_bytes()))
    }
    fn visit_unit<E: Error>(self) -> Result<u64, E> {
        Ok(0)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<u64, A::Error> {
        let mut hash = hash_of(self.0, b'[', b"");
        while let Some(value) = seq.next_element_seed(Canonical(self.0))? {
            hash = hash_of_hashes(self.0, b',', &[hash, value]);
        }
        Ok(hash)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<u64, A::Error> {
        let mut sum = hash_of(self.0, b'{', b"");
        while let Some(Name(name)) = map.next_key::<Name>()? {
            let value = map.next_value_seed(Canonical(self.0))?;
            sum = sum.wrapping_add(entry(self.0, &name, value));
        }
        Ok(sum)
    }
}

/// One entry of an object; sums of entries do not depend on their order.
fn entry(key: u64, name: &str, value: u64) -> u64 {
    if value == 0 {
        0
    } else {
        hash_of_hashes(key, b':', &[folded(key, name), value])
    }
}

/// The hash of a key without its casing: `finishReason` and `finish_reason` are one.
fn folded(key: u64, name: &str) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let fold = |hash: u64, byte: u8| match byte {
        b'_' => hash,
        _ => (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(PRIME),
    };
    name.bytes().fold(key ^ 0xcbf2_9ce4_8422_2325, fold)
}

/// What `response` of a tool's answer says; nothing deeper is read (facts.md §1).
#[derive(Default)]
struct Answer {
    hash: u64,
    is_some: bool,
    is_error: bool,
}

struct AnswerSeed(u64);

impl<'de> DeserializeSeed<'de> for AnswerSeed {
    type Value = Answer;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Answer, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnswerSeed {
    type Value = Answer;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any value")
    }
    loose_numbers!(Answer {
        hash: 1,
        is_some: true,
        is_error: false
    });
    fn visit_str<E: Error>(self, text: &str) -> Result<Answer, E> {
        let hash = hash_of(self.0, b's', text.as_bytes());
        Ok(Answer {
            hash,
            is_some: !text.is_empty(),
            is_error: false,
        })
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Answer, A::Error> {
        let hash = Canonical(self.0).visit_seq(seq)?;
        Ok(Answer {
            hash,
            is_some: true,
            is_error: false,
        })
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Answer, A::Error> {
        let mut answer = Answer::default();
        while let Some(Name(name)) = map.next_key::<Name>()? {
            let value = map.next_value_seed(Canonical(self.0))?;
            answer.is_some = true;
            answer.hash = answer.hash.wrapping_add(entry(self.0, &name, value));
            match name.as_ref() {
                "isError" => answer.is_error |= value == hash_of(self.0, b'b', &[1]),
                "error" => answer.is_error |= !is_falsy(self.0, value),
                _ => {}
            }
        }
        Ok(answer)
    }
}

/// True for the hash of null, false, 0, `""`, `[]` and `{}`: an error field that says that there is
/// none.
fn is_falsy(key: u64, value: u64) -> bool {
    value == 0
        || value == hash_of(key, b'b', &[0])
        || value == hash_of(key, b'n', &0_u64.to_le_bytes())
        || value == hash_of(key, b's', b"")
        || value == hash_of(key, b'[', b"")
        || value == hash_of(key, b'{', b"")
}
