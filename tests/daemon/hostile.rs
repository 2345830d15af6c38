//! A topic on which somebody writes too much of everything.

use super::*;
use serde_json::json;

/// Records of each hostile run.
const RECORDS: usize = 400;
/// Limits that so few records reach.
const TIGHT: &str = "[limits]\npayload_bytes_max = \"64 KiB\"\nbranches_per_run_max = 20\n\
    calls_per_run_max = 50\nrecords_per_run_max = 300\n";
const REACHED: [&str; 6] = [
    "payload_bytes_max",
    "branches_per_run_max",
    "calls_per_run_max",
    "records_per_run_max",
    "id_bytes_max",
    "attribute_bytes_max",
];

/// Runs with endless branches, calls and records, names and ids without end, and two records that
/// cannot be read.
fn hostile() -> Vec<Record> {
    let mut records = Vec::new();
    for i in 0..RECORDS {
        let mut say = |run: &str, more: serde_json::Value| {
            let mut record = json!({
                "v": 1, "kind": "model.start", "at": 1_790_000_000_000_i64 + i as i64,
                "record_id": format!("{run}-{i}"), "invocation_id": run, "app": "noise",
                "agent": "a", "model": "m",
            });
            let fields = more.as_object().expect("an object").clone();
            record.as_object_mut().expect("an object").extend(fields);
            records.push(Record::new(run, record.to_string()).on(0));
        };
        say(
            "branches",
            json!({"branch": format!("b{i}"), "call_id": "c"}),
        );
        say("calls", json!({"call_id": format!("c{i}")}));
        say("records", json!({"call_id": "c"}));
        say(
            &format!("names-{i}"),
            json!({"agent": format!("agent-{i}"), "call_id": "c"}),
        );
    }
    let long = "x".repeat(70_000);
    let id = json!({
        "v": 1, "kind": "run.start", "at": 1_790_000_000_000_i64, "invocation_id": &long[..300],
        "attributes": {"team": &long[..300]},
    });
    let deep = format!("{{\"v\":1,\"kind\":\"x\",\"x\":{}", "[".repeat(20_000));
    let big = format!("{{\"v\":1,\"kind\":\"x\",\"x\":\"{long}\"}}");
    let rest = [id.to_string(), deep, big];
    records.extend(rest.map(|payload| Record::new("k", payload).on(0)));
    records
}

#[test]
fn a_hostile_topic_is_read_and_others_are_told_exactly() {
    let (database, login) = database("hostile");
    let stage = Stage::new("hostile", &login);
    stage.replace("[limits]\n", TIGHT);
    let letters = format!("{}.dead-letters", stage.topic);
    kafka::create_topic_at(brokers(), &letters, 1, &[]);
    let daemon = stage.start();
    daemon.until_ready();
    let (honest, sums) = workload("h", 20);
    let hostile = hostile();
    let all = honest.len() + hostile.len();
    let (before, after) = honest.split_at(honest.len() / 2);
    for part in [before, &hostile, after] {
        kafka::produce(&stage.topic, part);
    }
    until_read(&[&daemon], all);
    let ours = format!("{SUMS} WHERE app = 'shop'");
    wait::until_eq("rows", PATIENCE, sums, || sums_of(&database.rows(&ours)[0]));
    for limit in REACHED {
        let label = format!("limit=\"{limit}\"");
        wait::until(limit, PATIENCE, || {
            (daemon.metric("tachograph_limit_reached_total", &[&label]) > 0).then_some(())
        });
    }
    for reason in ["reason=\"too_deep\"", "reason=\"too_large\""] {
        let found = daemon.metric("tachograph_dead_letters_total", &[reason]);
        assert_eq!(found, 1, "{reason}");
    }
    let (_, text) = daemon.get("/metrics").expect("the daemon answers");
    assert!(text.len() < 8 << 20, "{} bytes of metrics", text.len());
    daemon.until_ready();
    let log = daemon.log.clone();
    daemon.stop();
    named_rarely(&fs::read_to_string(log).expect("a log"));
}

/// Each limit is named in the log, once a minute at most.
fn named_rarely(log: &str) {
    let mut minutes: BTreeMap<(String, String), usize> = BTreeMap::new();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if line["message"] == "a limit was reached" {
            let limit = line["limit"].as_str().expect("its name").to_owned();
            let minute = line["timestamp"].as_str().expect("a time")[..16].to_owned();
            *minutes.entry((limit, minute)).or_default() += 1;
        }
    }
    for limit in REACHED {
        let is_named = minutes.keys().any(|(known, _)| known == limit);
        assert!(is_named, "{limit} in {log}");
    }
    assert!(minutes.values().all(|times| *times == 1), "{minutes:?}");
}
