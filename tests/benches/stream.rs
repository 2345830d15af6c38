//! Made-up streams with the shape of real traffic: many runs at once, each a model call, a tool, another model call.
//!
//! Texts are as long as a real emitter's; nothing is random, so that two runs of a benchmark read the same bytes.

use std::collections::VecDeque;
use std::fmt::Write;

/// What one run consists of.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Model calls; a tool runs between two of them.
    pub calls: u64,
    /// Chunks of each model call; the last one carries usage.
    pub chunks: u64,
    /// Guardrail verdicts.
    pub verdicts: u64,
}

impl Shape {
    /// The run of the headline figure: 17 records.
    pub const USUAL: Shape = Shape {
        calls: 2,
        chunks: 3,
        verdicts: 1,
    };
}

/// Lifecycle records of `runs` runs, one a millisecond from `first_ms` (since 1970) on, `at_once` of them interleaved record by record.
pub fn lifecycle(first_ms: i64, runs: u64, at_once: usize, shape: Shape) -> Vec<Vec<u8>> {
    interleave(first_ms, runs, at_once, |run| lifecycle_run(run, shape))
}

/// Native events of ADK Python: a question, chunks, a tool call and its answer, a final answer.
#[allow(dead_code, reason = "the end-to-end benchmark has one dialect")]
pub fn native(first_ms: i64, runs: u64, at_once: usize) -> Vec<Vec<u8>> {
    interleave(first_ms, runs, at_once, native_run)
}

/// A record without its time, which it gets from its place in the stream.
type Untimed = (&'static str, String);

fn interleave(
    first_ms: i64,
    runs: u64,
    at_once: usize,
    mut run: impl FnMut(u64) -> VecDeque<Untimed>,
) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut open: Vec<VecDeque<Untimed>> = Vec::new();
    let mut next = 0;
    loop {
        while open.len() < at_once && next < runs {
            open.push(run(next));
            next += 1;
        }
        if open.is_empty() {
            return out;
        }
        // Runs that have just begun stand beside runs that are about to end.
        for records in &mut open {
            let ms = first_ms + out.len() as i64;
            let Some((before, after)) = records.pop_front() else {
                continue;
            };
            let time = match before {
                NATIVE_HEAD => format!("{}.{:03}", ms / 1000, ms % 1000),
                _ => format!("{ms}000000"),
            };
            out.push(format!("{before}{time}{after}").into_bytes());
            if next < runs && records.is_empty() {
                *records = run(next);
                next += 1;
            }
        }
        open.retain(|records| !records.is_empty());
    }
}

const LIFECYCLE_HEAD: &str = r#"{"v":1,"at":"#;
const NATIVE_HEAD: &str = r#"{"timestamp":"#;

struct Writer {
    run: u64,
    seq: u64,
    records: VecDeque<Untimed>,
}

impl Writer {
    fn push(&mut self, kind: &str, fields: &str) {
        let (run, seq) = (self.run, self.run * 100 + self.seq);
        let instance = format!("cd41{:04x}-0a66-5e8d-8933-f16eef91557a", run % 16);
        let mut text = format!(",\"kind\":\"{kind}\",\"mono_ns\":{}", 41_000_000 * seq);
        let _ = write!(
            text,
            ",\"record_id\":\"{:08x}-{seq}\",\"seq\":{seq},\"emitter\":{{\"name\":\"tachograph-adk\",\
             \"version\":\"0.1.0\",\"instance\":\"{instance}\"}},\"runtime\":{{\"name\":\"adk-python\",\
             \"version\":\"2.13.0\"}},\"app\":\"app-{}\",\"tenant\":\"t-{}\",\"session_id\":\"s-{}\",\
             \"user_key\":\"u-8b39{:08x}\",\"invocation_id\":\"e-{run:08x}-221d-59e0-83c7-6fa4d3ab3ec9\",\
             \"run_id\":\"{run:08x}-92b4-5e18-9d9c-cc34634fceb8\",\"node_path\":\"desk@1\",\
             \"agent\":\"desk\",\"measured\":\"hook\"{fields}}}",
            run % 16,
            run % 4,
            run % 7,
            run / 3,
            run / 5,
        );
        self.records.push_back((LIFECYCLE_HEAD, text));
        self.seq += 1;
    }
}

fn lifecycle_run(run: u64, shape: Shape) -> VecDeque<Untimed> {
    let mut writer = Writer {
        run,
        seq: 1,
        records: VecDeque::new(),
    };
    writer.push("run.start", r#","root_agent":"desk","trigger":"message""#);
    writer.push("agent.start", r#","agent_kind":"LlmAgent""#);
    for verdict in 0..shape.verdicts {
        writer.push(
            "guardrail.decision",
            &format!(
                ",\"stage\":\"model_input\",\"decision\":\"allow\",\"policy\":{{\"id\":\"p-{verdict}\"}},\
                 \"actor\":{{\"type\":\"plugin\",\"name\":\"guard\"}},\
                 \"target\":{{\"kind\":\"model\",\"call_id\":\"c-{run:08x}-0\"}}"
            ),
        );
    }
    for call in 0..shape.calls {
        if call > 0 {
            tool(&mut writer, call);
        }
        model_call(&mut writer, call, shape.chunks);
    }
    writer.push("agent.end", r#","status":"completed""#);
    writer.push("run.end", r#","status":"completed""#);
    writer.records
}

fn model_call(writer: &mut Writer, call: u64, chunks: u64) {
    let id = format!("\"call_id\":\"c-{:08x}-{call}\"", writer.run);
    let prompt = 150 + writer.run % 900;
    writer.push(
        "model.start",
        &format!(",{id},\"model\":\"gemini-2.5-flash\",\"streaming\":true"),
    );
    for chunk in 0..chunks {
        let usage = match chunk + 1 == chunks {
            true => format!(
                ",\"usage\":{{\"candidatesTokenCount\":9,\"promptTokenCount\":{prompt},\
                 \"totalTokenCount\":{}}}",
                prompt + 9
            ),
            false => String::new(),
        };
        let fields = format!(",{id},\"index\":{chunk},\"content\":\"text\"{usage}");
        writer.push("model.chunk", &fields);
    }
    writer.push(
        "model.end",
        &format!(
            ",{id},\"model\":\"gemini-2.5-flash\",\"served_by\":\"model\",\"finish_reason\":\"STOP\",\
             \"usage\":{{\"candidatesTokenCount\":21,\"promptTokenCount\":{prompt},\
             \"cachedContentTokenCount\":50,\"thoughtsTokenCount\":10,\"totalTokenCount\":{}}}",
            prompt + 31
        ),
    );
}

fn tool(writer: &mut Writer, call: u64) {
    let id = format!("\"call_id\":\"adk-{:08x}-{call}\"", writer.run);
    writer.push(
        "tool.start",
        &format!(",{id},\"execution\":1,\"tool\":\"get_weather\",\"origin\":\"local\""),
    );
    writer.push(
        "tool.end",
        &format!(",{id},\"execution\":1,\"tool\":\"get_weather\",\"outcome\":\"ok\""),
    );
}

fn native_run(run: u64) -> VecDeque<Untimed> {
    let mut records = VecDeque::new();
    let mut push = |step: u64, author: &str, fields: &str| {
        let text = format!(
            ",\"id\":\"{run:08x}-{step:04x}-4a30-8ca8-c8aadc0f7615\",\
             \"invocationId\":\"e-{run:08x}-cdf1-406e-a5b6-fe1c94d48a4d\",\"author\":\"{author}\",\
             \"actions\":{{\"stateDelta\":{{}},\"artifactDelta\":{{}},\"requestedAuthConfigs\":{{}},\
             \"requestedToolConfirmations\":{{}}}},\"nodeInfo\":{{\"path\":\"desk@1\"}}{fields}}}"
        );
        records.push_back((NATIVE_HEAD, text));
    };
    let usage = format!(
        ",\"usageMetadata\":{{\"candidatesTokenCount\":21,\"promptTokenCount\":{},\
         \"thoughtsTokenCount\":10,\"totalTokenCount\":{}}},\"modelVersion\":\"gemini-2.5-flash\"",
        150 + run % 900,
        181 + run % 900
    );
    let answer = "The sky over the town is clear, and it stays so until the evening. ".repeat(4);
    push(
        0,
        "user",
        r#","content":{"parts":[{"text":"How is the weather?"}],"role":"user"}"#,
    );
    push(
        1,
        "desk",
        &format!(
            ",\"content\":{{\"parts\":[{{\"functionCall\":{{\"id\":\"adk-{run:08x}\",\"args\":\
             {{\"city\":\"Ulm\"}},\"name\":\"get_weather\"}}}}],\"role\":\"model\"}},\
             \"finishReason\":\"STOP\"{usage}"
        ),
    );
    push(
        2,
        "desk",
        &format!(
            ",\"content\":{{\"parts\":[{{\"functionResponse\":{{\"id\":\"adk-{run:08x}\",\"name\":\
             \"get_weather\",\"response\":{{\"result\":\"clear\"}}}}}}],\"role\":\"user\"}}"
        ),
    );
    for step in 3..6 {
        let fields = ",\"content\":{\"parts\":[{\"text\":\"The sky \"}],\"role\":\"model\"},\
                      \"partial\":true,\"modelVersion\":\"gemini-2.5-flash\"";
        push(step, "desk", fields);
    }
    push(
        6,
        "desk",
        &format!(
            ",\"content\":{{\"parts\":[{{\"text\":\"{answer}\"}}],\"role\":\"model\"}},\
             \"finishReason\":\"STOP\"{usage}"
        ),
    );
    records
}
