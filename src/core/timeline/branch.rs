//! Branches: paths, forks and joins, and how much of the time between was spent on the branch
//! itself.

use super::row::RowState;
use super::stamp::Stamp;
use crate::core::{Name, Nanos};

/// One occurrence of one branch within a segment.
#[derive(Clone, Debug)]
pub struct Branch {
    pub row: RowState,
    pub path: Name,
    pub occurrence: u32,
    pub first: Option<Stamp>,
    pub last: Option<Stamp>,
    /// An ancestor went on: nothing more is expected of this occurrence.
    pub is_joined: bool,
    /// Records on the branch itself; 0 for a path that only occurs as a prefix.
    pub records: u64,
}

/// The parts of a branch path. Dots separate parts, and an id behind `@` may hold dots itself: a
/// piece that does not begin like an identifier belongs to the part before (runtimes.md §9).
pub fn parts(path: &str) -> Vec<&str> {
    let mut starts = vec![0];
    for (at, _) in path.match_indices('.') {
        let next = path[at + 1..].chars().next();
        if next.is_some_and(|c| c.is_alphabetic() || c == '_') {
            starts.push(at + 1);
        }
    }
    let ends = starts
        .iter()
        .skip(1)
        .map(|start| start - 1)
        .chain([path.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(start, end)| &path[*start..end])
        .collect()
}

/// The path one level up; `""` for a part of the root, `None` for the root itself.
pub fn parent(path: &str) -> Option<&str> {
    if path.is_empty() {
        return None;
    }
    let last = parts(path).last().map_or(0, |part| part.len());
    Some(path[..path.len() - last].trim_end_matches('.'))
}

/// True where `path` lies above `other`, part by part.
pub fn is_ancestor(path: &str, other: &str) -> bool {
    path.is_empty() && !other.is_empty()
        || other.len() > path.len()
            && other.starts_with(path)
            && other.as_bytes().get(path.len()) == Some(&b'.')
            && parts(other).starts_with(&parts(path))
}

/// The length of the union of closed spans, each between two times since one instant.
pub fn covered(mut spans: Vec<(Nanos, Nanos)>) -> Nanos {
    spans.sort_unstable();
    let mut total = 0;
    let mut reached = Nanos(i64::MIN);
    for (from, to) in spans {
        let from = from.max(reached);
        if to > from {
            total += to.0 - from.0;
            reached = to;
        }
    }
    Nanos(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_split_at_dots_but_not_inside_ids() {
        assert_eq!(parts("fan.alpha"), ["fan", "alpha"]);
        assert_eq!(parts("mapper@3"), ["mapper@3"]);
        assert_eq!(
            parts("tool@1.5e.next"),
            ["tool@1.5e.next".split(".next").next().unwrap(), "next"]
        );
        assert_eq!(parent("outer.inner.inner.x"), Some("outer.inner.inner"));
        assert_eq!(parent("fan"), Some(""));
        assert_eq!(parent(""), None);
    }

    #[test]
    fn a_longer_name_is_no_descendant() {
        assert!(is_ancestor("par.agent_1", "par.agent_1.inner"));
        assert!(!is_ancestor("par.agent_1", "par.agent_10"));
        assert!(is_ancestor("", "par"));
        assert!(!is_ancestor("", ""));
    }

    #[test]
    fn overlapping_spans_count_once() {
        let t = Nanos;
        assert_eq!(
            covered(vec![(t(0), t(10)), (t(5), t(12)), (t(20), t(21))]),
            Nanos(13)
        );
    }
}
