//! Usage in text form: one line per rule, the object on the left, what follows on the right.

mod spellings;

use super::*;

const MAX: u64 = 100_000_000;

fn context<'a>(provider: &'a str, model: &'a str) -> UsageContext<'a> {
    UsageContext {
        provider: Some(provider).filter(|name| !name.is_empty()),
        model: Some(model).filter(|name| !name.is_empty()),
        plausible_tokens_max: MAX,
        ..UsageContext::default()
    }
}

/// `in 91507 = 7 + r90000 + w1500, out 210, total 91717, reported [flags]`
fn text(usage: &TokenUsage) -> String {
    let count = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
    let mut text = format!("in {}", count(usage.input_total));
    if usage.input_uncached != usage.input_total {
        text += &format!(" = {}", count(usage.input_uncached));
    }
    for (name, part) in [
        ("read", usage.cache_read),
        ("write", usage.cache_write),
        ("5m", usage.cache_write_5m),
        ("1h", usage.cache_write_1h),
        ("tool", usage.tool_use_input),
        ("audio", usage.audio_input),
        ("image", usage.image_input),
    ] {
        if let Some(part) = part {
            text += &format!(" {name} {part}");
        }
    }
    text += &format!(", out {}", count(usage.output_total));
    for (name, part) in [
        ("reasoning", usage.reasoning),
        ("audio", usage.audio_output),
        ("image", usage.image_output),
    ] {
        if let Some(part) = part {
            text += &format!(" {name} {part}");
        }
    }
    if let Some(unattributed) = usage.unattributed {
        text += &format!(", unattributed {unattributed}");
    }
    text += &format!(", {}", usage.state.as_str());
    for flag in usage.flags.iter() {
        text += &format!(" {flag}");
    }
    text
}

#[track_caller]
fn check(context: &UsageContext<'_>, json: &str, expected: &str) {
    let report = UsageReport::parse(json).expect("a usage object");
    assert_eq!(text(&report.normalise(context)), expected, "{json}");
}

#[test]
fn sums_decide_where_parts_are() {
    let any = context("", "");
    for (json, expected) in [
        // SEM-01, SEM-02, SEM-04: thoughts outside, inside, and beside a tool-use prompt.
        (
            r#"{"promptTokenCount":100,"candidatesTokenCount":20,"thoughtsTokenCount":300,
                "totalTokenCount":420}"#,
            "in 100, out 320 reasoning 300, reported",
        ),
        (
            r#"{"promptTokenCount":200,"candidatesTokenCount":90,"thoughtsTokenCount":60,
                "totalTokenCount":290}"#,
            "in 200, out 90 reasoning 60, reported",
        ),
        (
            r#"{"promptTokenCount":500,"candidatesTokenCount":40,"thoughtsTokenCount":60,
                "toolUsePromptTokenCount":300,"totalTokenCount":900}"#,
            "in 800 = 500 tool 300, out 100 reasoning 60, reported",
        ),
        // ADK Python's Anthropic shape: cache inside, thinking outside.
        (
            r#"{"prompt_token_count":100,"candidates_token_count":20,"thoughts_token_count":50,
                "cached_content_token_count":30,"total_token_count":170}"#,
            "in 100 = 70 read 30, out 70 reasoning 50, reported",
        ),
        // Bedrock's sums without its name.
        (
            r#"{"inputTokens":10,"outputTokens":50,"totalTokens":2360,
                "cacheReadInputTokens":2000,"cacheWriteInputTokens":300}"#,
            "in 2310 = 10 read 2000 write 300, out 50, reported",
        ),
        // Sums that put a part inside a smaller whole.
        (
            r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,
                "prompt_tokens_details":{"cached_tokens":40}}"#,
            "in 10 = 0 read 10, out 5, reported usage_part_exceeds_whole",
        ),
        // Either part outside gives the total: the guess is flagged.
        (
            r#"{"input_tokens":100,"output_tokens":50,"total_tokens":170,
                "cached_input_tokens":20,"reasoning_tokens":20}"#,
            "in 120 = 100 read 20, out 50 reasoning 20, reported usage_basis_guessed",
        ),
        // No reading gives the total.
        (
            r#"{"prompt_tokens":100,"completion_tokens":10,"total_tokens":150}"#,
            "in 100, out 10, unattributed 40, reported total_mismatch",
        ),
        (
            r#"{"prompt_tokens":100,"completion_tokens":10,"total_tokens":90}"#,
            "in 100, out 10, unattributed -20, reported total_mismatch",
        ),
    ] {
        check(&any, json, expected);
    }
}

#[test]
fn without_sums_sizes_and_then_the_provider_decide() {
    let cached = r#"{"input_tokens":100,"output_tokens":70,"cached_tokens":80}"#;
    let thoughts = r#"{"inputTokens":100,"outputTokens":70,"reasoningTokens":50}"#;
    let inside = "in 100 = 20 read 80, out 70, reported";
    let outside = "in 180 = 100 read 80, out 70, reported";
    for provider in [
        "anthropic",
        "claude",
        "aws.bedrock",
        "vertex_ai-anthropic_models",
    ] {
        check(&context(provider, ""), cached, outside);
    }
    for provider in [
        "openai",
        "azure.ai.openai",
        "litellm",
        "deepseek",
        "gcp.gemini",
    ] {
        check(&context(provider, ""), cached, inside);
    }
    check(
        &context("gemini", ""),
        thoughts,
        "in 100, out 120 reasoning 50, reported",
    );
    check(
        &context("openai", ""),
        thoughts,
        "in 100, out 70 reasoning 50, reported",
    );
    // Not named, or a stranger: flagged; the model's name is the better guess.
    let guessed = |text: &str| format!("{text} usage_basis_guessed");
    check(&context("", ""), cached, &guessed(inside));
    check(&context("groq", ""), cached, &guessed(inside));
    check(
        &context("", "anthropic/claude-sonnet-4-5"),
        cached,
        &guessed(outside),
    );
    let gemini = "in 100, out 120 reasoning 50, reported usage_basis_guessed";
    check(&context("", "gemini-2.5-flash"), thoughts, gemini);
    // A part of zero tokens is nowhere.
    let none = r#"{"input_tokens":100,"output_tokens":7,"cached_tokens":0}"#;
    check(&context("", ""), none, "in 100 read 0, out 7, reported");
    // Larger than the whole is outside, whoever the provider is.
    let larger = r#"{"inputTokens":200,"outputTokens":20,"cachedTokens":0,"reasoningTokens":50}"#;
    check(
        &context("openai", ""),
        larger,
        "in 200 read 0, out 70 reasoning 50, reported",
    );
    // The object may say it itself.
    let basis = r#"{"input_tokens":100,"output_tokens":70,"cached_tokens":80,"basis":"exclusive"}"#;
    check(&context("openai", ""), basis, outside);
}

#[test]
fn a_missing_side_follows_from_the_total() {
    let any = context("", "");
    for (json, expected) in [
        // GRD-01.
        (
            r#"{"promptTokenCount":57,"totalTokenCount":57}"#,
            "in 57, out 0, reported",
        ),
        (
            r#"{"promptTokenCount":200,"cachedContentTokenCount":50,"thoughtsTokenCount":20,
                "totalTokenCount":220}"#,
            "in 200 = 150 read 50, out 20 reasoning 20, reported",
        ),
        (
            r#"{"completion_tokens":20,"total_tokens":120}"#,
            "in 100, out 20, reported",
        ),
        (r#"{"prompt_tokens":100}"#, "in 100, out ?, partial"),
        (r#"{"output_tokens":5}"#, "in ? = ?, out 5, partial"),
        (r#"{"total_tokens":5}"#, "in ?, out ?, partial"),
        (
            r#"{"prompt_tokens":100,"total_tokens":90}"#,
            "in 100, out ?, partial",
        ),
        (r#"{}"#, "in ?, out ?, missing"),
        (
            r#"{"promptTokenCount":null,"candidatesTokenCount":""}"#,
            "in ?, out ?, missing",
        ),
    ] {
        let expected = expected.replace("in ? = ?", "in ?");
        check(&any, json, &expected);
    }
}

#[test]
fn fields_that_are_no_count_are_unknown() {
    let any = context("", "");
    for (json, expected) in [
        // SEM-17: the total beside an invalid part proves nothing.
        (
            r#"{"promptTokenCount":30,"candidatesTokenCount":-1,"totalTokenCount":29}"#,
            "in 30, out ?, partial invalid_usage_field",
        ),
        (
            r#"{"promptTokenCount":30,"candidatesTokenCount":-1,"totalTokenCount":40}"#,
            "in 30, out ?, partial invalid_usage_field",
        ),
        // SEM-18.
        (
            r#"{"promptTokenCount":"120","candidatesTokenCount":15.0,"totalTokenCount":1.35e2}"#,
            "in 120, out 15, reported",
        ),
        (
            r#"{"promptTokenCount":"12.5","candidatesTokenCount":"n/a","totalTokenCount":true}"#,
            "in ?, out ?, invalid invalid_usage_field",
        ),
        (
            r#"{"prompt_tokens":30,"completion_tokens":2,"total_tokens":[32]}"#,
            "in 30, out 2, reported invalid_usage_field",
        ),
        // A part that may be outside: the side is a lower bound.
        (
            r#"{"promptTokenCount":30,"candidatesTokenCount":2,"thoughtsTokenCount":1.5}"#,
            "in 30, out 2, partial invalid_usage_field",
        ),
        (
            r#"{"prompt_tokens":30,"completion_tokens":2,"reasoning_tokens":-1}"#,
            "in 30, out 2, reported invalid_usage_field",
        ),
        // SEM-19.
        (
            r#"{"promptTokenCount":9007199254740993,"candidatesTokenCount":1,
                "totalTokenCount":9007199254740994}"#,
            "in ?, out 1, partial implausible_usage",
        ),
        (
            r#"{"promptTokenCount":18446744073709551616,"candidatesTokenCount":1}"#,
            "in ?, out 1, partial invalid_usage_field",
        ),
    ] {
        check(&any, json, expected);
    }
    let raw = |json: &str| UsageReport::parse(json).unwrap().normalise(&any).raw_prompt;
    assert_eq!(
        raw(r#"{"prompt_tokens":9007199254740993}"#).as_deref(),
        Some("9007199254740993")
    );
    let overflow = raw(r#"{"prompt_tokens":18446744073709551616}"#);
    assert_eq!(overflow.as_deref(), Some("18446744073709551616"));
    assert_eq!(raw(r#"{"prompt_tokens":30}"#), None);
    let report = UsageReport::parse(r#"{"prompt_tokens":"x","total_tokens":-1}"#).unwrap();
    assert_eq!(report.invalid_fields(), 2);
}

#[test]
fn counts_are_exact() {
    for (told, expected) in [
        ("18446744073709551615", Count::Value(u64::MAX)),
        ("9007199254740993", Count::Value(9_007_199_254_740_993)),
        ("9007199254740993.000", Count::Value(9_007_199_254_740_993)),
        ("1.5e1", Count::Value(15)),
        ("150E-1", Count::Value(15)),
        ("-0", Count::Value(0)),
        (" 7 ", Count::Value(7)),
        ("15.5", Count::Invalid),
        ("1e99", Count::Invalid),
        ("1e-1", Count::Invalid),
        ("1,000", Count::Invalid),
        ("0x10", Count::Invalid),
        ("NaN", Count::Invalid),
        (".", Count::Invalid),
        ("", Count::Absent),
    ] {
        assert_eq!(Count::from_text(told), expected, "{told}");
    }
    assert_eq!(Count::from_f64(1e20), Count::Invalid);
    assert_eq!(Count::from_f64(f64::NAN), Count::Invalid);
}

#[test]
fn no_object_is_no_report() {
    for json in [
        "null",
        "\"\"",
        "",
        "[]",
        "7",
        "{",
        "{\"prompt_tokens\":1} x",
    ] {
        assert_eq!(UsageReport::parse(json), None, "{json}");
    }
    assert!(UsageReport::parse("{}").unwrap().is_empty());
    assert!(
        !UsageReport::parse(r#"{"prompt_tokens":0}"#)
            .unwrap()
            .is_empty()
    );
    // Details of a shape nobody expects cost nothing but themselves.
    let json = r#"{"prompt_tokens":2,"completion_tokens":1,"input_tokens_details":7,
        "output_tokens_details":"x","promptTokensDetails":[3,{"modality":"AUDIO"}],
        "server_tool_use":null}"#;
    check(&context("", ""), json, "in 2, out 1, reported");
    // Unknown keys, deep or shallow, escapes in keys, a repeated key: the last one holds.
    let json = r#"{"x":{"promptTokenCount":9},"prompt\u005ftokens":1,"prompt_tokens":2,
        "completion_tokens":1,"stranger":[[{}]]}"#;
    check(&context("", ""), json, "in 2, out 1, reported");
}

#[test]
fn zeros_are_measurements_unless_there_was_content() {
    let json = r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#;
    let any = context("openai", "");
    check(&any, json, "in 0, out 0, reported");
    let content = UsageContext {
        had_content: true,
        ..any
    };
    check(
        &content,
        json,
        "in ?, out ?, missing zero_usage_placeholder",
    );
    check(
        &content,
        r#"{"prompt_tokens":9,"completion_tokens":0}"#,
        "in 9, out 0, reported",
    );
}

#[test]
fn of_two_spellings_the_larger_that_fits() {
    let any = context("openai", "");
    for (json, expected) in [
        (
            r#"{"prompt_tokens":100,"completion_tokens":10,"cached_tokens":0,
                "prompt_tokens_details":{"cached_tokens":60}}"#,
            "in 100 = 40 read 60, out 10, reported usage_field_conflict",
        ),
        (
            r#"{"prompt_tokens":100,"completion_tokens":10,"cached_tokens":600,
                "prompt_tokens_details":{"cached_tokens":60}}"#,
            "in 100 = 40 read 60, out 10, reported usage_field_conflict",
        ),
        (
            r#"{"prompt_tokens":100,"input_tokens":70,"completion_tokens":10,"total_tokens":80}"#,
            "in 70, out 10, reported usage_field_conflict",
        ),
        (
            r#"{"prompt_tokens":100,"input_tokens":100,"completion_tokens":10}"#,
            "in 100, out 10, reported",
        ),
    ] {
        check(&any, json, expected);
    }
}

#[test]
fn a_wrapper_may_hide_the_cache() {
    let gemini = r#"{"promptTokenCount":12,"candidatesTokenCount":300,"totalTokenCount":312}"#;
    let native = r#"{"input_tokens":12,"output_tokens":300}"#;
    let hidden = "in 12, out 300, reported cache_unreported";
    check(&context("", "claude-sonnet-4-5"), gemini, hidden);
    check(
        &context("", "gemini-2.5-flash"),
        gemini,
        "in 12, out 300, reported",
    );
    check(
        &context("anthropic", "claude-x"),
        native,
        "in 12, out 300, reported",
    );
    let anima = UsageContext {
        runtime: Some("anima"),
        ..context("", "claude-sonnet-4")
    };
    check(&anima, r#"{"inputTokens":12,"outputTokens":300}"#, hidden);
    let told = r#"{"promptTokenCount":12,"cachedContentTokenCount":0,"totalTokenCount":312}"#;
    check(
        &context("", "claude-sonnet-4-5"),
        told,
        "in 12 read 0, out 300, reported",
    );
}

#[test]
fn newest_wins_field_by_field() {
    let merged = |objects: &[&str]| {
        let mut report = UsageReport::default();
        for json in objects {
            report.merge(&UsageReport::parse(json).unwrap());
        }
        text(&report.normalise(&context("anthropic", "")))
    };
    // USG-04, and a delta that tells the output only.
    assert_eq!(
        merged(&[
            r#"{"input_tokens":31,"cache_read_input_tokens":800,"output_tokens":1}"#,
            r#"{"output_tokens":52}"#,
        ]),
        "in 831 = 31 read 800, out 52, reported"
    );
    // A total of an older snapshot is not held against newer numbers.
    assert_eq!(
        merged(&[
            r#"{"prompt_tokens":40,"completion_tokens":5,"total_tokens":45}"#,
            r#"{"completion_tokens":33}"#,
        ]),
        "in 40, out 33, reported"
    );
    // Zeros after numbers are a placeholder; an empty object says nothing.
    assert_eq!(
        merged(&[
            r#"{"prompt_tokens":40,"completion_tokens":5}"#,
            r#"{"prompt_tokens":0,"completion_tokens":0}"#,
            "{}",
        ]),
        "in 40, out 5, reported usage_from_partial zero_usage_placeholder"
    );
    // An invalid newer field is unknown.
    assert_eq!(
        merged(&[
            r#"{"prompt_tokens":40,"completion_tokens":5}"#,
            r#"{"completion_tokens":-1}"#
        ]),
        "in 40, out ?, partial invalid_usage_field"
    );
    // The newer object settles a conflict of the older one.
    assert_eq!(
        merged(&[
            r#"{"prompt_tokens":40,"input_tokens":41,"completion_tokens":5}"#,
            r#"{"prompt_tokens":40}"#,
        ]),
        "in 40, out 5, reported"
    );
}

#[test]
fn a_fallen_count_shows() {
    let report = |json| UsageReport::parse(json).unwrap();
    let older = report(r#"{"prompt_tokens":50,"completion_tokens":9,"total_tokens":59}"#);
    // LAT-21.
    let newer = report(r#"{"prompt_tokens":50,"completion_tokens":7,"total_tokens":57}"#);
    assert!(newer.shrank_from(&older));
    assert!(!older.shrank_from(&newer));
    assert!(!older.shrank_from(&older));
    let zeros = report(r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#);
    assert!(!zeros.shrank_from(&older));
}

#[test]
fn billed_searches_are_no_tokens() {
    let json = r#"{"input_tokens":2000,"output_tokens":100,
        "server_tool_use":{"web_search_requests":3}}"#;
    let usage = UsageReport::parse(json)
        .unwrap()
        .normalise(&context("anthropic", ""));
    assert_eq!(
        (usage.web_search_requests, usage.total),
        (Some(3), Some(2100))
    );
}

fn usage_of(json: &str) -> TokenUsage {
    UsageReport::parse(json)
        .unwrap()
        .normalise(&context("openai", ""))
}

#[test]
fn attempts_add_up() {
    let first = r#"{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110,"cost":0.10}"#;
    let next = r#"{"prompt_tokens":100,"completion_tokens":20,"total_tokens":121,"cost":"1.025",
        "cached_tokens":60}"#;
    let mut usage = usage_of(first);
    usage.add(&usage_of(next));
    let expected = "in 200 = 140 read 60, out 30, unattributed 1, reported total_mismatch";
    assert_eq!(text(&usage), expected);
    assert_eq!(usage.provider_cost.as_deref(), Some("1.125"));
    // An attempt without usage adds nothing, in either order.
    let mut late = TokenUsage::default();
    late.add(&usage);
    late.add(&TokenUsage::default());
    assert_eq!(late, usage);
    // A lower bound stays one.
    usage.add(&usage_of(r#"{"prompt_tokens":100}"#));
    assert_eq!(usage.state, UsageState::Partial);
    assert_eq!((usage.total, usage.provider_total), (Some(330), None));
}

#[test]
fn sums_know_nothing_from_zero() {
    let mut sum = UsageSum::default();
    assert_eq!(sum.value(TokenClass::InputTotal), Some(0));
    assert!(sum.is_complete());
    sum.add(&TokenUsage::default());
    assert_eq!(sum.value(TokenClass::InputTotal), None);
    sum.add(&usage_of(r#"{"prompt_tokens":100,"completion_tokens":0}"#));
    assert_eq!(sum.value(TokenClass::InputTotal), Some(100));
    assert_eq!(sum.value(TokenClass::OutputTotal), Some(0));
    assert_eq!(sum.value(TokenClass::CacheRead), None);
    assert!(!sum.is_complete());
    let mut all = UsageSum::default();
    all.add_sum(&sum);
    assert_eq!((all.calls(), all.value(TokenClass::Total)), (2, Some(100)));
}

#[test]
fn lower_bounds_are_flagged() {
    let mut usage = usage_of(r#"{"prompt_tokens":100,"completion_tokens":1}"#);
    usage.lower_to_partial();
    assert_eq!(text(&usage), "in 100, out 1, partial usage_from_partial");
    let mut missing = TokenUsage::default();
    missing.lower_to_partial();
    assert_eq!(missing, TokenUsage::default());
}
