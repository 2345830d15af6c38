//! What a guard decided: the words of other systems and the findings inside a provider's own
//! object.
//!
//! Never the matched text: of `native` only decisions, counts and kinds of entities are read
//! (facts.md §1).

use super::instant::span_of_ms;
use super::lifecycle::LifecycleWire;
use super::wire::{Name, Scalar};
use crate::core::event::{Decision, DecisionWord, Stage, Str};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// Bytes of the longest word that is kept (facts.md §1).
const WORD_BYTES_MAX: usize = 64;
/// Kinds of entities kept of one decision.
const ENTITY_TYPES_MAX: usize = 64;

/// `policy`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(super) struct PolicyWire<'p> {
    #[serde(borrow)]
    pub id: Scalar<'p>,
    pub version: Scalar<'p>,
    pub rule: Scalar<'p>,
}

/// `actor`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(super) struct ActorWire<'p> {
    #[serde(borrow, rename = "type")]
    pub kind: Scalar<'p>,
    pub name: Scalar<'p>,
}

/// `target`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(super) struct TargetWire<'p> {
    #[serde(borrow)]
    pub kind: Scalar<'p>,
    pub call_id: Scalar<'p>,
    pub name: Scalar<'p>,
}

/// `guardrail.decision`, with the word mapped and `native` searched.
pub(super) fn decision<'p>(wire: &mut LifecycleWire<'p>) -> Decision<'p> {
    let mut policy = wire.policy.take_or_default();
    let mut actor = wire.actor.take_or_default();
    let mut target = wire.target.take_or_default();
    let found = wire
        .native
        .map_or_else(Found::default, |raw| findings(raw.get()));
    let native = wire.decision.take_text();
    let mapped = native.as_deref().and_then(decision_word);
    // A word that decides nothing leaves it to the strictest finding (rules.md §8).
    let decision = mapped.or_else(|| native.as_ref().and(found.strictest()));
    Decision {
        stage: stage(wire.stage.as_str()),
        decision,
        is_unmapped: native.is_some() && decision.is_none(),
        decision_native: native.filter(|word| is_word(word)).map(first_bytes),
        action: word(&mut wire.action),
        policy: policy.id.take_text(),
        policy_version: policy.version.take_text(),
        rule: policy.rule.take_text(),
        reason_code: wire.reason_code.take_text(),
        reason: wire.reason.take_text(),
        actor_type: word(&mut actor.kind),
        actor_name: actor.name.take_text(),
        target_kind: word(&mut target.kind),
        target_call_id: target.call_id.take_text(),
        target_name: target.name.take_text(),
        mode: word(&mut wire.mode),
        outcome: word(&mut wire.outcome),
        duration: wire.duration_ms.and_then(|raw| span_of_ms(raw.get())),
        findings: found.findings,
        entity_types: found.entity_types,
    }
}

/// A word of a closed list; a sentence in its place is none.
fn word<'p>(wire: &mut Scalar<'p>) -> Option<Str<'p>> {
    wire.take_text().filter(|text| is_word(text))
}

/// True for a plain word; what is more than that may be the matched text, and is not kept.
pub(super) fn is_word(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    !text.is_empty() && text.bytes().all(is_plain)
}

/// The beginning of a plain word, which is ASCII.
fn first_bytes(word: Str<'_>) -> Str<'_> {
    match word {
        Cow::Borrowed(word) => Cow::Borrowed(&word[..word.len().min(WORD_BYTES_MAX)]),
        Cow::Owned(mut word) => {
            word.truncate(WORD_BYTES_MAX);
            Cow::Owned(word)
        }
    }
}

/// The mapping of events.md §2.2, whatever the case of the word.
pub(crate) fn decision_word(word: &str) -> Option<DecisionWord> {
    const MAPPING: [(DecisionWord, &[&str]); 5] = [
        (DecisionWord::Allow, &["allow", "pass", "ok"]),
        (DecisionWord::Deny, &["deny", "block", "blocked", "refuse"]),
        (
            DecisionWord::Modify,
            &["modify", "redact", "mask", "transform", "anonymized"],
        ),
        (DecisionWord::Warn, &["warn", "flag"]),
        (DecisionWord::Escalate, &["escalate", "confirm"]),
    ];
    let is_it = |known: &&str| known.eq_ignore_ascii_case(word);
    MAPPING
        .iter()
        .find(|(_, words)| words.iter().any(is_it))
        .map(|(decision, _)| *decision)
}

fn stage(word: &str) -> Option<Stage> {
    Some(match word {
        "" => return None,
        "run_input" => Stage::RunInput,
        "model_input" => Stage::ModelInput,
        "model_output" => Stage::ModelOutput,
        "tool_input" => Stage::ToolInput,
        "tool_output" => Stage::ToolOutput,
        "run_output" => Stage::RunOutput,
        _ => Stage::Unknown,
    })
}

/// What `native` held.
#[derive(Default)]
struct Found {
    findings: Vec<(DecisionWord, u32)>,
    entity_types: Vec<String>,
}

impl Found {
    /// The strictest decision among the findings (rules.md §8).
    fn strictest(&self) -> Option<DecisionWord> {
        const ORDER: [DecisionWord; 5] = [
            DecisionWord::Deny,
            DecisionWord::Escalate,
            DecisionWord::Modify,
            DecisionWord::Warn,
            DecisionWord::Allow,
        ];
        ORDER
            .into_iter()
            .find(|word| self.findings.iter().any(|(found, _)| found == word))
    }

    fn count(&mut self, word: DecisionWord) {
        match self.findings.iter_mut().find(|(found, _)| *found == word) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => self.findings.push((word, 1)),
        }
    }

    fn entity(&mut self, kind: &str) {
        let is_new = !self.entity_types.iter().any(|known| known == kind);
        let is_kind = is_word(kind) && kind.len() <= WORD_BYTES_MAX;
        if is_kind && is_new && self.entity_types.len() < ENTITY_TYPES_MAX {
            self.entity_types.push(kind.to_owned());
        }
    }
}

fn findings(json: &str) -> Found {
    let mut found = Found::default();
    let mut reader = serde_json::Deserializer::from_str(json);
    // What was found before nesting became too deep still holds.
    let _ = Search {
        found: &mut found,
        place: Place::Top,
    }
    .deserialize(&mut reader);
    found.findings.sort_unstable();
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Top,
    Below,
    /// The value of a key `entities`.
    Entities,
}

/// Walks a value; answers with it where it is a scalar.
struct Search<'f> {
    found: &'f mut Found,
    place: Place,
}

impl<'de> DeserializeSeed<'de> for Search<'_> {
    type Value = Scalar<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Scalar<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Search<'_> {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_bool<E: Error>(self, flag: bool) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Bool(flag))
    }
    fn visit_u64<E: Error>(self, _: u64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Other)
    }
    fn visit_i64<E: Error>(self, _: i64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Other)
    }
    fn visit_f64<E: Error>(self, _: f64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Other)
    }
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Borrowed(text)))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Owned(text.to_owned())))
    }
    fn visit_unit<E: Error>(self) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar<'de>, A::Error> {
        let found = self.found;
        while seq
            .next_element_seed(Search {
                found,
                place: Place::Below,
            })?
            .is_some()
        {}
        Ok(Scalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar<'de>, A::Error> {
        let Search { found, place } = self;
        let (mut action, mut kind, mut is_detected) = (None, Scalar::Absent, false);
        while let Some(Name(name)) = map.next_key::<Name>()? {
            if place == Place::Entities {
                found.entity(&name);
            }
            let below = if name == "entities" {
                Place::Entities
            } else {
                Place::Below
            };
            let value = map.next_value_seed(Search {
                found: &mut *found,
                place: below,
            })?;
            match name.as_ref() {
                "action" => action = decision_word(value.as_str()),
                "detected" => is_detected = value.flag() == Some(true),
                "type" => kind = value,
                _ => {}
            }
        }
        if place != Place::Top
            && let Some(word) = action.or(is_detected.then_some(DecisionWord::Warn))
        {
            found.count(word);
            found.entity(kind.as_str());
        }
        Ok(Scalar::Other)
    }
}
