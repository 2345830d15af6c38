//! Every spelling of a usage object gives the same classes.

use super::*;

#[test]
fn spans_follow_the_convention() {
    let span = UsageContext {
        is_span: true,
        ..context("anthropic", "claude-sonnet-4-5")
    };
    // SEM-07.
    let json = r#"{"gen_ai.usage.input_tokens":"91507","gen_ai.usage.output_tokens":210.0,
        "gen_ai.usage.cache_read.input_tokens":90000,
        "gen_ai.usage.cache_creation.input_tokens":1500}"#;
    let expected = "in 91507 = 7 read 90000 write 1500, out 210, reported";
    check(&span, json, expected);
    let mut report = UsageReport::default();
    assert!(report.tell("gen_ai.usage.input_tokens", Told::Text("91507")));
    assert!(report.tell("gen_ai.usage.output_tokens", Told::Double(210.0)));
    assert!(report.tell("gen_ai.usage.cache_read_input_tokens", Told::Integer(90000)));
    assert!(report.tell(
        "gen_ai.usage.cache_creation_input_tokens",
        Told::Integer(1500)
    ));
    assert!(!report.tell("gen_ai.request.model", Told::Text("claude")));
    assert_eq!(text(&report.normalise(&span)), expected);
    // Against the convention.
    let json = r#"{"gen_ai.usage.input_tokens":7,"gen_ai.usage.output_tokens":210,
        "gen_ai.usage.cache_read.input_tokens":90000}"#;
    let expected = "in 90007 = 7 read 90000, out 210, reported usage_basis_guessed";
    check(&span, json, expected);
    // OpenInference does not say.
    let json = r#"{"llm.token_count.prompt":100,"llm.token_count.completion":5,
        "llm.token_count.prompt_details.cache_read":80}"#;
    let nameless = UsageContext {
        is_span: true,
        ..context("", "")
    };
    check(
        &nameless,
        json,
        "in 100 = 20 read 80, out 5, reported usage_basis_guessed",
    );
    let json = r#"{"stream.usage.inputTokens":9,"ai.usage.outputTokens":5,"ai.usage.tokens":14,
        "ai.usage.inputTokenDetails.cacheReadTokens":4}"#;
    check(&nameless, json, "in 9 = 5 read 4, out 5, reported");
}

#[test]
fn spellings_of_anthropic_and_openai() {
    for (provider, json, expected) in [
        // SEM-06, SEM-20.
        (
            "anthropic",
            r#"{"input_tokens":7,"cache_read_input_tokens":90000,
                "cache_creation_input_tokens":1500,"output_tokens":210}"#,
            "in 91507 = 7 read 90000 write 1500, out 210, reported",
        ),
        (
            "anthropic",
            r#"{"input_tokens":100,"cache_creation_input_tokens":1000,"output_tokens":10,
                "cache_creation":{"ephemeral_5m_input_tokens":600,"ephemeral_1h_input_tokens":400},
                "cache_read_input_tokens":0}"#,
            "in 1100 = 100 read 0 write 1000 5m 600 1h 400, out 10, reported",
        ),
        // A write total below its lifetimes is their sum.
        (
            "anthropic",
            r#"{"input_tokens":100,"cache_creation_input_tokens":0,"output_tokens":10,
                "cache_creation":{"ephemeral_5m_input_tokens":600,
                    "ephemeral_1h_input_tokens":400}}"#,
            "in 1100 = 100 write 1000 5m 600 1h 400, out 10, reported",
        ),
        // SEM-09, SEM-13, SEM-22.
        (
            "openai",
            r#"{"prompt_tokens":2300,"completion_tokens":100,"total_tokens":2400,
                "prompt_tokens_details":{"cached_tokens":2048,"audio_tokens":5},
                "completion_tokens_details":{"reasoning_tokens":70,"audio_tokens":3}}"#,
            "in 2300 = 252 read 2048 audio 5, out 100 reasoning 70 audio 3, reported",
        ),
        (
            "openai",
            r#"{"input_tokens":50000,"input_tokens_details":{"cached_tokens":48000},
                "output_tokens":300,"output_tokens_details":{"reasoning_tokens":120},
                "total_tokens":50300}"#,
            "in 50000 = 2000 read 48000, out 300 reasoning 120, reported",
        ),
        // SEM-10: both spellings, one set.
        (
            "litellm",
            r#"{"prompt_tokens":50010,"completion_tokens":400,"total_tokens":50410,
                "prompt_tokens_details":{"cached_tokens":40000,"cache_creation_tokens":10000},
                "cache_read_input_tokens":40000,"cache_creation_input_tokens":10000}"#,
            "in 50010 = 10 read 40000 write 10000, out 400, reported",
        ),
    ] {
        check(&context(provider, ""), json, expected);
    }
}

#[test]
fn spellings_of_others() {
    for (provider, json, expected) in [
        // SEM-23: DeepSeek; hits and misses without a prompt.
        (
            "",
            r#"{"prompt_tokens":1000,"completion_tokens":40,
                "prompt_cache_hit_tokens":800,"prompt_cache_miss_tokens":200}"#,
            "in 1000 = 200 read 800, out 40, reported",
        ),
        (
            "deepseek",
            r#"{"completion_tokens":40,"prompt_cache_hit_tokens":800,
                "prompt_cache_miss_tokens":200}"#,
            "in 1000 = 200 read 800, out 40, reported",
        ),
        // LangChain.
        (
            "",
            r#"{"input_tokens":350,"output_tokens":240,"total_tokens":590,
                "input_token_details":{"audio":10,"cache_creation":200,"cache_read":100},
                "output_token_details":{"audio":10,"reasoning":200}}"#,
            "in 350 = 50 read 100 write 200 audio 10, out 240 reasoning 200 audio 10, reported",
        ),
        // Bedrock's lifetimes.
        (
            "aws.bedrock",
            r#"{"inputTokens":10,"outputTokens":50,"cacheWriteInputTokens":300,
                "cacheDetails":[{"ttl":"5m","inputTokens":100},{"ttl":"1h","inputTokens":200}]}"#,
            "in 310 = 10 write 300 5m 100 1h 200, out 50, reported",
        ),
        // Java's BigQuery rows.
        (
            "",
            r#"{"prompt":100,"completion":20,"total":120,"cached_content_token_count":30}"#,
            "in 100 = 70 read 30, out 20, reported",
        ),
        // Writes beside Gemini names are part of the prompt, whatever the provider.
        (
            "anthropic",
            r#"{"prompt_token_count":100,"candidates_token_count":20,
                "cache_creation_input_tokens":40}"#,
            "in 100 = 60 write 40, out 20, reported",
        ),
    ] {
        check(&context(provider, ""), json, expected);
    }
}

#[test]
fn anima_names_its_provider() {
    let plain = context("", "scripted-1");
    for (json, expected) in [
        (
            r#"{"inputTokens":200,"cachedTokens":80,"reasoningTokens":50,"outputTokens":70,
                "provider":"openai","modelName":"gpt-5-mini"}"#,
            "in 200 = 120 read 80, out 70 reasoning 50, reported",
        ),
        (
            r#"{"inputTokens":200,"cachedTokens":80,"reasoningTokens":15,"outputTokens":20,
                "provider":"gemini","modelName":"gemini-2.5-flash"}"#,
            "in 200 = 120 read 80, out 35 reasoning 15, reported",
        ),
        (
            r#"{"inputTokens":110,"cachedTokens":80,"cacheWriteTokens":10,"outputTokens":70,
                "provider":"claude","modelName":"claude-sonnet-4"}"#,
            "in 200 = 110 read 80 write 10, out 70, reported",
        ),
        // Audio that is larger than its whole is beside it.
        (
            r#"{"inputTokens":50,"cachedTokens":10,"outputTokens":20,"audioInputTokens":300,
                "audioOutputTokens":180,"audioCachedTokens":40,"provider":"openai"}"#,
            "in 350 = 340 read 10 audio 300, out 200 audio 180, reported",
        ),
    ] {
        check(&plain, json, expected);
    }
    let json = r#"{"provider":"eurouter","requestedModelName":"auto","servingProvider":"mistral",
        "reportedCostUSD":4.2e-4,"modelName":"mistral-small","inputTokens":120,"outputTokens":30}"#;
    let report = UsageReport::parse(json).unwrap();
    assert_eq!(report.provider(), Some("eurouter"));
    assert_eq!(report.serving_provider(), Some("mistral"));
    assert_eq!(report.model(), Some("mistral-small"));
    assert_eq!(report.requested_model(), Some("auto"));
    assert_eq!(
        report.normalise(&plain).provider_cost.as_deref(),
        Some("0.00042")
    );
}

#[test]
fn modalities_come_from_lists() {
    let json = r#"{"promptTokenCount":1000,"candidatesTokenCount":50,"totalTokenCount":1090,
        "toolUsePromptTokenCount":40,
        "promptTokensDetails":[{"modality":"TEXT","tokenCount":100},
            {"modality":"MediaModality.AUDIO","tokenCount":"800"},{"tokenCount":100,"modality":2}],
        "toolUsePromptTokensDetails":[{"modality":"audio","tokenCount":40}],
        "cacheTokensDetails":[{"modality":"AUDIO","tokenCount":5}],
        "candidatesTokensDetails":[{"modality":"IMAGE","tokenCount":30},{"modality":"TEXT"}]}"#;
    let expected = "in 1040 = 1000 tool 40 audio 840 image 100, out 50 image 30, reported";
    check(&context("", ""), json, expected);
}

#[test]
fn tiers_have_one_vocabulary() {
    for (told, expected) in [
        ("ON_DEMAND", Some("standard")),
        ("ON_DEMAND_PRIORITY", Some("priority")),
        ("ON_DEMAND_FLEX", Some("flex")),
        ("ON_DEMAND_OFFPEAK", Some("offpeak")),
        ("PROVISIONED_THROUGHPUT", Some("provisioned")),
        ("default", Some("standard")),
        ("Scale", Some("scale")),
        ("TRAFFIC_TYPE_UNSPECIFIED", None),
    ] {
        assert_eq!(tier_word(told).as_deref(), expected);
    }
    let report = UsageReport::parse(r#"{"prompt_tokens":1,"trafficType":"ON_DEMAND_FLEX"}"#);
    let usage = report.unwrap().normalise(&context("", ""));
    assert_eq!(usage.service_tier.as_deref(), Some("flex"));
}
