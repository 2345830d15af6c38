//! What people read: rows and views, under careless settings too.

use serde_json::{Value, json};
use tachograph::core::event::Stage;
use tachograph::core::fact::{Executed, Fact, FactBody, GuardrailFact, Status, Table, ToolStatus};
use tachograph::core::usage::TokenUsage;
use tachograph::core::{EventTime, LogTime, Nanos};

use super::facts::{
    TEN, at, call, child_of, fact, invocation, ms, name, one_of_each, tool_call, usage, verdict,
    with_usage,
};
use super::support::engine::Database;
use super::{DAY_MS, cell, prepared};

const TWIN: &str = "from = '2026-01-01 00:00:00', to = '2027-01-01 00:00:00'";
/// What a careless session could set.
const HOSTILE: &str = "do_not_merge_across_partitions_select_final = 1, join_use_nulls = 1, \
     optimize_move_to_prewhere_if_final = 1, aggregate_functions_null_for_empty = 1, \
     prefer_column_name_to_alias = 1";

#[test]
fn one_fact_of_each_table_reads_back_with_values_and_nulls() {
    let (database, mut rig) = prepared("each");
    rig.settle(one_of_each());
    for table in Table::ALL {
        let count = format!("SELECT count() FROM {}", table.as_str());
        assert_eq!(cell(&database, &count), "1", "{}", table.as_str());
        assert_eq!(rig.health().rows_inserted[&table], 1);
    }
    let rows = database.json("SELECT * FROM v_model_calls");
    let expected = json!({
        "tenant": "acme", "invocation_id": "i1", "session_id": "s1", "user_key": "",
        "segment": "g1", "segment_logged_at": "2026-03-02 10:00:00.000000000",
        "first_topic": "agent-events", "first_partition": 3, "first_offset": "10",
        "last_offset": "20", "version": "1", "schema_version": 1, "call_key": "c1",
        "branch": "fan.alpha", "model": "gemini-2.5-flash", "requested_model": "",
        "attempts": 2, "attempt_errors": {"429": "1"}, "streaming": true,
        "first_chunk_at": "2026-03-02 10:00:00.550000000",
        "billed_at": "2026-03-02 10:00:01.300000000", "ttfc_ms": "450",
        "ttft_visible_ms": null, "completion_ms": "1200.000001", "chunks": "7",
        "usage_state": "reported", "input_total": "40", "cache_read": null, "unattributed": null,
        "cost_usd": null, "provider_cost_usd": null, "cost_is_lower_bound": false,
        "sources": ["lifecycle", "adk"], "flags": ["model_differs", "late"], "event_id": "ev1",
    });
    assert_has(&rows[0], &expected);
    let rows = database.json("SELECT * FROM invocations");
    let expected = json!({"attributes": {"cost_centre": "42"}, "wall_ms": "3000",
        "own_input_total": null, "parent_basis": "", "trigger": "message"});
    assert_has(&rows[0], &expected);
    let rows = database.json("SELECT * FROM branches");
    assert_has(
        &rows[0],
        &json!({"own_ms": "7", "waiting_ms": null, "own_input_total": "40"}),
    );
    let rows = database.json("SELECT * FROM local_answers");
    assert_has(
        &rows[0],
        &json!({"order": 4, "served_by": "cache", "replayed_input_total": "9"}),
    );
    let rows = database.json("SELECT * FROM v_guardrail_audit");
    let expected = json!({"findings": {"warn": "2", "deny": "1"}, "entity_types": ["EMAIL"],
        "enforced": false, "bypassed": true, "content_already_delivered": null,
        "followed_by": "tool_call", "followed_name": "lookup", "followed_status": "ok",
        "followed_executed": "yes", "last_offset": "20", "duration_ms": "5"});
    assert_has(&rows[0], &expected);
    let rows = database.json("SELECT kind, label FROM v_timeline ORDER BY started_at");
    let lanes: Vec<&Value> = rows.iter().map(|row| &row["kind"]).collect();
    assert_eq!(lanes, ["model", "verdict", "tool"]);
}

/// Every key of `expected` is in `row` with that value.
fn assert_has(row: &Value, expected: &Value) {
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&row[key], value, "{key} of {row}");
    }
}

/// What every view and twin says, as text, asked from another database.
fn all_views(database: &Database, settings: &str) -> Vec<String> {
    let views = [
        "v_invocations",
        "v_model_calls",
        "v_tool_calls",
        "v_usage_daily",
        "v_timeline",
        "v_guardrail_audit",
        "v_unmetered",
    ];
    let read = |from: &str| database.query(&format!("SELECT * FROM {from} ORDER BY ALL{settings}"));
    views
        .iter()
        .map(|view| {
            let zone = if *view == "v_usage_daily" {
                ", tz = 'UTC'"
            } else {
                ""
            };
            let plain = read(view);
            assert_eq!(
                plain,
                read(&format!("{view}_between({TWIN}{zone})")),
                "{view}"
            );
            plain
        })
        .collect()
}

#[test]
fn repeats_change_no_view_and_only_a_higher_version_wins() {
    let (database, mut rig) = prepared("repeats");
    rig.settle(one_of_each());
    let once = all_views(&database, "");
    rig.settle(one_of_each());
    rig.settle(one_of_each());
    assert_eq!(all_views(&database, ""), once);
    assert_eq!(all_views(&database, &format!(" SETTINGS {HOSTILE}")), once);
    let amended = |version, input| {
        call("c1", |fact| {
            fact.version = version;
            with_usage(fact, usage(input, 1));
        })
    };
    let seen = "SELECT count(), sum(input_total), max(version) FROM v_model_calls";
    for (version, input, expected) in [
        (1 << 40, 50, "1\t50\t1099511627776"),
        (7, 60, "1\t50\t1099511627776"),
        (u64::MAX, 70, "1\t70\t18446744073709551615"),
    ] {
        rig.settle(vec![amended(version, input)]);
        assert_eq!(cell(&database, seen), expected);
    }
    database.query("OPTIMIZE TABLE model_calls FINAL");
    assert_eq!(cell(&database, seen), "1\t70\t18446744073709551615");
}

/// CLK-11: two versions of one row, far apart in event time, and in two partitions even.
#[test]
fn an_amended_row_is_one_row_and_filters_come_after_collapsing() {
    let (database, mut rig) = prepared("amended");
    let version = |version: u64, billed: i64, logged: i64, input| {
        call("c1", |fact| {
            fact.version = version;
            fact.segment_logged_at = LogTime(TEN * 1_000 + logged);
            with_usage(fact, usage(input, 1));
            if let FactBody::ModelCall(body) = &mut fact.body {
                body.billed_at = at(billed);
            }
        })
    };
    rig.settle(vec![version(1, 0, 0, 100)]);
    rig.settle(vec![version(2, 30 * DAY_MS, 30 * DAY_MS, 90)]);
    for settings in ["", &format!(" SETTINGS {HOSTILE}")] {
        let all = "SELECT count(), sum(input_total) FROM v_model_calls";
        assert_eq!(cell(&database, &format!("{all}{settings}")), "1\t90");
        let march = format!("{all} WHERE billed_at < '2026-03-20 00:00:00'{settings}");
        assert_eq!(cell(&database, &march), "0\t\\N");
        let daily = format!("SELECT day, input_total FROM v_usage_daily{settings}");
        assert_eq!(cell(&database, &daily), "2026-04-01\t90");
    }
    let narrow = "SELECT count() FROM v_model_calls_between(\
         from = '2026-04-01 00:00:00', to = '2026-04-02 00:00:00')";
    assert_eq!(cell(&database, narrow), "1");
    let plan = database.query(&format!("EXPLAIN indexes = 1 {narrow}"));
    assert!(
        plan.contains("Parts: 1 |"),
        "one of two partitions is read: {plan}"
    );
}

/// CLK-09.
#[test]
fn money_is_exact_and_does_not_wrap() {
    let (database, mut rig) = prepared("money");
    let priced = |n: usize| {
        call(&format!("c{n}"), |fact| {
            let mut usage = usage(1, 0);
            usage.provider_cost = Some("7.5e-08".into());
            with_usage(fact, usage);
        })
    };
    rig.settle((0..2_500).map(priced).collect());
    let sum = "SELECT sum(provider_cost_usd), any(provider_cost_usd) FROM v_model_calls";
    assert_eq!(cell(&database, sum), "0.0001875\t0.000000075");
    let most = "99999999999999999999999999.999999999999";
    database.query(&format!(
        "INSERT INTO model_calls (invocation_id, call_key, served_by, usage_state, cost_usd, \
         billed_at, segment_logged_at, version) SELECT 'rich', toString(number), 'model', \
         'reported', toDecimal128('{most}', 12), '2026-05-05 00:00:00', '2026-05-05 00:00:00', 1 \
         FROM numbers(4)"
    ));
    let sum = "SELECT cost_usd FROM v_usage_daily WHERE day = '2026-05-05'";
    assert_eq!(
        cell(&database, sum),
        "399999999999999999999999999.999999999996"
    );
    let sum = "SELECT own_cost_usd FROM v_invocations WHERE invocation_id = 'rich'";
    assert_eq!(database.query(sum), "", "no invocation row, no invocation");
}

/// BIL-01, and USG-02 in the view.
#[test]
fn a_day_is_that_of_the_zone_asked_for_and_says_whether_it_is_complete() {
    let (database, mut rig) = prepared("days");
    let billed = |key: &str, seconds: i64, usage: TokenUsage| {
        call(key, |fact| {
            let is_unmetered = usage.input_total.is_none();
            with_usage(fact, usage);
            if let FactBody::ModelCall(body) = &mut fact.body {
                body.is_unmetered = is_unmetered;
                body.billed_at = EventTime(seconds * 1_000_000_000);
            }
        })
    };
    rig.settle(vec![
        billed("a", 1_772_494_140, usage(100, 0)),
        billed("b", 1_772_497_800, usage(10, 0)),
        billed("c", 1_772_524_800, usage(1, 0)),
        billed("d", 1_772_524_801, TokenUsage::default()),
    ]);
    for (zone, expected) in [
        ("UTC", "2026-03-02\t100\ttrue\n2026-03-03\t11\tfalse"),
        (
            "America/Los_Angeles",
            "2026-03-02\t110\ttrue\n2026-03-03\t1\tfalse",
        ),
        ("Asia/Tokyo", "2026-03-03\t111\tfalse"),
    ] {
        let daily = format!(
            "SELECT day, sum(input_total), min(complete) FROM \
             v_usage_daily_between({TWIN}, tz = '{zone}') GROUP BY day ORDER BY day"
        );
        assert_eq!(cell(&database, &daily), expected, "{zone}");
    }
    let missing = database.json("SELECT call_key, reason, input_total FROM v_unmetered");
    let expected = json!({"call_key": "d", "reason": "usage_missing", "input_total": null});
    assert_eq!(missing, [expected]);
}

/// Three segments of `i1` (waiting, resumed, headless) with a call that is answered later, and a
/// child.
fn two_invocations() -> Vec<Fact> {
    let first = LogTime(TEN * 1_000);
    let later = LogTime(first.0 + 2 * DAY_MS);
    let last = LogTime(first.0 + 4 * DAY_MS);
    let in_segment = |id: &str, logged_at: LogTime, body: FactBody| {
        let mut fact = fact(body);
        fact.segment = name(id);
        fact.segment_logged_at = logged_at;
        fact
    };
    let mut waiting = invocation();
    (waiting.status, waiting.ended_at) = (Status::Waiting, Some(at(2_000)));
    waiting.wall = Some(ms(2_000));
    let mut resumed = invocation();
    resumed.root_agent = None;
    resumed.started_at = Some(at(2 * DAY_MS));
    resumed.ended_at = Some(EventTime(at(2 * DAY_MS + 500).0 + 1));
    resumed.wall = Some(Nanos(500_000_001));
    let mut headless = invocation();
    (headless.headless, headless.status) = (true, Status::Incomplete);
    (headless.started_at, headless.ended_at) = (Some(at(-5_000)), None);
    let mut deferred = tool_call();
    (deferred.status, deferred.executed) = (ToolStatus::Deferred, Executed::No);
    (deferred.ended_at, deferred.duration) = (None, None);
    deferred.long_running = true;
    let mut answered = deferred.clone();
    (answered.status, answered.started_at) = (ToolStatus::Ok, None);
    answered.ended_at = Some(at(2 * DAY_MS));
    let mut child = invocation();
    child.parent = Some(child_of("i1"));
    let segment = |body| FactBody::Invocation(Box::new(body));
    let tool = |body| FactBody::ToolCall(Box::new(body));
    let mut late = call("late", |fact| with_usage(fact, usage(2, 1)));
    (late.segment, late.segment_logged_at) = (name("g3"), last);
    let mut facts = vec![
        in_segment("g1", first, segment(waiting)),
        in_segment("g2", later, segment(resumed)),
        in_segment("g3", last, segment(headless)),
        in_segment("g1", first, tool(deferred)),
        in_segment("g2", later, tool(answered)),
        call("c1", |fact| with_usage(fact, usage(40, 33))),
        late,
    ];
    for mut fact in [
        in_segment("k", first, segment(child)),
        call("c1", |fact| with_usage(fact, usage(100, 10))),
    ] {
        fact.invocation_id = name("kid");
        facts.push(fact);
    }
    facts
}

#[test]
fn segments_fold_into_the_invocation() {
    let (database, mut rig) = prepared("fold");
    rig.settle(two_invocations());
    let rows = database.json("SELECT * FROM v_invocations ORDER BY invocation_id");
    let expected = json!({
        "invocation_id": "i1", "status": "completed", "segments": "2", "last_segment": "g2",
        "started_at": "2026-03-02 10:00:00.000000000",
        "ended_at": "2026-03-04 10:00:00.500000001", "root_agent": "root",
        "wall_ms": "172800500.000001", "active_ms": "2500.000001", "wait_ms": "172798000",
        "own_model_call_count": "2", "own_input_total": "42", "own_output_total": "34",
        "own_usage_complete": true, "own_cost_usd": null, "own_cost_is_lower_bound": true,
        "descendant_count": "1", "with_descendants_input_total": "142",
        "with_descendants_model_call_count": "3", "tool_call_count": "1",
        "local_answer_count": "0",
    });
    assert_has(&rows[0], &expected);
    let expected = json!({"invocation_id": "kid", "parent_invocation_id": "i1",
        "parent_basis": "declared", "own_input_total": "100", "descendant_count": "0",
        "wait_ms": "0", "segments": "1"});
    assert_has(&rows[1], &expected);
    let rows = database.json("SELECT * FROM v_tool_calls");
    let expected = json!({"segments": "2", "status": "ok", "segment": "g2", "first_segment": "g1",
        "started_at": "2026-03-02 10:00:01.400000000", "wait_ms": "172798600",
        "duration_ms": null, "long_running": true});
    assert_has(&rows[0], &expected);
    let waits = "SELECT started_at, duration_ms FROM v_timeline WHERE kind = 'wait'";
    assert_eq!(
        cell(&database, waits),
        "2026-03-02 10:00:02.000000000\t172798000"
    );
    let plain = all_views(&database, "");
    assert_eq!(all_views(&database, &format!(" SETTINGS {HOSTILE}")), plain);
}

#[test]
fn an_invocation_without_calls_costs_nothing_and_one_alone_is_headless() {
    let (database, mut rig) = prepared("alone");
    let mut alone = invocation();
    (alone.headless, alone.status) = (true, Status::Incomplete);
    rig.settle(vec![fact(FactBody::Invocation(Box::new(alone)))]);
    let rows = database.json("SELECT * FROM v_invocations");
    let expected = json!({"status": "incomplete", "segments": "1", "own_input_total": "0",
        "own_cost_usd": "0", "own_usage_complete": true, "own_cost_is_lower_bound": false});
    assert_has(&rows[0], &expected);
}

/// CLK-06, the column's side.
#[test]
fn instants_outside_the_column_are_kept_clamped_and_flagged() {
    let (database, mut rig) = prepared("clocks");
    let clock = |key: &str, nanos: i64| {
        call(key, |fact| {
            if let FactBody::ModelCall(body) = &mut fact.body {
                body.started_at = Some(EventTime(nanos));
                body.billed_at = EventTime(nanos);
            }
        })
    };
    rig.settle(vec![
        clock("past", i64::MIN),
        clock("future", i64::MAX),
        clock("zero", 0),
    ]);
    let select = "SELECT call_key, billed_at, has(flags, 'invalid_event_time') FROM \
         v_model_calls ORDER BY call_key";
    assert_eq!(
        cell(&database, select),
        "future\t2262-04-11 00:00:00.000000000\t1\n\
         past\t1900-01-01 00:00:00.000000000\t1\n\
         zero\t1970-01-01 00:00:00.000000000\t0"
    );
    let all = all_rows(&database);
    assert_eq!((all.as_str(), rig.health().failures.len()), ("3", 0));
}

fn all_rows(database: &Database) -> String {
    cell(database, "SELECT sum(calls) FROM v_usage_daily")
}

#[test]
fn verdicts_about_one_thing_in_two_stages_are_two_rows() {
    let (database, mut rig) = prepared("verdicts");
    let mut second = verdict();
    second.order = 1;
    second.enforced = None;
    let as_fact = |body| fact(FactBody::GuardrailDecision(Box::new(body)));
    rig.settle(vec![as_fact(verdict()), as_fact(second)]);
    let select = "SELECT enforced, bypassed FROM v_guardrail_audit ORDER BY `order`";
    assert_eq!(cell(&database, select), "false\ttrue\n\\N\tfalse");
}

#[test]
fn the_audit_tells_what_followed_a_verdict_that_named_no_call() {
    let (database, mut rig) = prepared("followed");
    let mut of_run = verdict();
    of_run.order = 1;
    of_run.stage = Stage::RunInput;
    (of_run.target_kind, of_run.target_call_id) = (None, None);
    (of_run.followed_kind, of_run.followed_key) = (Some("model"), Some(name("c1")));
    let mut failed_open = verdict();
    failed_open.order = 2;
    (failed_open.decision, failed_open.enforced) = (None, None);
    failed_open.outcome = Some(name("failed_open"));
    let of_nothing = GuardrailFact {
        order: 3,
        enforced: Some(true),
        followed_kind: None,
        followed_key: None,
        ..of_run.clone()
    };
    let mut facts = one_of_each();
    facts.extend(
        [of_run, failed_open, of_nothing]
            .map(|body| fact(FactBody::GuardrailDecision(Box::new(body)))),
    );
    rig.settle(facts);
    let select = "SELECT decision, enforced, bypassed, followed_by, followed_name, \
         followed_status, first_topic, first_partition, first_offset \
         FROM v_guardrail_audit WHERE `order` > 0 ORDER BY `order`";
    assert_eq!(
        cell(&database, select),
        "deny\tfalse\ttrue\tmodel_call\tgemini-2.5-flash\tok\tagent-events\t3\t10\n\
         \t\\N\tfalse\ttool_call\tlookup\tok\tagent-events\t3\t10\n\
         deny\ttrue\tfalse\t\t\t\tagent-events\t3\t10"
    );
}
