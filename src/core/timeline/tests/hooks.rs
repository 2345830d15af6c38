//! What the outcomes of hooks prove of calls, in text.

use crate::core::fixture::check;

/// The fixtures' 0 ms.
const EPOCH_NS: i64 = 1_772_445_600_000_000_000;

#[test]
fn a_meter_behind_a_redactor_is_starved_and_its_call_unmetered() {
    let log = "0ms   i1 -    run.start
               1ms   i1 desk model.start c1 model=m
               800ms i1 desk hook.outcome after_model call_id=c1 returned=value actor=redactor
               900ms i1 -    run.end completed";
    check(
        log,
        "model_calls",
        "i1 /desk c1 incomplete by=model first=? done=? in=? out=? missing",
    );
    check(
        log,
        "anomalies",
        "i1 starved_meter model_call/c1 (redactor)
         i1 unmetered_call model_call/c1 (starved/redactor)",
    );
}

#[test]
fn a_meter_that_told_the_end_is_not_starved_by_a_later_hook() {
    for end in ["700ms", "950ms"] {
        let log = format!(
            "0ms   i1 -    run.start
             1ms   i1 desk model.start c1 model=m
             800ms i1 desk hook.outcome after_model call_id=c1 returned=value actor=redactor
             900ms i1 -    run.end completed
             {end} i1 desk model.end c1 in=5 out=1"
        );
        let calls = "i1 /desk c1 ok by=model first=? done=DONE in=5 out=1";
        let done = if end == "700ms" { "699" } else { "949" };
        check(&log, "model_calls", &calls.replace("DONE", done));
    }
    let told_before = "0ms   i1 -    run.start
                       1ms   i1 desk model.start c1 model=m
                       700ms i1 desk model.end c1 in=5 out=1
                       800ms i1 desk hook.outcome after_model call_id=c1 returned=value actor=r
                       900ms i1 -    run.end completed";
    check(told_before, "anomalies", "");
}

#[test]
fn a_redaction_that_is_declared_starves_a_meter_as_well() {
    let log = "0ms   i1 -    run.start
               1ms   i1 desk model.start c1 model=m
               800ms i1 desk guardrail.decision modify stage=model_output actor=r actor_type=plugin
               900ms i1 -    run.end completed";
    check(
        log,
        "anomalies",
        "i1 starved_meter model_call/c1 (r)
         i1 unmetered_call model_call/c1 (starved/r)",
    );
}

#[test]
fn a_broken_stream_is_named_as_the_cause() {
    let log = "0ms   i1 -    run.start
               1ms   i1 desk model.start c1 model=m
               100ms i1 desk model.chunk c1 text
               200ms i1 desk model.error c1 code=503
               900ms i1 -    run.end error";
    check(
        log,
        "anomalies",
        "i1 unmetered_call model_call/c1 (stream_broken/503)",
    );
}

#[test]
fn of_two_edits_at_one_hook_point_the_later_is_lost() {
    let edits = "800ms i1 desk hook.outcome after_model call_id=c1 returned=value actor=masker
                 790ms i1 desk hook.outcome after_model call_id=c1 returned=value actor=redactor";
    let log = |runtime: &str, start: &str| {
        format!(
            "0ms i1 - run.start runtime={runtime}
             1ms i1 desk model.start c1 model=m {start}
             {edits}"
        )
    };
    let lost = "i1 edit_lost model_call/c1 (masker)";
    check(&log("adk-java", ""), "anomalies", lost);
    // The after-hooks of Anima are piped; those of a stream run for each chunk.
    check(&log("anima", ""), "anomalies", "");
    check(&log("adk-java", "streaming=true"), "anomalies", "");
}

#[test]
fn two_answers_before_a_model_are_one_local_answer() {
    let log = "1ms i1 desk model.start c1 model=m
               5ms i1 desk hook.outcome before_model call_id=c1 returned=value actor=cache
               6ms i1 desk hook.outcome before_model call_id=c1 returned=value actor=screen";
    check(
        log,
        "local_answers",
        "i1 desk by=hook actor=cache in=? out=? missing",
    );
    check(log, "anomalies", "i1 edit_lost model_call/c1 (screen)");
}

#[test]
fn a_start_of_another_call_is_a_timer_that_nobody_stopped() {
    let start = EPOCH_NS;
    let log = format!(
        "0ms    i1 desk model.start c1 model=m
         5ms    i1 desk hook.outcome before_model call_id=c1 returned=value actor=cache
         3000ms i1 desk model.start c2 model=m
         3400ms i1 desk model.end c2 in=5 out=1 started_at={start}"
    );
    check(
        &log,
        "model_calls",
        "i1 /desk c2 ok by=model first=? done=400 in=5 out=1",
    );
    check(&log, "anomalies", "i1 leaked_timer model_call/c2");
}

#[test]
fn a_tool_that_never_ended_in_a_run_that_did_leaks_its_timer() {
    let log = |end: &str| {
        format!(
            "0ms i1 -    run.start
             1ms i1 desk tool.start t1 tool=refund
             9ms i1 -    run.end {end}
             +3h"
        )
    };
    let leaked = "i1 leaked_timer tool_call/t1";
    check(&log("completed"), "anomalies", leaked);
    check(&log("cancelled"), "anomalies", "");
    check(&log("yielded"), "anomalies", "");
}

#[test]
fn a_hook_that_failed_is_no_failure_of_a_model() {
    let log = "0s i1 desk hook.outcome after_model returned=error actor=meter";
    check(log, "anomalies", "i1 hook_error hook/after_model (meter)");
}
