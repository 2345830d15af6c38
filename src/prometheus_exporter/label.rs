//! Which label values a scrape may show: budgets per label and per family, `other` beyond them.
//!
//! Deliberately no counting of anything but what was folded: a series that does not fit is counted
//! under another one, never dropped, so that sums over a family stay exact. Values come from
//! strangers. Escaping of quotes, backslashes and line feeds is the encoder's; the remaining
//! control characters have no escape in the format and are replaced here.

use crate::core::Name;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The value under which everything without a place of its own is counted.
pub const OTHER: &str = "other";

/// What `[labels]` of the configuration says (config.md).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelLimits {
    /// Distinct values of one label, beside `other` and the empty one.
    pub max_values: usize,
    /// Series of one family; a histogram's buckets count as one. At least 1.
    pub max_series_per_family: usize,
    /// Model names that have a place reserved within `max_values`.
    pub known_models: Vec<String>,
}

impl Default for LabelLimits {
    fn default() -> LabelLimits {
        LabelLimits {
            max_values: 100,
            max_series_per_family: 5_000,
            known_models: Vec::new(),
        }
    }
}

/// Labels whose values are words of the specification: they need no budget and fold last.
const CLOSED: &[&str] = &[
    "decision",
    "field",
    "gen_ai_token_type",
    "kind",
    "phase",
    "served_by",
    "stage",
    "status",
    "token_class",
];

/// What a label's values are. Labels of one kind share their admitted values, so that a model which
/// has series of its own in one family has them in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vocabulary {
    Closed,
    Model,
    Open(&'static str),
}

/// The vocabulary of a label.
pub fn vocabulary(label: &'static str) -> Vocabulary {
    match label {
        "model" | "gen_ai_response_model" => Vocabulary::Model,
        "agent" | "gen_ai_agent_name" => Vocabulary::Open("agent"),
        "tool" | "gen_ai_tool_name" => Vocabulary::Open("tool"),
        _ if CLOSED.contains(&label) => Vocabulary::Closed,
        _ => Vocabulary::Open(label),
    }
}

/// The values that have a place, label by label, first come first served.
pub struct Admission {
    limits: LabelLimits,
    other: Name,
    known_models: HashSet<Name>,
    admitted: HashMap<Vocabulary, HashSet<Name>>,
}

impl Admission {
    /// Nothing admitted yet but the known models.
    pub fn new(limits: &LabelLimits) -> Admission {
        let mut known_models = HashSet::new();
        for model in &limits.known_models {
            if known_models.len() < limits.max_values {
                known_models.insert(clean(&Name::from(model.as_str())));
            }
        }
        Admission {
            limits: limits.clone(),
            other: Name::from(OTHER),
            known_models,
            admitted: HashMap::new(),
        }
    }

    /// The value to show for `value`: itself, cleaned, or `other`.
    pub fn admit(&mut self, vocabulary: Vocabulary, value: &Name) -> Name {
        if value.is_empty() || &**value == OTHER {
            return value.clone();
        }
        let value = clean(value);
        if vocabulary == Vocabulary::Closed {
            return value;
        }
        let mut places = self.limits.max_values;
        if vocabulary == Vocabulary::Model {
            if self.known_models.contains(&value) {
                return value;
            }
            places -= self.known_models.len();
        }
        let admitted = self.admitted.entry(vocabulary).or_default();
        if !admitted.contains(&value) {
            if admitted.len() >= places {
                return self.other.clone();
            }
            admitted.insert(value.clone());
        }
        value
    }
}

/// The value without control characters, which a text exposition cannot carry safely. A line feed
/// has an escape and stays.
fn clean(value: &Name) -> Name {
    // The second block of control characters begins with this byte in UTF-8.
    let may_be_bad = |byte: u8| byte < 0x20 || byte == 0x7f || byte == 0xc2;
    if !value.bytes().any(may_be_bad) {
        return value.clone();
    }
    let is_bad = |c: char| c.is_control() && c != '\n';
    value.replace(is_bad, "\u{fffd}").into()
}

/// The series of one family, never more than its budget, each with a cell of type `C`.
pub struct SeriesMap<C> {
    vocabularies: Box<[Vocabulary]>,
    series: HashMap<Arc<[Name]>, C>,
    max: usize,
    folded: u64,
}

impl<C> SeriesMap<C> {
    /// A family without series.
    pub fn new(labels: &'static [&'static str], limits: &LabelLimits) -> SeriesMap<C> {
        SeriesMap {
            vocabularies: labels.iter().map(|label| vocabulary(label)).collect(),
            series: HashMap::new(),
            max: limits.max_series_per_family.max(1),
            folded: 0,
        }
    }

    /// The series for these values, made from `zero` where it is new: the one that carries them or,
    /// where something is full, one in which as few of them as possible are `other`.
    pub fn cell(
        &mut self,
        values: &[Name],
        admission: &mut Admission,
        zero: impl FnOnce() -> C,
    ) -> &mut C {
        // Whoever is there was admitted, and the common case allocates nothing.
        if self.series.contains_key(values) {
            return self.series.get_mut(values).expect("it was just found");
        }
        let place = self.place(values, admission);
        let is_folded = |(to, from): (&Name, &Name)| &**to == OTHER && &**from != OTHER;
        self.folded += u64::from(place.iter().zip(values).any(is_folded));
        self.series.entry(place.into()).or_insert_with(zero)
    }

    fn place(&self, values: &[Name], admission: &mut Admission) -> Box<[Name]> {
        let mut place: Box<[Name]> = self
            .vocabularies
            .iter()
            .zip(values)
            .map(|(vocabulary, value)| admission.admit(*vocabulary, value))
            .collect();
        // The last places are kept for series in which more is folded, the very last for the one in
        // which everything is: there is always somewhere to count.
        let reserve = (self.max / 32).max(2);
        if self.has_room(&place, reserve) {
            return place;
        }
        let can_fold = |place: &[Name], at: usize| {
            self.vocabularies[at] != Vocabulary::Closed && !place[at].is_empty()
        };
        for at in (0..place.len()).rev() {
            if !can_fold(&place, at) {
                continue;
            }
            place[at] = admission.other.clone();
            let is_last = !(0..at).any(|before| can_fold(&place, before));
            let kept = if is_last { 1 } else { (reserve / 2).max(2) };
            if self.has_room(&place, kept) {
                return place;
            }
        }
        place.fill(admission.other.clone());
        place
    }

    /// True where the series is there, or making it leaves `kept` places free.
    fn has_room(&self, place: &[Name], kept: usize) -> bool {
        self.series.contains_key(place) || self.series.len() + kept < self.max
    }

    /// Every series with its label values.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<[Name]>, &C)> {
        self.series.iter()
    }

    /// The same, with cells that may change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&[Name], &mut C)> {
        let series = self.series.iter_mut();
        series.map(|(values, cell)| (&**values, cell))
    }

    /// Lets all series go. Their values keep their places.
    pub fn clear(&mut self) {
        self.series.clear();
    }

    /// Samples that were counted under `other` for want of room.
    pub fn folded(&self) -> u64 {
        self.folded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::sample::Family;
    use crate::prometheus_exporter::cell::Cell;

    fn limits(max_values: usize, max_series: usize, known: &[&str]) -> LabelLimits {
        LabelLimits {
            max_values,
            max_series_per_family: max_series,
            known_models: known.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    /// Counts 1 per line of `app tenant model agent token_class` (`-` is empty) and renders what
    /// is there then.
    fn count(limits: &LabelLimits, lines: &[&str]) -> Vec<String> {
        let mut admission = Admission::new(limits);
        let mut family = SeriesMap::new(Family::Tokens.labels(), limits);
        for line in lines {
            let values: Vec<Name> = line
                .split(' ')
                .map(|word| Name::from(if word == "-" { "" } else { word }))
                .collect();
            let cell = family.cell(&values, &mut admission, || Cell::Counter(0));
            let Cell::Counter(count) = cell else {
                panic!("a counter")
            };
            *count += 1;
            assert!(family.series.len() <= limits.max_series_per_family);
        }
        let mut text: Vec<String> = family
            .iter()
            .map(|(values, cell)| {
                let words = values.iter().map(|v| if v.is_empty() { "-" } else { v });
                format!("{} {cell:?}", words.collect::<Vec<_>>().join(" "))
            })
            .collect();
        text.sort();
        text.push(format!("folded {}", family.folded()));
        text
    }

    #[test]
    fn values_beyond_a_labels_budget_are_other() {
        let text = count(
            &limits(2, 5_000, &[]),
            &[
                "a t m1 d answer",
                "a t m2 d answer",
                "a t m3 d answer",
                "a t m1 d answer",
                "a t m4 d reasoning",
            ],
        );
        assert_eq!(
            text,
            [
                "a t m1 d answer 2",
                "a t m2 d answer 1",
                "a t other d answer 1",
                "a t other d reasoning 1",
                "folded 2",
            ]
        );
    }

    #[test]
    fn known_models_have_their_places_reserved() {
        let text = count(
            &limits(2, 5_000, &["flash"]),
            &["a t typo1 d x", "a t typo2 d x", "a t flash d x"],
        );
        assert_eq!(
            text,
            [
                "a t flash d x 1",
                "a t other d x 1",
                "a t typo1 d x 1",
                "folded 1",
            ]
        );
    }

    #[test]
    fn words_of_the_specification_need_no_budget() {
        let text = count(
            &limits(1, 5_000, &[]),
            &["a t m d x", "a t m d y", "a t m d z"],
        );
        assert_eq!(
            text,
            ["a t m d x 1", "a t m d y 1", "a t m d z 1", "folded 0"]
        );
    }

    #[test]
    fn what_is_unknown_takes_no_place_and_is_not_folded() {
        let text = count(&limits(1, 5_000, &[]), &["a t m d x", "a t - d x"]);
        assert_eq!(text, ["a t - d x 1", "a t m d x 1", "folded 0"]);
    }

    #[test]
    fn a_full_family_folds_from_the_right_and_keeps_its_last_place() {
        let lines: Vec<String> = (0..10).map(|n| format!("a{n} t m d x")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let text = count(&limits(100, 4, &[]), &lines);
        assert_eq!(
            text,
            [
                "a0 t m d x 1",
                "a1 t m d x 1",
                "other other other other x 8",
                "folded 8",
            ]
        );
        let text = count(&limits(100, 1, &[]), &lines);
        assert_eq!(text, ["other other other other other 10", "folded 10"]);
    }

    #[test]
    fn a_full_family_folds_as_little_as_it_must() {
        let limits = limits(1_000, 320, &[]);
        let lines: Vec<String> = (0..400).map(|n| format!("a t m d{n} x")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let text = count(&limits, &lines);
        assert!(text.contains(&"a t m other x 90".to_owned()), "{text:?}");
    }

    #[test]
    fn control_characters_are_replaced_and_line_feeds_stay() {
        let mut admission = Admission::new(&LabelLimits::default());
        let value = Name::from("a\0b\x07c\r\n\u{85}\"\\");
        let shown = admission.admit(vocabulary("agent"), &value);
        assert_eq!(&*shown, "a\u{fffd}b\u{fffd}c\u{fffd}\n\u{fffd}\"\\");
    }

    proptest::proptest! {
        #[test]
        fn whatever_comes_nothing_is_lost_and_no_budget_broken(
            rows in proptest::collection::vec(proptest::array::uniform5(0u8..6), 0..200),
            max_values in 0usize..5,
            max_series in 1usize..60,
        ) {
            let limits = limits(max_values, max_series, &["v1"]);
            let words = |row: &[u8; 5]| row.map(|n| match n {
                0 => "-".to_owned(),
                n => format!("v{n}"),
            });
            let lines: Vec<String> = rows.iter().map(|row| words(row).join(" ")).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let text = count(&limits, &lines);
            let (_, series) = text.split_last().unwrap();
            proptest::prop_assert!(series.len() <= max_series);
            let mut total = 0;
            let mut values = vec![HashSet::new(); 5];
            for one in series {
                let mut parts: Vec<&str> = one.split(' ').collect();
                total += parts.pop().unwrap().parse::<usize>().unwrap();
                for (seen, value) in values.iter_mut().zip(parts) {
                    if value != OTHER && value != "-" {
                        seen.insert(value.to_owned());
                    }
                }
            }
            proptest::prop_assert_eq!(total, rows.len());
            for seen in &values[..4] {
                proptest::prop_assert!(seen.len() <= max_values);
            }
        }
    }

    #[test]
    fn a_model_is_the_same_in_every_family() {
        let mut admission = Admission::new(&limits(1, 10, &[]));
        let (one, two) = (Name::from("one"), Name::from("two"));
        assert_eq!(admission.admit(vocabulary("model"), &one), one);
        assert_eq!(
            admission.admit(vocabulary("gen_ai_response_model"), &one),
            one
        );
        assert_eq!(
            &*admission.admit(vocabulary("gen_ai_response_model"), &two),
            OTHER
        );
    }
}
