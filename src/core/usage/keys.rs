//! The spellings: which key tells which count (events.md §2.2, telemetry-names.md §4).
//!
//! A spelling names no provider and decides nothing about insides.

use super::{Field, spelling};

/// What a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Count(Field),
    /// An object or a list with further counts.
    Inner(Place),
    Name(Names),
    Cost,
    Ignored,
}

/// Texts that a usage object may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    Provider,
    ServingProvider,
    Model,
    RequestedModel,
    ServiceTier,
    Basis,
}

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Place {
    Top,
    Input,
    Output,
    CacheCreation,
    CacheDetails,
    ServerTools,
}

/// The meaning of a key, and a hash of its spelling.
pub(crate) fn key(key: &str, place: Place, spelled: &mut u8) -> (Key, u32) {
    let meaning = match place {
        Place::Top => top(key, spelled),
        Place::Input => input_detail(key),
        Place::Output => output_detail(key),
        Place::CacheCreation | Place::CacheDetails => lifetime(key),
        Place::ServerTools => match key {
            "web_search_requests" => Key::Count(Field::WebSearches),
            _ => Key::Ignored,
        },
    };
    let mut hash = 0x811c_9dc5_u32 ^ place as u32;
    if meaning != Key::Ignored {
        for byte in key.bytes() {
            hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }
    (meaning, hash)
}

fn top(key: &str, spelled: &mut u8) -> Key {
    if let Some(field) = gemini(key) {
        *spelled |= spelling::GEMINI;
        return Key::Count(field);
    }
    if key.contains('.') {
        return dotted(key, spelled);
    }
    if let Some(field) = plain(key) {
        return Key::Count(field);
    }
    let meaning = other(key);
    if matches!(
        key,
        "modelName" | "requestedModelName" | "servingProvider" | "reportedCostUSD"
    ) {
        *spelled |= spelling::ANIMA;
    }
    meaning
}

fn gemini(key: &str) -> Option<Field> {
    Some(match key {
        "promptTokenCount" | "prompt_token_count" => Field::Input,
        "candidatesTokenCount" | "candidates_token_count" => Field::Output,
        "responseTokenCount" | "response_token_count" => Field::Output,
        "totalTokenCount" | "total_token_count" => Field::Total,
        "thoughtsTokenCount" | "thoughts_token_count" => Field::Reasoning,
        "cachedContentTokenCount" | "cached_content_token_count" => Field::CacheRead,
        "toolUsePromptTokenCount" | "tool_use_prompt_token_count" => Field::ToolUse,
        _ => return None,
    })
}

/// OpenAI Chat and Responses, Anthropic, Bedrock, DeepSeek, LangChain, LiteLLM, Anima, Vercel,
/// Genkit, BigQuery rows; and what is left of a span attribute without its prefix.
fn plain(key: &str) -> Option<Field> {
    Some(match key {
        "input_tokens" | "inputTokens" | "prompt_tokens" | "promptTokens" | "prompt" | "input"
        | "inputTokenCount" | "input_token_count" => Field::Input,
        "output_tokens" | "outputTokens" | "completion_tokens" | "completionTokens"
        | "completion" | "output" | "outputTokenCount" | "output_token_count" => Field::Output,
        "total_tokens" | "totalTokens" | "total" => Field::Total,
        "cache_read_input_tokens"
        | "cacheReadInputTokens"
        | "cachedTokens"
        | "cached_tokens"
        | "cached_input_tokens"
        | "cachedInputTokens"
        | "cachedPromptTokens"
        | "cacheReadInputTokenCount"
        | "cache_read_input_token_count"
        | "cacheReadTokens"
        | "cache_read_tokens"
        | "input_cached_tokens"
        | "cachedContentTokens"
        | "prompt_cache_hit_tokens" => Field::CacheRead,
        "cache_creation_input_tokens"
        | "cacheWriteInputTokens"
        | "cacheWriteTokens"
        | "cacheCreationInputTokens"
        | "cacheWriteInputTokenCount"
        | "cache_write_input_token_count"
        | "cache_write_tokens"
        | "cache_creation_tokens"
        | "cache_write_input_tokens"
        | "input_cache_creation"
        | "cache_creation" => Field::CacheWrite,
        "prompt_cache_miss_tokens" => Field::CacheMiss,
        "reasoningTokens" | "reasoning_tokens" | "thoughtsTokens" | "reasoning_output_tokens" => {
            Field::Reasoning
        }
        "audioInputTokens" | "audio_input_tokens" | "input_audio_tokens" => Field::AudioInput,
        "audioOutputTokens" | "audio_output_tokens" | "output_audio_tokens" => Field::AudioOutput,
        _ => return None,
    })
}

fn other(key: &str) -> Key {
    match key {
        "promptTokensDetails"
        | "prompt_tokens_details"
        | "input_tokens_details"
        | "input_token_details"
        | "inputTokenDetails"
        | "inputTokensDetails"
        | "toolUsePromptTokensDetails"
        | "tool_use_prompt_tokens_details" => Key::Inner(Place::Input),
        "candidatesTokensDetails"
        | "candidates_tokens_details"
        | "completion_tokens_details"
        | "output_tokens_details"
        | "output_token_details"
        | "outputTokenDetails"
        | "outputTokensDetails"
        | "responseTokensDetails"
        | "response_tokens_details" => Key::Inner(Place::Output),
        "cacheDetails" | "cache_details" => Key::Inner(Place::CacheDetails),
        "server_tool_use" | "serverToolUse" => Key::Inner(Place::ServerTools),
        "trafficType" | "traffic_type" | "service_tier" | "serviceTier" => {
            Key::Name(Names::ServiceTier)
        }
        "provider" => Key::Name(Names::Provider),
        "servingProvider" => Key::Name(Names::ServingProvider),
        "modelName" | "model_name" | "model" => Key::Name(Names::Model),
        "requestedModelName" => Key::Name(Names::RequestedModel),
        "basis" => Key::Name(Names::Basis),
        "reportedCostUSD" | "reported_cost_usd" | "cost_usd" | "cost" | "response_cost" => {
            Key::Cost
        }
        _ => Key::Ignored,
    }
}

fn input_detail(key: &str) -> Key {
    Key::Count(match key {
        "cached_tokens"
        | "cachedTokens"
        | "cache_read"
        | "cache_read_tokens"
        | "cacheReadTokens"
        | "cache_read_input_tokens" => Field::CacheRead,
        "cache_creation_tokens"
        | "cache_creation"
        | "cache_write_tokens"
        | "cacheWriteTokens"
        | "cache_creation_input_tokens" => Field::CacheWrite,
        "audio_tokens" | "audio" | "audioTokens" => Field::AudioInput,
        "image_tokens" | "image" | "imageTokens" => Field::ImageInput,
        "web_search_requests" => Field::WebSearches,
        "cache_creation_token_details" => return Key::Inner(Place::CacheCreation),
        other => return lifetime(other),
    })
}

fn output_detail(key: &str) -> Key {
    Key::Count(match key {
        "reasoning_tokens" | "reasoning" | "reasoningTokens" | "thinking_tokens" => {
            Field::Reasoning
        }
        "audio_tokens" | "audio" | "audioTokens" => Field::AudioOutput,
        "image_tokens" | "image" | "imageTokens" => Field::ImageOutput,
        _ => return Key::Ignored,
    })
}

fn lifetime(key: &str) -> Key {
    match key {
        "ephemeral_5m_input_tokens" | "ephemeral_5m" => Key::Count(Field::CacheWrite5m),
        "ephemeral_1h_input_tokens" | "ephemeral_1h" => Key::Count(Field::CacheWrite1h),
        _ => Key::Ignored,
    }
}

/// Span attributes: the prefix goes, the rest is a plain spelling or one of the dotted ones.
fn dotted(key: &str, spelled: &mut u8) -> Key {
    let (rest, bit) = if let Some(rest) = key.strip_prefix("gen_ai.usage.") {
        (rest, spelling::OTEL)
    } else if let Some(rest) = key.strip_prefix("llm.token_count.") {
        (rest, spelling::OPENINFERENCE)
    } else if let Some((_, rest)) = key.split_once("usage.") {
        (rest, 0)
    } else {
        return match key {
            "llm.cost.total" => Key::Cost,
            _ if key.ends_with(".service_tier") => Key::Name(Names::ServiceTier),
            _ => Key::Ignored,
        };
    };
    let meaning = match dotted_rest(rest) {
        Some(field) => Key::Count(field),
        None if rest == "cost" => Key::Cost,
        None => Key::Ignored,
    };
    if matches!(meaning, Key::Count(_)) {
        *spelled |= bit;
    }
    meaning
}

fn dotted_rest(rest: &str) -> Option<Field> {
    if !rest.contains('.') {
        return if rest == "tokens" {
            Some(Field::Total)
        } else {
            plain(rest)
        };
    }
    Some(match rest {
        "cache_read.input_tokens"
        | "prompt_details.cache_read"
        | "inputTokenDetails.cacheReadTokens" => Field::CacheRead,
        "cache_creation.input_tokens"
        | "cache_write.input_tokens"
        | "prompt_details.cache_write"
        | "inputTokenDetails.cacheWriteTokens" => Field::CacheWrite,
        "cache_creation.input_tokens.ephemeral_5m" | "cache_creation.ephemeral_5m_input_tokens" => {
            Field::CacheWrite5m
        }
        "cache_creation.input_tokens.ephemeral_1h" | "cache_creation.ephemeral_1h_input_tokens" => {
            Field::CacheWrite1h
        }
        "reasoning.output_tokens"
        | "completion_details.reasoning"
        | "outputTokenDetails.reasoningTokens"
        | "experimental.reasoning_tokens" => Field::Reasoning,
        "audio.input_tokens" | "prompt_details.audio" => Field::AudioInput,
        "audio.output_tokens" | "completion_details.audio" => Field::AudioOutput,
        "image.input_tokens" => Field::ImageInput,
        "image.output_tokens" => Field::ImageOutput,
        _ => return plain(rest.strip_prefix("details.")?),
    })
}
