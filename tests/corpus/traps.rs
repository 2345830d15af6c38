//! tmp
use crate::sets::SETS;
const C: &[(&str, &str, &[&str])] = &[
    (
        "after_end",
        "adk-java/lifecycle/11c_branch_fails",
        &["call", "run"],
    ),
    (
        "after_end",
        "adk-java/native/11c_branch_fails",
        &["call", "run"],
    ),
    (
        "dispose",
        "adk-java/lifecycle/19a_consumer_disposes",
        &["call", "run"],
    ),
    (
        "dispose",
        "adk-java/lifecycle/19b_consumer_disposes_blocking_model",
        &["call", "run"],
    ),
    (
        "dispose",
        "adk-java/lifecycle/19c_consumer_timeout",
        &["tool", "run"],
    ),
    (
        "dispose",
        "adk-java/lifecycle/19d_caller_leaves_hanging_model",
        &["call", "run"],
    ),
    (
        "dispose",
        "adk-java/native/19a_consumer_disposes",
        &["call"],
    ),
    (
        "two_ends",
        "adk-java/lifecycle/20f_plugin_throws_after_run",
        &["run"],
    ),
    (
        "two_ends",
        "adk-java/lifecycle/23b_compaction_fails",
        &["run"],
    ),
    (
        "contentless",
        "adk-java/lifecycle/03c_openai_stream",
        &["call"],
    ),
    (
        "contentless",
        "adk-java/native/03c_openai_stream",
        &["call"],
    ),
    (
        "contentless",
        "adk-java/lifecycle/03b_sse_usage_on_contentless_tail",
        &["call"],
    ),
    (
        "contentless",
        "adk-go/lifecycle/03b_usage_on_contentless_tail",
        &["call"],
    ),
    (
        "contentless",
        "adk-go/native/03b_usage_on_contentless_tail",
        &["call"],
    ),
    ("gov1", "adk-go-1.4.0/native/04_tool_ok", &["call", "tool"]),
    (
        "gov1",
        "adk-go-1.4.0/native/02_sse_cumulative_usage",
        &["call"],
    ),
    (
        "gov1",
        "adk-go-1.4.0/native/11_parallel_branches",
        &["call", "branch"],
    ),
    (
        "gov1",
        "adk-go-1.4.0/native/16c_tool_confirmation",
        &["tool", "verdict", "run"],
    ),
    (
        "merged",
        "adk-java/native/04b_parallel_tool_calls",
        &["tool"],
    ),
    ("merged", "adk-go/native/04b_parallel_tool_calls", &["tool"]),
    (
        "merged",
        "adk-python/native/04b_parallel_tool_calls",
        &["tool"],
    ),
    (
        "merged",
        "adk-ts/native/tool_calls_two_one_fails",
        &["tool"],
    ),
    (
        "merged",
        "adk-java/lifecycle/04b_parallel_tool_calls",
        &["tool"],
    ),
    (
        "invented",
        "adk-java/native/04d_only_unknown_tool",
        &["tool", "call"],
    ),
    (
        "invented",
        "adk-go/lifecycle/04b_parallel_tool_calls",
        &["tool"],
    ),
    (
        "invented",
        "adk-python/lifecycle/04b_parallel_tool_calls",
        &["tool"],
    ),
    (
        "swallowed",
        "adk-java/lifecycle/05_function_tool_throws",
        &["tool", "run"],
    ),
    ("swallowed", "adk-go/lifecycle/05c_tool_panics", &["tool"]),
    (
        "swallowed",
        "adk-ts/lifecycle/hook_throws",
        &["call", "run"],
    ),
    (
        "swallowed",
        "adk-java/lifecycle/20e_plugin_throws_before_tool",
        &["tool", "run"],
    ),
    (
        "swallowed",
        "adk-go/lifecycle/08b_guardrail_before_tool_error",
        &["tool", "run"],
    ),
    (
        "ts3",
        "adk-ts/native/streaming_tool_call",
        &["call", "tool"],
    ),
    (
        "ts2",
        "adk-ts-progressive/native/streaming_tool_call",
        &["call", "tool"],
    ),
    (
        "ts2",
        "adk-ts-progressive/lifecycle/streaming_tool_call",
        &["tool"],
    ),
    (
        "tserr",
        "adk-ts/native/model_error_json",
        &["call", "run", "anomaly"],
    ),
    ("tserr", "adk-ts/native/stream_breaks", &["call"]),
    (
        "cancel",
        "adk-go/lifecycle/11c_parallel_one_fails",
        &["call"],
    ),
    (
        "cancel",
        "adk-go/lifecycle/19a_consumer_stops",
        &["call", "run"],
    ),
    (
        "cancel",
        "adk-go/lifecycle/19b_context_cancelled",
        &["call", "run"],
    ),
    (
        "cancel",
        "adk-python-2.8.0/lifecycle/19a_consumer_stops",
        &["call", "run"],
    ),
    (
        "cancel",
        "adk-python-1.34.0/lifecycle/19b_task_cancelled",
        &["call", "run"],
    ),
    (
        "turn",
        "adk-go/native/40d_gemini_verdicts",
        &["call", "verdict"],
    ),
    ("turn", "adk-go/native/41b_openai_stream", &["call"]),
    ("turn", "adk-go/native/40b_gemini_stream", &["call"]),
    (
        "turn",
        "adk-go/native/40c_gemini_stream_tool",
        &["call", "tool"],
    ),
    ("thought", "adk-go/native/30_thought_only_turn", &["call"]),
    (
        "thought",
        "adk-go-1.4.0/native/30_thought_only_turn",
        &["call"],
    ),
    (
        "stop",
        "adk-java/native/24_provider_verdicts",
        &["call", "verdict"],
    ),
    (
        "unknown",
        "adk-go/native/10_redaction_after_model",
        &["call"],
    ),
    (
        "unknown",
        "adk-java/native/10_redaction_after_model",
        &["call"],
    ),
    (
        "unknown",
        "adk-python-2.8.0/native/10_redaction_after_model",
        &["call", "verdict"],
    ),
    (
        "unknown",
        "adk-go/native/27_event_rewritten_by_plugin",
        &["call"],
    ),
    (
        "cache",
        "adk-java/lifecycle/07_cache_hit",
        &["call", "answer"],
    ),
    ("cache", "adk-go/native/07_cache_hit", &["call", "answer"]),
    (
        "limit",
        "adk-java/lifecycle/20c_max_llm_calls",
        &["run", "call"],
    ),
    (
        "limit",
        "adk-python/lifecycle/20c_max_llm_calls",
        &["run", "call"],
    ),
    ("reason", "adk-go/native/41_openai_unary", &["call"]),
    ("reason", "adk-java/lifecycle/25_usage_shapes", &["call"]),
    ("reason", "adk-go/native/25_usage_shapes", &["call"]),
    (
        "sub",
        "adk-java/lifecycle/21c_caller_retries",
        &["run", "call"],
    ),
    (
        "dup",
        "adk-java/native/15_after_agent_appends",
        &["call", "anomaly"],
    ),
    (
        "dup",
        "adk-python/native/15_after_agent_duplicate",
        &["call", "anomaly"],
    ),
    (
        "nest",
        "adk-java/lifecycle/14b_agent_tool_with_plugins",
        &["run"],
    ),
    (
        "nest",
        "adk-java/lifecycle/14c_agent_tool_blocking_model",
        &["run"],
    ),
    (
        "resume",
        "adk-go/lifecycle/16_long_running",
        &["run", "tool"],
    ),
    ("resume", "adk-go/native/16_long_running", &["run", "tool"]),
    (
        "resume",
        "adk-go/lifecycle/16c_tool_confirmation",
        &["run", "tool", "verdict"],
    ),
    (
        "resume",
        "adk-java/lifecycle/16c_tool_confirmation",
        &["run", "tool", "verdict"],
    ),
    (
        "branch",
        "adk-java/lifecycle/11b_nested_branches",
        &["branch", "handoff"],
    ),
    ("branch", "adk-go/native/11b_parallel_nested", &["branch"]),
    ("branch", "adk-ts/native/parallel_nested", &["branch"]),
    ("live", "adk-java/native/22_live", &["call"]),
    (
        "hidden",
        "adk-java/native/23_compaction_hidden_model_call",
        &["call", "anomaly"],
    ),
    (
        "hidden",
        "adk-java/native/23c_compaction_inside_run",
        &["call", "anomaly"],
    ),
    (
        "hidden",
        "adk-go/lifecycle/14_agent_tool_nested",
        &["call", "run"],
    ),
    ("sec", "adk-ts/native/security_deny", &["tool", "verdict"]),
    (
        "sec",
        "adk-ts/native/security_confirm",
        &["tool", "verdict", "run"],
    ),
    (
        "sec",
        "adk-ts/native/model_short_circuit",
        &["call", "verdict", "answer"],
    ),
    (
        "sec",
        "adk-ts/native/run_short_circuit",
        &["call", "answer", "run"],
    ),
    (
        "err",
        "adk-java/lifecycle/06d_model_throws_at_once",
        &["call", "run"],
    ),
    (
        "err",
        "adk-java/lifecycle/06b_model_error_recovered",
        &["call", "run"],
    ),
    (
        "err",
        "adk-java/lifecycle/06e_recovered_mid_stream",
        &["call"],
    ),
    ("err", "adk-ts/lifecycle/model_error", &["call", "run"]),
    ("noend", "adk-ts/lifecycle/consumer_stops", &["run"]),
    ("noend", "adk-ts/lifecycle/run_short_circuit", &["run"]),
    (
        "noend",
        "adk-python/lifecycle/19b_task_cancelled",
        &["run", "call"],
    ),
    (
        "noend",
        "adk-python-1.34.0/lifecycle/05_tool_raises",
        &["run", "tool"],
    ),
    (
        "same",
        "adk-python/lifecycle/18c_parallel_worker_same_agent",
        &["call"],
    ),
    (
        "same",
        "adk-java/lifecycle/30_two_turns_async_model",
        &["call", "run"],
    ),
];
#[test]
fn show() {
    for (n, place, kinds) in C {
        let parts: Vec<&str> = place.split('/').collect();
        let set = SETS.iter().find(|s| s.name == parts[0]).unwrap();
        let facts = crate::facts(set, parts[1], &format!("{}.ndjson", parts[2]));
        for k in *kinds {
            println!("{n} {place} {k}");
            for l in crate::lines::of(&facts, k) {
                println!("        {l}");
            }
        }
    }
}
