//! The slow path: rewrites what strict JSON refuses into strict JSON, and says what was odd.
//!
//! It repairs only what events.md §3 lists. Everything else stays what it is: not JSON.

use super::DeadLetterReason;
use crate::core::event::ReadFlags;
use std::cmp::Ordering;

/// Nesting that is still read (events.md §3).
pub(super) const DEPTH_MAX: usize = 512;

/// Nesting that is kept: below it content is checked and replaced by null, for strict readers stop
/// at 128.
const DEPTH_KEPT: usize = 96;

/// Why the text is no JSON even for this reader.
type Rewritten<T> = Result<T, DeadLetterReason>;

/// True where only the slow path sees what has to be seen: strict readers skip over lone surrogates
/// and over nesting.
pub(super) fn needs_care(text: &str) -> bool {
    may_be_too_deep(text.as_bytes()) || has_lone_surrogate(text)
}

/// True where there are enough brackets. Counted in bytes, which compilers turn into wide
/// instructions.
fn may_be_too_deep(bytes: &[u8]) -> bool {
    // Every level takes a bracket on either side.
    if bytes.len() <= 2 * DEPTH_MAX {
        return false;
    }
    // `[` and `{` differ in this one bit.
    let opens = |chunk: &[u8]| {
        chunk
            .iter()
            .map(|byte| u8::from(byte | 0x20 == b'{'))
            .sum::<u8>()
    };
    let count: usize = bytes
        .chunks(255)
        .map(|chunk| usize::from(opens(chunk)))
        .sum();
    count > DEPTH_MAX
}

/// Looks at escapes only; most records hold none.
fn has_lone_surrogate(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(found) = text[at..].find('\\') {
        at += found;
        match surrogate(bytes, at) {
            None => at += 2,
            Some(Half::High) if surrogate(bytes, at + 6) == Some(Half::Low) => at += 12,
            Some(_) => return true,
        }
        // The escaped character may be longer than a byte; that is no JSON, and for the parser to
        // say.
        at = text.ceil_char_boundary(at);
    }
    false
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    High,
    Low,
}

/// The half of a surrogate pair that an escape at `at` spells.
fn surrogate(bytes: &[u8], at: usize) -> Option<Half> {
    let escape = bytes.get(at..at + 6)?;
    let is_half = escape.starts_with(b"\\u") && matches!(escape[2], b'd' | b'D');
    if !is_half || !escape[4..].iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    match escape[3] {
        b'8' | b'9' | b'a' | b'b' | b'A' | b'B' => Some(Half::High),
        b'c'..=b'f' | b'C'..=b'F' => Some(Half::Low),
        _ => None,
    }
}

/// Rewrites `text` into strict JSON without duplicate keys and at most 96 levels deep.
pub(super) fn rewrite(text: &str, flags: &mut ReadFlags) -> Result<String, DeadLetterReason> {
    let mut rewriter = Rewriter {
        text,
        at: 0,
        out: String::with_capacity(text.len()),
        pairs: Vec::new(),
        flags,
    };
    rewriter.value(0, true)?;
    rewriter.space();
    if rewriter.at < text.len() {
        return Err(DeadLetterReason::InvalidJson);
    }
    Ok(rewriter.out)
}

/// One pair of an object, as offsets into the output.
#[derive(Clone, Copy)]
struct Pair {
    key_from: u32,
    key_below: u32,
    value_below: u32,
    is_gone: bool,
}

struct Rewriter<'t, 'f> {
    text: &'t str,
    at: usize,
    out: String,
    /// The pairs of every open object; each object owns the end of it.
    pairs: Vec<Pair>,
    flags: &'f mut ReadFlags,
}

impl Rewriter<'_, '_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Rewritten<()> {
        if self.peek() != Some(byte) {
            return Err(DeadLetterReason::InvalidJson);
        }
        self.at += 1;
        Ok(())
    }

    /// One value. `is_ours`: keys here are the runtime's, so both casings of one are the same key.
    fn value(&mut self, depth: usize, is_ours: bool) -> Rewritten<()> {
        self.space();
        match self.peek().ok_or(DeadLetterReason::InvalidJson)? {
            b'{' | b'[' => self.container(depth + 1, is_ours),
            b'"' => self.string(),
            b't' => self.word("true", "true"),
            b'f' => self.word("false", "false"),
            b'n' => self.word("null", "null"),
            b'N' => self.nonstandard("NaN"),
            b'I' => self.nonstandard("Infinity"),
            b'-' if self.text[self.at..].starts_with("-I") => self.nonstandard("-Infinity"),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(DeadLetterReason::InvalidJson),
        }
    }

    fn word(&mut self, word: &str, written: &str) -> Rewritten<()> {
        if !self.text[self.at..].starts_with(word) {
            return Err(DeadLetterReason::InvalidJson);
        }
        self.at += word.len();
        self.out.push_str(written);
        Ok(())
    }

    fn nonstandard(&mut self, word: &str) -> Rewritten<()> {
        self.flags.nonstandard_json = true;
        self.word(word, "null")
    }

    fn container(&mut self, depth: usize, is_ours: bool) -> Rewritten<()> {
        if depth > DEPTH_MAX {
            return Err(DeadLetterReason::TooDeep);
        }
        let from = self.out.len();
        if self.peek() == Some(b'{') {
            self.object(depth, is_ours)?;
        } else {
            self.array(depth, is_ours)?;
        }
        if depth > DEPTH_KEPT {
            self.out.truncate(from);
            self.out.push_str("null");
        }
        Ok(())
    }

    fn array(&mut self, depth: usize, is_ours: bool) -> Rewritten<()> {
        self.expect(b'[')?;
        self.out.push('[');
        self.space();
        if self.peek() != Some(b']') {
            loop {
                self.value(depth, is_ours)?;
                self.space();
                if self.peek() != Some(b',') {
                    break;
                }
                self.at += 1;
                self.out.push(',');
            }
        }
        self.expect(b']')?;
        self.out.push(']');
        Ok(())
    }

    fn object(&mut self, depth: usize, is_ours: bool) -> Rewritten<()> {
        self.expect(b'{')?;
        self.out.push('{');
        let first = self.pairs.len();
        self.space();
        if self.peek() != Some(b'}') {
            loop {
                self.pair(depth, is_ours)?;
                self.space();
                if self.peek() != Some(b',') {
                    break;
                }
                self.at += 1;
                self.out.push(',');
            }
        }
        self.expect(b'}')?;
        self.blank_duplicates(first, is_ours);
        self.pairs.truncate(first);
        self.out.push('}');
        Ok(())
    }

    fn pair(&mut self, depth: usize, is_ours: bool) -> Rewritten<()> {
        self.space();
        let key_from = self.out.len();
        self.key()?;
        let key_below = self.out.len();
        self.space();
        self.expect(b':')?;
        self.out.push(':');
        let is_ours = is_ours && !is_users(&self.out[key_from + 1..key_below - 1]);
        self.value(depth, is_ours)?;
        let offset = |at: usize| u32::try_from(at).map_err(|_| DeadLetterReason::TooLarge);
        self.pairs.push(Pair {
            key_from: offset(key_from + 1)?,
            key_below: offset(key_below - 1)?,
            value_below: offset(self.out.len())?,
            is_gone: false,
        });
        Ok(())
    }

    /// A key in its shortest spelling, so that equal keys are equal text.
    fn key(&mut self) -> Rewritten<()> {
        let from = self.out.len();
        self.string()?;
        if self.out[from..].contains('\\') {
            let invalid = |_| DeadLetterReason::InvalidJson;
            let key: String = serde_json::from_str(&self.out[from..]).map_err(invalid)?;
            let plain = serde_json::to_string(&key).map_err(invalid)?;
            self.out.truncate(from);
            self.out.push_str(&plain);
        }
        Ok(())
    }

    fn string(&mut self) -> Rewritten<()> {
        self.expect(b'"')?;
        self.out.push('"');
        loop {
            let rest = &self.text[self.at..];
            let is_stop = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
            let plain = rest.as_bytes().iter().position(is_stop);
            let plain = plain.ok_or(DeadLetterReason::InvalidJson)?;
            self.out.push_str(&rest[..plain]);
            self.at += plain;
            match rest.as_bytes()[plain] {
                b'"' => {
                    self.at += 1;
                    self.out.push('"');
                    return Ok(());
                }
                b'\\' => self.escape()?,
                _ => return Err(DeadLetterReason::InvalidJson),
            }
        }
    }

    fn escape(&mut self) -> Rewritten<()> {
        let bytes = self.text.as_bytes();
        let length = match bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') => {
                let digits = bytes.get(self.at + 2..self.at + 6);
                if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                    return Err(DeadLetterReason::InvalidJson);
                }
                match surrogate(bytes, self.at) {
                    None => 6,
                    Some(Half::High) if surrogate(bytes, self.at + 6) == Some(Half::Low) => 12,
                    Some(_) => {
                        self.flags.lone_surrogate = true;
                        self.out.push('\u{fffd}');
                        self.at += 6;
                        return Ok(());
                    }
                }
            }
            _ => return Err(DeadLetterReason::InvalidJson),
        };
        self.out.push_str(&self.text[self.at..self.at + length]);
        self.at += length;
        Ok(())
    }

    /// A number as it is written; one that no double holds is null.
    fn number(&mut self) -> Rewritten<()> {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = rest.bytes().take_while(is_part).count();
        let number = &rest[..length];
        if !is_number(number) {
            return Err(DeadLetterReason::InvalidJson);
        }
        let is_finite = number.parse::<f64>().is_ok_and(f64::is_finite);
        self.out.push_str(if is_finite { number } else { "null" });
        self.at += length;
        Ok(())
    }

    /// Of equal keys the last stays; the others become white space, each with the comma behind it.
    fn blank_duplicates(&mut self, first: usize, is_ours: bool) {
        let Rewriter {
            out, pairs, flags, ..
        } = self;
        let pairs = &mut pairs[first..];
        let order = |out: &str, a: &Pair, b: &Pair| {
            compare(
                &out[range(a.key_from, a.key_below)],
                &out[range(b.key_from, b.key_below)],
                is_ours,
            )
        };
        // Stable: among equal keys the order of the record stays.
        pairs.sort_by(|a, b| order(out, a, b));
        for at in 1..pairs.len() {
            let (pair, next) = (pairs[at - 1], pairs[at]);
            if order(out, &pair, &next).is_eq() {
                flags.duplicate_keys = true;
                // The key itself stays comparable until the last of its equals was looked at.
                pairs[at - 1].is_gone = true;
            }
        }
        for pair in pairs.iter().filter(|pair| pair.is_gone) {
            // From the opening quote to the comma behind the value: a later pair always follows.
            let gone = range(pair.key_from - 1, pair.value_below + 1);
            let spaces = " ".repeat(gone.len());
            out.replace_range(gone, &spaces);
        }
    }
}

fn range(from: u32, below: u32) -> std::ops::Range<usize> {
    from as usize..below as usize
}

/// Orders keys, without their casing where the runtimes differ in it.
fn compare(a: &str, b: &str, is_ours: bool) -> Ordering {
    if is_ours {
        folded(a).cmp(folded(b))
    } else {
        a.cmp(b)
    }
}

fn folded(key: &str) -> impl Iterator<Item = u8> {
    key.bytes()
        .filter(|byte| *byte != b'_')
        .map(|byte| byte.to_ascii_lowercase())
}

/// Below these keys every name is the user's own (case JSN-09).
fn is_users(key: &str) -> bool {
    const USERS: [&str; 9] = [
        "args",
        "response",
        "statedelta",
        "artifactdelta",
        "custommetadata",
        "attributes",
        "native",
        "output",
        "agentstate",
    ];
    USERS.iter().any(|users| folded(key).eq(users.bytes()))
}

/// The number grammar of RFC 8259.
fn is_number(text: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = text.strip_prefix('-').unwrap_or(text);
    let whole = digits(rest);
    if whole == 0 || (whole > 1 && rest.starts_with('0')) {
        return false;
    }
    let mut rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix('.') {
        let count = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = &fraction[count..];
    }
    if let Some(power) = rest.strip_prefix(['e', 'E']) {
        let power = power.strip_prefix(['+', '-']).unwrap_or(power);
        let count = digits(power);
        return count > 0 && count == power.len();
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(flags: ReadFlags) -> String {
        let mut words = Vec::new();
        for (is_set, word) in [
            (flags.duplicate_keys, "duplicate_keys"),
            (flags.lone_surrogate, "lone_surrogate"),
            (flags.nonstandard_json, "nonstandard_json"),
        ] {
            words.extend(is_set.then_some(word));
        }
        words.join(",")
    }

    fn check(text: &str, expected: &str, said: &str) {
        let mut flags = ReadFlags::default();
        let found = match rewrite(text, &mut flags) {
            Ok(clean) => {
                serde_json::from_str::<serde_json::Value>(&clean).unwrap();
                clean.replace(' ', "")
            }
            Err(reason) => reason.as_str().to_owned(),
        };
        assert_eq!(
            (found.as_str(), words(flags).as_str()),
            (expected, said),
            "{text}"
        );
    }

    #[test]
    fn what_is_repaired() {
        check(
            "[NaN,Infinity,-Infinity,1e5]",
            "[null,null,null,1e5]",
            "nonstandard_json",
        );
        check(
            r#"{"a":1,"a":2,"b":3}"#,
            r#"{"a":2,"b":3}"#,
            "duplicate_keys",
        );
        check(
            r#"{"a":1,"b":3,"a":{"c":1,"c":2},"a":4}"#,
            r#"{"b":3,"a":4}"#,
            "duplicate_keys",
        );
        check(r#"{"a_b":1,"aB":2}"#, r#"{"aB":2}"#, "duplicate_keys");
        check(
            r#"{"args":{"a_b":1,"aB":2}}"#,
            r#"{"args":{"a_b":1,"aB":2}}"#,
            "",
        );
        check(r#"{"\u0061":1,"a":2}"#, r#"{"a":2}"#, "duplicate_keys");
        check(
            r#"["\ud83d","\ude00x","\ud83d\ude00"]"#,
            "[\"\u{fffd}\",\"\u{fffd}x\",\"\\ud83d\\ude00\"]",
            "lone_surrogate",
        );
        check("[1e400]", "[null]", "");
    }

    #[test]
    fn what_is_no_json() {
        for text in [
            "",
            " ",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "{\"a\"}",
            "{a:1}",
            "01",
            "1.",
            ".5",
            "+1",
            "-",
            "1e",
            "nul",
            "[1] 2",
            "\"a",
            "\"\\x\"",
            "\"\\u12g4\"",
            "'a'",
            "\"a\nb\"",
            "Inf",
            "[1 2]",
        ] {
            check(
                text,
                "invalid_json",
                if text == "Inf" {
                    "nonstandard_json"
                } else {
                    ""
                },
            );
        }
    }

    #[test]
    fn nesting_is_counted() {
        let nest = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let mut flags = ReadFlags::default();
        assert!(rewrite(&nest(512), &mut flags).is_ok());
        assert_eq!(
            rewrite(&nest(513), &mut flags),
            Err(DeadLetterReason::TooDeep)
        );
        assert_eq!(
            rewrite(&nest(512), &mut flags).unwrap(),
            "[".repeat(96) + "null" + &"]".repeat(96)
        );
        assert!(needs_care(&nest(513)) && !needs_care(&nest(512)));
        assert!(needs_care(&"{[".repeat(513)) && !needs_care(&"x{".repeat(512)));
    }

    #[test]
    fn lone_surrogates_are_seen_in_skipped_text() {
        for (text, expected) in [
            (r#""\ud83d""#, true),
            (r#""\ud83d\ude00""#, false),
            (r#""\ude00\ud83d""#, true),
            (r#""\\ud83d""#, false),
            (r#""\n\\\ud83d""#, true),
            ("\"\\\u{e9}\"", false),
            (r"\", false),
        ] {
            assert_eq!(needs_care(text), expected, "{text}");
        }
    }
}
