//! A token count as it arrives: a number, a text or neither, read without binary floats.
//!
//! It does not judge whether a count is plausible.

use super::decimal::Decimal;

/// One count as told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Absent, null or an empty string: unknown (events.md §2).
    Absent,
    /// Negative, a fraction, a word, a boolean, or more than a `u64` holds (events.md §3).
    Invalid,
    Value(u64),
}

impl Count {
    /// From the text of one JSON value.
    pub(crate) fn from_json(raw: &str) -> Count {
        match raw.as_bytes().first() {
            None | Some(b'n') => Count::Absent,
            Some(b'"') => match unquoted(raw) {
                Some(text) => Count::from_text(text),
                None => Count::Invalid,
            },
            Some(b'-' | b'0'..=b'9') => Count::from_text(raw),
            Some(_) => Count::Invalid,
        }
    }

    /// From digits, a decimal or exponent notation whose value is a whole number.
    pub(crate) fn from_text(text: &str) -> Count {
        let text = text.trim();
        if text.is_empty() {
            return Count::Absent;
        }
        if text.len() < 20 && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let digits = text.bytes().map(|byte| u64::from(byte - b'0'));
            return Count::Value(digits.fold(0, |value, digit| value * 10 + digit));
        }
        match Decimal::parse(text).and_then(Decimal::to_u64) {
            Some(value) => Count::Value(value),
            None => Count::Invalid,
        }
    }

    pub(crate) fn from_f64(value: f64) -> Count {
        // 2^64: the first double that a u64 cannot hold.
        if (0.0..18_446_744_073_709_551_616.0).contains(&value) && value.fract() == 0.0 {
            Count::Value(value as u64)
        } else {
            Count::Invalid
        }
    }
}

/// The inside of a JSON string that needs no unescaping.
pub(crate) fn unquoted(raw: &str) -> Option<&str> {
    let inside = raw.strip_prefix('"')?.strip_suffix('"')?;
    (!inside.contains('\\')).then_some(inside)
}
