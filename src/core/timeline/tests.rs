//! What follows from a log, in text: one test per rule that money or an audit hangs on.

mod hooks;

use crate::core::fixture::{check, limits, rows};

#[test]
fn a_call_is_measured_from_its_records() {
    check(
        "0ms   i1 desk model.start c1 model=m streaming=true
         450ms i1 desk model.chunk c1 text
         1200ms i1 desk model.end  c1 in=40 out=33",
        "model_calls",
        "i1 /desk c1 ok by=model first=450 done=1200 in=40 out=33",
    );
}

#[test]
fn a_second_end_replaces_and_a_further_attempt_adds() {
    check(
        "0ms  i1 desk model.start c1 attempt=1
         10ms i1 desk model.end   c1 in=10 out=1
         20ms i1 desk model.end   c1 in=12 out=2
         30ms i1 desk model.start c1 attempt=2
         50ms i1 desk model.end   c1 in=5 out=1",
        "model_calls",
        "i1 /desk c1 ok by=model first=? done=20 in=17 out=3",
    );
}

#[test]
fn a_failed_call_without_content_misses_no_usage() {
    check(
        "0ms   i1 desk run.start
         1ms   i1 desk model.start c1 model=m
         400ms i1 desk model.error c1 code=429
         500ms i1 desk run.end error",
        "invocations",
        "i1 error 0..500 wall=500 calls=1 in=0 missing=0",
    );
}

#[test]
fn a_start_that_nothing_followed_is_no_call_in_a_run_that_ended_well() {
    check(
        "0ms  i1 -    run.start
         1ms  i1 desk model.start c1 model=m
         9ms  i1 -    run.end completed",
        "model_calls",
        "i1 /desk c1 incomplete by=unknown first=? done=? in=? out=? missing",
    );
}

#[test]
fn a_lost_record_makes_the_same_start_a_call() {
    check(
        "0ms  i1 -    run.start
         1ms  i1 desk model.start c1 model=m
         5ms  i1 -    emitter.gap dropped=2
         9ms  i1 -    run.end completed",
        "model_calls",
        "i1 /desk c1 incomplete by=model first=? done=? in=? out=? missing",
    );
}

#[test]
fn overlapping_calls_without_ids_are_flagged_and_none_is_dropped() {
    check(
        "0ms   i1 desk model.start _ model=m
         100ms i1 desk model.start _ model=m
         400ms i1 desk model.end   _ in=1 out=1
         900ms i1 desk model.end   _ in=2 out=2",
        "model_calls",
        "i1 /desk - ok by=model first=? done=400 in=1 out=1 #ambiguous_pairing
         i1 /desk - ok by=model first=? done=800 in=2 out=2 #ambiguous_pairing",
    );
}

#[test]
fn a_negative_duration_is_unknown() {
    let log = "250ms i1 desk model.start c1 model=m
               100ms i1 desk model.end c1 in=5 out=1";
    check(
        log,
        "model_calls",
        "i1 /desk c1 ok by=model first=? done=? in=5 out=1",
    );
    check(log, "anomalies", "i1 clock_skew model_call/c1");
}

#[test]
fn clocks_of_two_hosts_are_flagged() {
    check(
        "0s i1 desk model.start c1 instance=p1 mono_ns=900
         1s i1 desk model.end   c1 instance=p2 mono_ns=1900000900 in=5 out=1",
        "model_calls",
        "i1 /desk c1 ok by=model first=? done=1000 in=5 out=1 #cross_host_latency",
    );
}

#[test]
fn an_answer_of_a_hook_or_a_cache_is_no_call() {
    let log = "0ms i1 desk model.start c1 model=m
               5ms i1 desk model.end c1 cache in=700 out=80
               9ms i1 desk model.start c2 model=m
               9ms i1 desk model.end c2 hook";
    check(log, "model_calls", "");
    check(
        log,
        "local_answers",
        "i1 desk by=cache actor=? in=700 out=80
         i1 desk by=hook actor=? in=? out=? missing",
    );
}

#[test]
fn a_denied_call_that_ran_anyway_is_a_bypass() {
    let log = "0ms   i1 -    run.start
               100ms i1 -    guardrail.decision deny stage=run_input actor=screen
               200ms i1 desk model.start c1 model=m
               900ms i1 desk model.end c1 in=300 out=20
               950ms i1 -    run.end completed";
    check(
        log,
        "guardrail_decisions",
        "i1 run_input deny by=screen enforced=false prevented=false",
    );
    check(
        log,
        "anomalies",
        "i1 verdict_not_enforced guardrail_decision/0",
    );
}

#[test]
fn a_call_under_way_when_the_verdict_fell_is_no_bypass() {
    check(
        "0ms   i1 -    run.start
         10ms  i1 desk model.start c1 model=m
         900ms i1 -    guardrail.decision deny stage=run_input actor=screen
         950ms i1 desk model.end c1 in=300 out=20
         990ms i1 -    run.end intercepted",
        "guardrail_decisions",
        "i1 run_input deny by=screen enforced=true prevented=true",
    );
}

#[test]
fn a_deny_closes_the_start_that_it_names() {
    let log = "0ms  i1 -    run.start
               1ms  i1 desk model.start c1 model=m
               2ms  i1 desk guardrail.decision deny stage=model_input actor=guard target=c1
               9ms  i1 -    run.end completed";
    check(log, "model_calls", "");
    check(
        log,
        "local_answers",
        "i1 desk by=hook actor=guard in=? out=? missing",
    );
    check(
        log,
        "guardrail_decisions",
        "i1 model_input deny by=guard enforced=true prevented=true",
    );
}

#[test]
fn a_vetoed_tool_is_refused_and_did_not_run() {
    check(
        "0ms  i1 desk tool.start t1 payout measured=hook
         1ms  i1 desk guardrail.decision deny stage=tool_input actor=limit target=t1
         2ms  i1 desk tool.end t1 error error=tool_result",
        "tool_calls",
        "i1 payout t1#1 refused executed=no took=? waited=?",
    );
}

#[test]
fn an_invented_tool_is_an_error_that_did_not_run() {
    check(
        "5ms i1 desk tool.end t1 error tool=nosuch error=not_found",
        "tool_calls",
        "i1 nosuch t1#1 error executed=no took=? waited=?",
    );
}

#[test]
fn a_pause_is_waiting_and_the_next_run_another_segment() {
    let log = "0s  i1 -    run.start run_id=a
               1s  i1 desk tool.end t1 deferred tool=approve run_id=a
               2s  i1 -    run.end yielded run_id=a
               +3h
               10000s i1 - run.start run_id=b
               10001s i1 desk tool.end t1 ok tool=approve run_id=b
               10002s i1 - run.end completed run_id=b";
    check(
        log,
        "invocations",
        "i1 waiting 0..2000 wall=2000 calls=0 in=0 missing=0
         i1 completed 10000000..10002000 wall=2000 calls=0 in=0 missing=0",
    );
}

#[test]
fn a_run_that_goes_on_after_its_release_is_a_stretch_of_its_own() {
    let log = "0s    i1 -    run.start run_id=a
               1s    i1 desk model.end c1 in=100 out=10 run_id=a
               +1h
               3700s i1 desk model.end c2 in=7 out=1 run_id=a
               3701s i1 -    run.end completed run_id=a";
    check(
        log,
        "invocations",
        "i1 incomplete 0..? wall=? calls=1 in=100 missing=0
         i1 completed 3700000..3701000 wall=? calls=1 in=7 missing=0 #start_unseen",
    );
}

#[test]
fn silence_closes_what_never_ended() {
    check(
        "0s i1 -    run.start
         1s i1 desk model.start c1 model=m
         +1h",
        "invocations",
        "i1 incomplete 0..? wall=? calls=1 in=? missing=1",
    );
}

#[test]
fn a_late_start_amends_the_ended_run() {
    check(
        "3000ms i1 desk model.end c1 in=100 out=10
         3100ms i1 -    run.end completed
         0ms    i1 -    run.start
         1000ms i1 desk model.start c1 model=m",
        "invocations",
        "i1 completed 0..3100 wall=3100 calls=1 in=100 missing=0",
    );
}

#[test]
fn a_redelivered_record_counts_once() {
    check(
        "0ms  i1 desk model.start c1 record_id=a
         10ms i1 desk model.end c1 in=7 out=1 record_id=b
         10ms i1 desk model.end c1 in=9 out=1 record_id=b",
        "model_calls",
        "i1 /desk c1 ok by=model first=? done=10 in=7 out=1",
    );
}

#[test]
fn a_child_inside_one_open_tool_call_is_linked() {
    let log = "0s i1 -    run.start app=shop
               1s i1 desk tool.start t1 researcher app=shop
               2s i2 -    run.start app=researcher
               3s i2 -    run.end completed app=researcher
               4s i1 desk tool.end t1 ok app=shop";
    let facts = rows(log, limits());
    let child = facts.iter().find_map(|fact| match &fact.body {
        crate::core::fact::FactBody::Invocation(f) if &*fact.invocation_id == "i2" => Some(f),
        _ => None,
    });
    let link = child
        .and_then(|child| child.parent.clone())
        .expect("linked");
    assert_eq!(link.invocation_id.as_deref(), Some("i1"));
    assert_eq!(link.call_id.as_deref(), Some("t1"));
    assert_eq!(link.basis.as_str(), "inferred");
}

#[test]
fn branches_fork_join_and_wait() {
    check(
        "0s i1 fan           run.start
         0s i1 fan           agent.start
         1s i1 fan.a/a       model.start c1 model=m
         3s i1 fan.a/a       model.end c1 in=1 out=1
         4s i1 fan.a/a       agent.end completed
         5s i1 fan           agent.end completed
         6s i1 fan           run.end completed",
        "branches",
        "i1 \"\"#0 parent=\"-\" took=6000 own=0 waited=6000
         i1 \"fan\"#0 parent=\"\" took=? own=? waited=?
         i1 \"fan.a\"#0 parent=\"fan\" took=3000 own=2000 waited=1000",
    );
}

#[test]
fn records_of_an_agent_in_any_order_are_one_pass() {
    let lines = [
        "0s i1 - run.start",
        "1s i1 desk agent.start",
        "2s i1 desk model.start c1 model=m",
        "3s i1 desk model.end c1 in=1 out=1",
        "4s i1 desk agent.end completed",
    ];
    for order in [[0, 4, 1, 2, 3], [0, 3, 4, 2, 1], [0, 1, 4, 3, 2]] {
        let log = order.map(|line| lines[line]).join("\n");
        let passes = "i1 /desk#0 completed took=3000 calls=1";
        check(&log, "agent_runs", passes);
    }
}

#[test]
fn a_late_error_of_an_agent_is_of_the_pass_that_failed() {
    let log = "0s i1 - run.start
               1s i1 desk agent.start
               4s i1 desk agent.start
               2s i1 desk agent.error code=boom
               9s i1 desk agent.end completed
               9s i1 - run.end completed";
    check(
        log,
        "agent_runs",
        "i1 /desk#0 error took=? calls=0
         i1 /desk#1 completed took=5000 calls=0",
    );
}

#[test]
fn a_deny_that_comes_before_the_start_it_names_closes_it() {
    let (start, deny) = (
        "1s i1 desk model.start c1 model=m",
        "2s i1 desk guardrail.decision deny stage=model_input target=c1 actor=screen",
    );
    for (first, second) in [(start, deny), (deny, start)] {
        let log = format!("0s i1 - run.start\n{first}\n{second}\n3s i1 - run.end completed");
        check(&log, "model_calls", "");
        let answer = "i1 desk by=hook actor=screen in=? out=? missing";
        check(&log, "local_answers", answer);
    }
}

#[test]
fn of_two_ends_the_one_made_later_holds_in_either_order() {
    let (earlier, later) = (
        "2s i1 desk model.end c1 in=10 out=1 finish_reason=STOP",
        "3s i1 desk model.end c1 in=12 out=2 model=m",
    );
    for (first, second) in [(earlier, later), (later, earlier)] {
        let log = format!("1s i1 desk model.start c1 model=m\n{first}\n{second}");
        let call = "i1 /desk c1 ok by=model first=? done=2000 in=12 out=2";
        check(&log, "model_calls", call);
    }
}

#[test]
fn a_step_of_the_wall_clock_moves_no_duration() {
    // The wall clock falls back by an hour between the two records of the call.
    let log = "7200s i1 -             run.start                          mono_ns=1000000000
               7201s i1 fan.alpha/a   agent.start                        mono_ns=2000000000
               7202s i1 fan.alpha/a   model.start c1 model=m             mono_ns=3000000000
               3605s i1 fan.alpha/a   model.end c1 in=1 out=1            mono_ns=6000000000
               3606s i1 fan.alpha/a   agent.end completed                mono_ns=7000000000
               3607s i1 -             run.end completed                  mono_ns=8000000000";
    check(
        log,
        "branches",
        r##"i1 ""#0 parent="-" took=7000 own=0 waited=7000
            i1 "fan"#0 parent="" took=? own=? waited=?
            i1 "fan.alpha"#0 parent="fan" took=5000 own=3000 waited=2000"##,
    );
    check(
        log,
        "agent_runs",
        "i1 fan.alpha/a#0 completed took=5000 calls=1",
    );
    check(log, "anomalies", "");
}

#[test]
fn passes_of_one_agent_are_told_apart() {
    check(
        "0s i1 writer agent.start
         1s i1 writer agent.end completed
         2s i1 writer agent.start
         5s i1 writer agent.end error",
        "agent_runs",
        "i1 /writer#0 completed took=1000 calls=0
         i1 /writer#1 error took=3000 calls=0",
    );
}

#[test]
fn a_run_beyond_its_limits_folds_and_says_so() {
    let tight = crate::core::Limits {
        calls_per_run_max: 2,
        ..limits()
    };
    let log = "0s i1 desk model.end c1 in=1 out=1
               1s i1 desk model.end c2 in=1 out=1
               2s i1 desk model.end c3 in=1 out=1
               3s i1 desk model.end c4 in=1 out=1";
    let calls = rows(log, tight)
        .into_iter()
        .filter(|fact| fact.body.table().as_str() == "model_calls")
        .count();
    assert_eq!(calls, 3);
}

#[test]
fn an_end_whose_start_never_came_is_an_orphan() {
    let log = "0s i1 desk model.end c1 in=1 out=1
               +1h";
    check(log, "anomalies", "i1 orphan_end model_call/c1");
}

#[test]
fn a_producer_that_lost_records_says_so_for_its_runs() {
    let log = "0s i1 desk model.start c1 model=m
               1s -  -    emitter.gap dropped=2";
    check(log, "anomalies", "i1 producer_gap emitter/p1");
}

#[test]
fn ten_attempts_are_the_cap() {
    let log: String = (1..=10)
        .map(|attempt| {
            format!(
                "{attempt}s i1 desk model.start c1 attempt={attempt}
                 {attempt}s i1 desk model.error c1 attempt={attempt} code=503
                 "
            )
        })
        .collect();
    check(&log, "anomalies", "i1 retry_cap model_call/c1");
}

#[test]
fn a_record_that_fits_two_tenants_stands_apart() {
    let log = "0s i1 desk model.end c1 in=1 out=1 tenant=a
               1s i1 desk model.end c1 in=2 out=1 tenant=b
               2s i1 desk model.end c2 in=4 out=1";
    let flagged = rows(log, limits())
        .iter()
        .filter(|fact| fact.body.table().as_str() == "invocations")
        .filter(|fact| match &fact.body {
            crate::core::fact::FactBody::Invocation(f) => f
                .flags
                .iter()
                .any(|flag| flag.as_str() == "split_invocation"),
            _ => false,
        })
        .count();
    assert_eq!(flagged, 1);
    check(log, "anomalies", "i1 split_invocation invocation");
}

#[test]
fn a_partition_that_holds_too_much_lets_go_of_the_oldest() {
    let tight = crate::core::Limits {
        segments_open_max: 1,
        ..limits()
    };
    let log = "0s i1 desk model.end c1 in=1 out=1
               1s i2 desk model.end c1 in=1 out=1";
    let kinds: Vec<String> = rows(log, tight)
        .iter()
        .filter_map(|fact| match &fact.body {
            crate::core::fact::FactBody::Anomaly(f) => Some(f.kind.as_str().to_owned()),
            _ => None,
        })
        .collect();
    assert!(kinds.contains(&"limit_reached".to_owned()), "{kinds:?}");
}

#[test]
fn an_answer_before_silence_is_an_inferred_completion() {
    // `run.end` that knows no status, after a native answer: completed_inferred.
    let log = "0s i1 desk event author=desk text=hello
               1s i1 -    run.end unknown";
    check(
        log,
        "invocations",
        "i1 completed_inferred 0..1000 wall=? calls=1 in=9 missing=0",
    );
}

#[test]
fn an_answer_is_not_of_the_call_that_failed_before() {
    let log = "0ms  i1 desk model.start c1 model=m
               10ms i1 desk model.error c1 code=503
               20ms i1 desk model.start c2 model=m
               30ms i1 desk model.end   c2 in=9 out=2
               31ms i1 desk event author=desk text=hello";
    check(
        log,
        "model_calls",
        "i1 /desk c1 error by=model first=? done=10 in=? out=? missing
         i1 /desk c2 ok by=model first=? done=10 in=9 out=2",
    );
}

#[test]
fn an_event_older_than_the_end_of_a_run_is_of_that_run() {
    let log = "0ms  i1 -    run.start run_id=r1
               10ms i1 desk model.start c1 model=m run_id=r1
               20ms i1 desk model.end   c1 in=9 out=2 run_id=r1
               30ms i1 -    run.end completed run_id=r1
               40ms i1 -    run.start run_id=r2
               25ms i1 desk event author=desk text=hello
               50ms i1 -    run.end completed run_id=r2";
    check(
        log,
        "model_calls",
        "i1 /desk c1 ok by=model first=? done=10 in=9 out=2",
    );
}

#[test]
fn an_answer_from_a_cache_takes_back_the_call_that_its_event_was() {
    let log = "0ms  i1 desk model.start c1 model=m
               10ms i1 desk event author=desk text=hello
               11ms i1 desk model.end c1 served_by=cache";
    // The row went out before, so it stays, of unknown origin and without usage.
    check(
        log,
        "model_calls",
        "i1 /desk c1 ok by=unknown first=? done=? in=? out=? missing",
    );
    check(log, "local_answers", "i1 desk by=cache actor=? in=9 out=2");
}

#[test]
fn a_providers_verdict_stays_one_row_when_records_name_its_call() {
    let log = "2ms  i1 desk event author=desk finishReason=SAFETY
               1ms  i1 desk model.start c1 model=m
               3ms  i1 desk model.end   c1 in=9 out=2 provider=p finish_reason=SAFETY
               9ms  i1 -    run.end completed";
    check(
        log,
        "guardrail_decisions",
        "i1 model_output deny by=? enforced=true prevented=false",
    );
}

#[test]
fn a_start_told_after_the_end_turns_what_was_enforced() {
    let log = "1s i1 desk guardrail.decision deny stage=tool_input actor=cap target=t1
               3s i1 desk tool.end t1 ok tool=pay
               2s i1 desk tool.start t1 pay";
    check(
        log,
        "guardrail_decisions",
        "i1 tool_input deny by=cap enforced=false prevented=false",
    );
    check(
        log,
        "anomalies",
        "i1 verdict_not_enforced guardrail_decision/0",
    );
}

#[test]
fn a_retry_of_one_attempt_is_told_once_and_another_failure_apart() {
    let log = "1s i1 desk recovery.decision retry phase=render attempt=1 handler=h
               2s i1 desk recovery.decision throw phase=render attempt=1 handler=h
               3s i1 desk recovery.decision retry phase=tool attempt=1 handler=h call_id=t1
               4s i1 desk recovery.decision skip phase=tool attempt=1 handler=h call_id=t1";
    check(
        log,
        "recovery_decisions",
        "i1 render ? retry
         i1 render r0//desk/1 throw
         i1 tool t1 skip",
    );
}
