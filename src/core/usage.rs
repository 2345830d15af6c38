//! Token usage: placeholder signatures until the normalisation lands.

/// What one usage object said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageReport {}

impl UsageReport {
    /// Reads one usage object.
    pub fn parse(_json: &str) -> Option<UsageReport> {
        None
    }
    /// True for `{}`.
    pub fn is_empty(&self) -> bool {
        true
    }
    /// Newest wins field by field.
    pub fn merge(&mut self, _newer: &UsageReport) {}
    /// Decides insides and outsides.
    pub fn normalise(&self, _context: &UsageContext<'_>) -> TokenUsage {
        TokenUsage::default()
    }
    /// True where any count fell.
    pub fn shrank_from(&self, _older: &UsageReport) -> bool {
        false
    }
}

/// What is known around a usage object.
pub struct UsageContext<'a> {
    pub provider: Option<&'a str>,
    pub model: Option<&'a str>,
    pub runtime: Option<&'a str>,
    pub is_span: bool,
    pub had_content: bool,
    pub plausible_tokens_max: u64,
}

/// Whether usage is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsageState {
    #[default]
    Missing,
    Reported,
    Partial,
    Invalid,
}

impl UsageState {
    /// The word of facts.md §3.
    pub fn as_str(self) -> &'static str {
        match self {
            UsageState::Missing => "missing",
            UsageState::Reported => "reported",
            UsageState::Partial => "partial",
            UsageState::Invalid => "invalid",
        }
    }
}

/// Normalised usage of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TokenUsage {
    pub input_total: Option<u64>,
    pub input_uncached: Option<u64>,
    pub cache_read: Option<u64>,
    pub cache_write: Option<u64>,
    pub cache_write_5m: Option<u64>,
    pub cache_write_1h: Option<u64>,
    pub tool_use_input: Option<u64>,
    pub output_total: Option<u64>,
    pub reasoning: Option<u64>,
    pub audio_input: Option<u64>,
    pub audio_output: Option<u64>,
    pub image_input: Option<u64>,
    pub image_output: Option<u64>,
    pub total: Option<u64>,
    pub provider_total: Option<u64>,
    pub unattributed: Option<i64>,
    pub state: UsageState,
    pub flags: UsageFlags,
    pub raw_prompt: Option<Box<str>>,
    pub service_tier: Option<Box<str>>,
    pub provider_cost: Option<Box<str>>,
}

impl TokenUsage {
    /// Adds a further attempt of the same call.
    pub fn add(&mut self, _other: &TokenUsage) {}
    /// True where its counts may enter sums.
    pub fn is_countable(&self) -> bool {
        false
    }
}

/// Flags of usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UsageFlags(u16);

impl UsageFlags {
    /// The words.
    pub fn iter(self) -> impl Iterator<Item = &'static str> {
        std::iter::empty()
    }
}

/// Sums over calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageSum {}

impl UsageSum {
    /// Adds one call.
    pub fn add(&mut self, _usage: &TokenUsage) {}
}
