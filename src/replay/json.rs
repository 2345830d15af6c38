//! JSON text, written key by key: exact decimals, and unknown values as `null` or not at all.
//!
//! It parses nothing, and no number passes through a float.

use crate::core::{EventTime, Nanos};

/// What becomes of a value that is unknown or empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Unknown is `null`, empty is empty (`--output report`).
    Null,
    /// Neither is written (`--output facts`).
    Omit,
}

/// A JSON object under construction.
pub struct Object<'o> {
    out: &'o mut String,
    unknown: Unknown,
    is_first: bool,
}

impl Object<'_> {
    /// Writes one object at the end of `out`.
    pub fn write(out: &mut String, unknown: Unknown, fill: impl FnOnce(&mut Object<'_>)) {
        out.push('{');
        let mut object = Object {
            out,
            unknown,
            is_first: true,
        };
        fill(&mut object);
        object.out.push('}');
    }

    /// True where unknown and empty values are left out.
    pub fn omits(&self) -> bool {
        self.unknown == Unknown::Omit
    }

    fn key(&mut self, key: &str) {
        if !self.is_first {
            self.out.push(',');
        }
        self.is_first = false;
        push_text(self.out, key);
        self.out.push(':');
    }

    /// A value that is JSON already.
    pub fn raw(&mut self, key: &str, json: Option<&str>) {
        if json.is_none() && self.omits() {
            return;
        }
        self.key(key);
        self.out.push_str(json.unwrap_or("null"));
    }

    /// A text; `""` is left out where unknown values are.
    pub fn text(&mut self, key: &str, text: Option<&str>) {
        match text {
            Some("") if self.omits() => {}
            Some(text) => {
                self.key(key);
                push_text(self.out, text);
            }
            None => self.raw(key, None),
        }
    }

    /// A name; the empty one is unknown.
    pub fn name(&mut self, key: &str, name: &str) {
        self.text(key, Some(name).filter(|name| !name.is_empty()));
    }

    /// A count.
    pub fn count(&mut self, key: &str, count: Option<u64>) {
        self.raw(key, count.map(|n| n.to_string()).as_deref());
    }

    /// A count that may be negative.
    pub fn signed(&mut self, key: &str, count: Option<i64>) {
        self.raw(key, count.map(|n| n.to_string()).as_deref());
    }

    /// Three-valued.
    pub fn truth(&mut self, key: &str, truth: Option<bool>) {
        self.raw(key, truth.map(|t| if t { "true" } else { "false" }));
    }

    /// Two-valued, and mostly false: left out then where unknown values are.
    pub fn mark(&mut self, key: &str, is_so: bool) {
        self.truth(key, (is_so || !self.omits()).then_some(is_so));
    }

    /// A duration, in exact decimal milliseconds.
    pub fn millis(&mut self, key: &str, span: Option<Nanos>) {
        self.raw(key, span.map(Nanos::to_ms_text).as_deref());
    }

    /// An instant, RFC 3339 with nanoseconds.
    pub fn instant(&mut self, key: &str, at: Option<EventTime>) {
        self.text(key, at.map(instant_text).as_deref());
    }

    /// A list of texts.
    pub fn words<'w>(&mut self, key: &str, words: impl IntoIterator<Item = &'w str>) {
        let mut words = words.into_iter().peekable();
        if words.peek().is_none() && self.omits() {
            return;
        }
        self.key(key);
        self.out.push('[');
        for (i, word) in words.enumerate() {
            if i > 0 {
                self.out.push(',');
            }
            push_text(self.out, word);
        }
        self.out.push(']');
    }

    /// An object; `None` is unknown.
    pub fn object(&mut self, key: &str, fill: Option<impl FnOnce(&mut Object<'_>)>) {
        let Some(fill) = fill else {
            return self.raw(key, None);
        };
        let before = (self.out.len(), self.is_first);
        self.key(key);
        let inside = self.out.len();
        Object::write(self.out, self.unknown, fill);
        if self.omits() && self.out.len() == inside + 2 {
            self.out.truncate(before.0);
            self.is_first = before.1;
        }
    }
}

/// A list of objects, one a line.
pub fn rows<R>(out: &mut String, rows: &[R], each: impl Fn(&R, &mut Object<'_>)) {
    out.push('[');
    for (i, row) in rows.iter().enumerate() {
        out.push_str(if i == 0 { "\n  " } else { ",\n  " });
        Object::write(out, Unknown::Null, |object| each(row, object));
    }
    out.push(']');
}

/// RFC 3339 in UTC with nine decimals.
pub fn instant_text(at: EventTime) -> String {
    // Every 64-bit count of nanoseconds lies within the years 1677 to 2262, which jiff can hold.
    jiff::Timestamp::from_nanosecond(i128::from(at.0))
        .map_or_else(|_| String::new(), |t| format!("{t:.9}"))
}

/// A quoted and escaped text.
pub fn push_text(out: &mut String, text: &str) {
    // A string always serializes.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(object: &mut Object<'_>) {
        object.text("a", Some("q\"\u{1}"));
        object.text("b", Some(""));
        object.count("c", None);
        object.count("d", Some(u64::MAX));
        object.millis("e_ms", Some(Nanos(1_500_001)));
        object.instant("f", Some(EventTime(1_772_445_600_450_000_000)));
        object.truth("g", Some(false));
        object.words("h", []);
        object.object("i", Some(|inner: &mut Object<'_>| inner.count("x", None)));
        object.mark("j", false);
    }

    fn written(unknown: Unknown) -> String {
        let mut out = String::new();
        Object::write(&mut out, unknown, fill);
        out
    }

    #[test]
    fn the_report_writes_every_key() {
        assert_eq!(
            written(Unknown::Null),
            r#"{"a":"q\"\u0001","b":"","c":null,"d":18446744073709551615,"e_ms":1.500001,"#
                .to_owned()
                + r#""f":"2026-03-02T10:00:00.450000000Z","g":false,"h":[],"i":{"x":null},"j":false}"#
        );
    }

    #[test]
    fn facts_leave_out_what_is_unknown_or_empty() {
        assert_eq!(
            written(Unknown::Omit),
            r#"{"a":"q\"\u0001","d":18446744073709551615,"e_ms":1.500001,"#.to_owned()
                + r#""f":"2026-03-02T10:00:00.450000000Z","g":false}"#
        );
    }
}
