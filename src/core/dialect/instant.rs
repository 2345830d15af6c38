//! Numbers and instants as text, exact to the nanosecond; no binary float on the way.
//!
//! Whether an instant is plausible (before 2015, in the future) is not asked here.

use crate::core::Nanos;
use crate::core::event::Str;
use crate::core::time::EventTime;
use std::borrow::Cow;

/// A decimal number: `digits` times ten to the power of `exponent`. Digits beyond the nineteenth
/// are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: u64,
    exponent: i32,
}

impl Decimal {
    fn parse(text: &str) -> Option<Decimal> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (number, power) = match text.find(['e', 'E']) {
            Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()?),
            None => (text, 0),
        };
        if power.unsigned_abs() > 1_000 {
            return None;
        }
        let mut decimal = Decimal {
            is_negative,
            digits: 0,
            exponent: power,
        };
        let (mut is_fraction, mut seen) = (false, false);
        for byte in number.bytes() {
            match byte {
                b'0'..=b'9' => seen = true,
                b'.' if seen && !is_fraction => {
                    is_fraction = true;
                    continue;
                }
                _ => return None,
            }
            decimal.push(byte - b'0', is_fraction);
        }
        seen.then_some(decimal)
    }

    fn push(&mut self, digit: u8, is_fraction: bool) {
        // Nineteen digits always fit 64 bits.
        const FULL: u64 = 1_000_000_000_000_000_000;
        if self.digits >= FULL {
            self.exponent = self.exponent.saturating_add(i32::from(!is_fraction));
            return;
        }
        self.digits = self.digits * 10 + u64::from(digit);
        self.exponent = self.exponent.saturating_sub(i32::from(is_fraction));
    }

    /// True where the magnitude is below ten to the power of `power`.
    fn is_below(&self, power: i32) -> bool {
        match self.digits.checked_ilog10() {
            None => true,
            Some(log) => log as i32 + 1 + self.exponent <= power,
        }
    }

    /// The number times ten to the power of `shift`, cut to a whole one.
    fn scaled(&self, shift: i32) -> Option<i64> {
        let power = self.exponent.saturating_add(shift);
        let whole = if self.digits == 0 {
            0
        } else if power >= 0 {
            self.digits
                .checked_mul(10_u64.checked_pow(power.unsigned_abs())?)?
        } else {
            10_u64
                .checked_pow(power.unsigned_abs())
                .map_or(0, |unit| self.digits / unit)
        };
        let whole = i64::try_from(whole).ok()?;
        Some(if self.is_negative { -whole } else { whole })
    }
}

/// An instant by the number rule of events.md §2.1 from the JSON text of a number or a string;
/// `None` where unreadable.
pub(super) fn instant(json: &str) -> Option<EventTime> {
    if !json.starts_with('"') {
        return from_number(json);
    }
    let text = unquoted(json)?;
    let text = text.trim();
    from_number(text).or_else(|| from_text(text))
}

/// The string that a JSON text spells.
fn unquoted(json: &str) -> Option<Str<'_>> {
    if json.contains('\\') {
        return serde_json::from_str::<String>(json).ok().map(Cow::Owned);
    }
    json.strip_prefix('"')?.strip_suffix('"').map(Cow::Borrowed)
}

fn from_number(text: &str) -> Option<EventTime> {
    let number = Decimal::parse(text)?;
    let shift = match () {
        () if number.is_below(11) => 9,
        () if number.is_below(14) => 6,
        () if number.is_below(17) => 3,
        () => 0,
    };
    number.scaled(shift).map(EventTime)
}

/// RFC 3339. The zero time of Go, year 1, lies outside of what 64 bits of nanoseconds hold and so
/// is absent.
fn from_text(text: &str) -> Option<EventTime> {
    let instant: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(instant.as_nanosecond()).ok().map(EventTime)
}

/// A span from the JSON text of a number of milliseconds, also as digits in a string.
pub(super) fn span_of_ms(json: &str) -> Option<Nanos> {
    let text = if json.starts_with('"') {
        unquoted(json)?
    } else {
        Cow::Borrowed(json)
    };
    Decimal::parse(text.trim())?.scaled(6).map(Nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_instant_in_every_spelling() {
        for json in [
            "1772445600.25",
            "1772445600250",
            "1772445600250000",
            "1772445600250000000",
            "1.77244560025e9",
            "1772445600250.000000",
            "\"1772445600250000000\"",
            "\"1772445600.25\"",
            "\"2026-03-02T19:00:00.25+09:00\"",
            "\"2026-03-02T10:00:00.250Z\"",
            "\"2026\\u002d03-02T10:00:00.25Z\"",
        ] {
            assert_eq!(
                instant(json),
                Some(EventTime(1_772_445_600_250_000_000)),
                "{json}"
            );
        }
    }

    #[test]
    fn fractions_are_exact() {
        for (json, nanos) in [
            ("1772445600.123", 1_772_445_600_123_000_000),
            ("1772445600.123001", 1_772_445_600_123_001_000),
            ("1772445600.1234567891234", 1_772_445_600_123_456_789),
            ("1772445600123.456789", 1_772_445_600_123_456_789),
            ("0", 0),
            ("-5.5", -5_500_000_000),
            ("253402300800", 253_402_300_800_000_000),
            ("99999999999", -1),
            ("99999999999.5", -1),
        ] {
            let expected = (nanos != -1).then_some(EventTime(nanos));
            assert_eq!(instant(json), expected, "{json}");
        }
    }

    #[test]
    fn what_is_no_instant() {
        for json in [
            "\"soon\"",
            "\"\"",
            "true",
            "{}",
            "[1]",
            "null",
            "1e999",
            "1e99999999999",
            "\"1.2.3\"",
            "\"0001-01-01T00:00:00Z\"",
            "\"2026-03-02\"",
            "\"-\"",
            "\".5\"",
            "99999999999999999999999",
        ] {
            assert_eq!(instant(json), None, "{json}");
        }
    }

    #[test]
    fn spans_of_milliseconds() {
        for (json, nanos) in [
            ("12.5", 12_500_000),
            ("0", 0),
            ("\"3\"", 3_000_000),
            ("-1", -1_000_000),
        ] {
            assert_eq!(span_of_ms(json), Some(Nanos(nanos)), "{json}");
        }
        assert_eq!(span_of_ms("\"fast\""), None);
    }
}
