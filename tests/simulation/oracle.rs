//! A second, stupid implementation: the whole log at once, grouped by invocation, computed segment
//! by segment.
//!
//! No streaming, no offsets to resume from, no marks. It says what must be in the tables and in the
//! counters, as text.

use super::faults::Silence;
use super::workload::Log;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Lines, each as often as it must be there.
pub type Lines = BTreeMap<String, u64>;

/// What must be there at the end.
#[derive(Debug, Default)]
pub struct Expected {
    pub rows: Lines,
    /// One line per invocation over all its segments.
    pub folds: Lines,
    pub counters: Lines,
    pub letters: BTreeMap<(usize, i64), &'static str>,
    pub segments: u64,
    pub headless: u64,
}

/// One segment: the records that belong to it, in log order.
#[derive(Debug)]
struct Segment {
    who: String,
    app: String,
    tenant: String,
    id: String,
    records: Vec<Value>,
    seen: BTreeSet<String>,
    is_headless: bool,
    /// Log time of its last record, ms.
    last_ms: i64,
    open_tools: BTreeSet<String>,
    has_ended: bool,
    is_held: bool,
}

impl Segment {
    fn deadline_ms(&self, silence: Silence) -> i64 {
        let longer = if self.open_tools.is_empty() {
            silence.max_ms
        } else {
            silence.tool_max_ms
        };
        self.last_ms + longer
    }

    fn run(&self) -> &str {
        self.records
            .first()
            .map_or("", |record| text(record, "run_id"))
    }
}

fn text<'v>(record: &'v Value, field: &str) -> &'v str {
    record[field].as_str().unwrap_or("")
}

/// Why a record is a dead letter; `None` where it can be read.
fn refusal(payload: &[u8]) -> Result<Value, &'static str> {
    if payload.is_empty() {
        return Err("empty");
    }
    let Ok(value) = serde_json::from_slice::<Value>(payload) else {
        return Err("invalid_json");
    };
    if !value["v"].is_i64() || !value["kind"].is_string() {
        return Err("no_envelope");
    }
    if text(&value, "invocation_id").is_empty() {
        return Err("no_invocation_id");
    }
    Ok(value)
}

/// Reads everything and says what must come out.
pub fn expect(log: &Log, silence: Silence) -> Expected {
    let mut expected = Expected::default();
    let mut invocations: BTreeMap<String, Vec<Segment>> = BTreeMap::new();
    for (partition, records) in log.partitions.iter().enumerate() {
        let mut segments: Vec<Segment> = Vec::new();
        // Log time never goes backwards, whoever says the times of records.
        let mut log_time = i64::MIN;
        for (offset, record) in records.iter().enumerate() {
            log_time = log_time.max(record.logged_at);
            for segment in &mut segments {
                segment.is_held &= segment.deadline_ms(silence) >= log_time;
            }
            let Some(payload) = &record.payload else {
                continue;
            };
            match refusal(payload) {
                Ok(value) => place(&mut segments, value, log_time, silence),
                Err(reason) => {
                    let offset = i64::try_from(offset).expect("short log");
                    expected.letters.insert((partition, offset), reason);
                }
            }
        }
        for segment in segments {
            invocations
                .entry(segment.who.clone())
                .or_default()
                .push(segment);
        }
    }
    for segments in invocations.values() {
        conclude(segments, &mut expected);
    }
    expected
}

/// Puts one record into the segment it belongs to, by the table of facts.md §8.1.
fn place(segments: &mut Vec<Segment>, record: Value, logged_ms: i64, silence: Silence) {
    let (tenant, app) = (
        text(&record, "tenant").to_owned(),
        text(&record, "app").to_owned(),
    );
    let who = format!("{tenant}/{app}/{}", text(&record, "invocation_id"));
    let run = text(&record, "run_id").to_owned();
    let held = |s: &&mut Segment| s.is_held && s.who == who;
    let id = text(&record, "record_id").to_owned();
    let is_repeat = segments
        .iter_mut()
        .filter(held)
        .any(|s| s.seen.contains(&id));
    let of_run = segments
        .iter_mut()
        .rev()
        .filter(held)
        .find(|s| !run.is_empty() && s.run() == run);
    let is_of_run = of_run.is_some();
    let found = match of_run {
        Some(segment) => Some(segment),
        None => segments.iter_mut().rev().find(held),
    };
    let is_start = text(&record, "kind") == "run.start";
    if let Some(segment) = found {
        if is_repeat {
            // Also what is sent twice breaks the silence.
            segment.last_ms = logged_ms;
            return;
        }
        let has_start = segment
            .records
            .iter()
            .any(|r| text(r, "kind") == "run.start");
        let opens = is_start && !is_of_run && (segment.has_ended || has_start);
        if !opens {
            add(segment, record, logged_ms);
            return;
        }
        segment.has_ended = true;
    }
    let at_ms = record["at"].as_i64().unwrap_or(0) / 1_000_000;
    let is_old = logged_ms - at_ms > silence.max_ms;
    let id = if is_start && !run.is_empty() {
        run
    } else {
        text(&record, "record_id").to_owned()
    };
    let mut segment = Segment {
        who,
        app,
        tenant,
        id,
        records: Vec::new(),
        seen: BTreeSet::new(),
        is_headless: is_old && !is_start,
        last_ms: logged_ms,
        open_tools: BTreeSet::new(),
        has_ended: false,
        is_held: true,
    };
    add(&mut segment, record, logged_ms);
    segments.push(segment);
}

fn add(segment: &mut Segment, record: Value, logged_ms: i64) {
    let place = format!("{}/{}", text(&record, "branch"), text(&record, "agent"));
    let call = match text(&record, "call_id") {
        "" => place,
        id => id.to_owned(),
    };
    match text(&record, "kind") {
        "tool.start" => {
            segment.open_tools.insert(call);
        }
        "tool.end" => {
            segment.open_tools.remove(&call);
        }
        "run.end" => segment.has_ended = true,
        _ => {}
    }
    segment.last_ms = logged_ms;
    segment.seen.insert(text(&record, "record_id").to_owned());
    segment.records.push(record);
}

/// What one segment says.
#[derive(Debug, Default)]
struct Says {
    status: &'static str,
    models: Vec<Model>,
    tools: Vec<Tool>,
    verdicts: Vec<Verdict>,
    local_answers: u64,
}

#[derive(Debug, Default)]
struct Model {
    key: String,
    agent: String,
    model: String,
    status: &'static str,
    is_local: bool,
    usage: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
struct Tool {
    key: String,
    tool: String,
    status: &'static str,
    is_answered: bool,
}

#[derive(Debug, Default)]
struct Verdict {
    stage: String,
    decision: String,
    action: String,
    target: String,
    /// Started after the verdict.
    is_bypassed: bool,
}

fn listen(segment: &Segment) -> Says {
    let mut says = Says::default();
    for record in &segment.records {
        match text(record, "kind") {
            "model.start" | "model.chunk" | "model.error" | "model.end" => model(&mut says, record),
            "tool.start" | "tool.end" => tool(&mut says, record),
            "guardrail.decision" => says.verdicts.push(Verdict {
                stage: text(record, "stage").to_owned(),
                decision: text(record, "decision").to_owned(),
                action: text(record, "action").to_owned(),
                target: text(&record["target"], "call_id").to_owned(),
                is_bypassed: false,
            }),
            _ => {}
        }
    }
    says.local_answers = says.models.iter().filter(|call| call.is_local).count() as u64;
    says.models.retain(|call| !call.is_local);
    let has_pause = says.tools.iter().any(|tool| tool.status == "deferred");
    says.status = status(segment, has_pause);
    // A lone start in a run that ended well is no call that anybody knows of (rules.md §6): here a
    // start that was sent again after its run had left memory.
    let is_lone = |call: &Model| call.status == "incomplete" && call.usage.is_empty();
    let ended_well = matches!(says.status, "completed" | "waiting");
    says.models.retain(|call| !(ended_well && is_lone(call)));
    let is_waiting = says.status == "waiting";
    for tool in &mut says.tools {
        if !tool.is_answered {
            tool.status = if is_waiting { "deferred" } else { "unanswered" };
        }
    }
    says
}

fn status(segment: &Segment, has_pause: bool) -> &'static str {
    let mut ends = segment
        .records
        .iter()
        .filter(|record| text(record, "kind") == "run.end");
    match ends.next_back().map(|end| text(end, "status")) {
        Some("completed") => "completed",
        Some("error") => "error",
        Some("cancelled") => "cancelled",
        Some("yielded") => "waiting",
        _ if has_pause => "waiting",
        _ => "incomplete",
    }
}

fn key(record: &Value) -> String {
    match text(record, "call_id") {
        "" => format!("{}/{}", text(record, "branch"), text(record, "agent")),
        id => id.to_owned(),
    }
}

fn model(says: &mut Says, record: &Value) {
    let (key, kind) = (key(record), text(record, "kind"));
    let has_id = !text(record, "call_id").is_empty();
    let open = says.models.iter_mut().rev().find(|call| {
        call.key == key && (has_id || (kind != "model.start" && call.status == "incomplete"))
    });
    let call = match open {
        Some(call) => call,
        None => {
            says.models.push(Model {
                key,
                status: "incomplete",
                ..Model::default()
            });
            says.models.last_mut().expect("just pushed")
        }
    };
    call.agent = text(record, "agent").to_owned();
    if !text(record, "model").is_empty() {
        call.model = text(record, "model").to_owned();
    }
    match kind {
        "model.error" => call.status = "error",
        "model.end" => call.status = "ok",
        "model.start" => call.status = "incomplete",
        _ => {}
    }
    call.is_local |= text(record, "served_by") == "cache";
    for (name, count) in record["usage"].as_object().into_iter().flatten() {
        call.usage.insert(name.clone(), count.as_u64().unwrap_or(0));
    }
}

fn tool(says: &mut Says, record: &Value) {
    let (key, is_end) = (key(record), text(record, "kind") == "tool.end");
    let has_id = !text(record, "call_id").is_empty();
    if !is_end {
        let of = says
            .verdicts
            .iter_mut()
            .filter(|v| v.stage == "tool_input" && v.target == key);
        of.for_each(|verdict| verdict.is_bypassed = true);
    }
    let known = says
        .tools
        .iter_mut()
        .rev()
        .find(|tool| tool.key == key && (has_id || (is_end && !tool.is_answered)));
    let tool = match known {
        Some(tool) => tool,
        None => {
            says.tools.push(Tool {
                key,
                ..Tool::default()
            });
            says.tools.last_mut().expect("just pushed")
        }
    };
    tool.tool = text(record, "tool").to_owned();
    if is_end {
        tool.is_answered = true;
        tool.status = match text(record, "outcome") {
            "ok" => "ok",
            "error" => "error",
            "refused" => "refused",
            _ => "deferred",
        };
    }
}

/// Tokens by class, as facts.md §3 names them.
#[derive(Clone, Copy, Debug, Default)]
struct Tokens {
    uncached: u64,
    cached: u64,
    answer: u64,
    reasoning: u64,
}

fn tokens(call: &Model) -> Tokens {
    let count = |name: &str| call.usage.get(name).copied().unwrap_or(0);
    let cached = count("cachedContentTokenCount");
    Tokens {
        uncached: count("promptTokenCount") - cached,
        cached,
        answer: count("candidatesTokenCount"),
        reasoning: count("thoughtsTokenCount"),
    }
}

fn note(lines: &mut Lines, line: String, by: u64) {
    if by > 0 {
        *lines.entry(line).or_insert(0) += by;
    }
}

/// Writes down the rows and counts of one invocation, then its fold.
fn conclude(segments: &[Segment], expected: &mut Expected) {
    let mut fold = ("", 0, 0, 0, 0);
    let has_other = segments.iter().any(|segment| !segment.is_headless);
    for segment in segments {
        expected.segments += 1;
        expected.headless += u64::from(segment.is_headless);
        let says = listen(segment);
        let (mut input, mut output) = (0, 0);
        for call in &says.models {
            let t = tokens(call);
            input += t.uncached + t.cached;
            output += t.answer + t.reasoning;
        }
        rows(segment, &says, input, output, expected);
        if !segment.is_headless {
            counts(segment, &says, expected);
        }
        if !segment.is_headless || !has_other {
            fold.0 = says.status;
        }
        fold.1 += says.models.len();
        fold.2 += input;
        fold.3 += output;
        fold.4 += says.tools.len();
    }
    let (status, calls, input, output, tools) = fold;
    let who = &segments[0].who;
    let line = format!("{who} {status} calls={calls} in={input} out={output} tools={tools}");
    note(&mut expected.folds, line, 1);
}

fn rows(segment: &Segment, says: &Says, input: u64, output: u64, expected: &mut Expected) {
    let (who, id, lines) = (&segment.who, &segment.id, &mut expected.rows);
    let (calls, tools) = (says.models.len(), says.tools.len());
    let mark = if segment.is_headless { " headless" } else { "" };
    let sums = format!("calls={calls} in={input} out={output} tools={tools}");
    note(
        lines,
        format!("invocation {who} {id} {}{mark} {sums}", says.status),
        1,
    );
    for call in &says.models {
        let (agent, model, status, t) = (&call.agent, &call.model, call.status, tokens(call));
        let Tokens {
            uncached,
            cached,
            answer,
            reasoning,
        } = t;
        let usage = format!("{uncached}+{cached} {answer}+{reasoning}");
        note(
            lines,
            format!("model_call {who} {agent} {model} {status} {usage}"),
            1,
        );
    }
    for tool in &says.tools {
        note(
            lines,
            format!("tool_call {who} {id} {} {}", tool.tool, tool.status),
            1,
        );
    }
    for verdict in &says.verdicts {
        let enforced = match verdict.decision.as_str() {
            "deny" if verdict.is_bypassed => "false",
            "deny" => "true",
            _ => "null",
        };
        let Verdict {
            stage, decision, ..
        } = verdict;
        note(
            lines,
            format!("verdict {who} {id} {stage} {decision} enforced={enforced}"),
            1,
        );
    }
    note(
        lines,
        format!("local_answer {who} {id}"),
        says.local_answers,
    );
}

fn counts(segment: &Segment, says: &Says, expected: &mut Expected) {
    let (app, tenant, lines) = (&segment.app, &segment.tenant, &mut expected.counters);
    let status = says.status;
    if status == "waiting" {
        note(lines, format!("InvocationWaits {app}"), 1);
    } else {
        note(lines, format!("Invocations {app},{status}"), 1);
    }
    for call in &says.models {
        let series = format!("{app},{tenant},{},{}", call.model, call.agent);
        note(
            lines,
            format!("ModelCalls {series},model,{}", call.status),
            1,
        );
        let t = tokens(call);
        note(lines, format!("Tokens {series},input_uncached"), t.uncached);
        note(lines, format!("Tokens {series},cache_read"), t.cached);
        note(lines, format!("Tokens {series},answer"), t.answer);
        note(lines, format!("Tokens {series},reasoning"), t.reasoning);
    }
    for tool in &says.tools {
        note(
            lines,
            format!("ToolCalls {app},{tenant},{},{}", tool.tool, tool.status),
            1,
        );
    }
    for verdict in &says.verdicts {
        let Verdict {
            stage,
            decision,
            action,
            ..
        } = verdict;
        let words = format!("house,{stage},{decision},{action},guard");
        note(
            lines,
            format!("GuardrailDecisions {app},{tenant},{words}"),
            1,
        );
        let is_bypassed = decision == "deny" && verdict.is_bypassed;
        note(
            lines,
            format!("GuardrailBypassed {app},{tenant},house,{stage}"),
            u64::from(is_bypassed),
        );
    }
    note(
        lines,
        format!("LocalAnswers {app},{tenant},cache,"),
        says.local_answers,
    );
}
