//! Native events and what they say: spellings, parts, answers, actions, hashes.

use super::summary::{check, check_native, context};
use super::{RecordBytes, decode};
use crate::core::event::{EventKind, NativeEvent};

/// The native event of a record.
fn native(payload: &str) -> (u64, Vec<u64>) {
    let mut found = None;
    let record = RecordBytes {
        payload: payload.as_bytes(),
        headers: &[],
    };
    decode(record, &context(), &mut |event| {
        if let EventKind::Native(native) = &event.kind {
            let NativeEvent {
                content_hash,
                function_calls,
                ..
            } = native.as_ref();
            found = Some((
                *content_hash,
                function_calls.iter().map(|c| c.args_hash).collect(),
            ));
        }
    });
    found.expect(payload)
}

#[test]
fn native_events_in_three_spellings() {
    let said = |go: &str| {
        format!(
            "adk at=1772445601500000000 inv=e branch=a.b path=p agent=desk native id=i \
            partial=true turn_complete=false{go} text usage model=m finish=STOP \
            error_code=SAFETY long_running=f,g transfer=t escalate skip_summarization confirm=f \
            armor"
        )
    };
    check(
        r#"{"id":"i","invocationId":"e","author":"desk","timestamp":1772445601.5,"branch":"a.b",
            "partial":true,"turnComplete":false,"content":{"parts":[{"text":"x"}],"role":"model"},
            "usageMetadata":{},"modelVersion":"m","finishReason":"STOP","errorCode":"SAFETY",
            "errorMessage":"secret","longRunningToolIds":["f","g"],"nodeInfo":{"path":"p"},
            "actions":{"transferToAgent":"t","escalate":true,"skipSummarization":true,
            "requestedToolConfirmations":{"f":{"hint":"h"}},"stateDelta":{"usageMetadata":1}},
            "customMetadata":{"model_armor_blocked":true}}"#,
        &said(""),
    );
    check(
        r#"{"id":"i","invocation_id":"e","author":"desk","timestamp":1772445601500,"branch":"a.b",
            "partial":true,"turn_complete":false,"content":{"parts":[{"text":"x"}],
            "role":"model"},"usage_metadata":{},"model_version":"m","finish_reason":"STOP",
            "error_code":"SAFETY","long_running_tool_ids":["f","g"],"node_info":{"path":"p"},
            "actions":{"transfer_to_agent":"t","escalate":true,"skip_summarization":true,
            "requested_tool_confirmations":{"f":{"hint":"h"}},"state_delta":{}},
            "custom_metadata":{"model_armor_blocked":true}}"#,
        &said(""),
    );
    check(
        r#"{"ID":"i","InvocationID":"e","Author":"desk","Timestamp":"2026-03-02T10:00:01.5Z",
            "Branch":"a.b","Partial":true,"TurnComplete":false,"Content":{"parts":[{"text":"x"}],
            "role":"model"},"UsageMetadata":{},"ModelVersion":"m","FinishReason":"STOP",
            "ErrorCode":"SAFETY","LongRunningToolIDs":["f","g"],"NodeInfo":{"Path":"p"},
            "Actions":{"TransferToAgent":"t","Escalate":true,"SkipSummarization":true,
            "RequestedToolConfirmations":{"f":{"hint":"h"}},"StateDelta":{}},
            "CustomMetadata":{"model_armor_blocked":true},"AvgLogprobs":0}"#,
        &said(" go_v1"),
    );
}

#[test]
fn every_empty_field_of_go_v1_is_unknown() {
    check(
        r#"{"Content":null,"CitationMetadata":null,"UsageMetadata":null,"CustomMetadata":null,
            "InputTranscription":null,"ModelVersion":"","Partial":false,"TurnComplete":false,
            "Interrupted":false,"ErrorCode":"","ErrorMessage":"","FinishReason":"",
            "AvgLogprobs":0,"ID":"","Timestamp":"0001-01-01T00:00:00Z","InvocationID":"e",
            "Branch":"","Author":"","Actions":{"StateDelta":{},"RequestedToolConfirmations":null,
            "SkipSummarization":false,"TransferToAgent":"","Escalate":false},
            "LongRunningToolIDs":null}"#,
        "adk inv=e native no_author partial=false turn_complete=false interrupted=false go_v1",
    );
    check(
        r#"{"id":"n","invocationId":"e","author":"a","timestamp":1772445601000,
            "content":{"role":null,"parts":[{"text":null,"functionCall":null},null,7]},
            "actions":null,"partial":null,"usageMetadata":null,"branch":null,
            "customMetadata":null,"longRunningToolIds":null,"output":null}"#,
        "adk at=1772445601000000000 inv=e agent=a native id=n",
    );
    check_native(r#","content":{"parts":null}"#, "");
    check_native(
        r#","content":"x","actions":[],"nodeInfo":"p","longRunningToolIds":"f",
            "customMetadata":"x""#,
        "",
    );
}

#[test]
fn parts() {
    let part = |part: &str, expected: &str| {
        check_native(&format!(r#","content":{{"parts":[{part}]}}"#), expected)
    };
    part(r#"{"text":""}"#, "");
    part(r#"{"text":"a \n \ud83d\ude00"}"#, " text");
    part(
        r#"{"text":"hm","thought":true},{"text":"x","thought":false}"#,
        " text thought",
    );
    part(r#"{"thought":true,"thoughtSignature":"AA=="}"#, "");
    part(
        r#"{"inlineData":{"mimeType":"audio/pcm","data":"AA"}}"#,
        " audio",
    );
    part(
        r#"{"inline_data":{"mime_type":"image/png","data":"AA"}}"#,
        " other",
    );
    part(r#"{"executableCode":{"code":"1"}}"#, " other");
    part(
        r#"{"functionCall":{"id":"f","name":"t","args":{"id":"evil","usageMetadata":{}}}}"#,
        " call(t:f)",
    );
    part(r#"{"function_call":{"name":"t"}}"#, " call(t:?)");
    part(
        r#"{"functionCall":{"id":"x","args":{"originalFunctionCall":{"id":"f","args":{"a":1},
            "name":"wire"}},"name":"adk_request_confirmation"}}"#,
        " call(adk_request_confirmation:x asks wire:f)",
    );
    part(
        r#"{"functionCall":{"id":"x","args":{"originalFunctionCall":{"id":"f"}},"name":"t"}}"#,
        " call(t:x)",
    );
}

#[test]
fn tool_answers() {
    let answer = |response: &str, expected: &str| {
        let payload = format!(
            r#","content":{{"parts":[{{"functionResponse":{{"id":"f","name":"t"{response}}}}}]}}"#
        );
        check_native(&payload, &format!(" answer(t:f{expected})"));
    };
    answer("", " empty");
    answer(r#","response":null"#, " empty");
    answer(r#","response":{}"#, " empty");
    answer(r#","response":{"ok":1}"#, "");
    answer(r#","response":{"isError":true,"content":"x"}"#, " error");
    answer(r#","response":{"isError":false}"#, "");
    answer(r#","response":{"isError":"true"}"#, "");
    answer(r#","response":{"error":"no"}"#, " error");
    answer(r#","response":{"error":{"code":1}}"#, " error");
    answer(r#","response":{"result":{"error":"in the data"}}"#, "");
    for nothing in ["null", "false", "0", "\"\"", "[]", "{}"] {
        answer(&format!(r#","response":{{"error":{nothing},"ok":1}}"#), "");
    }
    answer(r#","response":{"confirmed":true}"#, "");
    for response in [
        r#"{"confirmed":true}"#,
        r#"{"response":"{\"confirmed\": true}"}"#,
    ] {
        check_native(
            &format!(
                r#","content":{{"parts":[{{"functionResponse":{{"name":"adk_request_confirmation",
            "response":{response}}}}}]}}"#
            ),
            " answer(adk_request_confirmation:? confirmed=true)",
        );
    }
}

#[test]
fn actions_and_metadata() {
    check_native(
        r#","actions":{"compaction":{"startTimestamp":1},"endOfAgent":true,"agentState":{}}"#,
        " compaction end_of_agent agent_state",
    );
    check_native(
        r#","actions":{"compaction":null,"agentState":null,"escalate":null}"#,
        "",
    );
    check_native(
        r#","actions":{"stateDelta":{"orcas_tool_call_security_check_states":{"f":"DENY","g":1,
            "h":null}}}"#,
        " security:f=DENY security:g=1",
    );
    check_native(
        r#","output":{"a":1},"liveSessionId":"l","sessionId":"s""#,
        "adk session=s inv=e agent=a native output live=l",
    );
    check_native(
        r#","customMetadata":{"cache":"hit","guardrail":{"decider":"d","verdict":"v",
            "policy":"p"},"tenant":"t","openai_model":"m"}"#,
        " cache_hit decider=d verdict=v policy=p custom_tenant=t custom_model=m",
    );
    check_native(
        r#","customMetadata":{"cache_hit":true,"cacheHit":false}"#,
        " cache_hit",
    );
    check_native(
        r#","customMetadata":[{"key":"tenant","stringValue":"t"},{"key":"n","numericValue":1.5},
            {"key":"cache","string_value":"hit"},7]"#,
        " cache_hit custom_tenant=t",
    );
}

#[test]
fn equal_content_hashes_equal() {
    let event = |content: &str| {
        native(&format!(
            r#"{{"invocationId":"e","author":"a","content":{content}}}"#
        ))
    };
    let camel = event(
        r#"{"role":"model","parts":[{"text":"x"},{"functionCall":{"id":"f","name":"t",
            "args":{"a":1,"b":[2.0,null]}}}]}"#,
    );
    let snake = event(
        r#"{"parts": [{"text": "\u0078", "function_call": null}, {"function_call": {"name": "t",
            "args": {"b": [2, null], "a": 1, "c": null}, "id": "f"}}]}"#,
    );
    assert_eq!(camel, snake);
    for other in [
        r#"{"parts":[{"text":"y"},{"functionCall":{"id":"f","name":"t","args":{"a":1,
            "b":[2.0,null]}}}]}"#,
        r#"{"parts":[{"text":"x","thought":true},{"functionCall":{"id":"f","name":"t",
            "args":{"a":1,"b":[2.0,null]}}}]}"#,
        r#"{"parts":[{"functionCall":{"id":"f","name":"t","args":{"a":1,"b":[2.0,null]}}},
            {"text":"x"}]}"#,
        r#"{"parts":[{"text":"x"},{"functionCall":{"id":"f","name":"t","args":{"a":1,
            "b":[null,2]}}}]}"#,
        r#"{"parts":[{"text":"x"}]}"#,
    ] {
        assert_ne!(event(other).0, camel.0, "{other}");
    }
    assert_eq!(event(r#"{"parts":[]}"#), (0, vec![]));
    let transcript = |text: &str| {
        native(&format!(
            r#"{{"invocationId":"e","author":"a","outputTranscription":{{"text":"{text}"}}}}"#
        ))
        .0
    };
    assert_ne!(transcript("a"), transcript("b"));
}
