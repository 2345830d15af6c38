//! `customMetadata` of a native event: an object, or the list of pairs that ADK Java writes.
//!
//! Its keys are the application's own and never folded in case; four of them mean something
//! (runtimes.md §7, §19).

use super::wire::{Object, Raw, Scalar};
use crate::core::event::{NativeCustom, NativeGuardrail};
use serde::Deserialize;

#[derive(Default, Deserialize)]
#[serde(default)]
struct CustomWire<'p> {
    #[serde(borrow)]
    model_armor_blocked: Scalar<'p>,
    cache_hit: Scalar<'p>,
    cache: Scalar<'p>,
    guardrail: Object<GuardrailWire<'p>>,
    tenant: Scalar<'p>,
    openai_model: Scalar<'p>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct GuardrailWire<'p> {
    #[serde(borrow)]
    decider: Scalar<'p>,
    verdict: Scalar<'p>,
    policy: Scalar<'p>,
}

/// One entry of the list that ADK Java writes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PairWire<'p> {
    #[serde(borrow)]
    key: Scalar<'p>,
    #[serde(
        rename = "stringValue",
        alias = "string_value",
        alias = "boolValue",
        alias = "bool_value"
    )]
    string_value: Scalar<'p>,
}

/// Reads the metadata; what is neither an object nor a list says nothing.
pub(super) fn metadata<'p>(raw: Raw<'p>) -> Result<NativeCustom<'p>, serde_json::Error> {
    let Some(json) = raw.map(|raw| raw.get()) else {
        return Ok(NativeCustom::default());
    };
    let wire = match json.as_bytes().first() {
        Some(b'{') => serde_json::from_str(json)?,
        Some(b'[') => from_pairs(json)?,
        _ => CustomWire::default(),
    };
    Ok(custom(wire))
}

fn from_pairs(json: &str) -> Result<CustomWire<'_>, serde_json::Error> {
    let mut wire = CustomWire::default();
    let pairs: Vec<Object<PairWire>> = serde_json::from_str(json)?;
    for mut pair in pairs {
        let PairWire { key, string_value } = pair.take_or_default();
        match key.as_str() {
            "model_armor_blocked" => wire.model_armor_blocked = string_value,
            "cache_hit" => wire.cache_hit = string_value,
            "cache" => wire.cache = string_value,
            "tenant" => wire.tenant = string_value,
            "openai_model" => wire.openai_model = string_value,
            _ => {}
        }
    }
    Ok(wire)
}

fn custom<'p>(mut wire: CustomWire<'p>) -> NativeCustom<'p> {
    let is_true = |value: &Scalar| value.flag() == Some(true) || value.as_str() == "true";
    NativeCustom {
        model_armor_blocked: is_true(&wire.model_armor_blocked),
        cache_hit: is_true(&wire.cache_hit) || wire.cache.as_str() == "hit",
        guardrail: wire.guardrail.take().map(|mut guardrail| NativeGuardrail {
            decider: guardrail.decider.take_text(),
            verdict: guardrail.verdict.take_text(),
            policy: guardrail.policy.take_text(),
        }),
        tenant: wire.tenant.take_text(),
        model: wire.openai_model.take_text(),
    }
}
