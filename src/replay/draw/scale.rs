//! The time axis: instants to columns, with long silences cut out.
//!
//! It knows no facts. Within a stretch the drawing is to scale; a cut is always shown as one.

use super::ink::{Glyphs, duration};
use crate::core::{EventTime, Nanos};

/// Columns of a cut.
const CUT_COLUMNS: usize = 7;
/// Nanoseconds of silence that are worth a cut.
const CUT_LENGTH_MIN: i64 = 30_000_000_000;
/// Cuts at most, so that stretches stay readable.
const CUTS_MAX: usize = 3;

/// A stretch of the axis, or a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    from: i64,
    to: i64,
    column: usize,
    columns: usize,
    is_cut: bool,
}

/// The axis of one invocation.
#[derive(Clone, Debug)]
pub struct Scale {
    stretches: Vec<Stretch>,
    from: i64,
    columns: usize,
}

impl Scale {
    /// The axis over everything that is busy. `None` where nothing has a time.
    pub fn over(busy: &[(EventTime, EventTime)], columns: usize) -> Option<Scale> {
        let mut spans: Vec<(i64, i64)> = busy.iter().map(|(a, b)| (a.0, b.0.max(a.0))).collect();
        spans.sort_unstable();
        let from = spans.first()?.0;
        let to = spans.iter().map(|span| span.1).max()?;
        let cuts = cuts(&spans, to.saturating_sub(from));
        let room = columns.saturating_sub(cuts.len() * CUT_COLUMNS).max(1);
        let lengths = cuts.iter().map(|(a, b)| b.saturating_sub(*a));
        let cut = lengths.fold(0, i64::saturating_add);
        let shown = to.saturating_sub(from).saturating_sub(cut).max(1);
        let mut scale = Scale {
            stretches: Vec::new(),
            from,
            columns,
        };
        let (mut at, mut shown_before) = (from, 0_i64);
        for (i, end) in cuts.iter().map(|c| c.0).chain([to]).enumerate() {
            let until = shown_before.saturating_add(end.saturating_sub(at));
            let column = scaled(shown_before, room, shown) + i * CUT_COLUMNS;
            let next = scaled(until, room, shown) + i * CUT_COLUMNS;
            scale.push(at, end, column, next, false);
            shown_before = until;
            if let Some((_, resumed)) = cuts.get(i) {
                scale.push(end, *resumed, next, next + CUT_COLUMNS, true);
                at = *resumed;
            }
        }
        Some(scale)
    }

    fn push(&mut self, from: i64, to: i64, column: usize, next: usize, is_cut: bool) {
        self.stretches.push(Stretch {
            from,
            to,
            column,
            columns: next - column,
            is_cut,
        });
    }

    /// The column in which an instant lies.
    pub fn column(&self, at: EventTime) -> usize {
        self.edge(at.0, 0).min(self.columns.saturating_sub(1))
    }

    /// The columns of a span: at least one.
    pub fn span(&self, from: EventTime, to: EventTime) -> std::ops::Range<usize> {
        let first = self.column(from);
        first
            ..self
                .edge(to.0, 1)
                .clamp(first + 1, self.columns.max(first + 1))
    }

    /// The column edge at or before an instant, or, with `up` 1, at or after it.
    fn edge(&self, at: i64, up: i128) -> usize {
        let after = self.stretches.partition_point(|s| s.from <= at);
        let Some(s) = self.stretches.get(after.saturating_sub(1)) else {
            return 0;
        };
        let length = i128::from(s.to.saturating_sub(s.from)).max(1);
        let into = i128::from(at.saturating_sub(s.from)).clamp(0, length);
        let columns = (into * s.columns as i128 + up * (length - 1)) / length;
        // Not negative, and no more than the columns of the stretch.
        s.column + usize::try_from(columns).unwrap_or(0)
    }

    /// Two lines: labels, and the axis with its ticks.
    pub fn axis(&self, glyphs: &Glyphs) -> (String, String) {
        let mut labels = vec![' '; self.columns];
        let mut line = vec![glyphs.axis; self.columns];
        let mut free_from = 0;
        let mut tick = |column: usize, text: &str, mark: char, line: &mut Vec<char>| {
            if column >= line.len() {
                return;
            }
            line[column] = mark;
            let end = column + text.chars().count();
            if column >= free_from && end <= labels.len() {
                for (i, c) in text.chars().enumerate() {
                    labels[column + i] = c;
                }
                free_from = end + 2;
            }
        };
        for s in &self.stretches {
            if s.is_cut {
                let end = (s.column + s.columns).min(line.len());
                for cell in &mut line[s.column.min(end)..end] {
                    *cell = glyphs.cut;
                }
                continue;
            }
            let begun = Nanos(s.from.saturating_sub(self.from));
            let mark = if s.column == 0 {
                glyphs.axis_start
            } else {
                glyphs.tick
            };
            let first = if begun.0 == 0 {
                "0".to_owned()
            } else {
                duration(Some(begun))
            };
            tick(s.column, &first, mark, &mut line);
            // Events may claim to lie centuries apart.
            let length = s.to.saturating_sub(s.from);
            let step = step(length, s.columns).max(1);
            let mut next = Some(step).filter(|_| begun.0 == 0);
            while let Some(at) = next.filter(|at| *at <= length) {
                let column = self.edge(s.from.saturating_add(at), 0);
                tick(column, &duration(Some(Nanos(at))), glyphs.tick, &mut line);
                next = at.checked_add(step);
            }
        }
        let text = |cells: Vec<char>| cells.into_iter().collect::<String>();
        (text(labels), text(line))
    }
}

fn scaled(part: i64, room: usize, whole: i64) -> usize {
    let columns = i128::from(part) * room as i128 / i128::from(whole.max(1));
    usize::try_from(columns).unwrap_or(0)
}

/// Silences so long that what is not silent would vanish: each more than nine tenths of what is
/// left.
fn cuts(spans: &[(i64, i64)], whole: i64) -> Vec<(i64, i64)> {
    let mut gaps: Vec<(i64, i64)> = Vec::new();
    let mut end = spans.first().map_or(0, |span| span.1);
    for &(from, to) in spans {
        if from > end {
            gaps.push((end, from));
        }
        end = end.max(to);
    }
    gaps.sort_by_key(|(a, b)| a.saturating_sub(*b));
    let mut left = whole;
    let mut chosen: Vec<(i64, i64)> = gaps
        .into_iter()
        .take(CUTS_MAX)
        .take_while(|(a, b)| {
            let gap = b.saturating_sub(*a);
            let is_most = i128::from(gap) * 10 > i128::from(left) * 9 && gap < left;
            left = left.saturating_sub(gap);
            is_most && gap >= CUT_LENGTH_MIN
        })
        .collect();
    chosen.sort_unstable();
    chosen
}

/// A round step with at least ten columns between ticks.
fn step(length: i64, columns: usize) -> i64 {
    const SECOND: i64 = 1_000_000_000;
    let least = length.max(1) / (columns as i64 / 10).max(1);
    let mut unit = 1_000;
    while unit < SECOND * 10 {
        for step in [unit, unit * 2, unit * 5] {
            if step >= least {
                return step;
            }
        }
        unit *= 10;
    }
    for seconds in [
        15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400,
    ] {
        if seconds * SECOND >= least {
            return seconds * SECOND;
        }
    }
    least.max(1)
}

#[cfg(test)]
mod tests {
    use super::super::ink::UNICODE;
    use super::*;

    const S: i64 = 1_000_000_000;

    fn over(spans: &[(i64, i64)], columns: usize) -> Scale {
        let spans: Vec<_> = spans
            .iter()
            .map(|(a, b)| (EventTime(a * S), EventTime(b * S)))
            .collect();
        Scale::over(&spans, columns).unwrap()
    }

    #[test]
    fn a_span_is_drawn_to_scale() {
        let scale = over(&[(100, 104), (106, 110)], 50);
        assert_eq!(scale.span(EventTime(100 * S), EventTime(104 * S)), 0..20);
        assert_eq!(scale.span(EventTime(106 * S), EventTime(110 * S)), 30..50);
        assert_eq!(scale.span(EventTime(110 * S), EventTime(110 * S)), 49..50);
        let (labels, line) = scale.axis(&UNICODE);
        assert_eq!(labels, "0         2 s       4 s       6 s       8 s       ");
        assert_eq!(line, "├─────────┼─────────┼─────────┼─────────┼─────────");
    }

    #[test]
    fn three_hours_of_silence_are_cut() {
        let scale = over(&[(0, 2), (10_800, 10_803)], 57);
        assert_eq!(scale.span(EventTime(0), EventTime(2 * S)), 0..20);
        assert_eq!(scale.column(EventTime(10_800 * S)), 27);
        assert_eq!(
            scale.span(EventTime(10_800 * S), EventTime(10_803 * S)),
            27..57
        );
        let (labels, line) = scale.axis(&UNICODE);
        assert!(labels.starts_with("0         1 s"), "{labels}");
        assert!(labels.contains("3 h"), "{labels}");
        assert!(line.contains("┄┄┄┄┄┄┄┼"), "{line}");
    }

    #[test]
    fn events_that_claim_to_lie_centuries_apart_have_an_axis() {
        for (from, to) in [
            (i64::MIN, i64::MAX),
            (-1, i64::MAX),
            (i64::MAX - 1, i64::MAX),
        ] {
            let spans = [
                (EventTime(from), EventTime(from)),
                (EventTime(0), EventTime(to)),
            ];
            let scale = Scale::over(&spans, 60).unwrap();
            let (labels, line) = scale.axis(&UNICODE);
            assert_eq!((labels.chars().count(), line.chars().count()), (60, 60));
            assert!(scale.column(EventTime(to)) < 60);
        }
    }

    #[test]
    fn one_instant_is_an_axis_too() {
        let scale = over(&[(5, 5)], 40);
        assert_eq!(scale.column(EventTime(5 * S)), 0);
        assert_eq!(scale.span(EventTime(5 * S), EventTime(5 * S)), 0..1);
        assert!(Scale::over(&[], 40).is_none());
    }
}
