//! Hostile streams, each as a function of a record's number: the same bytes on every run, and nothing held.

/// When the first record was made: 2 March 2026, in milliseconds since 1970.
pub const FIRST_MS: u64 = 1_772_445_600_000;

/// A stream: the record with number `i` of `n`.
pub type Shape = fn(i: u64, n: u64) -> Vec<u8>;

/// Every stream by what it has too much of. One run each, but for those whose name says otherwise.
pub const SHAPES: &[(&str, Shape)] = &[
    ("chunks of one call", chunks),
    ("calls", calls),
    ("calls without ids", nameless_calls),
    ("records after the end", late),
    ("ends", ends),
    ("attempts of one call", attempts),
    ("denies of a model's input", |i, n| {
        denies("model_input", i, n)
    }),
    ("denies of a tool's input", |i, n| {
        denies("tool_input", i, n)
    }),
    ("denies of the run's input", |i, n| {
        denies("run_input", i, n)
    }),
    ("verdicts on an output", verdicts),
    ("failing hooks", failing_hooks),
    ("answering hooks", answering_hooks),
    ("recoveries", recoveries),
    ("agents", agents),
    ("passes of one agent", passes),
    ("records after the agent's end", after_agent),
    ("branches", branches),
    ("deep branches", deep_branches),
    ("executions of one tool call", executions),
    ("tool calls without ids", nameless_tools),
    ("native answers", native_answers),
    ("native tool calls", native_tools),
    ("native messages of people", native_messages),
    ("native confirmations", native_confirmations),
    ("orphaned ends", orphans),
    ("emitters", emitters),
    ("runs of one invocation", runs_of_one),
    ("tenants of one invocation", tenants_of_one),
    ("open invocations", invocations),
    ("gaps of one session", gaps),
    ("compactions of no run", compactions),
    ("children of one tool", children),
    ("answers of no run", stray_answers),
    ("names", names),
    ("long ids", long_ids),
    ("attributes", attributes),
];

/// A lifecycle record of the invocation `run`, a millisecond after the one before.
pub fn lifecycle(i: u64, run: &str, kind: &str, fields: &str) -> Vec<u8> {
    let at = FIRST_MS + i;
    format!(
        r#"{{"v":1,"kind":"{kind}","at":{at},"record_id":"r{i}","invocation_id":"{run}"{fields}}}"#
    )
    .into_bytes()
}

/// A native event of the invocation `run`.
pub fn native(i: u64, run: &str, author: &str, fields: &str) -> Vec<u8> {
    let (seconds, ms) = ((FIRST_MS + i) / 1000, (FIRST_MS + i) % 1000);
    format!(
        r#"{{"timestamp":{seconds}.{ms:03},"id":"n{i}","invocationId":"{run}","author":"{author}"{fields}}}"#
    )
    .into_bytes()
}

const RUN: &str = "h";
const DESK: &str = r#","agent":"desk""#;

fn one(i: u64, kind: &str, fields: &str) -> Vec<u8> {
    lifecycle(i, RUN, kind, &format!("{DESK}{fields}"))
}

fn chunk(i: u64, call: u64) -> Vec<u8> {
    let usage = format!(
        r#","usage":{{"promptTokenCount":10,"candidatesTokenCount":{i},"totalTokenCount":{}}}"#,
        i + 10
    );
    let fields = format!(r#","call_id":"c{call}","content":"text"{usage}"#);
    one(i, "model.chunk", &fields)
}

fn start(i: u64, call: u64) -> Vec<u8> {
    one(
        i,
        "model.start",
        &format!(r#","call_id":"c{call}","model":"m""#),
    )
}

fn end(i: u64, call: u64) -> Vec<u8> {
    let usage = r#","usage":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2}"#;
    one(i, "model.end", &format!(r#","call_id":"c{call}"{usage}"#))
}

fn chunks(i: u64, _: u64) -> Vec<u8> {
    chunk(i, 0)
}

fn calls(i: u64, _: u64) -> Vec<u8> {
    match i % 2 {
        0 => start(i, i / 2),
        _ => end(i, i / 2),
    }
}

fn nameless_calls(i: u64, _: u64) -> Vec<u8> {
    let kind = ["model.start", "model.chunk"][(i % 2) as usize];
    one(i, kind, r#","model":"m","content":"text""#)
}

/// A quarter calls, then the end of the run, then more of the same calls.
fn late(i: u64, n: u64) -> Vec<u8> {
    match i {
        _ if i < n / 4 => end(i, i),
        _ if i == n / 4 => one(i, "run.end", r#","status":"completed""#),
        _ => end(i, i % (n / 4)),
    }
}

fn ends(i: u64, n: u64) -> Vec<u8> {
    match i < n / 4 {
        true => end(i, i),
        false => {
            let status = ["completed", "error"][(i % 2) as usize];
            one(i, "run.end", &format!(r#","status":"{status}""#))
        }
    }
}

fn attempts(i: u64, _: u64) -> Vec<u8> {
    let usage = r#","usage":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2}"#;
    let fields = format!(r#","call_id":"c0","attempt":{i}{usage}"#);
    one(i, "model.end", &fields)
}

/// Half denies that nothing settles, then starts that settle none.
fn denies(stage: &str, i: u64, n: u64) -> Vec<u8> {
    if i < n / 2 {
        let actor = format!(r#","actor":{{"type":"plugin","name":"guard-{i}"}}"#);
        let target = format!(r#","target":{{"kind":"tool","call_id":"t{i}"}}"#);
        let fields = format!(r#","stage":"{stage}","decision":"deny"{actor}{target}"#);
        return one(i, "guardrail.decision", &fields);
    }
    match i % 2 {
        0 => start(i, i),
        _ => one(
            i,
            "tool.start",
            &format!(r#","call_id":"x{i}","tool":"t","measured":"hook""#),
        ),
    }
}

fn verdicts(i: u64, _: u64) -> Vec<u8> {
    let policy = format!(r#","policy":{{"id":"p{i}"}}"#);
    let fields = format!(r#","stage":"model_output","decision":"allow"{policy}"#);
    one(i, "guardrail.decision", &fields)
}

fn failing_hooks(i: u64, _: u64) -> Vec<u8> {
    let fields = format!(r#","hook":"hook-{i}","returned":"error""#);
    one(i, "hook.outcome", &fields)
}

fn answering_hooks(i: u64, _: u64) -> Vec<u8> {
    let fields = format!(r#","hook":"before_model","returned":"value","call_id":"c{i}""#);
    one(i, "hook.outcome", &fields)
}

fn recoveries(i: u64, _: u64) -> Vec<u8> {
    let fields = format!(r#","phase":"model","action":"retry","handler":"handler-{i}""#);
    one(i, "recovery.decision", &fields)
}

fn agents(i: u64, _: u64) -> Vec<u8> {
    lifecycle(i, RUN, "agent.start", &format!(r#","agent":"agent-{i}""#))
}

fn passes(i: u64, _: u64) -> Vec<u8> {
    let kind = ["agent.start", "agent.end"][(i % 2) as usize];
    one(i, kind, r#","status":"completed""#)
}

fn after_agent(i: u64, n: u64) -> Vec<u8> {
    match i {
        _ if i < n / 4 => end(i, i),
        _ if i == n / 4 => one(i, "agent.end", r#","status":"completed""#),
        _ => chunk(i, i % (n / 4)),
    }
}

fn branches(i: u64, _: u64) -> Vec<u8> {
    one(
        i,
        "model.start",
        &format!(r#","branch":"fan.b{i}","call_id":"c0","model":"m""#),
    )
}

fn deep_branches(i: u64, _: u64) -> Vec<u8> {
    let deep = "a.".repeat(120);
    let fields = format!(r#","branch":"b{i}.{deep}z","call_id":"c0","model":"m""#);
    one(i, "model.start", &fields)
}

fn executions(i: u64, _: u64) -> Vec<u8> {
    let kind = ["tool.start", "tool.end"][(i % 2) as usize];
    one(
        i,
        kind,
        &format!(
            r#","call_id":"t","tool":"t","outcome":"ok","execution":{}"#,
            i / 2
        ),
    )
}

fn nameless_tools(i: u64, _: u64) -> Vec<u8> {
    one(i, "tool.start", r#","tool":"t""#)
}

fn native_answers(i: u64, _: u64) -> Vec<u8> {
    let content = format!(r#","content":{{"parts":[{{"text":"answer {i}"}}]}}"#);
    let usage =
        r#","usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2}"#;
    native(
        i,
        RUN,
        "desk",
        &format!(r#"{content}{usage},"finishReason":"STOP""#),
    )
}

fn native_tools(i: u64, _: u64) -> Vec<u8> {
    let (id, name) = (i / 2, r#""name":"t""#);
    let part = match i % 2 {
        0 => format!(r#"{{"functionCall":{{"id":"f{id}",{name},"args":{{"i":{i}}}}}}}"#),
        _ => format!(r#"{{"functionResponse":{{"id":"f{id}",{name},"response":{{"i":{i}}}}}}}"#),
    };
    native(
        i,
        RUN,
        "desk",
        &format!(r#","content":{{"parts":[{part}]}},"modelVersion":"m""#),
    )
}

fn native_messages(i: u64, _: u64) -> Vec<u8> {
    native(
        i,
        RUN,
        "user",
        &format!(r#","content":{{"parts":[{{"text":"message {i}"}}]}}"#),
    )
}

fn native_confirmations(i: u64, _: u64) -> Vec<u8> {
    let original = format!(r#""originalFunctionCall":{{"id":"o{i}","name":"t"}}"#);
    let call =
        format!(r#"{{"id":"q{i}","name":"adk_request_confirmation","args":{{{original}}}}}"#);
    native(
        i,
        RUN,
        "desk",
        &format!(r#","content":{{"parts":[{{"functionCall":{call}}}]}}"#),
    )
}

fn orphans(i: u64, _: u64) -> Vec<u8> {
    let fields = format!(r#","call_id":"t{i}","tool":"t","outcome":"ok""#);
    one(i, "tool.end", &fields)
}

fn emitters(i: u64, _: u64) -> Vec<u8> {
    let emitter = format!(r#","emitter":{{"instance":"p{i}"}},"seq":{i}"#);
    one(
        i,
        "model.chunk",
        &format!(r#","call_id":"c0","content":"text"{emitter}"#),
    )
}

fn runs_of_one(i: u64, _: u64) -> Vec<u8> {
    one(i, "run.start", &format!(r#","run_id":"run-{i}""#))
}

fn tenants_of_one(i: u64, _: u64) -> Vec<u8> {
    one(i, "run.start", &format!(r#","tenant":"tenant-{i}""#))
}

fn invocations(i: u64, _: u64) -> Vec<u8> {
    lifecycle(i, &format!("h{i}"), "run.start", DESK)
}

/// Half runs of one session, then gaps that speak for all of them.
fn gaps(i: u64, n: u64) -> Vec<u8> {
    let kind = if i < n / 2 {
        "run.start"
    } else {
        "emitter.gap"
    };
    lifecycle(
        i,
        &format!("h{i}"),
        kind,
        r#","session_id":"s","dropped":1"#,
    )
}

fn compactions(i: u64, n: u64) -> Vec<u8> {
    if i < n / 2 {
        return lifecycle(i, &format!("h{i}"), "run.start", r#","session_id":"s""#);
    }
    native(
        i,
        &format!("x{i}"),
        "desk",
        r#","actions":{"compaction":{"a":1}}"#,
    )
}

/// Half runs inside a tool, then runs that may be the children of any of them.
fn children(i: u64, n: u64) -> Vec<u8> {
    if i < n / 2 {
        return lifecycle(
            i,
            &format!("h{i}"),
            "tool.start",
            r#","call_id":"t","tool":"helper""#,
        );
    }
    lifecycle(
        i,
        &format!("h{i}"),
        "run.start",
        r#","root_agent":"helper""#,
    )
}

fn stray_answers(i: u64, n: u64) -> Vec<u8> {
    if i < n / 2 {
        return children(i, n);
    }
    let part = r#"{"functionResponse":{"id":"other","name":"helper","response":{"a":1}}}"#;
    native(
        i,
        &format!("x{i}"),
        "desk",
        &format!(r#","content":{{"parts":[{part}]}}"#),
    )
}

/// A run each, with names that nobody else has.
fn names(i: u64, _: u64) -> Vec<u8> {
    let who = format!(
        r#","agent":"agent-{i}","app":"app-{i}","tenant":"tenant-{i}","session_id":"s-{i}""#
    );
    let what = format!(r#","call_id":"c","model":"model-{i}","provider":"provider-{i}""#);
    lifecycle(i, &format!("h{i}"), "model.end", &format!("{who}{what}"))
}

fn long_ids(i: u64, _: u64) -> Vec<u8> {
    let (run, call) = ("i".repeat(400), "c".repeat(400));
    let fields = format!(r#","run_id":"{call}","call_id":"{call}","content":"text""#);
    lifecycle(i, &run, "model.chunk", &fields)
}

fn attributes(i: u64, _: u64) -> Vec<u8> {
    let mut fields = String::from(r#","call_id":"c","attributes":{"#);
    for key in 0..100 {
        let value = "v".repeat(200);
        fields.push_str(&format!(r#""k{i}-{key}":"{value}","#));
    }
    one(
        i,
        "model.end",
        &format!("{}}}", fields.trim_end_matches(',')),
    )
}
