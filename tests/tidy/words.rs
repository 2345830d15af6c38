//! Rules about the core's closed lists: every word is seen in some test, every invariant broken in one.

use crate::require;
use crate::source::{files, has_word, read, rust};
use tachograph::core::fact::{AnomalyKind, Status};
use tachograph::core::invariant::Invariant;

/// Words that no test can show yet, and why.
const UNREACHABLE: &[(&str, &str)] = &[(
    "retention_loss",
    "derived by the Kafka edge's counters, not by the core",
)];

/// Invariants that no caller of the public interface can break, and why the check stays.
const UNBREAKABLE: &[(&str, &str)] = &[
    (
        "resume_not_ahead_of_evidence",
        "the mark is the minimum that the check compares with; it guards a later change",
    ),
    (
        "records_conserved",
        "every way out of `read` counts one outcome; it guards a new way out",
    ),
    (
        "drained_means_caught_up",
        "a drained ledger holds nothing, so `exported` is the next offset; it guards the ledger",
    ),
];

/// True of a test that shows what it says: lists of all words show nothing.
fn shows(path: &str) -> bool {
    !path.starts_with("tests/tidy") && path != "tests/cases/words.rs"
}

/// Everything that tests say in literals, snapshots and expectations.
fn said_by_tests() -> String {
    let mut out = String::new();
    for source in rust(&["src", "tests"]) {
        if shows(&source.path) {
            out.push_str(&source.of_tests(&source.literals));
            out.push('\n');
        }
    }
    let is_said = |path: &String| path.ends_with(".snap") || path.ends_with("expected.json");
    let paths = [files("src"), files("tests")].concat();
    for path in paths.iter().filter(|path| is_said(path)) {
        out.push_str(&read(path).unwrap_or_default());
    }
    out
}

/// What tests name in code, such as `Status::Open`.
fn named_by_tests() -> String {
    let sources = rust(&["src", "tests"]);
    let sources = sources.iter().filter(|source| shows(&source.path));
    sources
        .map(|source| source.of_tests(&source.code))
        .collect()
}

#[test]
fn every_word_is_seen_in_a_test() {
    let (said, named) = (said_by_tests(), named_by_tests());
    let mut words: Vec<(String, &str)> = Vec::new();
    for status in Status::ALL {
        words.push((format!("Status::{status:?}"), status.as_str()));
    }
    for kind in AnomalyKind::ALL {
        words.push((format!("AnomalyKind::{kind:?}"), kind.as_str()));
    }
    // The enum has no list of its own; its words stand in one match.
    let dialect = read("src/core/dialect/mod.rs").unwrap_or_default();
    for line in dialect.lines().map(str::trim) {
        if let Some((variant, word)) = line.split_once(" => \"")
            && variant.starts_with("DeadLetterReason::")
        {
            let word = word.trim_end_matches(['"', ',']);
            words.push((variant.to_owned(), word));
        }
    }
    assert!(
        words.len() > 25,
        "the words of DeadLetterReason were not found"
    );
    let mut problems = Vec::new();
    for (variant, word) in &words {
        let is_seen = has_word(&said, word) || has_word(&named, variant);
        let is_listed = UNREACHABLE.iter().any(|(listed, _)| listed == word);
        match (is_seen, is_listed) {
            (false, false) => problems.push(format!("{variant}: no test shows `{word}`")),
            (true, true) => problems.push(format!("`{word}` is listed as unreachable and is not")),
            _ => {}
        }
    }
    require(
        &problems,
        "Write a test that shows the word, or list it with the reason.",
    );
}

#[test]
fn every_invariant_is_broken_by_a_test() {
    let mut panics = String::new();
    for source in rust(&["src", "tests"]) {
        for line in source
            .text
            .lines()
            .filter(|line| line.contains("#[should_panic"))
        {
            panics.push_str(line);
        }
    }
    let mut problems = Vec::new();
    for invariant in Invariant::ALL {
        let word = invariant.as_str();
        let is_broken = has_word(&panics, word);
        let is_listed = UNBREAKABLE.iter().any(|(listed, _)| *listed == word);
        match (is_broken, is_listed) {
            (false, false) => problems.push(format!("{invariant:?}: no test breaks `{word}`")),
            (true, true) => problems.push(format!("`{word}` is listed as unbreakable and is not")),
            _ => {}
        }
    }
    require(
        &problems,
        "Write a test with #[should_panic(expected = \"word\")], or list it with the reason.",
    );
}
