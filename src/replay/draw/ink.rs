//! Characters, colours and short words of the drawing.
//!
//! Names come from strangers: nothing that could steer a terminal passes through here.

use crate::core::Nanos;

/// What a piece of the drawing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    Plain,
    Dim,
    Bold,
    Model,
    Waiting,
    Tool,
    Good,
    Warn,
    Bad,
    Verdict,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Ink::Plain => "",
            Ink::Dim => "2",
            Ink::Bold => "1",
            Ink::Model => "36",
            Ink::Waiting => "34",
            Ink::Tool => "33",
            Ink::Good => "32",
            Ink::Warn => "33",
            Ink::Bad => "31",
            Ink::Verdict => "35",
        }
    }
}

/// The characters of the drawing.
#[derive(Clone, Copy, Debug)]
pub struct Glyphs {
    pub model: char,
    /// A model that has not said anything yet.
    pub silent: char,
    pub tool: char,
    pub waiting: char,
    pub point: char,
    pub tool_point: char,
    pub verdict: char,
    pub answer: char,
    pub recovery: char,
    pub anomaly: char,
    pub rule: char,
    pub axis: char,
    pub axis_start: char,
    pub tick: char,
    pub cut: char,
    pub down: &'static str,
    pub fork: &'static str,
    pub last: &'static str,
    pub dot: &'static str,
    pub ellipsis: char,
}

/// Unicode blocks and boxes.
pub const UNICODE: Glyphs = Glyphs {
    model: '█',
    silent: '▒',
    tool: '▄',
    waiting: '·',
    point: '●',
    tool_point: '■',
    verdict: '◆',
    answer: '○',
    recovery: '↻',
    anomaly: '!',
    rule: '━',
    axis: '─',
    axis_start: '├',
    tick: '┼',
    cut: '┄',
    down: "│ ",
    fork: "├ ",
    last: "└ ",
    dot: " · ",
    ellipsis: '…',
};

/// The same without anything beyond ASCII.
pub const ASCII: Glyphs = Glyphs {
    model: '#',
    silent: '-',
    tool: '=',
    waiting: '.',
    point: 'o',
    tool_point: 'x',
    verdict: '*',
    answer: '@',
    recovery: '~',
    anomaly: '!',
    rule: '=',
    axis: '-',
    axis_start: '+',
    tick: '+',
    cut: ' ',
    down: "| ",
    fork: "+ ",
    last: "+ ",
    dot: ", ",
    ellipsis: '~',
};

/// One line under construction: text with ink, and its width in columns.
#[derive(Debug, Default)]
pub struct Line {
    pub text: String,
    pub columns: usize,
}

/// What lines are written with.
#[derive(Clone, Copy, Debug)]
pub struct Pen {
    pub has_color: bool,
    pub glyphs: Glyphs,
}

impl Pen {
    /// Adds text.
    pub fn write(&self, line: &mut Line, ink: Ink, text: &str) {
        line.columns += columns(text);
        let code = ink.code();
        if !self.has_color || code.is_empty() || text.trim().is_empty() {
            line.text.push_str(text);
            return;
        }
        line.text.push_str(&format!("\x1b[{code}m{text}\x1b[0m"));
    }

    /// Adds spaces up to a column.
    pub fn pad(&self, line: &mut Line, column: usize) {
        while line.columns < column {
            line.text.push(' ');
            line.columns += 1;
        }
    }

    /// The text, cut to a width.
    pub fn cut(&self, text: &str, width: usize) -> String {
        if columns(text) <= width {
            return text.to_owned();
        }
        let mut kept = String::new();
        let mut used = 1;
        for c in text.chars() {
            used += char_columns(c);
            if used > width {
                break;
            }
            kept.push(c);
        }
        kept.push(self.glyphs.ellipsis);
        kept
    }
}

/// Columns that a text takes on a terminal.
pub fn columns(text: &str) -> usize {
    text.chars().map(char_columns).sum()
}

/// East Asian wide characters and emoji take two; the ranges are those of Unicode's
/// `EastAsianWidth` W and F, coarsely.
fn char_columns(c: char) -> usize {
    let is_wide = matches!(u32::from(c),
        0x1100..=0x115F | 0x2E80..=0xA4CF | 0xAC00..=0xD7A3 | 0xF900..=0xFAFF | 0xFE30..=0xFE6F
        | 0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 | 0x1F300..=0x1FAFF | 0x20000..=0x3FFFD);
    if is_wide { 2 } else { 1 }
}

/// A stranger's name without control characters, and without marks that reorder or hide text.
pub fn clean(name: &str) -> String {
    name.chars()
        .map(|c| {
            let hides = matches!(u32::from(c),
                0x00AD | 0x061C | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0xFEFF
                | 0x0300..=0x036F | 0xFE00..=0xFE0F | 0xE0000..=0xE01EF);
            if c.is_control() || hides { '?' } else { c }
        })
        .collect()
}

/// A long id by its beginning and end.
pub fn short_id(id: &str, ellipsis: char) -> String {
    let id = clean(id);
    let chars: Vec<char> = id.chars().collect();
    if chars.len() <= 22 {
        return id;
    }
    let (head, tail) = (&chars[..12], &chars[chars.len() - 6..]);
    head.iter().chain([&ellipsis]).chain(tail).collect()
}

/// A count with thousands apart; `?` where unknown.
pub fn count(count: Option<u64>) -> String {
    let Some(count) = count else {
        return "?".to_owned();
    };
    let digits = count.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration for a person, to about three figures; `?` where unknown.
pub fn duration(span: Option<Nanos>) -> String {
    span.map_or_else(|| "?".to_owned(), span_text)
}

fn span_text(span: Nanos) -> String {
    let sign = if span.0 < 0 { "-" } else { "" };
    let micros = (span.0.unsigned_abs() + 500) / 1_000;
    let millis = (micros + 500) / 1_000;
    let seconds = (millis + 500) / 1_000;
    let text = if micros < 10_000 && !micros.is_multiple_of(1_000) {
        decimal(micros / 10, 2, "ms")
    } else if millis < 1_000 {
        format!("{millis} ms")
    } else if millis < 10_000 {
        decimal(millis / 10, 2, "s")
    } else if millis < 60_000 {
        decimal(millis / 100, 1, "s")
    } else if seconds < 3_600 {
        two(seconds, 60, "m", "s")
    } else if seconds < 172_800 {
        two(seconds / 60, 60, "h", "m")
    } else {
        two(seconds / 3_600, 24, "d", "h")
    };
    format!("{sign}{text}")
}

/// A number of `units` that are 10⁻ᵈ each, without trailing zeros.
fn decimal(units: u64, decimals: u32, unit: &str) -> String {
    let scale = 10_u64.pow(decimals);
    let part = format!("{:0width$}", units % scale, width = decimals as usize);
    let part = part.trim_end_matches('0');
    let point = if part.is_empty() { "" } else { "." };
    format!("{}{point}{part} {unit}", units / scale)
}

fn two(small: u64, in_large: u64, large_unit: &str, small_unit: &str) -> String {
    let (large, small) = (small / in_large, small % in_large);
    if small == 0 {
        return format!("{large} {large_unit}");
    }
    format!("{large} {large_unit} {small} {small_unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        for (nanos, text) in [
            (0, "0 ms"),
            (250_000, "0.25 ms"),
            (450_000_000, "450 ms"),
            (1_200_000_000, "1.2 s"),
            (999_600_000, "1 s"),
            (12_340_000_000, "12.3 s"),
            (200_000_000_000, "3 m 20 s"),
            (10_798_800_000_000, "2 h 59 m"),
            (259_200_000_000_000, "3 d"),
            (-5_000_000, "-5 ms"),
        ] {
            assert_eq!(duration(Some(Nanos(nanos))), text, "{nanos}");
        }
        assert_eq!(duration(None), "?");
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(clean("a\x1b[31mb\u{202e}c\n"), "a?[31mb?c?");
        assert_eq!(columns("日本"), 4);
        assert_eq!(
            short_id("e-c1f83a89-8e7c-4a9a-a8b6-9a69eac40c55", '…'),
            "e-c1f83a89-8…c40c55"
        );
        assert_eq!(count(Some(1_234_567)), "1,234,567");
    }
}
