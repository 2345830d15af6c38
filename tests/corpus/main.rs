//! The recordings of real runtimes against the truth written beside them.
//!
//! Every recording is read twice: as the runtime's native events alone, and as the lifecycle records that an emitter
//! plugin would have sent; where event times are honest, the events once more with their times as arrivals. Every figure
//! must equal `expected.json`; where a stream cannot tell, the fact must say unknown, and each such place stands in
//! `exceptions.json` with its reason.

mod both;
mod calls;
mod compare;
mod lines;
mod runs;
mod sets;
mod stream;
mod tools;
mod traps;
mod truth;
mod verdicts;

use compare::Comparison;
use serde_json::Value;
use sets::{SETS, Set};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use tachograph::core::fact::Fact;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn json(path: &PathBuf) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The facts of one stream of one recording.
fn facts(set: &Set, stream: &str, file: &str) -> Vec<Fact> {
    let text = |of: &str| {
        let path = folder().join(set.name).join(of).join(file);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    match stream {
        "lifecycle" => stream::facts(&text(stream), "", false),
        "both" | "later" => {
            // Later: all events after all records, as from a bridge that reads stored sessions.
            let delay = if stream == "later" {
                1_000_000_000_000
            } else {
                0
            };
            let (records, events) = (text("lifecycle"), text("native"));
            let lines = both::lines(&text("recordings"), &records, &events, delay);
            stream::facts(&lines, set.runtime, false)
        }
        _ => stream::facts(&text("native"), set.runtime, stream == "arrival"),
    }
}

/// (corpus, stream, file) → what differs → why it must.
type Exceptions = BTreeMap<(String, String, String), BTreeMap<String, String>>;

fn exceptions() -> Exceptions {
    let mut out = Exceptions::new();
    for entry in json(&folder().join("exceptions.json")).as_array().unwrap() {
        let text = |key: &str| {
            entry[key]
                .as_str()
                .unwrap_or_else(|| panic!("{key}"))
                .to_owned()
        };
        let key = (text("corpus"), text("stream"), text("file"));
        let known = out
            .entry(key)
            .or_default()
            .insert(text("what"), text("reason"));
        assert!(known.is_none(), "listed twice: {entry}");
        assert!(
            text("reason").len() > 20,
            "an exception needs a reason: {entry}"
        );
    }
    out
}

/// What one stream of one set says that it must not, or no longer says although it is listed.
fn check(set: &Set, stream: &str, figures_due: u32, listed: &Exceptions) -> Vec<String> {
    let expected = json(&folder().join(set.name).join("expected.json"));
    let mut failures = Vec::new();
    let (mut figures, mut exact, mut files) = (0, 0, 0);
    for (file, truth) in truth::files(&expected) {
        files += 1;
        let comparison = Comparison::of(&truth, &facts(set, stream, &file), stream);
        figures += comparison.figures;
        let key = |of: &str| (set.name.to_owned(), of.to_owned(), file.clone());
        let own = listed.get(&key(stream)).cloned().unwrap_or_default();
        // Events with other times are the same events; records beside events are the same records.
        let same: &[&str] = match stream {
            "arrival" => &["native"],
            "both" => &["lifecycle"],
            "later" => &["lifecycle", "both"],
            _ => &[],
        };
        let is_known = |what: &String| {
            let mut listed = same.iter().filter_map(|of| listed.get(&key(of)));
            listed.any(|known| known.contains_key(what))
        };
        exact += usize::from(comparison.differences.is_empty());
        let place = format!("{}/{stream}/{file}", set.name);
        for difference in &comparison.differences {
            if !own.contains_key(difference) && !is_known(difference) {
                failures.push(format!("{place}: {difference}"));
            }
        }
        for what in own.keys() {
            if !comparison.differences.contains(what) {
                failures.push(format!("{place}: no longer seen: {what}"));
            }
        }
    }
    let place = format!("{}/{stream}", set.name);
    println!(
        "{place}: {figures} figures in {files} recordings, {exact} of them equal in every one"
    );
    if files != set.recordings {
        failures.push(format!(
            "{place}: {files} recordings, not {}",
            set.recordings
        ));
    }
    if figures != figures_due {
        failures.push(format!(
            "{place}: {figures} figures compared, not {figures_due}"
        ));
    }
    failures
}

#[test]
fn every_recording_tells_the_truth_or_unknown() {
    let listed = exceptions();
    let mut failures = Vec::new();
    for set in SETS {
        for (stream, figures) in set.figures {
            failures.extend(check(set, stream, *figures, &listed));
        }
    }
    for (corpus, stream, file) in listed.keys() {
        let path = folder().join(corpus).join("recordings").join(file);
        let set = SETS.iter().find(|set| set.name == corpus);
        let is_read = set.is_some_and(|set| set.figures.iter().any(|(known, _)| known == stream));
        if !path.exists() || !is_read {
            let place = format!("{corpus}/{stream}/{file}");
            failures.push(format!("{place}: an exception of no recording"));
        }
    }
    let count = failures.len();
    assert!(
        failures.is_empty(),
        "{count} differences:\n{}",
        failures.join("\n")
    );
}

/// What `tachograph replay --output facts` prints of every recording: a behaviour change is a diff to be read.
#[cfg(feature = "io")]
#[test]
fn the_facts_of_every_recording_are_as_reviewed() {
    use tachograph::replay::facts_text;
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_snapshot_path(folder().join("snapshots"));
    for set in SETS {
        for stream in ["lifecycle", "native"] {
            let mut files: Vec<PathBuf> = fs::read_dir(folder().join(set.name).join(stream))
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .collect();
            files.sort();
            assert_eq!(files.len(), set.recordings, "{}/{stream}", set.name);
            for file in files {
                let name = file.file_stem().unwrap().to_str().unwrap();
                let facts = facts(set, stream, &format!("{name}.ndjson"));
                let snapshot = format!("{}__{stream}__{name}", set.name);
                settings.bind(|| insta::assert_snapshot!(snapshot, facts_text(&facts)));
            }
        }
    }
}
