//! What producers write: lifecycle records of many interleaved invocations, laid out over
//! partitions and time.
//!
//! The log is written whole before the world starts; it knows no daemon. Whatever may happen to
//! records is in them.

use super::faults::{Dice, Fault, Faults, Silence};
use super::spoil;
use serde_json::{Value, json};

/// The broker's clock, in ms since 1970, when the world's clock shows 0.
pub const EPOCH_MS: i64 = 1_772_445_600_000;
/// Partitions of the topic.
pub const PARTITIONS: usize = 4;

pub const MODELS: [&str; 3] = [
    "gemini-2.5-flash",
    "gemini-2.5-pro",
    "gemini-2.0-flash-lite",
];
const TOOLS: [&str; 4] = ["search", "book", "refund", "lookup"];
const TENANTS: [&str; 2] = ["acme", "globex"];

/// One record as the broker keeps it.
#[derive(Clone, Debug)]
pub struct LogRecord {
    /// LogAppendTime, ms since 1970.
    pub logged_at: i64,
    pub key: String,
    /// `None`: a tombstone.
    pub payload: Option<Vec<u8>>,
}

/// Everything that will ever be written.
#[derive(Debug, Default)]
pub struct Log {
    pub partitions: Vec<Vec<LogRecord>>,
    /// The silence between pauses and resumes, in ms of the world's clock.
    pub gap: Option<(i64, i64)>,
    /// When the last record is written, in ms of the world's clock.
    pub end_ms: i64,
}

#[derive(Debug)]
pub struct Line {
    pub partition: usize,
    pub logged_ms: i64,
    pub key: String,
    pub payload: Option<Vec<u8>>,
}

/// Who a record speaks of.
#[derive(Clone, Debug)]
pub struct Who {
    pub partition: usize,
    pub tenant: &'static str,
    pub app: &'static str,
    pub session: String,
    pub invocation: String,
    pub run: Option<String>,
    pub agent: String,
    pub branch: String,
    /// False where the runtime has no call ids: calls pair by order.
    pub has_call_ids: bool,
}

/// A run that waits for its resume.
#[derive(Debug)]
pub struct Paused {
    who: Who,
    open_tool: Option<(String, &'static str)>,
}

/// Writes records; one lane of time at a time.
pub struct Writer<'a> {
    pub dice: &'a mut Dice,
    pub faults: &'a Faults,
    pub silence: Silence,
    pub lines: Vec<Line>,
    pub serial: u64,
    /// The log's first moment, ms.
    pub begin_ms: i64,
    /// The lane's clock, ms.
    pub t: i64,
    /// Log time of the lane's last record: a producer's records keep their order.
    pub logged_ms: i64,
    /// Records that the lane's run still writes before its process dies.
    pub breath: Option<u32>,
    pub calls: u32,
    pub past: Vec<(i64, Who)>,
    pub paused: Vec<Paused>,
}

/// Where a log begins: its first moment, ms, and the first number of its sessions and runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Begin {
    pub ms: i64,
    pub serial: u64,
}

/// Writes the log of one seed.
pub fn write(dice: &mut Dice, faults: &Faults, silence: Silence, begin: Begin) -> Log {
    let is_quiet = faults.has(Fault::Quiet);
    // A quiet world lives longer, with less in it.
    let length = dice.range(6_000, 16_000);
    let mut writer = Writer {
        dice,
        faults,
        silence,
        lines: Vec::new(),
        serial: begin.serial,
        begin_ms: begin.ms,
        t: 0,
        logged_ms: 0,
        breath: None,
        calls: 0,
        past: Vec::new(),
        paused: Vec::new(),
    };
    let length = if is_quiet { 3 * length } else { length };
    writer.phase(begin.ms, length, is_quiet);
    let mut gap = None;
    if faults.has(Fault::Pauses) {
        let from = writer.last_ms() + 1;
        let below = from + 2 * silence.longest() + 120_000;
        gap = Some((from, below));
        writer.resume_all(below + 1);
        writer.phase(below + 1, length / 2, is_quiet);
    } else {
        writer.paused.clear();
    }
    if faults.has(Fault::Strays) {
        writer.strays();
    }
    writer.spoil();
    let log = lay_out(writer.lines, gap);
    spoil::clocks(log, faults, dice)
}

fn lay_out(mut lines: Vec<Line>, gap: Option<(i64, i64)>) -> Log {
    lines.sort_by_key(|line| line.logged_ms);
    let end_ms = lines.last().map_or(0, |line| line.logged_ms);
    let mut partitions = vec![Vec::new(); PARTITIONS];
    for line in lines {
        partitions[line.partition].push(LogRecord {
            logged_at: EPOCH_MS + line.logged_ms,
            key: line.key,
            payload: line.payload,
        });
    }
    Log {
        partitions,
        gap,
        end_ms,
    }
}

impl Writer<'_> {
    pub fn last_ms(&self) -> i64 {
        self.lines
            .iter()
            .map(|line| line.logged_ms)
            .max()
            .unwrap_or(0)
    }

    /// Sessions over all partitions, each with one invocation after the other.
    fn phase(&mut self, from_ms: i64, length_ms: i64, is_quiet: bool) {
        let sessions = if is_quiet {
            self.dice.range(2, 5)
        } else {
            self.dice.range(3, 7)
        };
        for _ in 0..sessions {
            let partition = self.dice.index(PARTITIONS);
            self.serial += 1;
            let session = format!("s-{}", self.serial);
            let mut t = from_ms + self.dice.range(0, 3_000);
            while t < from_ms + length_ms {
                self.t = t;
                self.logged_ms = t;
                self.breath = None;
                self.invocation(partition, &session);
                let idle = if is_quiet {
                    self.silence.longest()
                } else {
                    4_000
                };
                t = self.t + self.dice.range(50, idle);
            }
        }
    }

    fn invocation(&mut self, partition: usize, session: &str) {
        self.serial += 1;
        let has_runs = self.dice.percent(60);
        let tenant = self.dice.index(TENANTS.len());
        let who = Who {
            partition,
            tenant: TENANTS[tenant],
            app: "desk",
            session: session.to_owned(),
            invocation: format!("e-{}", self.serial),
            run: has_runs.then(|| format!("r-{}", self.serial)),
            agent: "root".to_owned(),
            branch: String::new(),
            has_call_ids: self.dice.percent(70),
        };
        let (t, logged) = (self.t, self.logged_ms);
        self.run(&who, None);
        if self.dice.percent(8) {
            // The same ids, at the same time, of another tenant.
            (self.t, self.logged_ms) = (t + 3, logged + 3);
            self.breath = None;
            self.run(
                &Who {
                    tenant: TENANTS[1 - tenant],
                    ..who
                },
                None,
            );
        }
    }

    /// One run: a first segment, or the segment that goes on after a pause.
    fn run(&mut self, who: &Who, resumed: Option<&Paused>) {
        self.calls = if resumed.is_some() { self.calls } else { 0 };
        if resumed.is_none() && self.dice.percent(12) {
            self.breath = Some(u32::try_from(self.dice.range(1, 14)).expect("small"));
        }
        let trigger = if resumed.is_some() {
            "resume"
        } else {
            "message"
        };
        self.say(
            who,
            "run.start",
            json!({"root_agent": who.agent, "trigger": trigger}),
        );
        if resumed.is_none() && self.dice.percent(20) {
            self.decide(who, "run_input", "allow", json!({"kind": "run"}));
        }
        self.say(who, "agent.start", json!({}));
        if let Some((call, tool)) = resumed.and_then(|paused| paused.open_tool.clone()) {
            self.wait(20, 300);
            let end = json!({"call_id": call, "tool": tool, "outcome": "ok"});
            self.say(who, "tool.end", end);
        }
        for _ in 0..self.dice.range(1, 4) {
            self.wait(20, 400);
            if self.faults.has(Fault::Stalls) && self.dice.percent(8) {
                self.wait(self.silence.max_ms + 100, self.silence.longest());
            }
            self.step(who);
        }
        self.wait(5, 100);
        let is_pausing = self.faults.has(Fault::Pauses) && resumed.is_none();
        if is_pausing && self.dice.percent(35) {
            self.pause(who);
            return;
        }
        self.say(who, "agent.end", json!({"status": "completed"}));
        let status = self
            .dice
            .pick(&["completed", "completed", "completed", "error", "cancelled"]);
        let error = (status == "error").then(|| json!({"type": "api", "code": "E7"}));
        self.say(who, "run.end", json!({"status": status, "error": error}));
        self.past.push((self.t, who.clone()));
    }

    /// The run yields, some with a tool whose answer comes after the resume.
    fn pause(&mut self, who: &Who) {
        let open_tool = (who.has_call_ids && self.dice.percent(60)).then(|| {
            let (call, tool) = (self.call_id("t"), self.dice.pick(&TOOLS));
            self.say(who, "tool.start", json!({"call_id": call, "tool": tool}));
            self.wait(5, 60);
            let end = json!({"call_id": call, "tool": tool, "outcome": "deferred"});
            self.say(who, "tool.end", end);
            (call, tool)
        });
        self.say(who, "run.end", json!({"status": "yielded"}));
        let is_alive = self.breath.is_none_or(|breath| breath > 0);
        if !is_alive {
            return;
        }
        let paused = Paused {
            who: who.clone(),
            open_tool,
        };
        if self.dice.percent(25) {
            // Resumed at once, while the first segment is still held.
            self.wait(100, self.silence.max_ms / 2);
            let (t, calls) = (self.t + 60, self.calls);
            self.resume(&paused);
            if who.run.is_some() && self.dice.percent(40) {
                self.late_word(who, t, calls);
            }
        } else {
            self.paused.push(paused);
        }
    }

    /// A call of the first run is told of after the second has begun.
    fn late_word(&mut self, who: &Who, logged_ms: i64, calls: u32) {
        let (call, usage) = (format!("late-{calls}"), self.usage());
        let end = json!({"call_id": call, "model": MODELS[1], "usage": usage});
        self.append(who, "model.end", end, logged_ms - 30, logged_ms);
    }

    fn resume(&mut self, paused: &Paused) {
        let mut who = paused.who.clone();
        who.run = who.run.map(|run| format!("{run}-again"));
        self.calls = 50;
        self.run(&who, Some(paused));
    }

    fn resume_all(&mut self, from_ms: i64) {
        for paused in std::mem::take(&mut self.paused) {
            self.t = from_ms + self.dice.range(0, 20_000);
            self.logged_ms = self.t;
            self.breath = None;
            self.resume(&paused);
        }
    }

    fn step(&mut self, who: &Who) {
        match self.dice.range(0, 10) {
            0..=4 => self.model_call(who),
            5..=7 => {
                self.model_call(who);
                self.tool_call(who);
            }
            8 => self.nested_agent(who, "helper"),
            _ => self.fan(who),
        }
    }

    fn nested_agent(&mut self, who: &Who, name: &str) {
        let branch = if who.branch.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", who.branch)
        };
        let inner = Who {
            agent: name.to_owned(),
            branch,
            ..who.clone()
        };
        self.say(&inner, "agent.start", json!({}));
        self.wait(5, 100);
        self.model_call(&inner);
        self.say(&inner, "agent.end", json!({"status": "completed"}));
    }

    /// Two agents at once, on branches of their own.
    fn fan(&mut self, who: &Who) {
        let (t, logged) = (self.t, self.logged_ms);
        self.nested_agent(who, "left");
        let (left_t, left_logged) = (self.t, self.logged_ms);
        if self.breath == Some(0) {
            return;
        }
        (self.t, self.logged_ms) = (t, logged);
        self.nested_agent(who, "right");
        self.t = self.t.max(left_t);
        self.logged_ms = self.logged_ms.max(left_logged);
    }

    fn model_call(&mut self, who: &Who) {
        let (call, model) = (self.call_id("c"), self.dice.pick(&MODELS));
        let is_streaming = self.dice.percent(60);
        let mut start = json!({
            "call_id": call, "model": model, "provider": "gcp.gemini", "streaming": is_streaming,
        });
        self.say_call(who, "model.start", start.clone());
        self.wait(30, 500);
        if who.has_call_ids && self.dice.percent(6) {
            let error = json!({"call_id": call, "error": {"type": "api", "code": "503"}});
            self.say_call(who, "model.error", error);
            if self.dice.percent(50) {
                return;
            }
            self.wait(30, 300);
            start["attempt"] = json!(2);
            self.say_call(who, "model.start", start);
            self.wait(30, 300);
        }
        if self.dice.percent(4) {
            let end = json!({"call_id": call, "served_by": "cache", "finish_reason": "STOP"});
            self.say_call(who, "model.end", end);
            return;
        }
        let full = self.usage();
        for index in 0..if is_streaming {
            self.dice.range(1, 4)
        } else {
            0
        } {
            let usage = snapshot(&full, index);
            let chunk = json!({"call_id": call, "index": index, "content": "text", "usage": usage});
            self.say_call(who, "model.chunk", chunk);
            self.wait(10, 200);
        }
        let mut end = json!({"call_id": call, "model": model, "finish_reason": "STOP"});
        if !is_streaming || self.dice.percent(80) {
            end["usage"] = full;
        }
        self.say_call(who, "model.end", end);
    }

    /// A usage object in Gemini's spelling, its parts told apart by their sizes.
    pub fn usage(&mut self) -> Value {
        let prompt = self.dice.range(50, 900);
        let answer = self.dice.range(1, 400);
        let thoughts = if self.dice.percent(30) {
            self.dice.range(1, 200)
        } else {
            0
        };
        let mut usage = json!({
            "promptTokenCount": prompt,
            "candidatesTokenCount": answer,
            "totalTokenCount": prompt + answer + thoughts,
        });
        if thoughts > 0 {
            usage["thoughtsTokenCount"] = json!(thoughts);
        }
        if self.dice.percent(30) {
            usage["cachedContentTokenCount"] = json!(self.dice.range(1, prompt));
        }
        usage
    }

    fn tool_call(&mut self, who: &Who) {
        let (call, tool) = (self.call_id("t"), self.dice.pick(&TOOLS));
        let is_denied = who.has_call_ids && self.dice.percent(12);
        let target = json!({"kind": "tool", "call_id": call, "name": tool});
        if is_denied {
            self.decide(who, "tool_input", "deny", target);
            self.wait(2, 30);
            if self.dice.percent(70) {
                let end = json!({"call_id": call, "tool": tool, "outcome": "refused"});
                self.say_call(who, "tool.end", end);
                return;
            }
        } else if who.has_call_ids && self.dice.percent(20) {
            self.decide(who, "tool_input", "allow", target);
        }
        self.say_call(who, "tool.start", json!({"call_id": call, "tool": tool}));
        let mut is_long = false;
        if self.dice.percent(8) {
            self.nested_run(who, &call, tool);
        } else if self.faults.has(Fault::LongTools) && self.dice.percent(15) {
            is_long = true;
            self.wait(self.silence.max_ms, self.silence.tool_max_ms - 200);
        }
        self.wait(20, 100);
        let outcome = self.dice.pick(&["ok", "ok", "ok", "error"]);
        self.say_call(
            who,
            "tool.end",
            json!({"call_id": call, "tool": tool, "outcome": outcome}),
        );
        // From here on the shorter silence counts again.
        if is_long && self.faults.has(Fault::Stalls) && self.dice.percent(30) {
            self.wait(self.silence.max_ms + 100, self.silence.max_ms + 1_500);
        }
    }

    /// A run inside a tool, its parent declared, or to be inferred from the tool's name.
    fn nested_run(&mut self, who: &Who, call: &str, tool: &str) {
        if self.breath.is_some() {
            return;
        }
        self.serial += 1;
        let child = Who {
            invocation: format!("n-{}", self.serial),
            run: who.run.as_ref().map(|_| format!("r-{}", self.serial)),
            agent: tool.to_owned(),
            branch: String::new(),
            ..who.clone()
        };
        let parent = (who.has_call_ids && self.dice.percent(50))
            .then(|| json!({"invocation_id": who.invocation, "call_id": call}));
        let calls = self.calls;
        self.wait(5, 60);
        self.say(
            &child,
            "run.start",
            json!({"root_agent": tool, "parent": parent}),
        );
        self.wait(5, 60);
        self.model_call(&child);
        self.say(&child, "run.end", json!({"status": "completed"}));
        self.calls = calls + 1;
    }

    fn decide(&mut self, who: &Who, stage: &str, decision: &str, target: Value) {
        let action = if decision == "deny" { "block" } else { "allow" };
        let fields = json!({
            "stage": stage, "decision": decision, "action": action, "target": target,
            "policy": {"id": "house"}, "actor": {"type": "plugin", "name": "guard"},
        });
        self.say(who, "guardrail.decision", fields);
    }

    fn call_id(&mut self, prefix: &str) -> String {
        self.calls += 1;
        format!("{prefix}{}", self.calls)
    }

    fn wait(&mut self, from_ms: i64, below_ms: i64) {
        self.t += self.dice.range(from_ms, below_ms);
    }

    /// Says something of a call, without its id where the runtime has none.
    fn say_call(&mut self, who: &Who, kind: &str, mut fields: Value) {
        if !who.has_call_ids {
            fields["call_id"] = Value::Null;
        }
        self.say(who, kind, fields);
    }

    fn say(&mut self, who: &Who, kind: &str, fields: Value) {
        if let Some(breath) = &mut self.breath {
            if *breath == 0 {
                return;
            }
            *breath -= 1;
        }
        let at_ms = self.t;
        self.logged_ms = self.logged_ms.max(self.t + self.dice.range(0, 40));
        self.append(who, kind, fields, at_ms, self.logged_ms);
        self.t += self.dice.range(1, 20);
    }

    pub fn append(&mut self, who: &Who, kind: &str, fields: Value, at_ms: i64, logged_ms: i64) {
        self.serial += 1;
        let instance = format!("p{}", who.partition);
        let mut record = json!({
            "v": 1, "kind": kind, "at": (EPOCH_MS + at_ms) * 1_000_000,
            "record_id": format!("p-{}", self.serial),
            "emitter": {"name": "emitter", "version": "1", "instance": instance},
            "runtime": {"name": "adk-python", "version": "2"},
            "tenant": who.tenant, "app": who.app, "session_id": who.session,
            "invocation_id": who.invocation, "agent": who.agent,
        });
        if let Some(run) = &who.run {
            record["run_id"] = json!(run);
        }
        if !who.branch.is_empty() {
            record["branch"] = json!(who.branch);
        }
        for (name, value) in fields.as_object().expect("fields are an object") {
            if !value.is_null() {
                record[name] = value.clone();
            }
        }
        let payload = Some(record.to_string().into_bytes());
        let key = who.session.clone();
        self.lines.push(Line {
            partition: who.partition,
            logged_ms,
            key,
            payload,
        });
    }
}

/// The usage of a running call: the prompt is known, the answer grows.
fn snapshot(full: &Value, index: i64) -> Value {
    let prompt = full["promptTokenCount"].as_i64().unwrap_or(0);
    let answer = full["candidatesTokenCount"].as_i64().unwrap_or(0);
    let so_far = (answer * (index + 1) / 5).max(1);
    json!({
        "promptTokenCount": prompt,
        "candidatesTokenCount": so_far,
        "totalTokenCount": prompt + so_far,
    })
}
