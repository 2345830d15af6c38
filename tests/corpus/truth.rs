//! The truth of a recording in one shape. Every set but those of ADK TypeScript is written in it; a key that is not
//! there says nothing, and nothing is compared.

use serde_json::{Map, Value, json};

/// The functions of the scripts, whose runs are all that ADK TypeScript's truth says of tools.
const SCRIPTED: [&str; 3] = ["refund", "lookup_order", "export_report"];

/// Codes by which ADK TypeScript's truth tells that the provider refused.
const REFUSALS: [&str; 2] = ["SAFETY", "PROHIBITED_CONTENT"];

/// Each file of a set's `expected.json`, and what is true of it.
pub fn files(expected: &Value) -> Vec<(String, Value)> {
    let own = expected.get("files").unwrap_or(expected).as_object();
    own.unwrap()
        .iter()
        .map(|(file, truth)| match truth.get("hook_counts") {
            Some(_) => (format!("{file}.ndjson"), of_functions(truth)),
            None => (file.clone(), truth.clone()),
        })
        .collect()
}

/// ADK TypeScript's truth was measured inside the scripted functions: it names no agents and no invocations.
fn of_functions(truth: &Value) -> Value {
    let is_streamed = truth["streaming"].as_bool().unwrap();
    let calls = truth["model_calls"].as_array().unwrap();
    let calls: Vec<Value> = calls
        .iter()
        .map(|call| {
            json!({
                "outcome": call["outcome"],
                "billed": billed(&call["usage"]),
                "streamed": is_streamed,
                "first_chunk_ms": call["first_ms"],
                "completion_ms": call["total_ms"],
            })
        })
        .collect();
    let runs = truth["tool_runs"].as_array().unwrap();
    let runs: Vec<Value> = runs
        .iter()
        .map(|run| {
            json!({
                "tool": run["tool"],
                "outcome": run["outcome"],
                "executed": true,
                "planned_ms": run["total_ms"],
            })
        })
        .collect();
    let codes = truth["error_codes"].as_array().unwrap();
    let refusals = codes
        .iter()
        .filter(|code| code.as_str().is_some_and(|code| REFUSALS.contains(&code)));
    let verdicts: Vec<Value> = refusals
        .map(|_| json!({"decider": "model_provider", "verdict": "block"}))
        .collect();
    json!({
        "model_calls": calls,
        "tokens_billed": billed(&truth["tokens_true"]),
        "tool_calls": runs,
        "tools_scripted": SCRIPTED,
        "branches": truth["branches"],
        "guardrail_verdicts": verdicts,
        "verdicts_of_provider_only": true,
        "error_codes": truth["error_codes"],
        "invocation_count": truth["invocation_ids"],
        "ends_by_hook": truth["hook_counts"].get("afterRun").is_some(),
    })
}

/// Tokens in the words of the other sets. Gemini's thoughts are no part of its candidates.
fn billed(usage: &Value) -> Value {
    let Some(usage) = usage.as_object() else {
        return Value::Null;
    };
    let count = |key: &str| usage.get(key).and_then(Value::as_u64).unwrap_or(0);
    let (input, total) = (count("promptTokenCount"), count("totalTokenCount"));
    let mut out = Map::new();
    out.insert("input".into(), input.into());
    out.insert("output".into(), (total - input).into());
    out.insert("thoughts".into(), count("thoughtsTokenCount").into());
    out.insert("cached".into(), count("cachedContentTokenCount").into());
    out.insert("total".into(), total.into());
    Value::Object(out)
}
