//! The recordings of real runtimes against the truth written beside them.
//!
//! Every recording is read twice: as the runtime's native events alone, and as the lifecycle records that an emitter
//! plugin would have sent. Every figure must equal `expected.json`; where a stream cannot tell, the fact must say
//! unknown, and each such place stands in `exceptions.json` with its reason.

mod compare;
mod stream;

use compare::Comparison;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn json(path: &PathBuf) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
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

fn check(corpus: &str, stream: &str) {
    let expected = json(&folder().join(corpus).join("expected.json"));
    let listed = exceptions();
    let mut failures = Vec::new();
    let (mut figures, mut exact) = (0, 0);
    for (file, truth) in expected["files"].as_object().unwrap() {
        let path = folder().join(corpus).join(stream).join(file);
        let facts = stream::facts(&path, stream == "native");
        let comparison = Comparison::of(truth, &facts, stream);
        figures += comparison.figures;
        let key = (corpus.to_owned(), stream.to_owned(), file.clone());
        let reasons = listed.get(&key).cloned().unwrap_or_default();
        exact += u32::from(comparison.differences.is_empty());
        for difference in &comparison.differences {
            if !reasons.contains_key(difference) {
                failures.push(format!("{stream}/{file}: {difference}"));
            }
        }
        for what in reasons
            .keys()
            .filter(|what| !comparison.differences.contains(what))
        {
            failures.push(format!("{stream}/{file}: no longer seen: {what}"));
        }
    }
    assert!(figures > 500, "only {figures} figures compared");
    println!("{corpus}/{stream}: {figures} figures, {exact} files equal in every one");
    assert!(
        failures.is_empty(),
        "{} differences:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn lifecycle_records_of_adk_python_tell_the_truth() {
    check("adk-python", "lifecycle");
}

#[test]
fn native_events_of_adk_python_tell_the_truth_or_unknown() {
    check("adk-python", "native");
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
    let corpus = "adk-python";
    for stream in ["lifecycle", "native"] {
        let mut files: Vec<PathBuf> = fs::read_dir(folder().join(corpus).join(stream))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        assert_eq!(files.len(), 47);
        for file in files {
            let facts = stream::facts(&file, stream == "native");
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            settings.bind(|| {
                insta::assert_snapshot!(format!("{corpus}__{stream}__{name}"), facts_text(&facts));
            });
        }
    }
}
