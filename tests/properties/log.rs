//! Logs for the properties: recordings of real runs and made-up ones, woven into one partition.

use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The broker's time of the first record, milliseconds since 1970: later than every recording.
pub const EPOCH_MS: i64 = 1_796_100_000_000;

/// What one recording or one made-up run said, in order. Its records carry a tenant of their own,
/// so that no parent is inferred across threads.
pub type Thread = Vec<Vec<u8>>;

/// One record of a partition.
#[derive(Clone, Debug)]
pub struct Logged {
    pub logged_at_ms: i64,
    /// `None`: a tombstone.
    pub payload: Option<Vec<u8>>,
}

/// The lifecycle records of every recording, one thread a file.
fn recordings() -> &'static [Thread] {
    static THREADS: OnceLock<Vec<Thread>> = OnceLock::new();
    THREADS.get_or_init(|| {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let folder = root.join("tests/corpus/adk-python/lifecycle");
        let entries = fs::read_dir(&folder).expect("the corpus stands in the repository");
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let threads: Vec<Thread> = paths.iter().map(recording).collect();
        assert!(threads.len() > 30, "only {} recordings", threads.len());
        threads
    })
}

fn recording(path: &PathBuf) -> Thread {
    let tenant = path.file_stem().unwrap_or_default().to_string_lossy();
    let text = fs::read_to_string(path).expect("a recording is UTF-8");
    text.lines()
        .map(|line| {
            line.replacen(
                "{\"v\":1,",
                &format!("{{\"v\":1,\"tenant\":\"{tenant}\","),
                1,
            )
        })
        .map(String::into_bytes)
        .collect()
}

/// How a made-up model call goes.
#[derive(Clone, Debug)]
struct Call {
    chunks: u8,
    has_usage: bool,
    /// model, hook, cache, none; `error` and `open` are no words of `served_by`.
    end: &'static str,
    tool: Option<&'static str>,
    verdict: Option<&'static str>,
}

fn call() -> impl Strategy<Value = Call> {
    let end = prop::sample::select(vec![
        "model", "model", "model", "hook", "cache", "none", "error", "open",
    ]);
    let tool = prop::sample::select(vec!["ok", "error", "refused", "deferred", "open"]);
    let verdict = prop::sample::select(vec!["allow", "deny", "modify", "puzzle"]);
    let parts = (
        0u8..4,
        any::<bool>(),
        end,
        prop::option::of(tool),
        prop::option::of(verdict),
    );
    parts.prop_map(|(chunks, has_usage, end, tool, verdict)| Call {
        chunks,
        has_usage,
        end,
        tool,
        verdict,
    })
}

/// A made-up run: any start may be missing, any end, and a record may come twice.
fn made_up() -> impl Strategy<Value = Thread> {
    let status = prop::sample::select(vec!["completed", "error", "yielded", "cancelled", "open"]);
    let calls = prop::collection::vec(call(), 0..3);
    (
        any::<u32>(),
        any::<bool>(),
        calls,
        status,
        prop::option::of(0usize..12),
    )
        .prop_map(|(id, has_start, calls, status, twice)| {
            let mut run = Run {
                id,
                records: Vec::new(),
            };
            if has_start {
                run.say("run.start", json!({"root_agent": "desk"}));
                run.say("agent.start", json!({}));
            }
            for (number, call) in calls.iter().enumerate() {
                run.call(number, call);
            }
            if status != "open" {
                run.say("agent.end", json!({"status": status}));
                run.say("run.end", json!({"status": status}));
            } else if run.records.is_empty() {
                run.say("agent.start", json!({}));
            }
            if let Some(twice) = twice.filter(|twice| *twice < run.records.len()) {
                let again = run.records[twice].clone();
                run.records.push(again);
            }
            run.records
                .iter()
                .map(|record| record.to_string().into_bytes())
                .collect()
        })
}

struct Run {
    id: u32,
    records: Vec<Value>,
}

impl Run {
    fn say(&mut self, kind: &str, fields: Value) {
        let number = self.records.len() as i64;
        let mut record = json!({
            "v": 1, "kind": kind, "at": EPOCH_MS * 1_000_000 + number * 7_000_000,
            "mono_ns": 41 + number * 7_000_000, "seq": number,
            "record_id": format!("{}-{number}", self.id), "emitter": {"instance": format!("p{}", self.id)},
            "tenant": format!("t{}", self.id), "app": "shop", "agent": "desk",
            "invocation_id": format!("i{}", self.id),
        });
        if let (Some(record), Some(fields)) = (record.as_object_mut(), fields.as_object()) {
            record.extend(fields.clone());
        }
        self.records.push(record);
    }

    fn call(&mut self, number: usize, call: &Call) {
        let id = format!("c{number}");
        if let Some(decision) = call.verdict {
            let target = json!({"kind": "model", "call_id": id});
            let (stage, policy) = ("model_input", json!({"id": "p"}));
            self.say(
                "guardrail.decision",
                json!({"stage": stage, "decision": decision, "policy": policy, "target": target}),
            );
        }
        self.say("model.start", json!({"call_id": id, "model": "m"}));
        for index in 0..call.chunks {
            let usage = json!({"prompt_tokens": 40, "completion_tokens": index});
            self.say(
                "model.chunk",
                json!({"call_id": id, "content": "text", "usage": usage}),
            );
        }
        let usage = match call.has_usage {
            true => json!({"prompt_tokens": 40, "completion_tokens": 9}),
            false => Value::Null,
        };
        match call.end {
            "open" => {}
            "error" => self.say(
                "model.error",
                json!({"call_id": id, "error": {"type": "x"}}),
            ),
            end => self.say(
                "model.end",
                json!({"call_id": id, "served_by": end, "usage": usage}),
            ),
        }
        if let Some(outcome) = call.tool {
            let id = format!("t{number}");
            self.say("tool.start", json!({"call_id": id, "tool": "search"}));
            if outcome != "open" {
                self.say("tool.end", json!({"call_id": id, "outcome": outcome}));
            }
        }
    }
}

/// Some recordings and some made-up runs; every thread has invocations of its own.
pub fn threads() -> impl Strategy<Value = Vec<Thread>> {
    let numbers = (0..recordings().len()).collect::<Vec<usize>>();
    let recorded = prop::sample::subsequence(numbers, 0..4);
    (recorded, prop::collection::vec(made_up(), 1..5)).prop_map(|(recorded, mut threads)| {
        // Two made-up runs with one id would be one invocation.
        threads.sort();
        threads.dedup_by_key(|thread| thread[0].clone());
        threads.extend(
            recorded
                .into_iter()
                .map(|number| recordings()[number].clone()),
        );
        threads
    })
}

/// One order of all records that keeps the order within each thread; `picks` says whose turn it is.
pub fn weave(threads: &[Thread], picks: &[u32]) -> Vec<Vec<u8>> {
    let mut left: Vec<std::slice::Iter<'_, Vec<u8>>> = threads.iter().map(|t| t.iter()).collect();
    let mut out = Vec::new();
    let mut turn = picks.iter().cycle();
    while !left.is_empty() {
        let pick = turn.next().copied().unwrap_or(0) as usize % left.len();
        match left[pick].next() {
            Some(record) => out.push(record.clone()),
            None => drop(left.remove(pick)),
        }
    }
    out
}

/// Bytes that are no event at all.
pub fn junk() -> impl Strategy<Value = Option<Vec<u8>>> {
    let bytes: Vec<Option<&'static str>> = vec![
        None,
        Some(""),
        Some("{"),
        Some("{}"),
        Some("\"text\""),
        Some(r#"{"v":1,"kind":"model.start","at":1}"#),
        Some(r#"{"v":1,"kind":"moon.phase","at":1,"invocation_id":"i"}"#),
    ];
    prop::sample::select(bytes).prop_map(|text| text.map(|text| text.as_bytes().to_vec()))
}
