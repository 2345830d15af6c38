//! Marks to a committed offset with its metadata text, and back.
//!
//! Deliberately forgiving: a commit that somebody else wrote is a bare offset, never an error.

use crate::core::ledger::Watermark;
use crate::core::{LogTime, Offset};
use std::fmt::Write as _;

#[cfg(test)]
/// Broker's limit on commit metadata (`offset.metadata.max.bytes`), in UTF-16 units.
const METADATA_UNITS_MAX: usize = 4_096;

const UNKNOWN: LogTime = LogTime(i64::MIN);

/// The metadata text of `marks`; the offset to commit is their `resume_from`.
///
/// `v1;exported=OFFSET;abandoned=LOGTIME;observed=OFFSET,LOGTIME;clean=1`, log times in
/// milliseconds; a log time not reached is left out.
pub fn metadata(marks: &Watermark) -> String {
    let mut text = format!("v1;exported={}", marks.exported_below.0);
    if marks.abandoned_before != UNKNOWN {
        let _ = write!(text, ";abandoned={}", marks.abandoned_before.0);
    }
    let _ = write!(text, ";observed={}", marks.observed_below.0);
    if marks.observed_before != UNKNOWN {
        let _ = write!(text, ",{}", marks.observed_before.0);
    }
    if marks.is_clean {
        text.push_str(";clean=1");
    }
    text
}

/// The marks of a commit. The flag is true where there was metadata that this build cannot read,
/// so that the commit counts as bare (facts.md §8.5).
pub fn marks(offset: i64, metadata: &str) -> (Watermark, bool) {
    let bare = Watermark::bare(Offset(offset));
    match metadata {
        "" => (bare, false),
        text => read(offset, text).map_or((bare, true), |marks| (marks, false)),
    }
}

fn read(offset: i64, text: &str) -> Option<Watermark> {
    let mut parts = text.split(';');
    if parts.next()? != "v1" {
        return None;
    }
    let mut exported = None;
    let mut observed = None;
    let mut marks = Watermark::bare(Offset(offset));
    for part in parts {
        let (key, value) = part.split_once('=')?;
        match key {
            "exported" => exported = Some(offset_of(value)?),
            "abandoned" => marks.abandoned_before = LogTime(value.parse().ok()?),
            "observed" => {
                let (below, before) = value.split_once(',').unwrap_or((value, ""));
                observed = Some(offset_of(below)?);
                if !before.is_empty() {
                    marks.observed_before = LogTime(before.parse().ok()?);
                }
            }
            "clean" => marks.is_clean = value == "1",
            // A later build may say more.
            _ => {}
        }
    }
    marks.exported_below = exported?;
    marks.observed_below = observed?;
    Some(marks)
}

fn offset_of(text: &str) -> Option<Offset> {
    text.parse().ok().filter(|offset| *offset >= 0).map(Offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Watermark {
        Watermark {
            resume_from: Offset(128),
            exported_below: Offset(160_187),
            abandoned_before: LogTime(1_796_043_498_226),
            observed_below: Offset(161_002),
            observed_before: LogTime(-5),
            is_clean: true,
        }
    }

    #[test]
    fn reads_what_it_writes() {
        let text = "v1;exported=160187;abandoned=1796043498226;observed=161002,-5;clean=1";
        assert_eq!(metadata(&full()), text);
        for given in [full(), Watermark::bare(Offset(7))] {
            let read = marks(given.resume_from.0, &metadata(&given));
            assert_eq!(read, (given, false));
        }
    }

    #[test]
    fn fits_the_broker_whatever_the_marks() {
        let widest = Watermark {
            resume_from: Offset(i64::MAX),
            exported_below: Offset(i64::MAX),
            abandoned_before: LogTime(i64::MIN + 1),
            observed_below: Offset(i64::MAX),
            observed_before: LogTime(i64::MIN + 1),
            is_clean: true,
        };
        assert!(metadata(&widest).encode_utf16().count() < METADATA_UNITS_MAX);
    }

    #[test]
    fn what_it_cannot_read_is_a_bare_commit() {
        let bare = Watermark::bare(Offset(9));
        assert_eq!(marks(9, ""), (bare, false), "no metadata is no surprise");
        for text in [
            "hello",
            "v2;exported=1;observed=1",
            "v1",
            "v1;exported=1",
            "v1;exported=-1;observed=1",
            "v1;exported=x;observed=1",
            "v1;exported=1;observed=1,x",
            "v1;exported",
        ] {
            assert_eq!(marks(9, text), (bare, true), "{text}");
        }
    }

    #[test]
    fn a_later_build_may_say_more() {
        let text = format!("{};mood=fine", metadata(&full()));
        assert_eq!(marks(128, &text), (full(), false));
    }
}
