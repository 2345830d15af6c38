//! What a provider's word about the end of a response means: the words of rules.md §6.

/// Finish and block reasons by which a provider refuses (rules.md §6).
const BLOCK_WORDS: [&str; 12] = [
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "MODEL_ARMOR",
    "JAILBREAK",
    "content_filter",
    "refusal",
];

/// Words by which a provider says that generation failed or went wrong (rules.md §6).
pub const ERROR_WORDS: [&str; 8] = [
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "OTHER",
    "IMAGE_OTHER",
    "LANGUAGE",
    "NO_IMAGE",
    "MODEL_RETURNED_NO_CONTENT",
];

/// True where the provider refused the prompt or withheld the answer.
pub fn is_block_word(word: &str) -> bool {
    BLOCK_WORDS.contains(&word)
}

/// True where the word is a provider's about one response, not an exception of the runtime.
pub fn is_provider_word(word: &str) -> bool {
    is_block_word(word) || ERROR_WORDS.contains(&word) || is_fine_word(word)
}

/// stop, length, tool_calls, content_filter, error or other (rules.md §6).
pub fn finish_word(raw: &str) -> &'static str {
    match raw {
        "STOP" | "stop" | "end_turn" | "stop_sequence" | "completed" => "stop",
        "MAX_TOKENS" | "length" | "max_tokens" | "max_output_tokens" => "length",
        "tool_calls" | "tool_use" | "function_call" => "tool_calls",
        word if is_block_word(word) => "content_filter",
        word if ERROR_WORDS.contains(&word) && word != "OTHER" => "error",
        "error" => "error",
        _ => "other",
    }
}

/// True where the word says that the answer is whole, or as long as it may be.
pub fn is_fine_word(word: &str) -> bool {
    matches!(word, "STOP" | "MAX_TOKENS")
}
