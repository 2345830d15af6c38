//! Traps of model calls: which events are one, and what it spent.

use super::tells;

/// Usage that follows the answer as a partial without content: hooks see it, and no event is ever
/// built from it.
#[test]
fn usage_on_a_contentless_partial_is_the_calls() {
    tells(
        "adk-java/lifecycle/03c_openai_stream",
        "call 1 chatty ok by=model in=300 out=30 reasoning=12 #model_differs",
    );
    tells(
        "adk-java/native/03c_openai_stream",
        "call 1 chatty ok by=model in=? out=? unmetered",
    );
}

/// The same as a last response that is not partial.
#[test]
fn usage_on_a_contentless_tail_is_the_calls() {
    tells(
        "adk-java/lifecycle/03b_sse_usage_on_contentless_tail",
        "call 1 greeter ok by=model in=120 out=5",
    );
    tells(
        "adk-go/lifecycle/03b_usage_on_contentless_tail",
        "call 1 writer ok by=model in=70 out=9",
    );
    tells(
        "adk-go/native/03b_usage_on_contentless_tail",
        "call 1 writer ok by=model in=? out=? unmetered",
    );
}

/// ADK Go v1 writes Go's field names and every empty field: `"Partial":false` is no stream,
/// `"Branch":""` the root.
#[test]
fn go_v1_names_are_read() {
    tells(
        "adk-go-1.4.0/native/02_sse_cumulative_usage",
        "call 1 storyteller ok by=model in=200 out=31 reasoning=10",
    );
    tells(
        "adk-go-1.4.0/native/04_tool_ok",
        "call 1 weather ok by=model in=150 out=12
         call 1 weather ok by=model in=190 out=8
         tool 1 get_weather 1 ok executed=unknown",
    );
    tells(
        "adk-go-1.4.0/native/11_parallel_branches",
        "call 1 alpha ok by=model branch=fan.alpha in=100 out=10
         call 1 beta ok by=model branch=fan.beta in=200 out=20
         call 1 gamma ok by=model branch=fan.gamma in=300 out=30",
    );
    tells(
        "adk-go-1.4.0/native/16c_tool_confirmation",
        "run 1 waiting
         run 2 open
         tool 1 wire 1 deferred executed=no
         tool 2 wire 1 ok executed=unknown
         verdict 1 tool_input escalate inferred",
    );
}

/// Text and a tool call are flushed apart, and a third event without content follows after the
/// tool ran: all with the same usage.
#[test]
fn three_events_of_one_call_are_one_call() {
    tells(
        "adk-ts/native/streaming_tool_call",
        "call 1 support ok by=model in=40 out=12
         call 1 support ok by=model in=75 out=3
         tool 1 refund 1 ok executed=unknown",
    );
}

/// ADK Go says turnComplete on the last partial, or on every one; the final that follows is of the
/// same call.
#[test]
fn a_partial_completes_no_turn() {
    tells(
        "adk-go/native/40d_gemini_verdicts",
        "call 1 asker blocked by=model in=40 out=0 code=SAFETY
         call 2 asker ok by=model in=42 out=3
         call 3 asker blocked by=model in=44 out=1 code=SAFETY
         call 4 asker blocked by=model in=46 out=0 code=PROHIBITED_CONTENT
         verdict 1 model_output deny provider enforced=true
         verdict 3 model_output deny provider enforced=true
         verdict 4 model_input deny provider enforced=true",
    );
    tells(
        "adk-go/native/41b_openai_stream",
        "call 1 asker ok by=model in=100 out=70 reasoning=50",
    );
}

/// ADK Go v2 calls the model again by itself; v1 ends there.
#[test]
fn a_turn_of_thoughts_is_a_call() {
    tells(
        "adk-go/native/30_thought_only_turn",
        "call 1 thinker ok by=model in=60 out=25 reasoning=25
         call 1 thinker ok by=model in=90 out=8",
    );
    tells(
        "adk-go-1.4.0/native/30_thought_only_turn",
        "call 1 thinker ok by=model in=60 out=25 reasoning=25",
    );
}

/// Four shapes of the same 70 tokens out, 50 of them reasoning, which some adapters put inside the
/// candidates.
#[test]
fn reasoning_is_counted_once() {
    tells(
        "adk-java/lifecycle/25_usage_shapes",
        "call 1 asker ok by=model in=108 out=70 reasoning=50
         call 2 asker ok by=model in=100 out=70 reasoning=50 #model_differs
         call 3 asker ok by=model in=70 out=70
         call 4 asker ok by=model in=? out=? unmetered",
    );
    tells(
        "adk-go/native/25_usage_shapes",
        "call 1 meter ok by=model in=115 out=70 reasoning=50
         call 2 meter ok by=model in=100 out=70 reasoning=50
         call 3 meter ok by=model in=130 out=70
         call 4 meter ok by=model in=? out=? unmetered",
    );
    tells(
        "adk-go/native/41_openai_unary",
        "call 1 asker ok by=model in=100 out=70 reasoning=50",
    );
}

/// A broken stream's newest report is what was spent, also where a hook answered in its place; a
/// call that failed before any chunk spent nothing that was told.
#[test]
fn a_failed_call_may_have_spent() {
    tells(
        "adk-java/lifecycle/06c_model_error_mid_stream",
        "run 1 error root=asker code=ProviderError
         call 1 asker error by=model in=500 out=9 code=ProviderError #usage_from_partial",
    );
    tells(
        "adk-java/lifecycle/06e_recovered_mid_stream",
        "run 1 completed root=asker
         call 1 asker error by=model in=500 out=4 code=ProviderError recovered #usage_from_partial",
    );
    tells(
        "adk-java/lifecycle/06b_model_error_recovered",
        "run 1 completed root=asker
         call 1 asker error by=model in=? out=? code=ProviderError recovered",
    );
}

/// generateContent threw before it returned a stream: the run failed, and the call is one that
/// never ended.
#[test]
fn a_throw_skips_the_error_hook() {
    tells(
        "adk-java/lifecycle/06d_model_throws_at_once",
        "run 1 error root=asker code=ProviderError
         call 1 asker incomplete by=model in=? out=? unmetered",
    );
}

/// Three calls of one agent at once.
#[test]
fn same_named_agents_are_told_apart_by_branch() {
    tells(
        "adk-python/native/18c_parallel_worker_same_agent",
        "call 1 mapper ok by=model branch=mapper@1 in=51 out=1
         call 1 mapper ok by=model branch=mapper@2 in=52 out=2
         call 1 mapper ok by=model branch=mapper@3 in=53 out=3",
    );
}

/// No hook and no event shows what a summarizer or an AgentTool without plugins asked: the figures
/// are of what was seen, no more.
#[test]
fn a_hidden_call_is_not_invented() {
    tells(
        "adk-java/lifecycle/23c_compaction_inside_run",
        "run 1 completed root=greeter
         run 2 completed root=greeter
         call 1 greeter ok by=model in=300 out=1
         call 2 greeter ok by=model in=70 out=1",
    );
    tells(
        "adk-go/lifecycle/14_agent_tool_nested",
        "run 1 completed root=editor
         call 1 editor ok by=model in=150 out=9
         call 1 editor ok by=model in=190 out=7",
    );
}
