//! Reads one usage object in any spelling, in one pass over its text.
//!
//! It decides nothing: which count is inside which is settled in `normalise`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::count::{Count, unquoted};
use super::keys::{self, Key, Names, Place};
use super::{FIELDS, Field, UsageReport, decimal, spelling};

/// A value of a span attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Told<'a> {
    Integer(i64),
    Double(f64),
    Text(&'a str),
    Bool(bool),
}

pub(super) fn read(json: &str) -> Option<UsageReport> {
    let mut report = UsageReport::default();
    let mut reader = Reader {
        report: &mut report,
        spelled: [0; FIELDS],
        sums: [Count::Absent; 4],
    };
    reader.object(json, Place::Top)?;
    reader.finish();
    Some(report)
}

pub(super) fn tell(report: &mut UsageReport, key: &str, value: Told<'_>) -> bool {
    let (key, _) = keys::key(key, Place::Top, &mut report.spelling);
    match (key, value) {
        (Key::Ignored, _) => return false,
        (Key::Count(field), value) => {
            let count = match value {
                Told::Integer(value) => match u64::try_from(value) {
                    Ok(value) => Count::Value(value),
                    Err(_) => Count::Invalid,
                },
                Told::Double(value) => Count::from_f64(value),
                Told::Text(text) => Count::from_text(text),
                Told::Bool(_) => Count::Invalid,
            };
            report.put(field, count, false);
        }
        (Key::Name(name), Told::Text(text)) => set_name(report, name, text),
        (Key::Cost, Told::Text(text)) => set_cost(report, text),
        (Key::Cost, Told::Double(value)) => set_cost(report, &value.to_string()),
        (Key::Cost, Told::Integer(value)) => set_cost(report, &value.to_string()),
        _ => {}
    }
    true
}

/// The service tier in the words of facts.md §7; other words in lower case, at most 64 bytes.
/// `None`: unspecified.
pub fn tier_word(told: &str) -> Option<Cow<'static, str>> {
    let known = match told {
        "" | "TRAFFIC_TYPE_UNSPECIFIED" | "auto" => return None,
        "ON_DEMAND" | "default" | "standard" | "DEFAULT" | "STANDARD" => "standard",
        "ON_DEMAND_PRIORITY" | "priority" | "PRIORITY" => "priority",
        "ON_DEMAND_FLEX" | "flex" | "FLEX" => "flex",
        "ON_DEMAND_OFFPEAK" | "offpeak" | "OFFPEAK" => "offpeak",
        "PROVISIONED_THROUGHPUT" | "provisioned" => "provisioned",
        "batch" => "batch",
        other => {
            let kept: String = other
                .chars()
                .take(64)
                .filter(char::is_ascii_graphic)
                .collect();
            return Some(Cow::Owned(kept.to_ascii_lowercase()));
        }
    };
    Some(Cow::Borrowed(known))
}

struct Reader<'r> {
    report: &'r mut UsageReport,
    /// Which spelling told a field, so that a repeated key replaces and a second spelling does not.
    spelled: [u32; FIELDS],
    /// Modality counts of the arrays, which add up: prompt and tool-use prompt are both input.
    sums: [Count; 4],
}

const SUMMED: [Field; 4] = [
    Field::AudioInput,
    Field::AudioOutput,
    Field::ImageInput,
    Field::ImageOutput,
];

impl Reader<'_> {
    fn object(&mut self, json: &str, place: Place) -> Option<()> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let visitor = ObjectVisitor {
            reader: self,
            place,
        };
        deserializer.deserialize_map(visitor).ok()?;
        deserializer.end().ok()
    }

    fn take(&mut self, key: Key, spelled: u32, raw: &str) {
        match key {
            Key::Ignored | Key::Inner(_) => {}
            Key::Count(field) if raw.starts_with('{') => self.count_object(field, spelled, raw),
            Key::Count(field) => self.count(field, spelled, raw),
            Key::Name(name) => {
                if let Ok(text) = serde_json::from_str::<Borrowed<'_>>(raw) {
                    set_name(self.report, name, &text.0);
                }
            }
            Key::Cost => set_cost(self.report, unquoted(raw).unwrap_or(raw)),
        }
    }

    fn count(&mut self, field: Field, spelled: u32, raw: &str) {
        let count = Count::from_json(raw);
        let replaces = self.spelled[field as usize] == spelled;
        if count != Count::Absent {
            self.spelled[field as usize] = spelled;
        }
        self.report.put(field, count, replaces);
        if field == Field::Input && count == Count::Invalid {
            let digits = unquoted(raw).unwrap_or(raw);
            let is_number = digits.len() <= 64 && digits.bytes().all(|byte| byte.is_ascii_digit());
            self.report.raw_prompt = is_number.then(|| digits.into());
        }
    }

    /// `cache_creation` is a number for LangChain and an object of lifetimes for Anthropic.
    fn count_object(&mut self, field: Field, spelled: u32, raw: &str) {
        if field == Field::CacheWrite {
            self.object(raw, Place::CacheCreation);
        } else {
            self.count(field, spelled, raw);
        }
    }

    fn sum(&mut self, field: Field, count: Count) {
        let Some(at) = SUMMED.iter().position(|summed| *summed == field) else {
            let spelled = u32::MAX - field as u32;
            self.spelled[field as usize] = spelled;
            self.report.put(field, count, false);
            return;
        };
        self.sums[at] = match (self.sums[at], count) {
            (sum, Count::Absent) => sum,
            (Count::Absent, count) => count,
            (Count::Value(sum), Count::Value(more)) => Count::Value(sum.saturating_add(more)),
            _ => Count::Invalid,
        };
    }

    fn finish(self) {
        for (field, sum) in SUMMED.into_iter().zip(self.sums) {
            self.report.put(field, sum, false);
        }
    }
}

fn set_name(report: &mut UsageReport, name: Names, text: &str) {
    if text.is_empty() {
        return;
    }
    match name {
        Names::Provider => report.provider = Some(known_provider(text)),
        Names::ServingProvider => report.serving_provider = Some(text.into()),
        Names::Model => report.model = Some(text.into()),
        Names::RequestedModel => report.requested_model = Some(text.into()),
        Names::ServiceTier => report.service_tier = tier_word(text),
        Names::Basis => {
            report.spelling |= match text {
                "inclusive" | "inside" | "included" => spelling::BASIS_INSIDE,
                "exclusive" | "outside" | "excluded" => spelling::BASIS_OUTSIDE,
                _ => 0,
            }
        }
    }
}

fn set_cost(report: &mut UsageReport, text: &str) {
    if let Some(cost) = decimal::amount(text) {
        report.cost = Some(cost);
    }
}

/// Anima names its provider in every report; the usual ones need no allocation.
fn known_provider(text: &str) -> Cow<'static, str> {
    const KNOWN: [&str; 6] = [
        "openai",
        "gemini",
        "claude",
        "anthropic",
        "vertex",
        "eurouter",
    ];
    match KNOWN.into_iter().find(|known| *known == text) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(text.to_owned()),
    }
}

/// A string that is copied only if it has escapes.
#[derive(serde::Deserialize)]
struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);

struct KeySeed<'r> {
    place: Place,
    spelling: &'r mut u8,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = (Key, u32);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = (Key, u32);

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(keys::key(key, self.place, self.spelling))
    }
}

struct ObjectVisitor<'r, 'u> {
    reader: &'r mut Reader<'u>,
    place: Place,
}

impl<'de> DeserializeSeed<'de> for ObjectVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Details that are neither object nor list tell nothing; the counts beside them still do.
impl<'de> Visitor<'de> for ObjectVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a usage object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        loop {
            let spelling = &mut self.reader.report.spelling;
            let seed = KeySeed {
                place: self.place,
                spelling,
            };
            match map.next_key_seed(seed)? {
                None => return Ok(()),
                Some((Key::Ignored, _)) => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some((Key::Inner(place), _)) => {
                    map.next_value_seed(ObjectVisitor {
                        reader: &mut *self.reader,
                        place,
                    })?;
                }
                Some((key, spelled)) => {
                    let raw: &'de RawValue = map.next_value()?;
                    self.reader.take(key, spelled, raw.get());
                }
            }
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(raw) = list.next_element::<&'de RawValue>()? {
            let Ok(entry) = serde_json::from_str::<Entry<'_>>(raw.get()) else {
                continue;
            };
            if let (Some(field), Some(tokens)) = (entry.field(self.place), entry.tokens) {
                self.reader.sum(field, Count::from_json(tokens.get()));
            }
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
}

/// One entry of a list of counts: `{"modality": "AUDIO", "tokenCount": 5}` of Gemini,
/// `{"ttl": "1h", "inputTokens": 5}` of Bedrock.
#[derive(serde::Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    modality: Option<&'a RawValue>,
    #[serde(borrow)]
    ttl: Option<&'a RawValue>,
    #[serde(
        borrow,
        rename = "tokenCount",
        alias = "token_count",
        alias = "inputTokens"
    )]
    tokens: Option<&'a RawValue>,
}

impl Entry<'_> {
    fn field(&self, place: Place) -> Option<Field> {
        if place == Place::CacheDetails {
            return match self.ttl.map(RawValue::get)? {
                "\"5m\"" => Some(Field::CacheWrite5m),
                "\"1h\"" => Some(Field::CacheWrite1h),
                _ => None,
            };
        }
        // An enum may come as name, as `MediaModality.AUDIO` or as its number.
        let modality = self.modality.map(RawValue::get)?;
        let word = modality.trim_matches('"').rsplit(['.', '_']).next()?;
        let audio = word.eq_ignore_ascii_case("audio") || word == "4";
        let image = word.eq_ignore_ascii_case("image") || word == "2";
        match (place == Place::Output, audio, image) {
            (false, true, _) => Some(Field::AudioInput),
            (true, true, _) => Some(Field::AudioOutput),
            (false, _, true) => Some(Field::ImageInput),
            (true, _, true) => Some(Field::ImageOutput),
            _ => None,
        }
    }
}
