//! A hostile topic: whatever it has too much of, memory is bounded, the limit is counted under its name, no record
//! costs more and more, and the runs of others come out as if they were alone.

#[path = "benches/counting.rs"]
#[allow(dead_code, reason = "calls of the allocator are not counted here")]
mod counting;
#[path = "hostile/feed.rs"]
mod feed;
#[path = "hostile/shapes.rs"]
mod shapes;

use feed::{P, assign, perform, pipeline, read};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tachograph::core::fact::{AnomalyKind, Fact, FactBody};
use tachograph::core::pipeline::{Input, Pipeline};
use tachograph::core::{Limits, LogTime, Now, Offset, PartitionId};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Allocations are counted for the whole process, without locks: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bounds so small that a debug build reaches them all.
const SMALL: Limits = Limits {
    payload_bytes_max: 64 << 10,
    segments_open_max: 500,
    branches_per_run_max: 20,
    calls_per_run_max: 50,
    records_per_run_max: 600,
    names_interned_max: 200,
    work_in_flight_max: 16,
    ..Limits::OF_THE_CONTRACT
};

/// Lets the silence of every run pass.
fn release(pipeline: &mut Pipeline, partition: PartitionId, next: u64) -> Vec<Fact> {
    let released = Input::CaughtUp {
        partition,
        next: Offset(next as i64),
        log_time: Some(LogTime(i64::MAX / 2)),
    };
    let now = Now(Duration::from_secs(1_000_000));
    pipeline.handle(released, now);
    let mut facts = perform(pipeline, now);
    pipeline.handle(Input::Drain, now);
    facts.extend(perform(pipeline, now));
    facts
}

fn reached(pipeline: &Pipeline, limit: &str) -> u64 {
    let all = &pipeline.totals().limits_reached;
    all.get(limit).copied().unwrap_or(0)
}

/// The record of a small honest run with number `step`; `None` after its last.
fn honest(i: u64, run: &str, step: u64) -> Option<Vec<u8>> {
    let usage =
        r#","usage":{"promptTokenCount":40,"candidatesTokenCount":33,"totalTokenCount":73}"#;
    let (kind, fields) = match step {
        0 => ("run.start", String::new()),
        1 => (
            "guardrail.decision",
            r#","stage":"model_input","decision":"allow""#.to_owned(),
        ),
        2 => ("model.start", r#","call_id":"c1","model":"m""#.to_owned()),
        3 => ("model.end", format!(r#","call_id":"c1"{usage}"#)),
        4 => ("tool.start", r#","call_id":"t1","tool":"t""#.to_owned()),
        5 => ("tool.end", r#","call_id":"t1","outcome":"ok""#.to_owned()),
        6 => ("model.end", format!(r#","call_id":"c2"{usage}"#)),
        7 => ("run.end", r#","status":"completed""#.to_owned()),
        _ => return None,
    };
    let who = r#","app":"honest","tenant":"t","agent":"desk","session_id":"mine""#;
    Some(shapes::lifecycle(i, run, kind, &format!("{who}{fields}")))
}

/// The newest version of each row of the honest runs, without what depends on offsets and times. That
/// a run left memory early, after its end, is told and changes nothing else.
fn honest_rows(facts: Vec<Fact>) -> Vec<String> {
    let mut rows = BTreeMap::new();
    for fact in facts
        .into_iter()
        .filter(|fact| &*fact.app == "honest" && !is_early(fact))
    {
        let key = (
            fact.invocation_id.to_string(),
            fact.body.table(),
            fact.identity(),
        );
        let newest = rows.entry(key).or_insert((0, String::new()));
        if fact.version >= newest.0 {
            *newest = (fact.version, said(&fact.body));
        }
    }
    let rows = rows.into_iter();
    rows.map(|((run, table, _), (_, said))| format!("{run} {} {said}", table.as_str()))
        .collect()
}

fn is_early(fact: &Fact) -> bool {
    matches!(&fact.body, FactBody::Anomaly(f) if f.kind == AnomalyKind::LimitReached)
}

fn said(body: &FactBody) -> String {
    match body {
        FactBody::Invocation(f) => format!(
            "{} calls={} in={:?} out={:?} tools={} flags={:?}",
            f.status.as_str(),
            f.own.model_call_count,
            f.own.input_total,
            f.own.output_total,
            f.tool_call_count,
            f.flags.iter().map(|flag| flag.as_str()).collect::<Vec<_>>()
        ),
        FactBody::ModelCall(f) => format!("{} in={:?}", f.status.as_str(), f.usage.input_total),
        FactBody::ToolCall(f) => f.status.as_str().to_owned(),
        FactBody::AgentRun(f) => format!("calls={}", f.own.model_call_count),
        FactBody::Branch(f) => format!("calls={}", f.own.model_call_count),
        FactBody::GuardrailDecision(f) => format!("{:?}", f.decision),
        FactBody::Anomaly(f) => format!("{} {}", f.kind.as_str(), f.about),
        _ => String::new(),
    }
}

const HONEST_RUNS: u64 = 5;

/// Reads `n` hostile records, and between them the records of honest runs, one at a time.
fn beside(shape: Option<shapes::Shape>, n: u64) -> (Pipeline, Vec<String>) {
    let mut pipeline = pipeline(SMALL);
    let mut facts = Vec::new();
    let every = n / (HONEST_RUNS * 8 + 2);
    let (mut offset, mut step) = (0, 0);
    for i in 0..n {
        if let Some(shape) = shape {
            facts.extend(read(&mut pipeline, P, offset, &shape(i, n)));
            offset += 1;
        }
        if i % every == 0 && step < HONEST_RUNS * 8 {
            let run = format!("honest-{}", step / 8);
            if let Some(payload) = honest(offset, &run, step % 8) {
                facts.extend(read(&mut pipeline, P, offset, &payload));
            }
            step += 1;
            offset += 1;
        }
    }
    assert_eq!(step, HONEST_RUNS * 8);
    facts.extend(release(&mut pipeline, P, offset));
    let rows = honest_rows(facts);
    (pipeline, rows)
}

#[test]
fn others_come_out_as_if_they_were_alone() {
    let _alone = alone();
    let (_, expected) = beside(None, 1_000);
    assert_eq!(expected.len() as u64, HONEST_RUNS * 8, "{expected:#?}");
    let wrong: Vec<&str> = shapes::SHAPES
        .iter()
        .filter(|(_, shape)| beside(Some(*shape), 1_000).1 != expected)
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(wrong, Vec::<&str>::new());
}

#[test]
fn each_limit_is_counted_under_its_name() {
    let _alone = alone();
    let expected = [
        ("calls", "calls_per_run_max"),
        ("attempts of one call", "calls_per_run_max"),
        ("verdicts on an output", "calls_per_run_max"),
        ("failing hooks", "calls_per_run_max"),
        ("answering hooks", "calls_per_run_max"),
        ("recoveries", "calls_per_run_max"),
        ("agents", "calls_per_run_max"),
        ("native tool calls", "calls_per_run_max"),
        ("native confirmations", "calls_per_run_max"),
        ("branches", "branches_per_run_max"),
        ("deep branches", "branches_per_run_max"),
        ("chunks of one call", "records_per_run_max"),
        ("open invocations", "segments_open_max"),
        ("runs of one invocation", "segments_open_max"),
        ("tenants of one invocation", "segments_open_max"),
        ("names", "names_interned_max"),
        ("long ids", "id_bytes_max"),
        ("attributes", "attribute_bytes_max"),
    ];
    for (name, limit) in expected {
        let shape = shapes::SHAPES.iter().find(|(known, _)| *known == name);
        let shape = shape.map(|(_, shape)| *shape);
        assert!(shape.is_some(), "{name}");
        let (pipeline, _) = beside(shape, 1_000);
        assert!(
            reached(&pipeline, limit) > 0,
            "{name}: {:?}",
            pipeline.totals().limits_reached
        );
    }
}

/// Bytes that a run may hold at these limits; measured, and rounded up.
const RUN_BYTES_MAX: i64 = 400_000;

#[test]
fn memory_stays_where_the_limits_put_it() {
    let _alone = alone();
    for (name, shape) in shapes::SHAPES {
        let held = |n: u64| {
            let before = counting::live_bytes();
            let mut pipeline = pipeline(SMALL);
            for i in 0..n {
                read(&mut pipeline, P, i, &shape(i, n));
            }
            let now = Now(Duration::from_secs(1_000_000));
            pipeline.handle(Input::Drain, now);
            perform(&mut pipeline, now);
            let segments = pipeline.snapshot().partitions[0].segments_held as i64;
            (counting::live_bytes() - before, segments)
        };
        let (bytes, segments) = held(1_000);
        let (bytes_more, segments_more) = held(3_000);
        let bound = RUN_BYTES_MAX + 4_000 * segments;
        assert!(
            bytes < bound,
            "{name}: {bytes} bytes of {segments} segments"
        );
        let bound = RUN_BYTES_MAX + 4_000 * segments_more;
        assert!(
            bytes_more < bound,
            "{name}: {bytes_more} bytes of {segments_more} segments"
        );
    }
}

#[test]
fn no_record_costs_more_and_more() {
    let _alone = alone();
    let limits = Limits {
        branches_per_run_max: 40,
        calls_per_run_max: 100,
        records_per_run_max: 100_000,
        ..SMALL
    };
    // Quadratic would be eight times as much; linear is as much, but for noise of caches and of other work.
    let factor = 4;
    let slow = |shape: shapes::Shape| {
        let cost = |n: u64| {
            let mut pipeline = pipeline(limits.clone());
            let started = feed::cpu_nanos();
            for i in 0..n {
                read(&mut pipeline, P, i, &shape(i, n));
            }
            release(&mut pipeline, P, n);
            (feed::cpu_nanos() - started) / n
        };
        // At the first size the limits are reached already.
        let (small, big) = (cost(500), cost(4_000));
        (big > factor * small).then_some((small, big))
    };
    let mut wrong = Vec::new();
    for (name, shape) in shapes::SHAPES {
        if let Some((small, big)) = slow(*shape).and_then(|_| slow(*shape)) {
            wrong.push(format!("{name}: {small} ns a record, then {big}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_process_holds_so_many_segments_over_all_its_partitions() {
    let _alone = alone();
    let mut pipeline = pipeline(SMALL);
    let other = PartitionId(1);
    assign(&mut pipeline, other);
    for i in 0..600 {
        let run = shapes::lifecycle(i, &format!("a{i}"), "run.start", "");
        read(&mut pipeline, P, i, &run);
        if i % 4 == 0 {
            read(&mut pipeline, other, i, &run);
        }
    }
    let held: Vec<usize> = pipeline
        .snapshot()
        .partitions
        .iter()
        .map(|p| p.segments_held)
        .collect();
    assert_eq!(
        held.iter().sum::<usize>(),
        SMALL.segments_open_max,
        "{held:?}"
    );
    assert_eq!(held[1], 150, "the partition that holds few lets go of none");
    assert_eq!(reached(&pipeline, "segments_open_max"), 250);
}

/// One record that is as big as a record may be, made of `part` again and again.
fn stuffed(before: &str, part: &str, after: &str, bytes: usize) -> Vec<u8> {
    let mut text = String::from(before);
    let mut number = 0;
    while text.len() + part.len() + after.len() + 16 < bytes {
        if number > 0 {
            text.push(',');
        }
        text.push_str(&part.replace('#', &number.to_string()));
        number += 1;
    }
    text.push_str(after);
    text.into_bytes()
}

#[test]
fn one_record_may_be_full_of_anything() {
    let _alone = alone();
    let head = r##"{"v":1,"kind":"event","at":1772445600000,"invocation_id":"h","event":{"author":"desk","invocationId":"h""##;
    let call = r##"{"functionCall":{"id":"#","name":"t"}}"##;
    let request = r##"{"functionCall":{"id":"#","name":"adk_request_x"}}"##;
    let answer = r##"{"functionResponse":{"id":"#","name":"t"}}"##;
    let parts = format!(r#"{head},"content":{{"parts":["#);
    let actions = format!(r#"{head},"actions":{{"requestedToolConfirmations":{{"#);
    let state = r##"{"stateDelta":{"orcas_tool_call_security_check_states":{"##;
    let states = format!(r#"{head},"actions":{state}"#);
    let decision =
        r##"{"v":1,"kind":"guardrail.decision","at":1772445600000,"invocation_id":"h","native":["##;
    let starts = r##"{"v":1,"kind":"run.start","at":1772445600000,"invocation_id":"i#"}"##;
    let usage = r##"{"v":1,"kind":"model.end","at":1772445600000,"invocation_id":"h","call_id":"c","usage":{"##;
    let records = [
        ("calls", stuffed(&parts, call, "]}}}", 1 << 20)),
        ("requests", stuffed(&parts, request, "]}}}", 1 << 20)),
        ("answers", stuffed(&parts, answer, "]}}}", 1 << 20)),
        (
            "confirmations",
            stuffed(&actions, r##""#":{}"##, "}}}}", 1 << 20),
        ),
        (
            "states",
            stuffed(&states, r##""#":"DENY""##, "}}}}}", 1 << 20),
        ),
        (
            "findings",
            stuffed(
                decision,
                r##"{"type":"T#","action":"deny"}"##,
                "]}",
                1 << 20,
            ),
        ),
        ("runs", stuffed("[", starts, "]", 1 << 20)),
        ("usage", stuffed(usage, r##""k#":9e99"##, "}}", 1 << 20)),
    ];
    for (name, payload) in records {
        let before = counting::live_bytes();
        let limits = Limits {
            payload_bytes_max: 8 << 20,
            ..SMALL
        };
        let mut pipeline = pipeline(limits);
        let started = feed::cpu_nanos();
        read(&mut pipeline, P, 0, &payload);
        let took = Duration::from_nanos(feed::cpu_nanos() - started);
        let outcomes = &pipeline.totals().outcomes;
        assert_eq!(outcomes.applied, 1, "{name}: {:?}", pipeline.totals());
        assert!(took < Duration::from_secs(20), "{name}: {took:?}");
        release(&mut pipeline, P, 1);
        let bytes = counting::live_bytes() - before;
        assert!(bytes < 3 << 20, "{name}: {bytes} bytes");
    }
}

#[test]
fn what_is_too_big_or_too_deep_is_a_dead_letter_and_the_stream_goes_on() {
    let _alone = alone();
    let deep = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        let text = format!(
            r#"{{"v":1,"kind":"run.start","at":1772445600000,"invocation_id":"h","x":{open}{close}}}"#
        );
        text.into_bytes()
    };
    let sized = |bytes: usize| {
        let start = r#"{"v":1,"kind":"run.start","at":1772445600000,"invocation_id":"h","x":""#;
        let filled = "x".repeat(bytes - start.len() - 2);
        format!("{start}{filled}\"}}").into_bytes()
    };
    let max = Limits::OF_THE_CONTRACT.payload_bytes_max;
    let mut pipeline = pipeline(Limits::OF_THE_CONTRACT);
    let records = [
        (sized(max), None),
        (sized(max + 1), Some("too_large")),
        (deep(511), None),
        (deep(512), Some("too_deep")),
        (deep(100_000), Some("too_deep")),
        (deep(4_000_000), Some("too_deep")),
        (
            br#"{"v":1,"kind":"run.end","at":1772445600000,"invocation_id":"h"}"#.to_vec(),
            None,
        ),
    ];
    for (i, (payload, reason)) in records.into_iter().enumerate() {
        let letters = |pipeline: &Pipeline| {
            let totals = &pipeline.totals().dead_letters;
            totals
                .iter()
                .map(|(reason, n)| (reason.as_str(), *n))
                .collect::<BTreeMap<_, _>>()
        };
        let before = letters(&pipeline);
        read(&mut pipeline, P, i as u64, &payload);
        let mut expected = before;
        if let Some(reason) = reason {
            *expected.entry(reason).or_insert(0) += 1;
        }
        assert_eq!(letters(&pipeline), expected, "record {i}");
    }
    assert_eq!(reached(&pipeline, "payload_bytes_max"), 1);
}

#[test]
fn a_cut_id_is_found_again() {
    let _alone = alone();
    let mut pipeline = pipeline(Limits::OF_THE_CONTRACT);
    let shape = shapes::SHAPES.iter().find(|(name, _)| *name == "long ids");
    let (_, shape) = shape.expect("a stream of long ids");
    let mut facts = Vec::new();
    for i in 0..10 {
        facts.extend(read(&mut pipeline, P, i, &shape(i, 10)));
    }
    facts.extend(release(&mut pipeline, P, 10));
    let runs = facts.iter().filter_map(|fact| match &fact.body {
        FactBody::Invocation(f) => Some((f.records, f.own.model_call_count)),
        _ => None,
    });
    assert_eq!(runs.collect::<Vec<_>>(), [(10, 1)]);
}

#[test]
fn implausible_tokens_are_counted_once_a_call() {
    let _alone = alone();
    let mut pipeline = pipeline(Limits::OF_THE_CONTRACT);
    let usage = r#","usage":{"promptTokenCount":99999999999,"candidatesTokenCount":1}"#;
    for i in 0..3 {
        let end = shapes::lifecycle(i, "h", "model.end", &format!(r#","call_id":"c"{usage}"#));
        read(&mut pipeline, P, i, &end);
    }
    release(&mut pipeline, P, 3);
    assert_eq!(reached(&pipeline, "plausible_tokens_max"), 1);
}
