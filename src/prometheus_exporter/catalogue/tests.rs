//! What the table promises about names, labels and boundaries.

use super::*;
use std::collections::BTreeSet;

#[test]
fn every_family_of_facts_has_one_row() {
    for family in Family::ALL {
        let rows = FAMILIES
            .iter()
            .filter(|entry| entry.source == Source::Fact(family));
        assert_eq!(rows.count(), 1, "{family:?}");
    }
    let names: BTreeSet<&str> = FAMILIES.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), FAMILIES.len());
}

#[test]
fn the_type_can_be_seen_in_the_name() {
    for entry in FAMILIES {
        let is_counter = entry.kind == Kind::Counter;
        assert_eq!(entry.name.ends_with("_total"), is_counter, "{}", entry.name);
        if entry.unit == "s" {
            let stem = entry.name.trim_end_matches("_total");
            assert!(stem.ends_with("_seconds"), "{}", entry.name);
        }
    }
}

#[test]
fn no_label_names_a_user_a_run_or_a_trace() {
    let never = [
        "user",
        "session",
        "invocation",
        "trace",
        "span",
        "branch",
        "event",
        "call",
    ];
    for label in FAMILIES.iter().flat_map(|entry| entry.labels()) {
        for word in never {
            assert!(!label.starts_with(word), "{label}");
        }
    }
}

#[test]
fn boundaries_are_those_of_the_conventions() {
    let seconds =
        |bounds: &Bounds| -> Vec<String> { bounds.iter().map(|bound| bound.to_string()).collect() };
    assert_eq!(
        seconds(&CALL_SECONDS).join(" "),
        "0.01 0.02 0.04 0.08 0.16 0.32 0.64 1.28 2.56 5.12 10.24 20.48 40.96 81.92 163.84 \
         327.68 655.36"
    );
    assert_eq!(
        seconds(&AGENT_SECONDS).join(" "),
        "0.1 0.2 0.4 0.8 1.6 3.2 6.4 12.8 25.6 51.2 102.4 204.8 409.6"
    );
    assert!(TOKENS.upper.windows(2).all(|pair| pair[1] == pair[0] * 4));
    assert_eq!(TOKENS.upper.len(), 14);
}

#[test]
fn the_table_for_people_names_every_family_once() {
    let text = markdown();
    assert_eq!(text.lines().count(), FAMILIES.len() + 2);
    assert!(text.contains("| `tachograph_anomalies_total` | counter | `app`, `kind` |"));
}
