//! Numbers that an emitter gave to records which are not in the log (events.md §2.1, `seq`).
//!
//! A whole log alone can tell: the daemon owns some of the partitions, and relies on `emitter.gap`.
//! Numbers that a gap record owns up to are told by the core and not again here. Nothing is ever
//! interpolated.

use crate::core::event::{EventKind, RuntimeEvent};
use crate::core::fact::{AnomalyFact, AnomalyKind, Fact, FactBody};
use crate::core::{Coordinates, LogTime, Name};
use std::collections::BTreeMap;

/// The numbers that one instance accounted for: disjoint stretches, by their first number.
#[derive(Debug)]
struct Told {
    stretches: BTreeMap<u64, u64>,
    last: Coordinates,
}

/// What every emitter instance of the log accounted for.
#[derive(Debug, Default)]
pub struct Gaps {
    instances: BTreeMap<Name, Told>,
}

/// Numbers `from` to `to` of an instance, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub instance: Name,
    pub from: u64,
    pub to: u64,
}

impl Stretch {
    /// The numbers that an event accounts for.
    pub fn of(event: &RuntimeEvent<'_>) -> Vec<Stretch> {
        let Some(instance) = event
            .emitter_instance
            .as_deref()
            .filter(|id| !id.is_empty())
        else {
            return Vec::new();
        };
        let own = event.seq.map(|seq| (seq, seq));
        let owned_up = match &event.kind {
            EventKind::EmitterGap {
                from_seq, to_seq, ..
            } => from_seq.zip(*to_seq),
            _ => None,
        };
        let stretch = |(from, to)| Stretch {
            instance: Name::from(instance),
            from,
            to,
        };
        own.into_iter().chain(owned_up).map(stretch).collect()
    }
}

impl Gaps {
    /// The record at `at` accounts for these numbers.
    pub fn note(&mut self, stretches: Vec<Stretch>, at: &Coordinates) {
        for Stretch { instance, from, to } in stretches {
            let told = self.instances.entry(instance).or_insert_with(|| Told {
                stretches: BTreeMap::new(),
                last: at.clone(),
            });
            told.last = at.clone();
            told.join(from, to.max(from));
        }
    }

    /// An anomaly for each instance of which numbers between its first and its last are missing.
    pub fn facts(&self) -> impl Iterator<Item = Fact> {
        self.instances.iter().filter_map(|(instance, told)| {
            let missing = told.missing();
            (missing > 0).then(|| fact(instance, missing, &told.last))
        })
    }
}

impl Told {
    fn join(&mut self, from: u64, to: u64) {
        let (mut from, mut to) = (from, to);
        // Those that touch it or lie in it become part of it.
        while let Some((&start, &end)) = self.stretches.range(..=to.saturating_add(1)).next_back() {
            if end.saturating_add(1) < from {
                break;
            }
            self.stretches.remove(&start);
            (from, to) = (from.min(start), to.max(end));
        }
        self.stretches.insert(from, to);
    }

    fn missing(&self) -> u64 {
        let ends = self.stretches.values();
        let starts = self.stretches.keys().skip(1);
        let holes = ends.zip(starts).map(|(end, start)| start - end - 1);
        holes.fold(0, u64::saturating_add)
    }
}

fn fact(instance: &Name, missing: u64, last: &Coordinates) -> Fact {
    let nothing = || Name::from("");
    Fact {
        tenant: nothing(),
        app: nothing(),
        invocation_id: nothing(),
        session_id: None,
        user_key: None,
        segment: nothing(),
        segment_logged_at: LogTime::default(),
        first: last.clone(),
        last: last.clone(),
        version: 0,
        body: FactBody::Anomaly(Box::new(AnomalyFact {
            kind: AnomalyKind::ProducerGap,
            about: Name::from(format!("emitter/{instance}")),
            branch: nothing(),
            agent: nothing(),
            at: None,
            count: Some(missing),
            detail: Some(Name::from("seq")),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Offset;

    fn missing(told: &[(u64, u64)]) -> u64 {
        let at = Coordinates {
            topic: Name::from("t"),
            partition: 0,
            offset: Offset(0),
        };
        let mut gaps = Gaps::default();
        for (from, to) in told {
            let stretch = Stretch {
                instance: Name::from("p1"),
                from: *from,
                to: *to,
            };
            gaps.note(vec![stretch], &at);
        }
        let count = |fact: Fact| match fact.body {
            FactBody::Anomaly(anomaly) => anomaly.count.unwrap_or(0),
            _ => 0,
        };
        gaps.facts().map(count).sum()
    }

    #[test]
    fn numbers_between_the_first_and_the_last_are_missing() {
        assert_eq!(missing(&[(1, 1), (2, 2), (5, 5)]), 2);
        assert_eq!(
            missing(&[(5, 5), (1, 1), (2, 2), (2, 2)]),
            2,
            "in any order"
        );
        assert_eq!(missing(&[(7, 7), (8, 8)]), 0, "a log may begin later");
        assert_eq!(missing(&[(1, 1), (2, 4), (5, 5)]), 0, "owned up to");
        assert_eq!(missing(&[(1, 1), (9, 9), (4, 6), (2, 3)]), 2);
        assert_eq!(missing(&[(u64::MAX, u64::MAX), (0, 0)]), u64::MAX - 1);
    }
}
