//! Records and what they say: envelopes, recognition, kinds, bad input. Native events stand apart.

use super::summary::{check, check_kind, check_native, context, read};
use super::{Decoded, RecordBytes, decode};
use crate::core::event::Dialect;

#[test]
fn an_envelope_is_read_whole() {
    check(
        r#"{"v":1,"kind":"run.start","at":1772445600,"mono_ns":41,"record_id":"r","seq":7,
            "emitter":{"name":"n","version":"0.1","instance":"p1"},
            "runtime":{"name":"adk-python","version":"2.13.0"},"app":"support","tenant":"north",
            "session_id":"s","user_key":"h","invocation_id":"e","run_id":"x",
            "parent":{"invocation_id":"e0","run_id":"x0","call_id":"c0"},"branch":"a.b",
            "node_path":"wf/n@1","agent":"desk","trace_id":"t","span_id":"p","measured":"hook",
            "attributes":{"cost_centre":"eu-west-1","n":1.50,"o":{},"z":null,"b":true,"more":1},
            "root_agent":"desk","trigger":"resume","brand_new":[1]}"#,
        "lifecycle/env at=1772445600000000000 mono=41 record=r seq=7 instance=p1 \
         runtime=adk-python version=2.13.0 app=support tenant=north session=s user=h inv=e run=x \
         parent_inv=e0 parent_run=x0 parent_call=c0 branch=a.b path=wf/n@1 agent=desk trace=t \
         span=p measured=hook @cost_cen=eu-west- @n=1.50 @b=true \
         RunStart { root_agent: (\"desk\"), trigger: (\"resume\") }",
    );
}

#[test]
fn absent_null_empty_and_foreign_types_are_unknown() {
    for fields in [
        "",
        r#","app":null,"branch":null,"at":null,"emitter":null,"parent":null,"attributes":null"#,
        r#","app":"","branch":"","at":"","emitter":{},"parent":{"call_id":""},"attributes":{}"#,
        r#","app":[1],"branch":{},"at":true,"emitter":"p1","parent":[],"attributes":[{"a":1}]"#,
        r#","app":true,"seq":-1,"mono_ns":"x","emitter":7,"parent":0.5,"measured":"guessed""#,
    ] {
        check_kind("agent.start", fields, "AgentStart");
    }
    check_kind(
        "model.start",
        r#","call_id":7,"attempt":"2""#,
        "ModelStart(ModelStart { call_id: (\"7\"), attempt: (2) })",
    );
}

#[test]
fn runs_and_agents() {
    check_kind(
        "run.end",
        r#","status":"limited","limit":"max_steps","error":{"type":"X","code":429,
            "message":"secret"}"#,
        "RunEnd { status: Limited, limit: (\"max_steps\"), error: (ErrorSaid { kind: (\"X\"), \
            code: (\"429\") }) }",
    );
    check_kind(
        "run.end",
        r#","status":"exploded""#,
        "RunEnd { status: Unknown }",
    );
    check_kind(
        "agent.end",
        r#","status":"transferred","handoff_to":"b""#,
        "AgentEnd { status: Transferred, handoff_to: (\"b\") }",
    );
    check_kind(
        "agent.error",
        r#","error":"boom""#,
        "AgentError { error: ErrorSaid }",
    );
}

#[test]
fn model_calls() {
    check_kind(
        "model.start",
        r#","call_id":"c","model":"m","provider":"p","streaming":true,"step":2,"attempt":1"#,
        "ModelStart(ModelStart { call_id: (\"c\"), model: (\"m\"), provider: (\"p\"), streaming: \
            (true), step: (2), attempt: (1) })",
    );
    for (word, content) in [
        ("\"text\"", "Text"),
        ("\"tool_call\"", "ToolCall"),
        ("\"smell\"", "Other"),
        ("null", "None"),
    ] {
        check_kind(
            "model.chunk",
            &format!(r#","call_id":"c","index":3,"content":{word},"usage":null"#),
            &format!(
                "ModelChunk(ModelChunk {{ call_id: (\"c\"), index: (3), content: {content} }})"
            )
            .replace(", content: None", ""),
        );
    }
    check_kind(
        "model.end",
        r#","call_id":"c","served_by":"cache","finish_reason":"STOP","service_tier":"flex",
            "started_at":1772445600.5,"first_chunk_at":"2026-03-02T10:00:01Z","chunks":4,
            "usage":[]"#,
        "ModelEnd(ModelEnd { call_id: (\"c\"), served_by: (Cache), finish_reason: (\"STOP\"), \
            service_tier: (\"flex\"), started_at: (EventTime(1772445600500000000)), \
            first_chunk_at: (EventTime(1772445601000000000)), chunks: (4) })",
    );
    check_kind(
        "model.end",
        r#","served_by":"elves""#,
        "ModelEnd(ModelEnd { served_by: (Unknown) })",
    );
    check_kind(
        "model.error",
        r#","call_id":"c","error":{"type":"cancelled"},"recovered":true"#,
        "ModelError(ModelError { call_id: (\"c\"), error: ErrorSaid { kind: (\"cancelled\") }, \
            recovered: (true) })",
    );
}

#[test]
fn tools_hooks_recoveries_and_gaps() {
    check_kind(
        "tool.start",
        r#","call_id":"f","execution":2,"tool":"t","origin":"mcp""#,
        "ToolStart(ToolStart { call_id: (\"f\"), execution: (2), tool: (\"t\"), origin: \
            (\"mcp\") })",
    );
    check_kind(
        "tool.end",
        r#","call_id":"f","answers":{"invocation_id":"e0","call_id":"f0"},"outcome":"timeout",
            "duration_ms":12.5,"retries":1"#,
        "ToolEnd(ToolEnd { call_id: (\"f\"), answers: ((\"e0\", \"f0\")), outcome: Timeout, \
            duration: (Nanos(12500000)), retries: (1) })",
    );
    check_kind(
        "tool.end",
        r#","answers":{"call_id":"f0"},"outcome":"eaten""#,
        "ToolEnd(ToolEnd { outcome: Unknown })",
    );
    check_kind(
        "hook.outcome",
        r#","hook":"before_model","actor":{"type":"plugin","name":"g"},"returned":"value",
            "call_id":"c""#,
        "HookOutcome(HookOutcome { hook: (\"before_model\"), actor_type: (\"plugin\"), \
            actor_name: (\"g\"), returned: Value, call_id: (\"c\") })",
    );
    check_kind(
        "recovery.decision",
        r#","phase":"tool","attempt":2,"action":"retry","handler":"h","call_id":"f",
            "error":{"type":"X"}"#,
        "RecoveryDecision(Recovery { phase: (\"tool\"), attempt: (2), action: (\"retry\"), \
            handler: (\"h\"), call_id: (\"f\"), error: (ErrorSaid { kind: (\"X\") }) })",
    );
    check(
        r#"{"v":1,"kind":"emitter.gap","dropped":3,"from_seq":4,"to_seq":6}"#,
        "lifecycle/env EmitterGap { dropped: (3), from_seq: (4), to_seq: (6) }",
    );
    check(
        r#"{"v":1,"kind":"weather.report","seq":9}"#,
        "ignored: lifecycle/env seq=9 Unknown",
    );
}

#[test]
fn decisions_and_their_words() {
    check_kind(
        "guardrail.decision",
        r#","stage":"tool_input","decision":"deny","action":"block","policy":{"id":"p",
            "version":"3","rule":"r"},"reason_code":"PII","reason":"short",
            "actor":{"type":"plugin","name":"g"},"target":{"kind":"tool","call_id":"f",
            "name":"t"},"mode":"enforce","outcome":"decided","duration_ms":3000"#,
        "decision stage=tool_input is=deny native=deny action=block policy=p policy_version=3 \
            rule=r reason_code=PII reason=short actor_type=plugin actor=g target_kind=tool \
            target_call=f target=t mode=enforce outcome=decided took=3000000000",
    );
    for (words, decision) in [
        ("allow pass ok", "allow"),
        ("deny block blocked refuse DENY BLOCKED", "deny"),
        ("modify redact mask transform ANONYMIZED", "modify"),
        ("warn flag", "warn"),
        ("escalate confirm CONFIRM", "escalate"),
    ] {
        for word in words.split(' ') {
            check_kind(
                "guardrail.decision",
                &format!(r#","decision":"{word}""#),
                &format!("decision is={decision} native={word}"),
            );
        }
    }
    check_kind(
        "guardrail.decision",
        r#","decision":"perhaps","stage":"lunch""#,
        "decision stage=unknown native=perhaps unmapped",
    );
    check_kind(
        "guardrail.decision",
        r#","outcome":"failed_open""#,
        "decision outcome=failed_open",
    );
}

#[test]
fn findings_decide_where_the_word_does_not() {
    check_kind(
        "guardrail.decision",
        r#","decision":"GUARDRAIL_INTERVENED","native":{"action":"BLOCKED",
            "assessments":[{"type":"EMAIL","action":"ANONYMIZED"},{"type":"topic","action":"NONE",
            "detected":true}]}"#,
        "decision is=modify native=GUARDRAIL_INTERVENED modifyx1 warnx1 entities=EMAIL,topic",
    );
    check_kind(
        "guardrail.decision",
        r#","decision":"X","native":{"a":[{"b":{"type":"EMAIL","action":"ANONYMIZED"}},
            {"type":"topic","action":"BLOCKED"}]}"#,
        "decision is=deny native=X denyx1 modifyx1 entities=EMAIL,topic",
    );
    check_kind(
        "guardrail.decision",
        r#","decision":"redact","native":{"entities":{"CREDIT_CARD":1,"me@example.test":2},
            "assessments":[{"type":"EMAIL","match":"me@example.test","action":"BLOCKED"}]}"#,
        "decision is=modify native=redact denyx1 entities=CREDIT_CARD,EMAIL",
    );
    check_kind(
        "guardrail.decision",
        r#","native":{"x":[{"action":"BLOCKED"}]}"#,
        "decision denyx1",
    );
}

#[test]
fn a_native_event_in_our_envelope() {
    check(
        r#"{"v":1,"kind":"event","at":1772445602,"record_id":"w","tenant":"north",
            "session_id":"s","invocation_id":"e","event":{"id":"n","author":"desk",
            "timestamp":1772445601,"invocationId":"","content":{"parts":[{"text":"x"}]}}}"#,
        "adk/env at=1772445601000000000 record=w tenant=north session=s inv=e agent=desk native \
            id=n text",
    );
    check(
        r#"{"v":1,"kind":"event","at":1772445602,
            "event":"{\"author\":\"desk\",\"invocation_id\":\"e\",\"branch\":\"b\"}"}"#,
        "adk/env at=1772445602000000000 inv=e branch=b agent=desk native",
    );
    check(
        r#"{"v":1,"kind":"event","invocation_id":"e"}"#,
        "no_envelope",
    );
    check(
        r#"{"v":1,"kind":"event","invocation_id":"e","event":{"type":"user","createdAt":1}}"#,
        "no_envelope",
    );
    check(
        r#"{"v":1,"kind":"event","event":{"author":"a"}}"#,
        "no_invocation_id",
    );
}

#[test]
fn wrappings_are_taken_off() {
    let one = r#"{"invocationId":"e","author":"a"}"#;
    let said = "adk inv=e agent=a native";
    check(&format!("[{one}]"), said);
    check(&format!(" [ {one} ,{one}] "), &format!("{said}\n{said}"));
    check(&serde_json::to_string(one).unwrap(), said);
    check(&format!("[{}]", serde_json::to_string(one).unwrap()), said);
    check(&format!("[{one},{{}}]"), "no_envelope");
    check(
        &format!("[{one},{{\"invocationId\":null,\"author\":\"a\"}}]"),
        "no_invocation_id",
    );
    check("[]", "no_envelope");
    check(&format!("[[[[[{one}]]]]]"), "no_envelope");
    let prefixed = [&b"\0\0\0\0\x2a\xef\xbb\xbf"[..], one.as_bytes()].concat();
    assert_eq!(
        read(&prefixed, &[]),
        "adk inv=e agent=a +bom +schema_prefix native"
    );
}

#[test]
fn cloud_events() {
    let structured: [(&str, Option<&[u8]>); 2] = [
        ("other", None),
        (
            "Content-Type",
            Some(b"application/cloudevents+json; charset=utf-8"),
        ),
    ];
    let payload = br#"{"specversion":"1.0","id":"ce","source":"/a","type":"x","data":{"v":1,
            "kind":"agent.start","record_id":"r","invocation_id":"e"}}"#;
    let said = "lifecycle/env record=/a ce inv=e AgentStart";
    assert_eq!(read(payload, &structured), said);
    assert_eq!(read(payload, &[]), said);
    let batch = [b"[", &payload[..], b",", payload, b",\"x\",{\"x\":NaN}]"].concat();
    assert_eq!(read(&batch, &structured), "no_envelope");
    let batch = [b"[", &payload[..], b",", payload, b"]"].concat();
    assert_eq!(read(&batch, &structured), format!("{said}\n{said}"));
    let binary: [(&str, Option<&[u8]>); 3] = [
        ("ce_id", Some(b"ce")),
        ("ce_source", Some(b"/a")),
        ("content-type", Some(b"application/json")),
    ];
    assert_eq!(
        read(br#"{"invocationId":"e","author":"a"}"#, &binary),
        "adk record=/a ce inv=e agent=a native"
    );
    check(
        r#"{"specversion":"1.0","id":"ce","source":"/a",
            "data":"{\"invocationId\":\"e\",\"author\":\"a\"}"}"#,
        "adk record=/a ce inv=e agent=a native",
    );
    check(
        r#"{"specversion":"1.0","id":"ce","source":"/a"}"#,
        "no_envelope",
    );
    check(
        r#"{"specversion":"1.0","data":{"specversion":"1.0","data":{"specversion":"1.0",
            "data":{"specversion":"1.0","data":{"specversion":"1.0","data":{}}}}}}"#,
        "no_envelope",
    );
}

#[test]
fn bad_input() {
    for (payload, reason) in [
        (&b""[..], "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (b"  ", "invalid_json"),
        (
            b"{\"id\":\"p1\",\"invocationId\":\"e\",\"usageMetadata\":{\"promptTok",
            "invalid_json",
        ),
        (b"\x80\x81\x82\x83", "invalid_json"),
        (
            b"{\"invocationId\":\"e\",\"author\":\"a\"} trailing",
            "invalid_json",
        ),
        (
            b"{\"invocationId\":\"e\",\"author\":\"a\",\"x\":'y'}",
            "invalid_json",
        ),
        (b"hello", "invalid_json"),
        (b"null", "no_envelope"),
        (b"42", "no_envelope"),
        (b"\"hello\"", "no_envelope"),
        (b"{}", "no_envelope"),
        (b"{\"invocationId\":\"e\"}", "no_envelope"),
        (b"{\"author\":\"a\"}", "no_envelope"),
        (
            b"{\"invocationId\":\"e\",\"author\":\"a\",\"kind\":\"x\"}",
            "no_envelope",
        ),
        (
            b"{\"v\":\"1\",\"kind\":\"run.start\",\"invocation_id\":\"e\"}",
            "no_envelope",
        ),
        (
            b"{\"v\":1,\"kind\":7,\"invocation_id\":\"e\"}",
            "no_envelope",
        ),
        (b"{\"resourceSpans\":[]}", "no_envelope"),
        (
            b"{\"invocationId\":\"\",\"author\":\"a\"}",
            "no_invocation_id",
        ),
        (b"{\"v\":1,\"kind\":\"run.start\"}", "no_invocation_id"),
    ] {
        assert_eq!(
            read(payload, &[]),
            reason,
            "{}",
            String::from_utf8_lossy(payload)
        );
    }
    let large = format!(
        r#"{{"invocationId":"e","author":"a","x":"{}"}}"#,
        "x".repeat(1 << 20)
    );
    check(&large, "too_large");
    let nest = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    check_native(&format!(r#","x":{}"#, nest(511)), "");
    check_native(&format!(r#","x":{}"#, nest(512)), "too_deep");
    check_native(&format!(r#","customMetadata":{{"x":{}}}"#, nest(300)), "");
    let deep = format!(
        r#","content":{{"parts":[{{"functionCall":{{"name":"t","args":{{"a":{}}}}}}}]}}"#,
        nest(400)
    );
    check_native(&deep, " call(t:?)");
}

#[test]
fn odd_bytes_are_read_and_flagged() {
    let flagged = |fields: &str, flag: &str, said: &str| {
        check_native(fields, &format!("adk inv=e agent=a +{flag} native{said}"));
    };
    flagged(
        r#","avgLogprobs":NaN,"x":[Infinity,-Infinity]"#,
        "nonstandard_json",
        "",
    );
    flagged(
        r#","content":{"parts":[{"text":"nice \ud83d"}]}"#,
        "lone_surrogate",
        " text",
    );
    flagged(r#","x":"\ud83d""#, "lone_surrogate", "");
    flagged(
        r#","partial":true,"partial":false"#,
        "duplicate_keys",
        " partial=false",
    );
    flagged(
        r#","finishReason":"A","finish_reason":"B""#,
        "duplicate_keys",
        " finish=B",
    );
    flagged(
        r#","content":{"parts":[{"text":"x","text":""}]}"#,
        "duplicate_keys",
        "",
    );
    check(
        r#"{"invocationId":"e","InvocationID":"e2","author":"a"}"#,
        "adk inv=e2 agent=a +duplicate_keys native go_v1",
    );
    check(
        r#"{"v":1,"kind":"run.end","kind":"agent.start","invocation_id":"e"}"#,
        "lifecycle/env inv=e +duplicate_keys AgentStart",
    );
    let latin = [
        &b"{\"invocationId\":\"e\",\"author\":\"caf"[..],
        b"\xe9\",\"content\":{\"parts\":[{\"text\":\"\xff\"}]}}",
    ]
    .concat();
    assert_eq!(
        read(&latin, &[]),
        "adk inv=e agent=caf\u{fffd} +invalid_utf8 native text"
    );
    check(
        r#"[{"invocationId":"e","author":"a"},{"invocationId":"e","author":"b","x":NaN}]"#,
        "adk inv=e agent=a +nonstandard_json native\nadk inv=e agent=b +nonstandard_json native",
    );
}

#[test]
fn a_configured_dialect_is_the_only_one_read() {
    let mut asked = context();
    let mut outcome = |dialect, payload: &str| {
        asked.dialect = Some(dialect);
        let record = RecordBytes {
            payload: payload.as_bytes(),
            headers: &[],
        };
        matches!(
            decode(record, &asked, &mut |_| ()),
            Decoded::Read { events: 1, .. }
        )
    };
    let native = r#"{"invocationId":"e","author":"a"}"#;
    let ours = r#"{"v":1,"kind":"run.start","invocation_id":"e"}"#;
    assert!(outcome(Dialect::Adk, native) && !outcome(Dialect::Adk, ours));
    assert!(!outcome(Dialect::Lifecycle, native) && outcome(Dialect::Lifecycle, ours));
}

proptest::proptest! {
    /// Whatever the bytes are, they are read or refused.
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        read(&bytes, &[]);
    }

    /// A damaged record is read or refused as well.
    #[test]
    fn no_damage_panics(at in 0_usize..400, byte: u8) {
        let mut bytes = br#"{"v":1,"kind":"event","at":1772445602.25,
            "invocation_id":"e\ud83d\ude00","parent":{"call_id":"c"},"event":{"author":"desk",
            "timestamp":"2026-03-02T10:00:01Z","content":{"parts":[{"functionCall":{"id":"f",
            "name":"adk_request_confirmation","args":{"originalFunctionCall":{"id":"x"}}}},
            {"functionResponse":{"response":{"error":NaN}}}]},
            "customMetadata":[{"key":"tenant"}]}}"#.to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        read(&bytes, &[]);
    }
}
