//! The language of the core's own tests: a log as lines of text in, its facts as lines of text out.
//!
//! ```text
//!     0ms  i1  -       run.start                      time, invocation, branch/agent, kind
//!    10ms  i1  desk    model.start  c1 model=gemini   call id, then fields
//!    42ms  i1  desk    model.chunk  c1 text           a bare word is the kind's main field
//!    90ms  i1  desk    model.end    c1 in=120 out=8
//!     +2h                                             log time passes
//! ```
//! Values that hold digits only are numbers, `true` and `false` are claims. `actor=`, `target=`,
//! `policy=`, `runtime=` and `error=` become the objects of events.md.

use super::fact::{Fact, FactBody, Flags};
use super::pipeline::{Action, Input, Pipeline, Record, Settings};
use super::usage::TokenUsage;
use super::{
    EventTime, Limits, LogSource, LogTime, Name, Nanos, Now, Offset, PartitionId, TopicDefaults,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// 2026-03-02T10:00:00Z, in milliseconds.
const EPOCH_MS: i64 = 1_772_445_600_000;

/// The documented defaults.
pub fn limits() -> Limits {
    Limits {
        work_in_flight_max: 1_000,
        ..Limits::OF_THE_CONTRACT
    }
}

/// Runs a log and compares the facts of one table with lines of text.
///
/// # Panics
/// Where they differ: the message holds what came out, ready to be read.
pub fn check(log: &str, table: &str, expected: &str) {
    let rows = rows(log, limits());
    let got: Vec<String> = rows
        .iter()
        .filter(|fact| fact.body.table().as_str() == table)
        .map(render)
        .collect();
    let want: Vec<&str> = expected
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    assert_eq!(got, want, "\n{}\n", got.join("\n"));
}

/// The facts of a log, newest version of each row, as they stand at its end.
pub fn rows(log: &str, limits: Limits) -> Vec<Fact> {
    let mut pipeline = Pipeline::new(Settings {
        limits,
        hash_key: 1,
        is_strict: true,
        has_state_file: false,
    });
    let partition = PartitionId(0);
    let defaults = TopicDefaults::default();
    let source = LogSource {
        topic: Arc::from("t"),
        partition: 0,
        defaults,
    };
    let log_range = Offset(0)..Offset(1_000_000);
    let now = Now(Duration::ZERO);
    pipeline.handle(
        Input::Assigned {
            partition,
            source,
            committed: None,
            log: log_range,
        },
        now,
    );
    feed(&mut pipeline, partition, log);
    pipeline.handle(Input::Drain, now);
    let mut rows: BTreeMap<(String, Vec<String>), Fact> = BTreeMap::new();
    let mut keep = |fact: Fact| {
        let mut identity = fact.identity();
        identity.insert(0, fact.invocation_id.to_string());
        let key = (fact.body.table().as_str().to_owned(), identity);
        if rows
            .get(&key)
            .is_none_or(|known| known.version <= fact.version)
        {
            rows.insert(key, fact);
        }
    };
    while let Some(action) = pipeline.poll_action() {
        match action {
            Action::Insert(batch) => batch.facts.into_iter().for_each(&mut keep),
            Action::DeadLetter(letter) => {
                panic!("line {}: {:?}", letter.at.offset.0, letter.reason)
            }
            _ => {}
        }
    }
    pipeline.held_facts().into_iter().for_each(&mut keep);
    rows.into_values().collect()
}

fn feed(pipeline: &mut Pipeline, partition: PartitionId, log: &str) {
    let now = Now(Duration::ZERO);
    let mut offset = 0;
    for line in log.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (at, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let at_ms = EPOCH_MS + ms(at.trim_start_matches('+'));
        if at.starts_with('+') {
            let log_time = Some(LogTime(at_ms));
            let next = Offset(offset);
            pipeline.handle(
                Input::CaughtUp {
                    partition,
                    next,
                    log_time,
                },
                now,
            );
            continue;
        }
        let payload = record(at_ms, rest, offset).to_string();
        let record = Record {
            offset: Offset(offset),
            logged_at: LogTime(at_ms),
            key: None,
            headers: &[],
            payload: Some(payload.as_bytes()),
        };
        pipeline.handle(Input::Record { partition, record }, now);
        offset += 1;
    }
}

fn ms(text: &str) -> i64 {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let number: i64 = digits.parse().unwrap();
    match &text[digits.len()..] {
        "ms" => number,
        "s" => number * 1_000,
        "h" => number * 3_600_000,
        unit => panic!("unit {unit} of {text}"),
    }
}

fn record(at_ms: i64, line: &str, offset: i64) -> Value {
    let mut words = line.split_whitespace();
    let (invocation, place) = (words.next().unwrap(), words.next().unwrap());
    let kind = words.next().unwrap();
    let (branch, agent) = place.rsplit_once('/').unwrap_or(("", place));
    let mut out = json!({
        "v": 1, "kind": kind, "at": at_ms * 1_000_000, "record_id": format!("r{offset}"),
        "emitter": {"instance": "p1"}, "invocation_id": invocation, "branch": branch,
    });
    let fields = out.as_object_mut().unwrap();
    if kind == "event" {
        let mut event = native(at_ms, agent);
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            event[key] = json!(value);
        }
        fields.insert("event".into(), event);
        return out;
    }
    if invocation == "-" {
        fields.remove("invocation_id");
    }
    if agent != "-" {
        fields.insert("agent".into(), json!(agent));
    }
    let has_id = kind.starts_with("model") || kind.starts_with("tool");
    for (position, word) in words.enumerate() {
        match word.split_once('=') {
            Some((key, value)) => field(fields, key, value),
            None if position == 0 && has_id => {
                if word != "_" {
                    fields.insert("call_id".into(), json!(word));
                }
            }
            None => {
                fields.insert(main_field(kind).into(), json!(word));
            }
        }
    }
    out
}

/// A native answer of a model: 9 tokens in, 2 out.
fn native(at_ms: i64, author: &str) -> Value {
    json!({
        "id": format!("e{at_ms}"), "invocationId": "i1", "author": author, "timestamp": at_ms,
        "content": {"role": "model", "parts": [{"text": "hello"}]},
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11},
    })
}

fn main_field(kind: &str) -> &'static str {
    match kind {
        "model.chunk" => "content",
        "run.end" | "agent.end" => "status",
        "tool.end" => "outcome",
        "tool.start" => "tool",
        "guardrail.decision" => "decision",
        "hook.outcome" => "hook",
        "recovery.decision" => "action",
        "model.end" => "served_by",
        _ => "model",
    }
}

fn field(fields: &mut Map<String, Value>, key: &str, value: &str) {
    let value = match (value, value.parse::<i64>()) {
        ("true" | "false", _) => json!(value == "true"),
        (_, Ok(number)) => json!(number),
        (_, Err(_)) => json!(value),
    };
    let mut nested = |object: &str, name: &str, value: Value| {
        let object = fields.entry(object).or_insert_with(|| json!({}));
        object[name] = value;
    };
    match key {
        "in" => nested("usage", "prompt_tokens", value),
        "out" => nested("usage", "completion_tokens", value),
        "actor" => nested("actor", "name", value),
        "actor_type" => nested("actor", "type", value),
        "runtime" => nested("runtime", "name", value),
        "target" => nested("target", "call_id", value),
        "policy" => nested("policy", "id", value),
        "error" => nested("error", "type", value),
        "code" => nested("error", "code", value),
        "instance" => nested("emitter", "instance", value),
        "parent" => nested("parent", "invocation_id", value),
        _ => {
            fields.insert(key.to_owned(), value);
        }
    }
}

fn instant(at: Option<EventTime>) -> String {
    at.map_or("?".to_owned(), |at| {
        Nanos(at.0 - EPOCH_MS * 1_000_000).to_ms_text()
    })
}

fn span(span: Option<Nanos>) -> String {
    span.map_or("?".to_owned(), Nanos::to_ms_text)
}

fn tokens(usage: &TokenUsage) -> String {
    let count = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
    let state = match usage.state.as_str() {
        "reported" => String::new(),
        state => format!(" {state}"),
    };
    format!(
        "in={} out={}{state}",
        count(usage.input_total),
        count(usage.output_total)
    )
}

fn flags(flags: Flags) -> String {
    flags
        .iter()
        .map(|flag| format!(" #{}", flag.as_str()))
        .collect()
}

fn text(name: &Option<Name>) -> &str {
    name.as_deref().unwrap_or("?")
}

/// One fact in one line: what differs between good and bad answers, nothing else.
fn render(fact: &Fact) -> String {
    let invocation = &fact.invocation_id;
    match &fact.body {
        FactBody::Invocation(f) => format!(
            "{invocation} {} {}..{} wall={} calls={} in={} missing={}{}",
            f.status.as_str(),
            instant(f.started_at),
            instant(f.ended_at),
            span(f.wall),
            f.own.model_call_count,
            f.own.input_total.map_or("?".to_owned(), |n| n.to_string()),
            f.own.usage_missing_calls,
            flags(f.flags),
        ),
        FactBody::ModelCall(f) => format!(
            "{invocation} {}/{} {} {} by={} first={} done={} {}{}",
            f.branch,
            f.agent,
            f.call_id.as_deref().unwrap_or("-"),
            f.status.as_str(),
            f.served_by.as_str(),
            span(f.ttfc),
            span(f.completion),
            tokens(&f.usage),
            flags(f.flags),
        ),
        _ => render_rest(fact),
    }
}

fn render_rest(fact: &Fact) -> String {
    let invocation = &fact.invocation_id;
    match &fact.body {
        FactBody::Invocation(_) | FactBody::ModelCall(_) => String::new(),
        FactBody::LocalAnswer(f) => format!(
            "{invocation} {} by={} actor={} {}",
            f.agent,
            f.served_by.as_str(),
            text(&f.actor_name),
            tokens(&f.replayed),
        ),
        FactBody::ToolCall(f) => format!(
            "{invocation} {} {}#{} {} executed={} took={} waited={}",
            f.tool,
            text(&f.call_id),
            f.execution,
            f.status.as_str(),
            f.executed.as_str(),
            span(f.duration),
            span(f.wait),
        ),
        FactBody::GuardrailDecision(f) => format!(
            "{invocation} {} {} by={} enforced={} prevented={}",
            f.stage.as_str(),
            f.decision.map_or("null", |decision| decision.as_str()),
            text(&f.actor_name),
            f.enforced
                .map_or("null".to_owned(), |enforced| enforced.to_string()),
            f.model_call_prevented,
        ),
        FactBody::RecoveryDecision(f) => {
            format!("{invocation} {} {} {}", f.phase, text(&f.call_id), f.action)
        }
        FactBody::AgentRun(f) => format!(
            "{invocation} {}/{}#{} {} took={} calls={}",
            f.branch,
            f.agent,
            f.occurrence,
            f.status.as_str(),
            span(f.duration),
            f.own.model_call_count,
        ),
        FactBody::Branch(f) => format!(
            "{invocation} {:?}#{} parent={:?} took={} own={} waited={}",
            f.branch,
            f.occurrence,
            f.parent_branch.as_deref().unwrap_or("-"),
            span(f.duration),
            span(f.own_time),
            span(f.waiting_time),
        ),
        FactBody::Anomaly(f) => format!(
            "{invocation} {} {}{}",
            f.kind.as_str(),
            f.about,
            f.detail
                .as_deref()
                .map_or(String::new(), |detail| format!(" ({detail})")),
        ),
    }
}
