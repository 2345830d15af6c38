//! Where records came from: the internal offsets of the one log that is replayed, and the
//! coordinates they stand for.
//!
//! `replay` reads its whole input as one partition (facts.md §2). While that input is one
//! partition in order, offsets stay as they are, so rows get the versions that the daemon gives
//! them; else the core counts on by itself.

use crate::core::{Coordinates, Name, Offset};

/// The coordinates behind every internal offset, as runs of neighbours.
#[derive(Debug, Default)]
pub struct Places {
    runs: Vec<Run>,
    next: i64,
    /// A second partition was seen, or the first went back: offsets cannot be kept.
    is_mixed: bool,
}

#[derive(Debug)]
struct Run {
    internal_from: i64,
    topic: Name,
    partition: i32,
    offset_from: i64,
}

impl Places {
    /// Takes the coordinates of the next record and gives its internal offset, which rises.
    pub fn take(&mut self, topic: &Name, partition: i32, offset: Offset) -> Offset {
        let is_home = self.runs.first().is_none_or(|first| {
            first.topic == *topic && first.partition == partition && offset.0 >= self.next
        });
        self.is_mixed |= !is_home || offset.0 < 0;
        let internal = if self.is_mixed { self.next } else { offset.0 };
        self.next = internal.saturating_add(1);
        let is_neighbour = self.runs.last().is_some_and(|run| {
            run.topic == *topic
                && run.partition == partition
                && offset.0.checked_sub(run.offset_from) == internal.checked_sub(run.internal_from)
        });
        if !is_neighbour {
            self.runs.push(Run {
                internal_from: internal,
                topic: Name::clone(topic),
                partition,
                offset_from: offset.0,
            });
        }
        Offset(internal)
    }

    /// The coordinates of the record that has this internal offset; `None` where none has.
    pub fn find(&self, internal: Offset) -> Option<Coordinates> {
        let after = self
            .runs
            .partition_point(|run| run.internal_from <= internal.0);
        let run = self.runs.get(after.checked_sub(1)?)?;
        Some(Coordinates {
            topic: Name::clone(&run.topic),
            partition: run.partition,
            offset: Offset(run.offset_from + (internal.0 - run.internal_from)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(topic: &str, partition: i32, offset: i64) -> Coordinates {
        Coordinates {
            topic: topic.into(),
            partition,
            offset: Offset(offset),
        }
    }

    fn take(places: &mut Places, topic: &str, partition: i32, offset: i64) -> i64 {
        places.take(&topic.into(), partition, Offset(offset)).0
    }

    #[test]
    fn one_partition_in_order_keeps_its_offsets() {
        let mut places = Places::default();
        for offset in [40, 41, 50, 51] {
            assert_eq!(take(&mut places, "t", 2, offset), offset);
        }
        assert_eq!(places.find(Offset(51)), Some(at("t", 2, 51)));
        assert_eq!(places.find(Offset(39)), None);
    }

    #[test]
    fn partitions_that_interleave_are_counted_on() {
        let mut places = Places::default();
        let internal: Vec<i64> = [(0, 5), (1, 900_000_000), (0, 6), (0, 5), (1, 900_000_001)]
            .into_iter()
            .map(|(partition, offset)| take(&mut places, "t", partition, offset))
            .collect();
        assert_eq!(internal, [5, 6, 7, 8, 9]);
        assert_eq!(places.find(Offset(6)), Some(at("t", 1, 900_000_000)));
        assert_eq!(places.find(Offset(7)), Some(at("t", 0, 6)));
        assert_eq!(places.find(Offset(8)), Some(at("t", 0, 5)));
        assert_eq!(places.find(Offset(9)), Some(at("t", 1, 900_000_001)));
    }
}
