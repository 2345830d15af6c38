//! The captured runs that the demo replays, inside the binary, made new for each pass.
//!
//! Deliberately nothing invented: a record differs from the captured one in its ids, its times, its
//! tenant and its app, and in nothing else.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The tenant of every record.
pub const TENANT: &str = "demo";

/// What truly happened in each recording, written from the script that was run.
pub const EXPECTED: &str = include_str!("../../tests/corpus/adk-python/expected.json");

/// Where the streams cannot tell the truth, and why.
pub const EXCEPTIONS: &str = include_str!("../../tests/corpus/exceptions.json");

macro_rules! streams {
    ($($name:literal),+ $(,)?) => {
        /// Name and lifecycle records of every recording.
        const STREAMS: &[(&str, &str)] = &[$((
            $name,
            include_str!(concat!("../../tests/corpus/adk-python/lifecycle/", $name, ".ndjson")),
        )),+];
    };
}

streams![
    "01_simple",
    "02_sse_cumulative_usage",
    "03_sse_usage_on_last_chunk",
    "03b_sse_usage_on_contentless_tail",
    "03c_sse_two_finals",
    "04_tool_ok",
    "04b_parallel_tool_calls",
    "05_tool_raises",
    "06_model_error",
    "06b_model_error_recovered",
    "06c_model_error_mid_stream",
    "07_cache_hit",
    "08_guardrail_before_tool",
    "09_guardrail_before_model",
    "10_redaction_after_model",
    "11_parallel_branches",
    "12_loop_escalate",
    "13_transfer",
    "14_agent_tool_nested",
    "14b_single_turn_sub_agent",
    "14c_task_mode_sub_agent",
    "15_after_agent_duplicate",
    "15b_before_agent_answers",
    "16_long_running_resume",
    "16b_resumable_app",
    "16c_tool_confirmation",
    "17_reflect_retry_tool",
    "18_workflow_graph",
    "18b_workflow_node_retry",
    "18c_parallel_worker_same_agent",
    "19a_consumer_stops",
    "19b_task_cancelled",
    "19c_abort_signal",
    "20_exception_ends_run",
    "20b_plugin_raises",
    "20c_max_llm_calls",
    "20d_before_run_blocks",
    "21_two_sessions",
    "22_live",
    "23_compaction_hidden_model_call",
    "24_empty_response",
    "24b_provider_block_and_max_tokens",
    "25_usage_shapes",
    "26_slow_consumer",
    "27_event_rewritten_by_plugin",
    "28_agent_callback_guardrail",
    "29_slow_guardrails_inflate_latency",
];

/// One captured run, or a few that belong together.
#[derive(Debug)]
pub struct Recording {
    /// The file's name without its ending; what `app` becomes.
    pub name: &'static str,
    records: Vec<Value>,
    /// Call ids of the recording, which branch names may repeat.
    call_ids: BTreeSet<String>,
    /// Session of each nested invocation's parent.
    root_sessions: BTreeMap<String, String>,
    /// Time of the first record, ns since 1970.
    first_at: i64,
    /// From the first record to the last.
    pub span: Duration,
}

/// A record to be sent.
#[derive(Debug)]
pub struct Sendable {
    /// Since the first record of the recording, at the recorded pace.
    pub after: Duration,
    /// Kafka key: the root session, so that a run and its nested runs share a partition.
    pub key: String,
    pub payload: Vec<u8>,
}

/// All recordings, in the order of their names.
pub fn recordings() -> Vec<Recording> {
    STREAMS
        .iter()
        .map(|(name, text)| Recording::read(name, text))
        .collect()
}

impl Recording {
    fn read(name: &'static str, text: &str) -> Recording {
        let records: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("a test reads every embedded line"))
            .collect();
        let mut call_ids = BTreeSet::new();
        for record in &records {
            if let Some(id) = record["call_id"].as_str() {
                call_ids.insert(id.to_owned());
            }
        }
        let root_sessions = root_sessions(&records);
        let times = || records.iter().filter_map(|record| record["at"].as_i64());
        let first_at = times().min().unwrap_or_default();
        let last_at = times().max().unwrap_or_default();
        let span = Duration::from_nanos(last_at.abs_diff(first_at));
        Recording {
            name,
            records,
            call_ids,
            root_sessions,
            first_at,
            span,
        }
    }

    /// How many records it has.
    pub fn record_count(&self) -> usize {
        self.records.len()
    }

    /// The decisions of the verdicts that the records declare.
    pub fn declared_verdicts(&self) -> Vec<&str> {
        let verdicts = self
            .records
            .iter()
            .filter(|record| record["kind"] == "guardrail.decision");
        verdicts
            .filter_map(|record| record["decision"].as_str())
            .collect()
    }

    /// The records as pass number `pass` sends them, if their first happened at `starts_at`, in ns
    /// since 1970. One offset is added to all times; the monotonic clock stays as it is.
    pub fn records(&self, pass: u64, starts_at: i64) -> Vec<Sendable> {
        let rewrite = Rewrite {
            app: self.name,
            mark: format!(".{}.{pass}", self.number()),
            call_ids: &self.call_ids,
            shift: starts_at.saturating_sub(self.first_at),
        };
        self.records
            .iter()
            .map(|record| {
                let at = record["at"].as_i64().unwrap_or(self.first_at);
                let text = |key: &str| record[key].as_str().unwrap_or_default();
                let root = self.root_sessions.get(text("invocation_id"));
                let session = root.map_or(text("session_id"), String::as_str);
                let key = format!("{session}{}", rewrite.mark);
                let mut record = record.clone();
                rewrite.record(&mut record);
                Sendable {
                    after: Duration::from_nanos(at.abs_diff(self.first_at)),
                    key,
                    payload: record.to_string().into_bytes(),
                }
            })
            .collect()
    }

    /// The number that the name begins with, such as `03b`.
    fn number(&self) -> &'static str {
        self.name.split('_').next().unwrap_or(self.name)
    }
}

/// Nested invocations and the session of the one that nests them, one level deep as recorded.
fn root_sessions(records: &[Value]) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for record in records {
        let parent = &record["parent"]["invocation_id"];
        let root = records
            .iter()
            .find(|other| parent.is_string() && other["invocation_id"] == *parent);
        let session = root.and_then(|root| root["session_id"].as_str());
        if let (Some(id), Some(session)) = (record["invocation_id"].as_str(), session) {
            out.insert(id.to_owned(), session.to_owned());
        }
    }
    out
}

/// What one pass makes of the records of one recording.
struct Rewrite<'r> {
    app: &'r str,
    /// Ends every id of this recording and pass.
    mark: String,
    call_ids: &'r BTreeSet<String>,
    /// Added to every time, ns.
    shift: i64,
}

impl Rewrite<'_> {
    fn record(&self, record: &mut Value) {
        self.object(record, false);
        record["tenant"] = TENANT.into();
        record["app"] = self.app.into();
    }

    /// `is_native`: inside a runtime's own event, where the event's id is called `id`.
    fn object(&self, value: &mut Value, is_native: bool) {
        let Some(fields) = value.as_object_mut() else {
            return;
        };
        for (key, field) in fields {
            match key.as_str() {
                "invocation_id" | "invocationId" | "session_id" | "run_id" | "record_id"
                | "instance" | "call_id" => self.id(field),
                "id" if is_native => self.id(field),
                "branch" | "node_path" => self.path(field),
                "timestamp" if is_native => self.seconds(field),
                "at" => self.nanos(field),
                other if other.ends_with("_at") => self.nanos(field),
                "event" => self.object(field, true),
                _ => self.object(field, is_native),
            }
        }
    }

    fn id(&self, field: &mut Value) {
        if let Some(id) = field.as_str().filter(|id| !id.is_empty()) {
            *field = format!("{id}{}", self.mark).into();
        }
    }

    /// A branch may be named after the call that opened it: `collector@fc-task`.
    fn path(&self, field: &mut Value) {
        let Some(path) = field.as_str() else {
            return;
        };
        let parts = path.split('@').map(|part| {
            let end = part.find(['/', '.']).unwrap_or(part.len());
            let (id, rest) = part.split_at(end);
            match self.call_ids.contains(id) {
                true => format!("{id}{}{rest}", self.mark),
                false => part.to_owned(),
            }
        });
        *field = parts.collect::<Vec<_>>().join("@").into();
    }

    fn nanos(&self, field: &mut Value) {
        if let Some(at) = field.as_i64() {
            *field = at.saturating_add(self.shift).into();
        }
    }

    fn seconds(&self, field: &mut Value) {
        if let Some(at) = field.as_f64() {
            *field = (at + self.shift as f64 / 1e9).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn sent(recording: &Recording, pass: u64, starts_at: i64) -> Vec<Value> {
        let records = recording.records(pass, starts_at);
        records
            .iter()
            .map(|record| serde_json::from_slice(&record.payload).unwrap())
            .collect()
    }

    #[test]
    fn every_recording_of_the_folder_is_embedded() {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/adk-python/lifecycle");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let embedded: Vec<String> = recordings()
            .iter()
            .map(|recording| format!("{}.ndjson", recording.name))
            .collect();
        assert_eq!(embedded, files);
    }

    #[test]
    fn ids_never_meet_and_keep_their_meaning() {
        let mut owners: BTreeMap<String, (String, u64)> = BTreeMap::new();
        for recording in &recordings() {
            for pass in [1, 2] {
                let mut known = BTreeSet::new();
                for record in sent(recording, pass, 0) {
                    for key in [
                        "invocation_id",
                        "session_id",
                        "run_id",
                        "record_id",
                        "call_id",
                    ] {
                        let Some(id) = record[key].as_str() else {
                            continue;
                        };
                        let owner = (recording.name.to_owned(), pass);
                        let first = owners.entry(id.to_owned()).or_insert(owner.clone());
                        assert_eq!(*first, owner, "{id}");
                        known.insert(id.to_owned());
                    }
                    let target = &record["target"]["call_id"];
                    for id in [target, &record["parent"]["invocation_id"]] {
                        assert!(id.as_str().is_none_or(|id| known.contains(id)), "{id}");
                    }
                    // The call that a branch is named after may have no record of its own.
                    let branch = record["branch"]
                        .as_str()
                        .and_then(|path| path.split_once('@'));
                    let is_left = |(_, id): (&str, &str)| recording.call_ids.contains(id);
                    assert!(!branch.is_some_and(is_left), "{branch:?}");
                }
            }
        }
    }

    #[test]
    fn times_move_by_one_offset_and_keep_every_nanosecond() {
        let starts_at = 1_900_000_000_123_456_789;
        for recording in &recordings() {
            let shift = starts_at - recording.first_at;
            for (old, new) in recording.records.iter().zip(sent(recording, 1, starts_at)) {
                for key in ["at", "started_at", "first_chunk_at", "last_chunk_at"] {
                    let moved = old[key].as_i64().map(|at| at + shift);
                    assert_eq!(new[key].as_i64(), moved, "{key}");
                }
                assert_eq!(old["mono_ns"], new["mono_ns"]);
                assert_eq!(old["usage"], new["usage"]);
            }
        }
    }

    #[test]
    fn a_nested_run_goes_where_its_parent_goes() {
        let nested = recordings();
        let nested = nested
            .iter()
            .find(|one| one.name == "14_agent_tool_nested")
            .unwrap();
        let keys: BTreeSet<String> = nested
            .records(1, 0)
            .into_iter()
            .map(|one| one.key)
            .collect();
        assert_eq!(keys, BTreeSet::from(["s-1.14.1".to_owned()]));
    }

    #[test]
    fn no_id_is_overlooked() {
        fn ids(value: &Value, path: &str, found: &mut BTreeSet<String>) {
            match value {
                Value::Object(fields) => fields
                    .iter()
                    .for_each(|(key, field)| ids(field, &format!("{path}.{key}"), found)),
                Value::String(text) if text.len() > 30 && text.matches('-').count() >= 4 => {
                    found.insert(format!("{path} {text}"));
                }
                _ => {}
            }
        }
        for recording in &recordings() {
            let mut found = BTreeSet::new();
            for record in sent(recording, 7, 0) {
                ids(&record, "", &mut found);
            }
            for id in found {
                assert!(id.ends_with(".7"), "{}: {id}", recording.name);
            }
        }
    }
}
