//! Records of every dialect with a secret of its own in each place where content may stand.

use super::Record;
use serde_json::{Map, Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Secrets, each with the place where it was planted. A secret is letters and digits, so that
/// nothing that cuts a text to a word or to lower case hides it.
#[derive(Default)]
pub struct Secrets(pub Vec<(String, String)>);

impl Secrets {
    /// `template` with a sentence around a new secret in place of each `@@`.
    fn plant(&mut self, template: &str) -> String {
        let mut pieces = template.split("@@");
        let mut out = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let secret = format!("zq{:04}secret", self.0.len());
            let place: String = out.chars().rev().take(60).collect();
            out.push_str(&format!("say {secret} to nobody"));
            self.0.push((secret, place.chars().rev().collect()));
            out.push_str(piece);
        }
        out
    }

    /// Those that `text` holds, with their places.
    pub fn within(&self, text: &str) -> Vec<String> {
        let text = text.to_lowercase();
        let found = self.0.iter().filter(|(secret, _)| text.contains(secret));
        found
            .map(|(secret, place)| format!("{secret}, planted at …{place}"))
            .collect()
    }
}

/// What was planted, and what is to become of it.
pub struct Planted {
    /// Readable records, and those that are dead-lettered at the end.
    pub records: Vec<Record>,
    /// How many records are dead-lettered.
    pub letters: usize,
    /// Secrets that may be shown nowhere.
    pub content: Secrets,
    /// Secrets in `reason`, which are stored where configured.
    pub reasons: Secrets,
}

/// Fields of each kind of lifecycle record beside the envelope; `%%` is a reason.
const LIFECYCLE: &[(&str, &str)] = &[
    (
        "run.start",
        r#""root_agent":"desk","prompt":"@@","messages":[{"role":"user","content":"@@"}],"@@":1,
        "unknown":{"deep":[{"@@":["@@"]}]},"attributes":{"team":"a","nested":{"@@":"@@"},"l":["@@"]}"#,
    ),
    ("agent.start", r#""agent_kind":"llm","instructions":"@@""#),
    (
        "hook.outcome",
        r#""hook":"before_model","actor":{"type":"plugin","name":"p","config":"@@"},
        "returned":"@@","value":{"@@":"@@"},"call_id":"c1""#,
    ),
    (
        "model.start",
        r#""call_id":"c1","model":"m-1","streaming":true,"prompt":"@@","request":{"config":
        {"system_instruction":"@@"},"contents":[{"parts":[{"text":"@@"}]}]},"step":"@@""#,
    ),
    (
        "model.chunk",
        r#""call_id":"c1","content":"text","text":"@@","usage":{"promptTokenCount":7,"@@":"@@",
        "promptTokensDetails":[{"modality":"@@","tokenCount":"@@"}]}"#,
    ),
    (
        "model.chunk",
        r#""call_id":"c1","content":"@@","index":"@@""#,
    ),
    (
        "model.end",
        r#""call_id":"c1","model":"m-1","served_by":"@@","response":{"text":"@@"},"first_chunk_at":
        "@@","usage":{"promptTokenCount":7,"candidatesTokenCount":"@@","cost":"@@"},"thoughts":"@@",
        "error":{"type":"t","code":"E1","message":"@@","stack":["@@"]},"finish_reason":"STOP""#,
    ),
    ("model.start", r#""call_id":"c2","model":"m-1""#),
    (
        "model.error",
        r#""call_id":"c2","error":{"type":"t","code":"E2","message":"@@","body":{"@@":"@@"}}"#,
    ),
    (
        "recovery.decision",
        r#""phase":"model","attempt":1,"action":"skip","call_id":"c2","error":{"message":"@@"},
        "handler":"h","replacement":"@@""#,
    ),
    (
        "model.start",
        r#""call_id":"c3","model":"m-1","prompt":"@@""#,
    ),
    (
        "model.end",
        r#""call_id":"c3","served_by":"cache","answer":"@@","usage":{"promptTokenCount":5}"#,
    ),
    (
        "tool.start",
        r#""call_id":"t1","tool":"search","args":{"@@":"@@"},"arguments":"@@","origin":"local""#,
    ),
    (
        "tool.end",
        r#""call_id":"t1","tool":"search","outcome":"@@","result":{"@@":"@@"},"output":"@@",
        "duration_ms":"@@","error":{"type":"tool_result","message":"@@"}"#,
    ),
    (
        "guardrail.decision",
        r#""stage":"model_input","decision":"deny","reason":"%%","reason_code":"PII","matched":"@@",
        "actor":{"type":"plugin","name":"g"},"policy":{"id":"p","text":"@@"},"duration_ms":"@@",
        "native":{"action":"@@","output":[{"text":"@@"}],"assessments":[{"topics":[{"name":"@@",
        "type":"@@","action":"BLOCKED","detected":true,"match":"@@"}],"entities":{"@@":["@@"]},
        "deep":[[[{"action":"ANONYMIZED","type":"EMAIL","match":"@@","@@":{"@@":"@@"}}]]]}]}"#,
    ),
    (
        "guardrail.decision",
        r#""stage":"@@","decision":"@@","reason":"%%","actor":{"type":"plugin","name":"g"}"#,
    ),
    ("emitter.gap", r#""dropped":3,"detail":"@@""#),
    ("memo", r#""text":"@@","measured":"@@""#),
    ("agent.end", r#""status":"completed","output":"@@""#),
    (
        "run.end",
        r#""status":"completed","final_answer":"@@","error":{"message":"@@"}"#,
    ),
];

/// Native events in camelCase, without envelope. `id` and `invocationId` are put in.
const NATIVE: &[&str] = &[
    r#"{"author":"user","content":{"role":"user","parts":[{"text":"@@"},{"inlineData":{"mimeType":
    "image/png","data":"@@","displayName":"@@"}},{"fileData":{"fileUri":"@@","mimeType":"@@"}}]}}"#,
    r#"{"author":"desk","partial":true,"content":{"role":"model","parts":[{"text":"@@","thought":
    true,"thoughtSignature":"@@"},{"text":"@@"}]}}"#,
    r#"{"author":"desk","content":{"role":"model","parts":[{"text":"@@"},{"functionCall":{"id":"f1",
    "name":"search","args":{"@@":"@@","usageMetadata":{"totalTokenCount":"@@"}}}},{"executableCode":
    {"code":"@@","language":"PYTHON"}},{"codeExecutionResult":{"outcome":"OK","output":"@@"}}]},
    "usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":4,"totalTokenCount":13,"@@":"@@"},
    "modelVersion":"m-1","finishReason":"STOP","groundingMetadata":{"searchEntryPoint":"@@"},
    "citationMetadata":{"citations":[{"uri":"@@"}]},"logprobsResult":{"@@":"@@"},"avgLogprobs":"@@",
    "customMetadata":{"@@":"@@","note":{"@@":["@@"]},"guardrail":{"text":"@@"}},"@@":"@@"}"#,
    r#"{"author":"desk","content":{"role":"user","parts":[{"functionResponse":{"id":"f1","name":
    "search","response":{"error":"@@","result":{"@@":"@@"},"isError":"@@"},"parts":["@@"]}}]},
    "actions":{"stateDelta":{"@@":"@@","user:name":"@@","orcas_tool_call_security_check_states":
    {"f1":"@@"}},"artifactDelta":{"@@":1},"requestedAuthConfigs":{"f1":{"clientSecret":"@@"}},
    "compaction":{"compactedContent":{"parts":[{"text":"@@"}]}},"agentState":{"@@":"@@"}}}"#,
    r#"{"author":"desk","errorCode":"SAFETY","errorMessage":"@@","interrupted":"@@",
    "inputTranscription":{"text":"@@"},"outputTranscription":{"text":"@@"},"output":{"@@":"@@"}}"#,
    r#"{"author":"desk","content":{"role":"model","parts":[{"functionCall":{"id":"a1","name":
    "adk_request_confirmation","args":{"originalFunctionCall":{"id":"f2","name":"pay","args":
    {"@@":"@@"}},"toolConfirmation":{"hint":"@@","payload":"@@"}}}}]},"longRunningToolIds":["a1"]}"#,
    r#"{"author":"user","content":{"role":"user","parts":[{"functionResponse":{"id":"a1","name":
    "adk_request_confirmation","response":{"confirmed":false,"payload":"@@","response":"@@"}}}]}}"#,
    r#"{"author":"desk","content":{"role":"model","parts":[{"text":"@@"}]},"turnComplete":true}"#,
];

/// Values that nobody can read.
const UNREADABLE: &[&str] = &[
    r#"{"v":1,"kind":"model.end","prompt":"@@"#,
    "plain text: @@",
    r#"{"text":"@@","@@":"@@"}"#,
    r#"{"v":1,"kind":"model.end","at":1,"prompt":"@@","@@":"@@"}"#,
    r#"[{"text":"@@"},{"text":"@@"}]"#,
    r#""@@""#,
];

/// Everything, in the order of the log. `payload_bytes_max` is that of the daemon.
pub fn planted(payload_bytes_max: usize) -> Planted {
    let mut writer = Writer::new();
    for casing in [camel, snake, go] {
        writer.native(casing);
    }
    writer.lifecycle("plain", |text| Record::new("k", text));
    writer.lifecycle("string", |text| {
        Record::new("k", serde_json::to_string(&text).expect("text is JSON"))
    });
    writer.lifecycle("array", |text| Record::new("k", format!("[{text}]")));
    writer.clouds();
    writer.odd();
    writer.unreadable(payload_bytes_max);
    writer.done
}

struct Writer {
    done: Planted,
    at_ns: u128,
    seq: u32,
    runs: u32,
}

impl Writer {
    fn new() -> Writer {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Writer {
            done: Planted {
                records: Vec::new(),
                letters: 0,
                content: Secrets::default(),
                reasons: Secrets(Vec::new()),
            },
            at_ns: now.expect("after 1970").as_nanos(),
            seq: 0,
            runs: 0,
        }
    }

    fn push(&mut self, mut record: Record) {
        for name in ["authorization", "ce_note"] {
            let value = self.done.content.plant("@@");
            record.headers.push((name.to_owned(), value.into_bytes()));
        }
        record.key = Some(self.done.content.plant("@@").into_bytes());
        self.done.records.push(record.on(0));
    }

    /// A lifecycle record of one run.
    fn line(&mut self, run: &str, kind: &str, fields: &str) -> String {
        self.seq += 1;
        self.at_ns += 1_000_000;
        let (seq, at) = (self.seq, self.at_ns);
        let fields = self.done.content.plant(fields);
        // A reason's secrets are apart, and so are their names.
        let mut pieces = fields.split("%%");
        let mut text = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let secret = format!("zq{:04}reason", self.done.reasons.0.len());
            text.push_str(&format!("since {secret} was said{piece}"));
            self.done.reasons.0.push((secret, kind.to_owned()));
        }
        format!(
            r#"{{"v":1,"kind":"{kind}","at":{at},"record_id":"r{seq}","seq":{seq},"emitter":
            {{"name":"e","version":"1","instance":"i"}},"app":"shop","session_id":"s","run_id":"{run}",
            "invocation_id":"{run}","branch":"root.left","agent":"desk",{text}}}"#
        )
    }

    fn lifecycle(&mut self, name: &str, record: impl Fn(String) -> Record) {
        self.runs += 1;
        let run = format!("{name}-{}", self.runs);
        for (kind, fields) in LIFECYCLE {
            let line = self.line(&run, kind, fields);
            self.push(record(line));
        }
    }

    /// The native events of one run, bare and in our envelope.
    fn natives(&mut self, run: &str, casing: fn(Value) -> Value) -> Vec<Value> {
        let mut events = Vec::new();
        for (number, template) in NATIVE.iter().enumerate() {
            let text = self.done.content.plant(template);
            let mut event: Value = serde_json::from_str(&text).expect("a template is JSON");
            self.at_ns += 1_000_000;
            event["id"] = json!(format!("{run}-{number}"));
            event["invocationId"] = json!(run);
            event["timestamp"] = json!(self.at_ns as f64 / 1e9);
            events.push(casing(event));
        }
        events
    }

    fn native(&mut self, casing: fn(Value) -> Value) {
        self.runs += 1;
        let (bare, wrapped) = (format!("n{}", self.runs), format!("w{}", self.runs));
        for event in self.natives(&bare, casing) {
            self.push(Record::new("k", event.to_string()));
        }
        for event in self.natives(&wrapped, casing) {
            let fields = format!(r#""note":"@@","event":{event}"#);
            let line = self.line(&wrapped, "event", &fields);
            self.push(Record::new("k", line));
        }
    }

    /// CloudEvents, structured and binary.
    fn clouds(&mut self) {
        const TYPE: &str = "application/cloudevents+json";
        let header = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
        self.runs += 1;
        let run = format!("cloud-{}", self.runs);
        for (number, (kind, fields)) in LIFECYCLE.iter().enumerate() {
            let line = self.line(&run, kind, fields);
            let attributes = r#""subject":"@@","dataschema":"@@","type":"@@","extension":"@@""#;
            let attributes = self.done.content.plant(attributes);
            let mut record = match number % 2 {
                0 => Record::new(
                    "k",
                    format!(
                        r#"{{"specversion":"1.0","id":"{number}","source":"urn:a",{attributes},
                        "data":{line}}}"#
                    ),
                ),
                _ => Record::new("k", line),
            };
            record.headers = match number % 2 {
                0 => vec![header("content-type", TYPE)],
                _ => {
                    let number = number.to_string();
                    let said = self.done.content.plant("@@");
                    vec![
                        header("ce_specversion", "1.0"),
                        header("ce_id", &number),
                        header("ce_source", "urn:b"),
                        header("ce_type", &said),
                        header("ce_subject", &said),
                    ]
                }
            };
            self.push(record);
        }
    }

    /// What strict JSON refuses and we read.
    fn odd(&mut self) {
        self.runs += 1;
        let run = format!("odd-{}", self.runs);
        for fields in [
            r#""x":NaN,"prompt":"@@","prompt":"@@""#,
            r#""x":-Infinity,"prompt":"\ud800 @@""#,
            r#""x":1,"root_agent":"desk","@@":"@@","@@":"@@","text":"\u0000@@""#,
        ] {
            let line = self.line(&run, "run.start", fields);
            self.push(Record::new("k", line.clone()));
            let mut bytes = line.into_bytes();
            let end = bytes.len() - 1;
            bytes.splice(end..end, *b",\"raw\":\"\xff\xfe\"");
            self.push(Record::new("k", bytes));
        }
    }

    fn unreadable(&mut self, payload_bytes_max: usize) {
        let before = self.done.records.len();
        for template in UNREADABLE {
            let text = self.done.content.plant(template);
            self.push(Record::new("k", text));
        }
        let text = self.done.content.plant("@@");
        let (open, close) = ("[".repeat(600), "]".repeat(600));
        self.push(Record::new("k", format!("{open}\"{text}\"{close}")));
        let line = self.line("large", "run.start", r#""prompt":"@@""#);
        let padding = " ".repeat(payload_bytes_max);
        self.push(Record::new("k", line + &padding));
        self.done.letters = self.done.records.len() - before;
    }
}

fn camel(event: Value) -> Value {
    event
}

fn snake(value: Value) -> Value {
    let spell = |key: &str| {
        let mut out = String::new();
        for c in key.chars() {
            if c.is_ascii_uppercase() {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
        }
        out
    };
    renamed(value, &spell, usize::MAX)
}

/// ADK Go v1 spells the event's own fields and those of its actions by their names in Go.
fn go(value: Value) -> Value {
    let spell = |key: &str| match key {
        "id" => "ID".to_owned(),
        "invocationId" => "InvocationID".to_owned(),
        "longRunningToolIds" => "LongRunningToolIDs".to_owned(),
        key => key[..1].to_ascii_uppercase() + &key[1..],
    };
    let mut event = renamed(value, &spell, 1);
    if let Some(actions) = event.get_mut("Actions") {
        *actions = renamed(actions.take(), &spell, 1);
    }
    event
}

/// The value with its keys spelt otherwise, down to `depth`; planted ones have spaces and stay.
fn renamed(value: Value, spell: &dyn Fn(&str) -> String, depth: usize) -> Value {
    match value {
        Value::Object(map) if depth > 0 => {
            let entries = map.into_iter().map(|(key, value)| {
                let is_name = key.chars().all(|c| c.is_ascii_alphanumeric());
                let key = if is_name { spell(&key) } else { key };
                (key, renamed(value, spell, depth.saturating_sub(1)))
            });
            Value::Object(entries.collect::<Map<_, _>>())
        }
        Value::Array(items) if depth > 0 => {
            let items = items.into_iter();
            let items = items.map(|item| renamed(item, spell, depth.saturating_sub(1)));
            Value::Array(items.collect())
        }
        value => value,
    }
}
