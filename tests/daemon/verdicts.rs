//! What an auditor finds: a denied call that ran anyway is an anomaly, a counter and a row that says
//! what followed and where its record lies, also after a crash.

use super::*;
use serde_json::{Value, json};

/// Records of one run, a second apart, on one partition.
fn run(said: &[(i64, &str, Value)]) -> Vec<Record> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let start = now.expect("after 1970").as_secs().cast_signed() - 60;
    let record = |(n, (second, kind, fields)): (usize, &(i64, &str, Value))| {
        let mut record = json!({
            "v": 1, "kind": kind, "at": start + second, "record_id": format!("v-{n}"),
            "emitter": {"name": "test", "version": "1", "instance": "v"}, "app": "shop",
            "session_id": "s", "invocation_id": "i", "run_id": "r", "agent": "desk",
        });
        for (key, value) in fields.as_object().into_iter().flatten() {
            record[key] = value.clone();
        }
        Record::new("s", record.to_string()).on(0)
    };
    said.iter().enumerate().map(record).collect()
}

fn decision(stage: &str, decision: &str, policy: &str, call: Option<&str>) -> Value {
    json!({
        "stage": stage, "decision": decision, "policy": {"id": policy},
        "actor": {"type": "plugin", "name": "guard"},
        "target": call.map(|id| json!({"kind": "tool", "call_id": id})),
    })
}

fn said() -> Vec<(i64, &'static str, Value)> {
    let verdict = "guardrail.decision";
    let mut failed = decision("tool_input", "allow", "open", Some("t2"));
    failed["outcome"] = json!("failed_open");
    vec![
        (0, "run.start", json!({})),
        (1, verdict, decision("run_input", "deny", "screen", None)),
        (2, "model.start", json!({"call_id": "c1", "model": "m-1"})),
        (3, "model.end", json!({"call_id": "c1", "model": "m-1"})),
        (
            4,
            verdict,
            decision("tool_input", "deny", "cap", Some("t1")),
        ),
        (
            6,
            "tool.end",
            json!({"call_id": "t1", "tool": "pay", "outcome": "ok"}),
        ),
        // Told late: only now it is known that the denied call ran.
        (5, "tool.start", json!({"call_id": "t1", "tool": "pay"})),
        (7, verdict, failed),
        (8, "tool.start", json!({"call_id": "t2", "tool": "look"})),
        (
            9,
            "tool.end",
            json!({"call_id": "t2", "tool": "look", "outcome": "ok"}),
        ),
        (
            10,
            "tool.end",
            json!({"call_id": "t3", "tool": "wire", "outcome": "refused"}),
        ),
        (11, "run.end", json!({"status": "completed"})),
    ]
}

#[test]
fn a_denied_call_that_ran_is_told_with_what_followed() {
    let (database, login) = database("verdicts");
    let stage = Stage::new("verdicts", &login);
    state::keep_state(&stage);
    let records = run(&said());
    let (before, after) = records.split_at(6);
    let first = stage.start();
    first.until_ready();
    kafka::produce(&stage.topic, before);
    until_read(&[&first], before.len());
    first.kill();
    kafka::produce(&stage.topic, after);
    let second = stage.start();
    let audit = "SELECT policy, decision, outcome, basis, ifNull(toString(enforced), '?'), bypassed, \
         followed_by, followed_name, followed_executed, first_partition, first_offset \
         FROM v_guardrail_audit ORDER BY first_offset";
    let expected = [
        "screen deny  declared false true model_call m-1  0 1",
        "cap deny  declared false true tool_call pay yes 0 4",
        "open  failed_open declared ? false tool_call look yes 0 7",
        " deny  inferred true false tool_call wire no 0 10",
    ];
    wait::until_eq(
        "the audit",
        PATIENCE,
        expected.map(str::to_owned).to_vec(),
        || {
            let rows = database.rows(audit);
            rows.iter().map(|row| row.join(" ")).collect()
        },
    );
    let anomalies = "SELECT about FROM anomalies FINAL WHERE kind = 'verdict_not_enforced' \
         ORDER BY about";
    wait::until_eq("anomalies", PATIENCE, 2, || database.rows(anomalies).len());
    let bypassed = |policy: &str| {
        let label = format!("policy=\"{policy}\"");
        second.metric("tachograph_guardrail_bypassed_total", &[&label])
    };
    // A scrape shows what the state file has, which may come after the rows.
    wait::until_eq("bypasses", PATIENCE, [1, 1, 0], || {
        ["screen", "cap", "open"].map(bypassed)
    });
    let decisions = |label: &str| second.metric("tachograph_guardrail_decisions_total", &[label]);
    wait::until_eq("denies", PATIENCE, 3, || decisions("decision=\"deny\""));
    let allowed = decisions("decision=\"allow\"");
    assert_eq!(allowed, 0, "failed open is no allow");
    second.stop();
}
