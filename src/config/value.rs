//! Sizes and durations as people write them: `8 MiB`, `30 min`.

use std::time::Duration;

const SIZES: [(&str, usize); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

const SPANS_MS: [(&str, u64); 4] = [("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

/// Bytes of `8 MiB`, `512 KiB`, `100 B`.
pub(super) fn parse_bytes(text: &str) -> Option<usize> {
    let (number, unit) = split(text)?;
    let (_, factor) = SIZES.iter().find(|(name, _)| *name == unit)?;
    number.parse::<usize>().ok()?.checked_mul(*factor)
}

/// The span of `30 min`, `5 s`, `1 h`, `250 ms`.
pub(super) fn parse_span(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let (_, factor) = SPANS_MS.iter().find(|(name, _)| *name == unit)?;
    let ms = number.parse::<u64>().ok()?.checked_mul(*factor)?;
    Some(Duration::from_millis(ms))
}

/// The size in the largest unit that fits exactly.
pub(super) fn bytes_text(bytes: usize) -> String {
    let fits = SIZES
        .iter()
        .find(|(_, factor)| bytes.is_multiple_of(*factor));
    let (unit, factor) = fits.unwrap_or(&("B", 1));
    format!("{} {unit}", bytes / factor)
}

/// The span in the largest unit that fits exactly; whole milliseconds.
pub(super) fn span_text(span: Duration) -> String {
    let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let fits = SPANS_MS
        .iter()
        .find(|(_, factor)| ms.is_multiple_of(*factor));
    let (unit, factor) = fits.unwrap_or(&("ms", 1));
    format!("{} {unit}", ms / factor)
}

fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    (!number.is_empty()).then(|| (number, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for text in ["8 MiB", "32 MiB", "256 B", "1 GiB", "3 KiB"] {
            let bytes = parse_bytes(text).expect(text);
            assert_eq!(bytes_text(bytes), text);
        }
        for text in ["30 min", "2 h", "1 s", "5 s", "250 ms", "90 min"] {
            let span = parse_span(text).expect(text);
            assert_eq!(span_text(span), text);
        }
        assert_eq!(parse_span("30min"), parse_span("30 min"));
    }

    #[test]
    fn refuses_what_could_be_misread() {
        for text in [
            "8",
            "8 MB",
            "MiB",
            "-1 MiB",
            "1.5 MiB",
            "99999999999 GiB",
            "",
        ] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
        for text in ["30", "30 m", "1 day", "", "-5 s"] {
            assert_eq!(parse_span(text), None, "{text}");
        }
    }
}
