//! Traps of tools: what was asked, what ran, what was answered.

use super::tells;

/// Answers to parallel calls are one event: each call has its own.
#[test]
fn merged_tool_answers_are_taken_apart() {
    tells(
        "adk-python/native/04b_parallel_tool_calls",
        "tool 1 quick 1 ok executed=unknown
         tool 1 slow 1 ok executed=unknown
         tool 1 no_such_tool 1 error executed=unknown",
    );
    tells(
        "adk-java/native/04b_parallel_tool_calls",
        "tool 1 quick 1 ok executed=unknown
         tool 1 slow 1 ok executed=unknown
         tool 1 no_such_tool 1 unanswered executed=unknown",
    );
    tells(
        "adk-go/native/04b_parallel_tool_calls",
        "tool 1 no_such_tool 1 error executed=unknown
         tool 1 quick 1 ok executed=unknown
         tool 1 slow 1 ok executed=unknown",
    );
    tells(
        "adk-go-1.4.0/native/04b_parallel_tool_calls",
        "tool 1 no_such_tool 1 error executed=unknown
         tool 1 quick 1 ok executed=unknown
         tool 1 slow 1 ok executed=unknown",
    );
    tells(
        "adk-ts/native/tool_calls_two_one_fails",
        "tool 1 lookup_order 1 error executed=unknown
         tool 1 refund 1 ok executed=unknown",
    );
}

/// Its time is one call's, or none's: even where event times are arrivals, only a call asked and
/// answered alone has a duration.
#[test]
fn a_merged_answer_times_no_tool() {
    tells(
        "adk-go/arrival/04b_parallel_tool_calls",
        "took 1 no_such_tool 1 ?
         took 1 quick 1 ?
         took 1 slow 1 ?",
    );
    tells(
        "adk-java/arrival/04c_blocking_tools",
        "took 1 quick 1 ?
         took 1 slow 1 ?
         took 2 slow 1 ?
         took 2 quick 1 ?",
    );
    tells(
        "adk-go/arrival/08_guardrail_before_tool",
        "took 1 refund 1 ?
         took 1 refund 1 ?",
    );
    tells("adk-go/arrival/04_tool_ok", "took 1 get_weather 1 42");
    tells("adk-go/native/04_tool_ok", "took 1 get_weather 1 ?");
}

/// ADK Go and Python answer an invented name with an error; ADK Java logs and drops the call, and
/// asks the model again.
#[test]
fn an_invented_tool_did_not_run() {
    tells(
        "adk-go/lifecycle/04b_parallel_tool_calls",
        "tool 1 no_such_tool 1 error executed=no
         tool 1 slow 1 ok executed=unknown
         tool 1 quick 1 ok executed=unknown",
    );
    tells(
        "adk-python/lifecycle/04b_parallel_tool_calls",
        "tool 1 slow 1 ok executed=unknown
         tool 1 quick 1 ok executed=unknown
         tool 1 no_such_tool 1 error executed=no",
    );
    tells(
        "adk-java/native/04d_only_unknown_tool",
        "tool 1 no_such_tool 1 unanswered executed=unknown
         tool 1 no_such_tool 1 unanswered executed=unknown
         call 1 worker ok by=model in=150 out=8
         call 1 worker ok by=model in=160 out=8
         call 1 worker ok by=model in=170 out=4",
    );
    tells(
        "adk-java/lifecycle/04d_only_unknown_tool",
        "no tool
         call 1 worker ok by=model in=150 out=8
         call 1 worker ok by=model in=160 out=8
         call 1 worker ok by=model in=170 out=4",
    );
}

/// ADK Java's FunctionTool answers in place of a method that throws: nothing tells, so the call is
/// not told as executed, and the run goes on. ADK Go turns even a panic into an error.
#[test]
fn a_swallowed_exception_is_no_proof_of_success() {
    tells(
        "adk-java/lifecycle/05_function_tool_throws",
        "run 1 completed root=payer
         tool 1 charge 1 ok executed=unknown",
    );
    tells(
        "adk-go/lifecycle/05c_tool_panics",
        "run 1 completed root=payer
         tool 1 bomb 1 error executed=unknown",
    );
}

/// onToolError is no proof that the tool ran.
#[test]
fn a_guard_that_throws_is_told_as_the_tools_error() {
    tells(
        "adk-java/lifecycle/20e_plugin_throws_before_tool",
        "run 1 error root=payer code=IllegalStateException
         tool 1 charge 1 error executed=unknown",
    );
    tells(
        "adk-go/lifecycle/08b_guardrail_before_tool_error",
        "run 1 completed root=support
         tool 1 refund 1 error executed=unknown",
    );
}

/// Progressive streaming runs a tool for the partial and for the final event; a confirmed tool
/// passes its hooks in both runs.
#[test]
fn one_call_id_may_run_twice() {
    tells(
        "adk-ts-progressive/native/streaming_tool_call",
        "call 1 support ok by=model in=40 out=12
         call 1 support ok by=model in=75 out=3
         tool 1 refund 1 ok executed=unknown
         tool 1 refund 2 ok executed=unknown",
    );
    tells(
        "adk-ts-progressive/lifecycle/streaming_tool_call",
        "tool 1 refund 1 ok executed=unknown
         tool 1 refund 2 ok executed=unknown",
    );
    tells(
        "adk-go/lifecycle/16c_tool_confirmation",
        "tool 1 wire 1 deferred executed=no
         tool 1 wire 2 ok executed=unknown",
    );
    tells(
        "adk-java/lifecycle/16c_tool_confirmation",
        "tool 1 wireMoney 1 deferred executed=no
         tool 2 wireMoney 1 ok executed=unknown",
    );
}

/// It stands in a partial and in the final under one id, and runs once.
#[test]
fn a_partial_function_call_is_a_preview() {
    tells(
        "adk-go/native/40c_gemini_stream_tool",
        "call 1 finder ok by=model in=150 out=18
         call 1 finder ok by=model in=190 out=4
         tool 1 lookup 1 ok executed=unknown",
    );
}
