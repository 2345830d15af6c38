//! What one model call used: reads any provider's usage object, keeps the newest snapshot field by
//! field, and decides which counts are inside which (facts.md §3, rules.md §4).
//!
//! It knows no prices and no calls: which snapshots belong together, and whether a call ended well,
//! is the timeline's business.

mod count;
mod decimal;
mod keys;
mod normalise;
mod reading;
#[cfg(test)]
mod tests;
mod tokens;

use std::borrow::Cow;

use count::Count;
pub use reading::{Told, tier_word};
pub use tokens::{TokenClass, TokenUsage, UsageFlag, UsageFlags, UsageState, UsageSum};

/// The counts a usage object can tell, whatever it calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Field {
    Input,
    Output,
    Total,
    CacheRead,
    CacheWrite,
    CacheWrite5m,
    CacheWrite1h,
    /// Input that missed the cache, where the provider says so (DeepSeek): plain uncached input.
    CacheMiss,
    ToolUse,
    Reasoning,
    AudioInput,
    AudioOutput,
    ImageInput,
    ImageOutput,
    /// A count of billed requests, no token (cases BIL-13).
    WebSearches,
}

impl Field {
    pub(crate) const ALL: [Field; FIELDS] = [
        Field::Input,
        Field::Output,
        Field::Total,
        Field::CacheRead,
        Field::CacheWrite,
        Field::CacheWrite5m,
        Field::CacheWrite1h,
        Field::CacheMiss,
        Field::ToolUse,
        Field::Reasoning,
        Field::AudioInput,
        Field::AudioOutput,
        Field::ImageInput,
        Field::ImageOutput,
        Field::WebSearches,
    ];

    pub(crate) fn bit(self) -> u16 {
        1 << self as u8
    }
}

pub(crate) const FIELDS: usize = 15;

/// What the spelling of a report gives away. It never names a provider (cases SEM-22).
pub(crate) mod spelling {
    /// `promptTokenCount` and its kin, as every ADK writes them.
    pub const GEMINI: u8 = 1;
    /// `gen_ai.usage.*`: the convention defines what is inside.
    pub const OTEL: u8 = 2;
    /// `llm.token_count.*`: does not say whether the prompt contains cached input.
    pub const OPENINFERENCE: u8 = 4;
    /// `modelName`, `reportedCostUSD` and other words only Anima puts into a usage object.
    pub const ANIMA: u8 = 8;
    /// `basis` of events.md §2.2: parts are inside their wholes.
    pub const BASIS_INSIDE: u8 = 16;
    /// `basis`: parts are beside their wholes.
    pub const BASIS_OUTSIDE: u8 = 32;
}

/// What usage objects said, field by field, before anything is decided about insides and outsides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UsageReport {
    values: [u64; FIELDS],
    /// Fields with a count.
    present: u16,
    /// Fields told as something that is no count.
    invalid: u16,
    /// Other values of classes that one object told twice and differently; nearly always empty.
    others: Vec<(Field, u64)>,
    spelling: u8,
    /// A later all-zero object was passed over (rules.md §9 `zero_usage_placeholder`).
    placeholder_ignored: bool,
    provider: Option<Cow<'static, str>>,
    serving_provider: Option<Box<str>>,
    model: Option<Box<str>>,
    requested_model: Option<Box<str>>,
    service_tier: Option<Cow<'static, str>>,
    cost: Option<Box<str>>,
    /// Digits of a prompt count that fits no `u64`.
    raw_prompt: Option<Box<str>>,
}

/// What is known about a call beside its usage object.
#[derive(Clone, Copy, Debug, Default)]
pub struct UsageContext<'a> {
    /// As the record names it, in any of the spellings in use; the object's own wins.
    pub provider: Option<&'a str>,
    /// The model that answered, else the requested one.
    pub model: Option<&'a str>,
    /// `adk-java`, `anima`, …
    pub runtime: Option<&'a str>,
    /// The report comes from a span: parts are inside by the OTel convention.
    pub is_span: bool,
    /// The call is known to have produced content.
    pub had_content: bool,
    /// Counts above this are held back (config.md `plausible_tokens_max`), in tokens.
    pub plausible_tokens_max: u64,
}

impl UsageReport {
    /// Reads any spelling of events.md §2.2 and telemetry-names.md §4 from the text of one JSON
    /// object. `None`: no usage object, that is null, an empty string, no object, broken JSON.
    ///
    /// Unknown keys are ignored, null and "" are absent, a value that is no count is *invalid*.
    /// Integers are exact up to `u64::MAX`, also as `"120"`, `15.0` or `1.35e2`. A key given twice
    /// counts as its last value. Nothing is allocated unless the object carries names, a cost or
    /// two differing spellings of one class.
    pub fn parse(json: &str) -> Option<UsageReport> {
        reading::read(json)
    }

    /// No number at all: `{}` is a report of a model without numbers.
    pub fn is_empty(&self) -> bool {
        self.present | self.invalid == 0
    }

    /// The prompt count as told, for telling whether two sources speak of one call (rules.md §3).
    pub fn prompt_count(&self) -> Option<u64> {
        self.get(Field::Input)
    }

    /// How many fields held something that is no count (the counter `invalid_usage_fields`).
    pub fn invalid_fields(&self) -> u32 {
        self.invalid.count_ones()
    }

    /// Newest wins field by field; absent fields keep the older value (facts.md §3).
    ///
    /// Two refinements. An all-zero report after a real one is a placeholder, treated as missing
    /// (cases USG-07), so the older numbers stay. A total speaks for its own snapshot: where the
    /// newer object changes a count and tells no total, the older total is forgotten rather than
    /// held against numbers it never saw. A newer invalid field replaces a count: it is unknown.
    pub fn merge(&mut self, newer: &UsageReport) {
        self.merge_names(newer);
        if newer.is_placeholder_after(self) {
            self.placeholder_ignored = true;
            return;
        }
        let told = newer.present | newer.invalid;
        if told == 0 {
            return;
        }
        self.placeholder_ignored = newer.placeholder_ignored;
        if told & Field::Total.bit() == 0 && self.is_changed_by(newer) {
            self.forget(Field::Total.bit());
        }
        self.forget(told);
        self.present |= newer.present;
        self.invalid |= newer.invalid;
        self.others.extend_from_slice(&newer.others);
        for field in Field::ALL {
            if newer.present & field.bit() != 0 {
                self.values[field as usize] = newer.values[field as usize];
            }
        }
        if told & Field::Input.bit() != 0 {
            self.raw_prompt.clone_from(&newer.raw_prompt);
        }
        self.spelling |= newer.spelling;
    }

    /// Whether any count fell since `older`: the anomaly `usage_shrank`. A placeholder is no fall.
    pub fn shrank_from(&self, older: &UsageReport) -> bool {
        let both = self.present & older.present;
        !self.is_placeholder_after(older)
            && Field::ALL.into_iter().any(|field| {
                both & field.bit() != 0
                    && self.values[field as usize] < older.values[field as usize]
            })
    }

    /// One attribute of a span, under its full key. Says whether the key belongs to usage.
    pub fn tell(&mut self, key: &str, value: Told<'_>) -> bool {
        reading::tell(self, key, value)
    }

    /// The provider, where the object itself carries one (Anima).
    pub fn provider(&self) -> Option<&str> {
        self.provider.as_deref()
    }

    /// Who served the call behind a router, where the object says so (Anima).
    pub fn serving_provider(&self) -> Option<&str> {
        self.serving_provider.as_deref()
    }

    /// The model that answered, where the object carries it (Anima).
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The model that was asked for, where the object carries it (Anima).
    pub fn requested_model(&self) -> Option<&str> {
        self.requested_model.as_deref()
    }

    /// The service tier in the words of facts.md §7, where the object carries one.
    pub fn service_tier(&self) -> Option<&str> {
        self.service_tier.as_deref()
    }

    pub(crate) fn get(&self, field: Field) -> Option<u64> {
        (self.present & field.bit() != 0).then(|| self.values[field as usize])
    }

    /// Records one telling. A second, different value of a class stands beside the first.
    fn put(&mut self, field: Field, count: Count, replaces: bool) {
        match count {
            Count::Absent => {}
            Count::Invalid => {
                self.invalid |= field.bit();
                if replaces {
                    self.present &= !field.bit();
                }
            }
            Count::Value(value) => {
                if replaces {
                    self.invalid &= !field.bit();
                }
                if self.present & field.bit() == 0 || replaces {
                    self.present |= field.bit();
                    self.values[field as usize] = value;
                } else if self.values[field as usize] != value
                    && !self.others.contains(&(field, value))
                {
                    self.others.push((field, value));
                }
            }
        }
    }

    fn forget(&mut self, fields: u16) {
        self.present &= !fields;
        self.invalid &= !fields;
        self.others.retain(|(field, _)| field.bit() & fields == 0);
    }

    fn merge_names(&mut self, newer: &UsageReport) {
        take_newer(&mut self.provider, &newer.provider);
        take_newer(&mut self.serving_provider, &newer.serving_provider);
        take_newer(&mut self.model, &newer.model);
        take_newer(&mut self.requested_model, &newer.requested_model);
        take_newer(&mut self.service_tier, &newer.service_tier);
        take_newer(&mut self.cost, &newer.cost);
    }

    fn is_changed_by(&self, newer: &UsageReport) -> bool {
        Field::ALL.into_iter().any(|field| {
            newer
                .get(field)
                .is_some_and(|value| self.get(field) != Some(value))
        })
    }

    /// Tokens were told, and all of them are zero.
    fn is_all_zero(&self) -> bool {
        let tokens = self.present & !Field::WebSearches.bit();
        tokens != 0
            && self.invalid == 0
            && self.others.is_empty()
            && Field::ALL
                .into_iter()
                .all(|field| tokens & field.bit() == 0 || self.values[field as usize] == 0)
    }

    /// Zeros that claim to replace a known prompt or answer.
    fn is_placeholder_after(&self, older: &UsageReport) -> bool {
        let sides = [Field::Input, Field::Output, Field::Total];
        self.is_all_zero()
            && sides
                .iter()
                .all(|field| older.get(*field).is_none() || self.get(*field).is_some())
            && sides
                .iter()
                .any(|field| older.get(*field).is_some_and(|value| value > 0))
    }
}

fn take_newer<T: Clone>(held: &mut Option<T>, newer: &Option<T>) {
    if newer.is_some() {
        held.clone_from(newer);
    }
}
