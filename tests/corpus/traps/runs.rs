//! Traps of beginnings and ends: when a run is over, and whose it is.

use super::tells;

/// A failed branch ends the run while its sibling's stream goes on: what the records say of it
/// after the end is billed. Events fall silent, and the call stays a lower bound that never ended.
#[test]
fn records_after_the_end_of_a_run_count() {
    tells(
        "adk-java/lifecycle/11c_branch_fails",
        "run 1 error root=fan code=ProviderError
         call 1 beta ok by=model branch=fan.beta in=110 out=20
         call 1 alpha error by=model branch=fan.alpha in=? out=? code=ProviderError",
    );
    tells(
        "adk-java/native/11c_branch_fails",
        "call 1 beta incomplete by=model branch=fan.beta in=110 out=1 #usage_from_partial",
    );
}

/// afterRun, and then onRunError where a later plugin or the compaction fails: one run, and the
/// later end holds.
#[test]
fn two_end_hooks_end_a_run_once() {
    tells(
        "adk-java/lifecycle/20f_plugin_throws_after_run",
        "run 1 error root=greeter code=IllegalStateException",
    );
    tells(
        "adk-java/lifecycle/23b_compaction_fails",
        "run 1 error root=greeter code=ProviderError
         call 1 greeter ok by=model in=50 out=1",
    );
}

/// A caller that disposes of its subscription stops neither the model's stream nor a tool, and no
/// hook says that the run ended.
#[test]
fn leaving_stops_nothing() {
    tells(
        "adk-java/lifecycle/19a_consumer_disposes",
        "run 1 open root=storyteller
         call 1 storyteller ok by=model in=300 out=9",
    );
    tells(
        "adk-java/lifecycle/19b_consumer_disposes_blocking_model",
        "run 1 open root=storyteller
         call 1 storyteller ok by=model in=300 out=9",
    );
    tells(
        "adk-java/lifecycle/19c_consumer_timeout",
        "run 1 open root=worker
         tool 1 send_mail 1 ok executed=unknown",
    );
    tells(
        "adk-java/lifecycle/19d_caller_leaves_hanging_model",
        "run 1 open root=storyteller
         call 1 storyteller incomplete by=model in=? out=? unmetered",
    );
    tells(
        "adk-java/native/19a_consumer_disposes",
        "call 1 storyteller incomplete by=model in=300 out=2 #usage_from_partial",
    );
}

/// AfterRun fires whatever happened.
#[test]
fn an_end_hook_does_not_mean_success() {
    tells(
        "adk-go/lifecycle/19a_consumer_stops",
        "run 1 cancelled root=talker
         call 1 talker cancelled by=model in=300 out=2 code=*errors.errorString #usage_from_partial",
    );
    tells(
        "adk-go/lifecycle/19b_context_cancelled",
        "run 1 cancelled root=talker
         call 1 talker cancelled by=model in=300 out=1 code=*errors.errorString #usage_from_partial",
    );
    tells(
        "adk-python-2.8.0/lifecycle/19a_consumer_stops",
        "run 1 cancelled root=talker
         call 1 talker cancelled by=model in=300 out=2 #usage_from_partial",
    );
    tells(
        "adk-go/lifecycle/20b_plugin_fails",
        "run 1 incomplete root=greeter
         call 1 greeter ok by=model in=90 out=9",
    );
}

/// Until silence closes it.
#[test]
fn no_end_hook_leaves_a_run_open() {
    tells(
        "adk-python/lifecycle/19b_task_cancelled",
        "run 1 open root=talker
         call 1 talker incomplete by=model in=300 out=3 #usage_from_partial",
    );
    tells(
        "adk-python-1.34.0/lifecycle/05_tool_raises",
        "run 1 open root=payer
         tool 1 charge 1 error executed=unknown",
    );
    tells("adk-ts/lifecycle/consumer_stops", "run 1 open root=support");
    tells(
        "adk-ts/lifecycle/run_short_circuit",
        "run 1 open root=support",
    );
}

/// Where one branch fails, ADK Go cancels the others, through the same hook: no provider's fault.
#[test]
fn a_cancelled_sibling_did_not_fail() {
    tells(
        "adk-go/lifecycle/11c_parallel_one_fails",
        "run 1 error root=fan code=*main.ProviderError
         call 1 slow cancelled by=model branch=fan.slow in=20 out=2 code=*errors.errorString #usage_from_partial
         call 1 bad error by=model branch=fan.bad in=? out=? code=*main.ProviderError",
    );
}

/// The caller wrote retry(1), or ran one session twice at once, or two users from one thread: as
/// many runs, each with its own calls.
#[test]
fn every_subscription_is_a_run() {
    tells(
        "adk-java/lifecycle/21c_caller_retries",
        "run 1 error root=greeter code=ProviderError
         run 2 completed root=greeter
         call 1 greeter error by=model in=? out=? code=ProviderError
         call 2 greeter ok by=model in=80 out=4",
    );
    tells(
        "adk-java/lifecycle/21b_same_session_queued",
        "run 1 completed root=greeter
         run 2 completed root=greeter
         call 1 greeter ok by=model in=100 out=10
         call 2 greeter ok by=model in=120 out=12",
    );
    tells(
        "adk-java/lifecycle/30_two_turns_async_model",
        "run 1 completed root=greeter
         run 2 completed root=greeter
         call 1 greeter ok by=model in=60 out=2
         call 2 greeter ok by=model in=70 out=3",
    );
}

/// ADK Go v2 keeps the invocation id: two runs, two segments. ADK Java opens another invocation.
#[test]
fn an_invocation_resumes_under_its_id() {
    tells(
        "adk-go/lifecycle/16_long_running",
        "run 1 completed root=approver
         run 1 completed root=approver
         tool 1 ask_approval 1 deferred executed=no
         tool 1 ask_approval 1 ok executed=unknown",
    );
    tells(
        "adk-go/native/16_long_running",
        "run 1 waiting
         tool 1 ask_approval 1 deferred executed=no",
    );
    tells(
        "adk-go/lifecycle/16c_tool_confirmation",
        "run 1 waiting root=banker
         run 1 completed root=banker
         verdict 1 tool_input escalate declared
         verdict 1 tool_input allow declared",
    );
    tells(
        "adk-java/lifecycle/16c_tool_confirmation",
        "run 1 waiting root=approver
         run 2 completed root=approver
         verdict 1 tool_input escalate declared
         verdict 2 tool_input allow declared",
    );
}

/// No hook names the run around an AgentTool's run.
#[test]
fn a_nested_run_finds_its_parent_by_time() {
    tells(
        "adk-java/lifecycle/14b_agent_tool_with_plugins",
        "run 1 completed root=editor
         run 2 completed root=summarizer parent=inferred",
    );
    tells(
        "adk-java/lifecycle/14c_agent_tool_blocking_model",
        "run 1 completed root=editor
         run 2 completed root=summarizer parent=inferred",
    );
}

/// A nested parallel agent's name stands twice; ADK Java appends every agent entered, even a
/// transfer's target.
#[test]
fn branches_are_as_long_as_their_runtime_makes_them() {
    tells(
        "adk-java/lifecycle/11b_nested_branches",
        "branch 1 fan 0
         branch 1 fan.line 0
         branch 1 fan.line.one 0
         branch 1 fan.inner 0
         branch 1 fan.desk 0
         branch 1 fan.inner.inner 0
         branch 1 fan.inner.inner.x 0
         branch 1 fan.inner.inner.y 0
         branch 1 fan.line.two 0
         branch 1 fan.desk.billing 0
         handoff 1 desk transferred to=billing",
    );
    tells(
        "adk-go/native/11b_parallel_nested",
        "branch 1 outer 0
         branch 1 outer.inner 0
         branch 1 outer.inner.inner 0
         branch 1 outer.inner.inner.x 0
         branch 1 outer.inner.inner.y 0
         branch 1 outer.z 0",
    );
    tells(
        "adk-ts/native/parallel_nested",
        "branch 1 outer 0
         branch 1 outer.left 0
         branch 1 outer.inner 0
         branch 1 outer.inner.inner 0
         branch 1 outer.inner.inner.in_a 0
         branch 1 outer.inner.inner.in_b 0",
    );
}
