//! What a call used, decided: disjoint token counts, their state and their flags, and sums of them.
//!
//! It does not look at usage objects; `normalise` makes these from a report.

use super::decimal::sum_of_amounts;

/// How well the usage of a call is known (facts.md §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsageState {
    /// Nothing was told. Never zero.
    #[default]
    Missing,
    /// Both sides are known.
    Reported,
    /// A lower bound.
    Partial,
    /// What was told holds no count.
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

/// The words of rules.md §9 that are about usage, in the order of that list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum UsageFlag {
    FromPartial,
    ZeroPlaceholder,
    CacheUnreported,
    InvalidField,
    Implausible,
    SourceConflict,
    FromAgentSpan,
    BasisGuessed,
    TotalMismatch,
    FieldConflict,
    PartExceedsWhole,
}

impl UsageFlag {
    /// Every flag, in order.
    pub const ALL: [UsageFlag; 11] = [
        UsageFlag::FromPartial,
        UsageFlag::ZeroPlaceholder,
        UsageFlag::CacheUnreported,
        UsageFlag::InvalidField,
        UsageFlag::Implausible,
        UsageFlag::SourceConflict,
        UsageFlag::FromAgentSpan,
        UsageFlag::BasisGuessed,
        UsageFlag::TotalMismatch,
        UsageFlag::FieldConflict,
        UsageFlag::PartExceedsWhole,
    ];

    /// The word of rules.md §9.
    pub fn as_str(self) -> &'static str {
        match self {
            UsageFlag::FromPartial => "usage_from_partial",
            UsageFlag::ZeroPlaceholder => "zero_usage_placeholder",
            UsageFlag::CacheUnreported => "cache_unreported",
            UsageFlag::InvalidField => "invalid_usage_field",
            UsageFlag::Implausible => "implausible_usage",
            UsageFlag::SourceConflict => "source_conflict",
            UsageFlag::FromAgentSpan => "usage_from_agent_span",
            UsageFlag::BasisGuessed => "usage_basis_guessed",
            UsageFlag::TotalMismatch => "total_mismatch",
            UsageFlag::FieldConflict => "usage_field_conflict",
            UsageFlag::PartExceedsWhole => "usage_part_exceeds_whole",
        }
    }
}

/// A set of [`UsageFlag`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UsageFlags(u16);

impl UsageFlags {
    /// Adds one flag.
    pub fn insert(&mut self, flag: UsageFlag) {
        self.0 |= 1 << flag as u8;
    }

    /// Adds all flags of another set.
    pub fn extend(&mut self, other: UsageFlags) {
        self.0 |= other.0;
    }

    /// Whether a flag is in the set.
    pub fn contains(self, flag: UsageFlag) -> bool {
        self.0 & (1 << flag as u8) != 0
    }

    /// Whether no flag is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The words of rules.md §9, in the order of that list.
    pub fn iter(self) -> impl Iterator<Item = &'static str> {
        UsageFlag::ALL
            .into_iter()
            .filter(move |flag| self.contains(*flag))
            .map(UsageFlag::as_str)
    }
}

/// The usage of one model call, in tokens (facts.md §3). `None` is unknown, never 0.
///
/// A part that nobody told stays `None`: its absence is no measurement. A part told as 0 is 0.
/// `input_uncached` is what is left of `input_total` after the parts that *were* told, so it is
/// known whenever `input_total` is (cases SEM-17, which counts a bare prompt as uncached). Where a
/// side is unknown its parts stand as told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TokenUsage {
    /// Everything billed as input.
    pub input_total: Option<u64>,
    pub input_uncached: Option<u64>,
    pub cache_read: Option<u64>,
    /// Both lifetimes, and writes whose lifetime was not told.
    pub cache_write: Option<u64>,
    pub cache_write_5m: Option<u64>,
    pub cache_write_1h: Option<u64>,
    /// Prompts of server-side tools.
    pub tool_use_input: Option<u64>,
    /// Everything billed as output.
    pub output_total: Option<u64>,
    /// Part of `output_total`.
    pub reasoning: Option<u64>,
    pub audio_input: Option<u64>,
    pub audio_output: Option<u64>,
    pub image_input: Option<u64>,
    pub image_output: Option<u64>,
    /// `input_total` + `output_total`.
    pub total: Option<u64>,
    /// What the provider said.
    pub provider_total: Option<u64>,
    /// `provider_total` − `total` where they differ.
    pub unattributed: Option<i64>,
    /// Searches billed by the request, no tokens (cases BIL-13).
    pub web_search_requests: Option<u64>,
    pub state: UsageState,
    pub flags: UsageFlags,
    /// The prompt count as decimal text, where it was held back.
    pub raw_prompt: Option<Box<str>>,
    /// In the words of facts.md §7.
    pub service_tier: Option<Box<str>>,
    /// Reported by the producer, in USD: decimal text as told, without an exponent.
    pub provider_cost: Option<Box<str>>,
}

impl TokenUsage {
    /// Adds a further attempt of the same call: attempts that each reported usage add up
    /// (facts.md §3). An attempt without usage adds nothing and changes no state.
    pub fn add(&mut self, other: &TokenUsage) {
        if other.state == UsageState::Missing {
            self.flags.extend(other.flags);
            return;
        }
        if self.state == UsageState::Missing {
            let flags = self.flags;
            *self = other.clone();
            self.flags.extend(flags);
            return;
        }
        self.provider_total = both(self.provider_total, other.provider_total);
        for class in TokenClass::ALL {
            if !matches!(class, TokenClass::Total | TokenClass::ProviderTotal) {
                *self.slot(class) = either(self.get(class), other.get(class));
            }
        }
        self.web_search_requests = either(self.web_search_requests, other.web_search_requests);
        self.state = if self.state == other.state {
            self.state
        } else {
            UsageState::Partial
        };
        self.flags.extend(other.flags);
        self.settle_total();
        self.raw_prompt = self.raw_prompt.take().or_else(|| other.raw_prompt.clone());
        self.service_tier = other
            .service_tier
            .clone()
            .or_else(|| self.service_tier.take());
        self.provider_cost = match (self.provider_cost.take(), &other.provider_cost) {
            (Some(one), Some(more)) => sum_of_amounts(&one, more),
            (one, more) => one.or_else(|| more.clone()),
        };
    }

    /// Whether anything of it may be counted: reported, or a lower bound.
    pub fn is_countable(&self) -> bool {
        matches!(self.state, UsageState::Reported | UsageState::Partial)
    }

    /// The call did not end as it should have: what was told is a lower bound (rules.md §4).
    pub fn lower_to_partial(&mut self) {
        if self.is_countable() {
            self.state = UsageState::Partial;
            self.flags.insert(UsageFlag::FromPartial);
        }
    }

    /// `output_total` less `reasoning`: the token class `answer`.
    pub fn answer(&self) -> Option<u64> {
        Some(
            self.output_total?
                .saturating_sub(self.reasoning.unwrap_or(0)),
        )
    }

    /// The count of one class.
    pub fn get(&self, class: TokenClass) -> Option<u64> {
        match class {
            TokenClass::InputTotal => self.input_total,
            TokenClass::InputUncached => self.input_uncached,
            TokenClass::CacheRead => self.cache_read,
            TokenClass::CacheWrite => self.cache_write,
            TokenClass::CacheWrite5m => self.cache_write_5m,
            TokenClass::CacheWrite1h => self.cache_write_1h,
            TokenClass::ToolUseInput => self.tool_use_input,
            TokenClass::OutputTotal => self.output_total,
            TokenClass::Reasoning => self.reasoning,
            TokenClass::AudioInput => self.audio_input,
            TokenClass::AudioOutput => self.audio_output,
            TokenClass::ImageInput => self.image_input,
            TokenClass::ImageOutput => self.image_output,
            TokenClass::Total => self.total,
            TokenClass::ProviderTotal => self.provider_total,
        }
    }

    /// `total`, `unattributed` and the flag that goes with it, from the sides as they stand.
    pub(crate) fn settle_total(&mut self) {
        self.total = both(self.input_total, self.output_total);
        self.unattributed = None;
        if let (Some(said), Some(total)) = (self.provider_total, self.total)
            && said != total
        {
            let difference = i128::from(said) - i128::from(total);
            self.unattributed = i64::try_from(difference).ok();
            self.flags.insert(UsageFlag::TotalMismatch);
        }
    }

    fn slot(&mut self, class: TokenClass) -> &mut Option<u64> {
        match class {
            TokenClass::InputTotal => &mut self.input_total,
            TokenClass::InputUncached => &mut self.input_uncached,
            TokenClass::CacheRead => &mut self.cache_read,
            TokenClass::CacheWrite => &mut self.cache_write,
            TokenClass::CacheWrite5m => &mut self.cache_write_5m,
            TokenClass::CacheWrite1h => &mut self.cache_write_1h,
            TokenClass::ToolUseInput => &mut self.tool_use_input,
            TokenClass::OutputTotal => &mut self.output_total,
            TokenClass::Reasoning => &mut self.reasoning,
            TokenClass::AudioInput => &mut self.audio_input,
            TokenClass::AudioOutput => &mut self.audio_output,
            TokenClass::ImageInput => &mut self.image_input,
            TokenClass::ImageOutput => &mut self.image_output,
            TokenClass::Total => &mut self.total,
            TokenClass::ProviderTotal => &mut self.provider_total,
        }
    }
}

fn both(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one?.saturating_add(other?))
}

fn either(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    both(one, other).or(one).or(other)
}

/// The counts of [`TokenUsage`], by the names of facts.md §3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TokenClass {
    InputTotal,
    InputUncached,
    CacheRead,
    CacheWrite,
    CacheWrite5m,
    CacheWrite1h,
    ToolUseInput,
    OutputTotal,
    Reasoning,
    AudioInput,
    AudioOutput,
    ImageInput,
    ImageOutput,
    Total,
    ProviderTotal,
}

const CLASSES: usize = 15;

impl TokenClass {
    /// Every class, in the order of facts.md §3.
    pub const ALL: [TokenClass; CLASSES] = [
        TokenClass::InputTotal,
        TokenClass::InputUncached,
        TokenClass::CacheRead,
        TokenClass::CacheWrite,
        TokenClass::CacheWrite5m,
        TokenClass::CacheWrite1h,
        TokenClass::ToolUseInput,
        TokenClass::OutputTotal,
        TokenClass::Reasoning,
        TokenClass::AudioInput,
        TokenClass::AudioOutput,
        TokenClass::ImageInput,
        TokenClass::ImageOutput,
        TokenClass::Total,
        TokenClass::ProviderTotal,
    ];

    /// The name of facts.md §3.
    pub fn as_str(self) -> &'static str {
        match self {
            TokenClass::InputTotal => "input_total",
            TokenClass::InputUncached => "input_uncached",
            TokenClass::CacheRead => "cache_read",
            TokenClass::CacheWrite => "cache_write",
            TokenClass::CacheWrite5m => "cache_write_5m",
            TokenClass::CacheWrite1h => "cache_write_1h",
            TokenClass::ToolUseInput => "tool_use_input",
            TokenClass::OutputTotal => "output_total",
            TokenClass::Reasoning => "reasoning",
            TokenClass::AudioInput => "audio_input",
            TokenClass::AudioOutput => "audio_output",
            TokenClass::ImageInput => "image_input",
            TokenClass::ImageOutput => "image_output",
            TokenClass::Total => "total",
            TokenClass::ProviderTotal => "provider_total",
        }
    }
}

/// Usage summed over calls: 0 over no calls, unknown over calls none of which is known
/// (rules.md §4). Leave out calls that have no usage by nature (failed before any content).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageSum {
    calls: u64,
    complete: u64,
    sums: [u64; CLASSES],
    known: [u64; CLASSES],
    unattributed: i64,
    unattributed_calls: u64,
}

impl UsageSum {
    /// Adds the usage of one call.
    pub fn add(&mut self, usage: &TokenUsage) {
        self.calls += 1;
        self.complete += u64::from(usage.state == UsageState::Reported);
        for class in TokenClass::ALL {
            if let Some(count) = usage.get(class) {
                let sum = &mut self.sums[class as usize];
                *sum = sum.saturating_add(count);
                self.known[class as usize] += 1;
            }
        }
        if let Some(difference) = usage.unattributed {
            self.unattributed = self.unattributed.saturating_add(difference);
            self.unattributed_calls += 1;
        }
    }

    /// Adds another sum: descendants to what a row has of its own.
    pub fn add_sum(&mut self, other: &UsageSum) {
        self.calls += other.calls;
        self.complete += other.complete;
        for class in 0..CLASSES {
            self.sums[class] = self.sums[class].saturating_add(other.sums[class]);
            self.known[class] += other.known[class];
        }
        self.unattributed = self.unattributed.saturating_add(other.unattributed);
        self.unattributed_calls += other.unattributed_calls;
    }

    /// The sum of one class, in tokens.
    pub fn value(&self, class: TokenClass) -> Option<u64> {
        let known = self.calls == 0 || self.known[class as usize] > 0;
        known.then(|| self.sums[class as usize])
    }

    /// The sum of what totals and parts leave unexplained; `None` where no call has any.
    pub fn unattributed(&self) -> Option<i64> {
        (self.unattributed_calls > 0).then_some(self.unattributed)
    }

    /// Calls summed over.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// No call with usage that is missing, partial or invalid.
    pub fn is_complete(&self) -> bool {
        self.complete == self.calls
    }
}
