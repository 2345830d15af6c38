//! Traps of answers that no model gave, or that a hook or a provider changed.

use super::tells;

/// ADK TypeScript reports an exception of a hook as an error of the model, which had answered.
#[test]
fn a_hooks_exception_is_no_model_error() {
    tells(
        "adk-ts/lifecycle/hook_throws",
        "run 1 error root=support code=Error
         call 1 support ok by=model in=12 out=2",
    );
}

/// A hook that replaced an answer kept no sign of a model: the answer is counted apart from the
/// calls that were made.
#[test]
fn a_rewritten_answer_is_of_unknown_origin() {
    tells(
        "adk-go/native/10_redaction_after_model",
        "call 1 support ok by=unknown in=? out=?
         call 2 support ok by=model in=130 out=7",
    );
    tells(
        "adk-java/native/10_redaction_after_model",
        "call 1 support ok by=unknown in=? out=?
         call 2 support ok by=model in=150 out=7
         call 3 support ok by=model in=160 out=4",
    );
    tells(
        "adk-python-2.8.0/native/10_redaction_after_model",
        "call 1 support ok by=unknown in=? out=?
         call 2 support ok by=model in=160 out=4
         verdict 1 model_output modify declared actor=redactor",
    );
    tells(
        "adk-go/native/27_event_rewritten_by_plugin",
        "call 1 greeter ok by=unknown in=? out=?",
    );
}

/// A plugin answered from a cache, with the usage of the call it once was.
#[test]
fn a_replayed_answer_is_not_billed() {
    tells(
        "adk-java/lifecycle/07_cache_hit",
        "no call
         answer 1 greeter by=cache replayed=399",
    );
    tells(
        "adk-go/lifecycle/07_cache_hit",
        "no call
         answer 1 faq by=cache replayed=420",
    );
    tells(
        "adk-go/native/07_cache_hit",
        "no call
         answer 1 faq by=cache replayed=420",
    );
}

/// The limit of calls refuses the second: before its hook in ADK Java, after it in ADK Python.
#[test]
fn a_refused_call_is_none() {
    tells(
        "adk-java/lifecycle/20c_max_llm_calls",
        "run 1 limited root=worker limit=max_llm_calls code=LlmCallsLimitExceededException
         call 1 worker ok by=model in=120 out=8",
    );
    tells(
        "adk-python/lifecycle/20c_max_llm_calls",
        "run 1 limited root=greeter limit=max_llm_calls code=LlmCallsLimitExceededError
         call 1 greeter ok by=model in=100 out=8",
    );
}

/// An after-agent hook that returns what was said makes a second event of the same text.
#[test]
fn an_echoed_answer_is_no_call() {
    tells(
        "adk-java/native/15_after_agent_appends",
        "call 1 greeter ok by=model in=60 out=3
         anomaly 1 duplicate_answer",
    );
    tells(
        "adk-python/native/15_after_agent_duplicate",
        "call 1 greeter ok by=model in=60 out=3
         anomaly 1 duplicate_answer",
    );
}

/// The only policy verdict that a shipped plugin leaves per call: a denied tool did not run, a
/// confirmation waits for a person.
#[test]
fn the_security_plugins_word_is_a_verdict() {
    tells(
        "adk-ts/native/security_deny",
        "tool 1 refund 1 refused executed=no
         verdict 1 tool_input deny inferred actor=security_plugin enforced=true",
    );
    tells(
        "adk-ts/native/security_confirm",
        "run 1 waiting
         verdict 1 tool_input escalate inferred actor=security_plugin",
    );
}

/// A guard's own word proves it; without one the origin is unknown.
#[test]
fn an_answer_before_the_model_is_no_call() {
    tells(
        "adk-ts/native/model_short_circuit",
        "no call
         answer 1 support by=hook replayed=?
         verdict 1 model_input deny declared enforced=true",
    );
    tells(
        "adk-ts/native/run_short_circuit",
        "run 1 open
         call 1 model ok by=unknown in=? out=?",
    );
}

/// STOP is an empty answer; MAX_TOKENS is no error; SAFETY is the provider's verdict; a sentence
/// is a code.
#[test]
fn an_error_code_may_be_no_error() {
    tells(
        "adk-java/native/24_provider_verdicts",
        "call 1 asker blocked by=model in=60 out=0 code=SAFETY
         call 2 asker blocked by=model in=30 out=0 code=PROHIBITED_CONTENT
         call 3 asker ok by=model in=70 out=50
         call 4 asker ok by=model in=40 out=0 code=STOP
         call 5 asker error by=model in=20 out=0 code=UNKNOWN_ERROR
         verdict 1 model_output deny provider enforced=true
         verdict 2 model_input deny provider enforced=true",
    );
    tells(
        "adk-ts/native/max_tokens",
        "call 1 support ok by=model in=12 out=16 code=MAX_TOKENS",
    );
}

/// ADK TypeScript makes an event without a branch of whatever went wrong. It ends the call whose
/// chunks were seen, and is none where none was.
#[test]
fn an_error_event_is_not_a_call_of_its_own() {
    tells(
        "adk-ts/native/stream_breaks",
        "call 1 support error by=model in=12 out=3 code=UNKNOWN_ERROR #usage_from_partial",
    );
    tells(
        "adk-ts/native/model_error_json",
        "run 1 open
         no call",
    );
}
