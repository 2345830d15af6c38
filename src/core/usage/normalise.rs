//! Decides what one report means: which counts are inside which, what is unknown, what is flagged
//! (rules.md §4).
//!
//! It reads no text and merges nothing; the same report and context always give the same usage.

use super::tokens::{TokenUsage, UsageFlag, UsageState};
use super::{FIELDS, Field, UsageContext, UsageReport, spelling};

/// Combinations tried where classes were told twice and differently.
const COMBINATIONS_MAX: usize = 64;

impl UsageReport {
    /// The usage these reports tell, in disjoint parts (rules.md §4).
    ///
    /// The first of these decides where cached input and reasoning are: a reading in which the
    /// sums equal the told total; a part larger than its whole; the convention of an OTel span or
    /// the named provider; a guess by the model's name, flagged.
    pub fn normalise(&self, context: &UsageContext<'_>) -> TokenUsage {
        let mut usage = TokenUsage {
            service_tier: self.service_tier.as_deref().map(Into::into),
            provider_cost: self.cost.clone(),
            web_search_requests: self.get(Field::WebSearches),
            ..TokenUsage::default()
        };
        if self.invalid != 0 {
            usage.flags.insert(UsageFlag::InvalidField);
        }
        if context.had_content && self.is_all_zero() {
            usage.flags.insert(UsageFlag::ZeroPlaceholder);
            return usage;
        }
        if self.placeholder_ignored {
            usage.flags.insert(UsageFlag::ZeroPlaceholder);
            usage.flags.insert(UsageFlag::FromPartial);
        }
        let convention = Convention::of(self, context);
        let counts = self.plausible(context, &mut usage);
        let (counts, choice) = self.choose(counts, &convention, context, &mut usage);
        if choice.guessed {
            usage.flags.insert(UsageFlag::BasisGuessed);
        }
        counts.fill(&choice, &mut usage);
        usage.state = counts.state(&choice, &usage);
        if self.hides_cache(context, &usage) {
            usage.flags.insert(UsageFlag::CacheUnreported);
        }
        usage
    }

    /// The counts less those that are held back.
    fn plausible(&self, context: &UsageContext<'_>, usage: &mut TokenUsage) -> Counts {
        let mut counts = Counts::default();
        for field in Field::ALL {
            let told = self.get(field);
            counts.values[field as usize] =
                told.filter(|count| *count <= context.plausible_tokens_max);
            let held_back = told.is_some() && counts.get(field).is_none();
            if held_back {
                usage.flags.insert(UsageFlag::Implausible);
            }
            if counts.get(field).is_none() && (held_back || self.invalid & field.bit() != 0) {
                counts.broken |= field.bit();
            }
        }
        if counts.is_broken(Field::WebSearches) {
            usage.web_search_requests = None;
        }
        if counts.is_broken(Field::Input) {
            let held_back = self.get(Field::Input).map(|count| count.to_string().into());
            usage.raw_prompt = held_back.or_else(|| self.raw_prompt.clone());
        }
        counts
    }

    /// Of two spellings of one class the larger that fits, with the reading it fits in.
    fn choose(
        &self,
        mut counts: Counts,
        convention: &Convention,
        context: &UsageContext<'_>,
        usage: &mut TokenUsage,
    ) -> (Counts, Choice) {
        let writes_inside = self.spelling & spelling::GEMINI != 0;
        let read = |counts: &Counts| counts.settled().read(convention, writes_inside);
        if self.others.is_empty() {
            let settled = counts.settled();
            return (settled, settled.read(convention, writes_inside));
        }
        usage.flags.insert(UsageFlag::FieldConflict);
        let mut spellings: Vec<(Field, Vec<u64>)> = Vec::new();
        for field in Field::ALL {
            let mut told: Vec<u64> = self
                .others
                .iter()
                .filter(|(of, _)| *of == field)
                .map(|(_, count)| *count)
                .filter(|count| *count <= context.plausible_tokens_max)
                .collect();
            if told.is_empty() {
                continue;
            }
            told.extend(counts.get(field));
            told.sort_unstable_by(|one, other| other.cmp(one));
            counts.broken &= !field.bit();
            spellings.push((field, told));
        }
        let combinations: usize = spellings.iter().map(|(_, told)| told.len()).product();
        let mut best: Option<(Counts, Choice)> = None;
        for combination in 0..combinations.min(COMBINATIONS_MAX) {
            let mut rest = combination;
            for (field, told) in &spellings {
                counts.values[*field as usize] = Some(told[rest % told.len()]);
                rest /= told.len();
            }
            let choice = read(&counts);
            if best.as_ref().is_none_or(|(_, held)| choice.fit > held.fit) {
                best = Some((counts, choice));
            }
        }
        let (counts, choice) = best.unwrap_or_else(|| (counts, read(&counts)));
        (counts.settled(), choice)
    }

    /// Claude told in Gemini's or Anima's words without any cache field: the wrapper may have
    /// dropped it (cases SEM-12, runtimes.md §5). Claude's own words would have told it.
    fn hides_cache(&self, context: &UsageContext<'_>, usage: &TokenUsage) -> bool {
        let wrapped = self.spelling & (spelling::GEMINI | spelling::ANIMA) != 0
            || context.runtime == Some("anima");
        let cache = [
            Field::CacheRead,
            Field::CacheWrite,
            Field::CacheWrite5m,
            Field::CacheWrite1h,
        ];
        let told = cache.iter().fold(0, |bits, field| bits | field.bit());
        let claude = |name: Option<&str>| {
            name.is_some_and(|name| has(name, "claude") || has(name, "anthropic"))
        };
        wrapped
            && usage.input_total.is_some()
            && (self.present | self.invalid) & told == 0
            && (claude(self.model().or(context.model))
                || claude(self.provider().or(context.provider)))
    }
}

/// Where the parts are if neither sums nor sizes tell.
#[derive(Clone, Copy, Debug)]
struct Convention {
    cache_outside: bool,
    reasoning_outside: bool,
    /// A convention or a named provider says so; else it is a guess.
    is_known: bool,
    /// The OTel convention: going against it is flagged.
    is_otel: bool,
}

impl Convention {
    fn of(report: &UsageReport, context: &UsageContext<'_>) -> Convention {
        let inside = Convention {
            cache_outside: false,
            reasoning_outside: false,
            is_known: true,
            is_otel: false,
        };
        let says = |bit| report.spelling & bit != 0;
        if says(spelling::BASIS_INSIDE) {
            return inside;
        }
        if says(spelling::BASIS_OUTSIDE) {
            return Convention {
                cache_outside: true,
                reasoning_outside: true,
                ..inside
            };
        }
        if says(spelling::OTEL) || context.is_span && !says(spelling::OPENINFERENCE) {
            return Convention {
                is_otel: true,
                ..inside
            };
        }
        let model = report.model().or(context.model).unwrap_or("");
        let provider = report.provider().or(context.provider).unwrap_or("");
        let any = |name: &str, words: &[&str]| words.iter().any(|word| has(name, word));
        let claude = Convention {
            cache_outside: true,
            ..inside
        };
        let gemini = Convention {
            reasoning_outside: true,
            ..inside
        };
        if any(provider, &["anthropic", "claude", "bedrock"]) {
            claude
        } else if any(provider, &["openai", "azure", "litellm", "deepseek"]) {
            inside
        } else if any(provider, &["gemini", "vertex", "google", "gcp"]) {
            // Vertex serves Claude too.
            if has(model, "claude") {
                Convention {
                    is_known: false,
                    ..claude
                }
            } else {
                gemini
            }
        } else if !provider.is_empty() {
            Convention {
                is_known: false,
                ..inside
            }
        } else {
            let guess = if has(model, "claude") {
                claude
            } else if has(model, "gemini") || says(spelling::GEMINI) && !is_openai_model(model) {
                gemini
            } else {
                inside
            };
            Convention {
                is_known: false,
                ..guess
            }
        }
    }
}

fn is_openai_model(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model).as_bytes();
    has(model, "gpt") || matches!(name, [b'o', b'0'..=b'9', ..]) || has(model, "deepseek")
}

/// Whether `name` contains `word` (lower case), whatever the case of `name`.
fn has(name: &str, word: &str) -> bool {
    name.as_bytes()
        .windows(word.len())
        .any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

/// How well a reading fits, the best last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// No total proves it, and a part is larger than its whole.
    Odd,
    /// No total proves it.
    Unproved,
    /// The sums equal the total, though a part is larger than its whole.
    ProvedCut,
    /// The sums equal the total.
    Proved,
}

/// One way to read the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    cache_outside: bool,
    reasoning_outside: bool,
    tool_outside: bool,
}

/// The reading taken and what it gives.
#[derive(Clone, Copy, Debug)]
struct Choice {
    reading: Reading,
    input: Option<u64>,
    output: Option<u64>,
    fit: Fit,
    guessed: bool,
}

impl Choice {
    fn is_proved(&self) -> bool {
        self.fit >= Fit::ProvedCut
    }
}

/// One count a class, those held back or invalid taken out.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    values: [Option<u64>; FIELDS],
    /// Fields that were told as something unusable.
    broken: u16,
}

impl Counts {
    fn get(&self, field: Field) -> Option<u64> {
        self.values[field as usize]
    }

    fn or_zero(&self, field: Field) -> u64 {
        self.get(field).unwrap_or(0)
    }

    fn is_broken(&self, field: Field) -> bool {
        self.broken & field.bit() != 0
    }

    /// With the classes that follow from others: writes from their lifetimes, a prompt from its
    /// hits and misses.
    fn settled(&self) -> Counts {
        let mut counts = *self;
        let lifetimes = [Field::CacheWrite5m, Field::CacheWrite1h];
        let written: u64 = lifetimes
            .iter()
            .fold(0, |sum, field| sum.saturating_add(self.or_zero(*field)));
        if lifetimes.iter().any(|field| self.get(*field).is_some()) {
            let write = &mut counts.values[Field::CacheWrite as usize];
            *write = Some(written.max(write.unwrap_or(0)));
        }
        let input = Field::Input;
        if let Some(miss) = self.get(Field::CacheMiss)
            && self.get(input).is_none()
            && !self.is_broken(input)
        {
            counts.values[input as usize] =
                Some(miss.saturating_add(self.or_zero(Field::CacheRead)));
        }
        counts
    }

    /// Takes the reading that fits best.
    fn read(&self, convention: &Convention, writes_inside: bool) -> Choice {
        let writes = if writes_inside {
            0
        } else {
            self.or_zero(Field::CacheWrite)
        };
        let cached = self.or_zero(Field::CacheRead).saturating_add(writes);
        let (cache_outside, cache_guessed) = self.place(
            Field::Input,
            cached,
            convention.cache_outside && !self.hits_are_inside(),
            convention.is_known || self.hits_are_inside(),
            convention.is_otel,
        );
        let (reasoning_outside, reasoning_guessed) = self.place(
            Field::Output,
            self.or_zero(Field::Reasoning),
            convention.reasoning_outside,
            convention.is_known,
            convention.is_otel,
        );
        let preferred = Reading {
            cache_outside,
            reasoning_outside,
            tool_outside: true,
        };
        let guessed = cache_guessed || reasoning_guessed;
        let proved = self.proved(preferred, cached);
        let Some(((reading, fit), ambiguous)) = proved else {
            let reasoning = self.or_zero(Field::Reasoning);
            let odd = !convention.cache_outside && self.is_larger(Field::Input, cached)
                || !convention.reasoning_outside && self.is_larger(Field::Output, reasoning);
            let fit = if odd { Fit::Odd } else { Fit::Unproved };
            let input = self.input(preferred, cached);
            let output = self.output(preferred);
            return Choice {
                reading: preferred,
                input,
                output,
                fit,
                guessed,
            };
        };
        let total = self.get(Field::Total);
        let (input, output) = (self.input(reading, cached), self.output(reading));
        let rest = |side: Option<u64>| Some(total?.saturating_sub(side?));
        Choice {
            reading,
            input: input.or_else(|| rest(output)),
            output: output.or_else(|| rest(input)),
            fit,
            guessed: ambiguous && guessed,
        }
    }

    /// Where a part is if no sum tells: whether outside, and whether that is to be flagged.
    fn place(
        &self,
        whole: Field,
        part: u64,
        outside: bool,
        is_known: bool,
        is_otel: bool,
    ) -> (bool, bool) {
        if part == 0 || self.get(whole).is_none() {
            // Without a part, or with a side that only the total tells, both readings agree.
            (outside, false)
        } else if self.is_larger(whole, part) {
            (true, is_otel)
        } else {
            (outside, !is_known)
        }
    }

    fn is_larger(&self, whole: Field, part: u64) -> bool {
        self.get(whole).is_some_and(|whole| part > whole)
    }

    /// DeepSeek: hits and misses together are the prompt (cases SEM-23).
    fn hits_are_inside(&self) -> bool {
        self.get(Field::CacheMiss).is_some_and(|miss| {
            self.get(Field::Input) == Some(miss.saturating_add(self.or_zero(Field::CacheRead)))
        })
    }

    fn input(&self, reading: Reading, cached: u64) -> Option<u64> {
        let mut total = self.get(Field::Input)?;
        if reading.cache_outside {
            total = total.saturating_add(cached);
        }
        if reading.tool_outside {
            total = total.saturating_add(self.or_zero(Field::ToolUse));
        }
        Some(total)
    }

    fn output(&self, reading: Reading) -> Option<u64> {
        let outside = if reading.reasoning_outside {
            self.or_zero(Field::Reasoning)
        } else {
            0
        };
        Some(self.get(Field::Output)?.saturating_add(outside))
    }

    /// The reading that the total proves, the preferred one first, one without cuts before one
    /// with; and whether another one with other sums would fit as well. A total beside an invalid
    /// part proves nothing.
    fn proved(&self, preferred: Reading, cached: u64) -> Option<((Reading, Fit), bool)> {
        let total = self.get(Field::Total)?;
        if self.broken & !(Field::WebSearches.bit()) != 0 {
            return None;
        }
        let mut found: Option<(Reading, Fit)> = None;
        let mut ambiguous = false;
        for flips in [0b000u8, 0b001, 0b010, 0b100, 0b011, 0b101, 0b110, 0b111] {
            let reading = Reading {
                cache_outside: preferred.cache_outside ^ (flips & 1 != 0),
                reasoning_outside: preferred.reasoning_outside ^ (flips & 2 != 0),
                tool_outside: preferred.tool_outside ^ (flips & 4 != 0),
            };
            let sides = (self.input(reading, cached), self.output(reading));
            let tool = self.or_zero(Field::ToolUse);
            let fits = match sides {
                (Some(input), Some(output)) => input.checked_add(output) == Some(total),
                (Some(input), None) => total
                    .checked_sub(input)
                    .is_some_and(|output| output >= self.or_zero(Field::Reasoning)),
                (None, Some(output)) => total
                    .checked_sub(output)
                    .is_some_and(|input| input >= cached.saturating_add(tool)),
                (None, None) => false,
            };
            if !fits {
                continue;
            }
            let fit = if self.is_cut(reading, cached) {
                Fit::ProvedCut
            } else {
                Fit::Proved
            };
            match found {
                Some((held, best)) if best >= fit => {
                    let same = (self.input(held, cached), self.output(held)) == sides;
                    ambiguous |= best == fit && !same;
                }
                _ => {
                    found = Some((reading, fit));
                    ambiguous = false;
                }
            }
        }
        found.map(|found| (found, ambiguous))
    }

    /// Whether the reading puts a part inside a smaller whole.
    fn is_cut(&self, reading: Reading, cached: u64) -> bool {
        let tool = if reading.tool_outside {
            0
        } else {
            self.or_zero(Field::ToolUse)
        };
        let cached = if reading.cache_outside { 0 } else { cached };
        self.is_larger(Field::Input, cached.saturating_add(tool))
            || !reading.reasoning_outside
                && self.is_larger(Field::Output, self.or_zero(Field::Reasoning))
    }

    /// Writes the parts, each within its whole.
    fn fill(&self, choice: &Choice, usage: &mut TokenUsage) {
        usage.input_total = choice.input;
        usage.output_total = choice.output;
        usage.tool_use_input = self.get(Field::ToolUse);
        usage.cache_read = self.get(Field::CacheRead);
        usage.cache_write = self.get(Field::CacheWrite);
        usage.cache_write_5m = self.get(Field::CacheWrite5m);
        usage.cache_write_1h = self.get(Field::CacheWrite1h);
        usage.reasoning = self.get(Field::Reasoning);
        usage.audio_input = self.get(Field::AudioInput);
        usage.audio_output = self.get(Field::AudioOutput);
        usage.image_input = self.get(Field::ImageInput);
        usage.image_output = self.get(Field::ImageOutput);
        let proved = choice.is_proved();
        let mut cut = false;
        for part in [&mut usage.audio_input, &mut usage.image_input] {
            cut |= fit_modality(&mut usage.input_total, part, proved);
        }
        for part in [&mut usage.audio_output, &mut usage.image_output] {
            cut |= fit_modality(&mut usage.output_total, part, proved);
        }
        if let Some(total) = usage.input_total {
            let mut left = total;
            cut |= take_part(&mut usage.tool_use_input, &mut left);
            cut |= take_part(&mut usage.cache_read, &mut left);
            cut |= take_part(&mut usage.cache_write, &mut left);
            usage.input_uncached = Some(left);
        }
        if let Some(mut left) = usage.cache_write {
            cut |= take_part(&mut usage.cache_write_5m, &mut left);
            cut |= take_part(&mut usage.cache_write_1h, &mut left);
        }
        if let Some(mut left) = usage.output_total {
            cut |= take_part(&mut usage.reasoning, &mut left);
        }
        if cut {
            usage.flags.insert(UsageFlag::PartExceedsWhole);
        }
        usage.provider_total = self.get(Field::Total);
        usage.settle_total();
    }

    fn state(&self, choice: &Choice, usage: &TokenUsage) -> UsageState {
        let broken = |field| self.is_broken(field);
        let cache = broken(Field::CacheRead)
            || broken(Field::CacheWrite)
            || broken(Field::CacheWrite5m)
            || broken(Field::CacheWrite1h);
        let is_lower_bound = choice.reading.cache_outside && cache
            || choice.reading.reasoning_outside && broken(Field::Reasoning)
            || broken(Field::ToolUse);
        if usage.total.is_some() {
            return if is_lower_bound {
                UsageState::Partial
            } else {
                UsageState::Reported
            };
        }
        let tokens = !(Field::Total.bit() | Field::WebSearches.bit());
        let told = Field::ALL.into_iter().fold(0, |bits, field| {
            bits | if self.get(field).is_some() {
                field.bit()
            } else {
                0
            }
        });
        if told & tokens != 0 {
            UsageState::Partial
        } else if self.broken & !Field::WebSearches.bit() != 0 {
            UsageState::Invalid
        } else if told & Field::Total.bit() != 0 {
            UsageState::Partial
        } else {
            UsageState::Missing
        }
    }
}

/// Takes a part out of what is left of its whole; says whether it had to be cut.
fn take_part(part: &mut Option<u64>, left: &mut u64) -> bool {
    let Some(told) = *part else { return false };
    let taken = told.min(*left);
    *left -= taken;
    *part = Some(taken);
    taken < told
}

/// A modality larger than its whole is beside it, unless a total proves the whole (rules.md §4).
fn fit_modality(whole: &mut Option<u64>, part: &mut Option<u64>, proved: bool) -> bool {
    let (Some(total), Some(told)) = (*whole, *part) else {
        return false;
    };
    if told <= total {
        return false;
    }
    if proved {
        *part = Some(total);
    } else {
        *whole = Some(total.saturating_add(told));
    }
    proved
}
