//! The repository's own lints (architecture.md §16): what neither the compiler nor clippy can see.
//!
//! Every rule is one test, and its message says what to do. Exceptions stand here, each with its
//! reason; one that is no longer needed fails as well.

#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/words.rs"]
mod words;

use sha2::{Digest, Sha256};
use source::{files, read, rust};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;
const COLUMNS_MAX: usize = 100;

/// A function or file that may be longer, and why.
type Exceptions = &'static [(&'static str, &'static str)];

/// `path:function`.
const LONG_FUNCTIONS: Exceptions = &[
    (
        "src/core/timeline/facts.rs:call_fact",
        "one line a column of the widest row, in the order of facts.md §1",
    ),
    (
        "src/core/timeline/route.rs:open",
        "one line a field of a segment, all of them empty",
    ),
    (
        "tests/clickhouse/facts.rs:one_of_each",
        "one hand-made row a table",
    ),
];

const LONG_FILES: Exceptions = &[(
    "src/core/fact.rs",
    "one declaration a table, in the order of facts.md §1: a reader looks a field up here",
)];

/// Crates that the core may import besides `std` and itself, and why.
const CORE_CRATES: Exceptions = &[
    ("serde", "wire structs that borrow from the record"),
    ("serde_json", "the JSON behind them"),
    ("jiff", "RFC 3339, which nobody should parse for himself"),
    (
        "ahash",
        "hashes of short texts and many numbers at a tenth of the standard hasher's time",
    ),
];

/// Where text may be printed: the command line's own output, a child process that has no log.
const PRINTING: &[&str] = &[
    "src/main.rs",
    "src/cli.rs",
    "src/cli/",
    "src/replay/",
    "src/demo/",
    "src/demo.rs",
    "src/embedded/engine/foreground.rs",
    "src/embedded/engine/child.rs",
];

/// Fails with all problems at once and what to do about them.
#[track_caller]
pub fn require(problems: &[String], what_to_do: &str) {
    assert!(
        problems.is_empty(),
        "{} to repair. {what_to_do}\n{}\n",
        problems.len(),
        problems.join("\n")
    );
}

/// Problems that no exception excuses, and exceptions that excuse nothing.
fn unexcused(found: &BTreeMap<String, String>, exceptions: Exceptions) -> Vec<String> {
    let is_listed = |name: &str| exceptions.iter().any(|(listed, _)| *listed == name);
    let new = found.iter().filter(|(name, _)| !is_listed(name));
    let stale = exceptions
        .iter()
        .filter(|(name, _)| !found.contains_key(*name));
    new.map(|(name, what)| format!("{name}: {what}"))
        .chain(stale.map(|(name, _)| format!("{name}: listed as an exception and needs none")))
        .collect()
}

#[test]
fn functions_fit_a_screen() {
    let mut found = BTreeMap::new();
    for source in rust(&["src", "tests"]) {
        for (name, line, length) in source.functions() {
            if length > FUNCTION_LINES_MAX {
                let key = format!("{}:{name}", source.path);
                found.insert(key, format!("{length} lines from line {line}"));
            }
        }
    }
    let problems = unexcused(&found, LONG_FUNCTIONS);
    require(&problems, "A function has at most 70 lines: split it.");
}

#[test]
fn files_can_be_read_at_once() {
    let mut found = BTreeMap::new();
    for source in rust(&["src", "tests"]) {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            found.insert(source.path.clone(), format!("{lines} lines"));
        }
    }
    let problems = unexcused(&found, LONG_FILES);
    require(
        &problems,
        "A file has at most 600 lines: split it, or give a reason here.",
    );
}

#[test]
fn lines_have_at_most_100_columns() {
    let mut problems = Vec::new();
    for source in rust(&["src"]) {
        let literals = source.literals.lines();
        for (number, (line, literal)) in source.text.lines().zip(literals).enumerate() {
            // An address or a sample record is not broken; rustfmt leaves such literals alone.
            let is_unbreakable = line.contains("://") || literal.trim().len() > 60;
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && !is_unbreakable {
                problems.push(format!("{}:{}: {columns} columns", source.path, number + 1));
            }
        }
    }
    require(&problems, "Break the line before column 100, comments too.");
}

#[test]
fn core_imports_next_to_nothing() {
    let manifest = read("Cargo.toml").unwrap_or_default();
    let dependencies = manifest
        .split("\n[dependencies]\n")
        .nth(1)
        .unwrap_or_default();
    let dependencies: BTreeSet<String> = dependencies
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.replace('-', "_"))
        .collect();
    assert!(
        dependencies.len() > 10,
        "[dependencies] of Cargo.toml was not understood"
    );
    let is_listed = |name: &str| CORE_CRATES.iter().any(|(listed, _)| *listed == name);
    let mut problems = Vec::new();
    let mut used = BTreeSet::new();
    for source in rust(&["src/core"]) {
        for (line, code) in source.shipped() {
            let outside = code.match_indices("crate::").filter(|(at, word)| {
                !code[..*at].ends_with('$') && !code[at + word.len()..].starts_with("core")
            });
            if outside.count() > 0 {
                problems.push(format!(
                    "{}:{line}: reaches an edge: {}",
                    source.path,
                    code.trim()
                ));
            }
            for name in path_roots(code).intersection(&dependencies) {
                used.insert(name.clone());
                if !is_listed(name) {
                    problems.push(format!("{}:{line}: uses {name}", source.path));
                }
            }
        }
    }
    for (name, _) in CORE_CRATES.iter().filter(|(name, _)| !used.contains(*name)) {
        problems.push(format!("{name}: listed for the core and not used by it"));
    }
    require(
        &problems,
        "The core imports std, crate::core and the crates listed in CORE_CRATES with a reason.",
    );
}

/// First names of paths: `a` in `a::b`.
fn path_roots(code: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = BTreeSet::new();
    for (at, _) in code.match_indices("::") {
        let before = &code[..at];
        let start = before.rfind(|c| !is_name(c)).map_or(0, |at| at + 1);
        if !before[..start].ends_with(':') {
            out.insert(before[start..].to_owned());
        }
    }
    out
}

#[test]
fn nothing_unfinished_or_careless_ships() {
    let banned = [
        (
            ".unwrap()",
            "handle it, or `expect` with the proof as its text",
        ),
        ("dbg!", "remove it"),
        ("todo!", "finish it"),
        ("unimplemented!", "finish it"),
    ];
    let mut problems = Vec::new();
    for source in rust(&["src"]) {
        for (line, code) in source.shipped() {
            for (word, advice) in banned.iter().filter(|(word, _)| code.contains(word)) {
                problems.push(format!("{}:{line}: {word}: {advice}", source.path));
            }
            let may_print = PRINTING.iter().any(|path| source.path.starts_with(path));
            if !may_print
                && ["print!", "println!"]
                    .iter()
                    .any(|word| code.contains(word))
            {
                problems.push(format!("{}:{line}: prints; use tracing", source.path));
            }
        }
        let marks = ["TODO", "FIXME", "XXX"];
        for (number, line) in source.text.lines().enumerate() {
            for mark in marks.iter().filter(|mark| source::has_word(line, mark)) {
                problems.push(format!(
                    "{}:{}: {mark}: open an issue",
                    source.path,
                    number + 1
                ));
            }
        }
    }
    require(
        &problems,
        "What ships is finished, quiet, and proves what it takes for granted.",
    );
}

#[test]
fn nothing_names_a_machine_or_a_registry() {
    // Written apart, so that this file does not find itself.
    let machine = [
        ["/wo", "rk/"],
        ["/ro", "ot/"],
        ["/ho", "me/"],
        ["/Use", "rs/"],
    ];
    let hosts = [
        ["crates", ".io"],
        ["npmjs", ".org"],
        ["pypi", ".org"],
        ["pythonhosted", ".org"],
        ["repo.maven", ".apache"],
        ["repo1.maven", ".org"],
        ["deb.debian", ".org"],
    ];
    let words: Vec<String> = machine
        .iter()
        .chain(&hosts)
        .map(|parts| parts.concat())
        .collect();
    let folders = ["src", "tests", "deploy", "dashboards", "emitters"];
    let mut paths: Vec<String> = folders.iter().flat_map(|folder| files(folder)).collect();
    paths.extend(["README.md", "Makefile", "Cargo.toml"].map(str::to_owned));
    let mut problems = Vec::new();
    for path in paths {
        // Binary files and lock files, which name hosts by their nature.
        let Some(text) = read(&path).filter(|_| !path.contains("lock")) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                problems.push(format!("{path}:{}: {word}", number + 1));
            }
        }
    }
    require(
        &problems,
        "Use relative paths, and the package manager's configured registry.",
    );
}

#[test]
fn sql_is_append_only() {
    let folder = "deploy/clickhouse";
    let mut sums = String::new();
    for path in files(folder).iter().filter(|path| path.ends_with(".sql")) {
        let name = path.rsplit('/').next().unwrap_or(path);
        let text = read(path).unwrap_or_default();
        for byte in Sha256::digest(text.as_bytes()) {
            let _ = write!(sums, "{byte:02x}");
        }
        let _ = writeln!(sums, "  {name}");
    }
    assert!(
        !sums.is_empty(),
        "{folder} holds no .sql file: the schema is missing"
    );
    let pinned = read(&format!("{folder}/checksums")).unwrap_or_default();
    assert_eq!(
        pinned, sums,
        "SQL differs from {folder}/checksums. A file that was released never changes: add the next \
         number instead. For a new file: (cd {folder} && sha256sum *.sql > checksums)"
    );
}

#[test]
fn every_recording_has_its_streams_and_snapshots() {
    let mut by_folder: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for path in files("tests/corpus") {
        let parts: Vec<&str> = path.split('/').collect();
        if let ["tests", "corpus", corpus, folder, file] = parts[..] {
            let stem = file.split('.').next().unwrap_or(file).to_owned();
            let is_stream = file.ends_with(".ndjson") || file.ends_with(".snap");
            if is_stream {
                let key = (corpus.to_owned(), folder.to_owned());
                by_folder.entry(key).or_default().insert(stem);
            }
        }
    }
    let mut problems = Vec::new();
    let corpora: BTreeSet<String> = by_folder.keys().map(|(corpus, _)| corpus.clone()).collect();
    for corpus in &corpora {
        let key = |folder: &str| (corpus.clone(), folder.to_owned());
        let Some(recordings) = by_folder.get(&key("recordings")) else {
            problems.push(format!("tests/corpus/{corpus}: no folder `recordings`"));
            continue;
        };
        for ((_, folder), stems) in by_folder.iter().filter(|((name, _), _)| name == corpus) {
            for stem in recordings.difference(stems) {
                problems.push(format!("tests/corpus/{corpus}/{folder}: {stem} is missing"));
            }
            for stem in stems.difference(recordings) {
                problems.push(format!(
                    "tests/corpus/{corpus}/{folder}: {stem} has no recording"
                ));
            }
        }
    }
    assert!(!corpora.is_empty(), "tests/corpus holds no recordings");
    require(
        &problems,
        "Make the streams anew (tests/corpus/make.sh), or delete what is orphaned.",
    );
}
