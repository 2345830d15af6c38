//! Room for segments: what the process holds over all of its partitions.

use super::{Assigned, Pipeline};
use crate::core::{Now, Offset};

impl Pipeline {
    /// Too many segments are held by the process: the partition that holds most lets go of its
    /// oldest.
    pub(super) fn bound(&mut self, now: Now) {
        let held = |assigned: &Assigned| assigned.timelines.segments_held();
        let all: usize = self.assigned.values().map(held).sum();
        for _ in self.settings.limits.segments_open_max..all {
            let most = self.assigned.iter_mut().max_by_key(|(_, a)| held(a));
            let Some((&partition, assigned)) = most else {
                return;
            };
            let Some(next) = self.ledger.next_offset(partition) else {
                return;
            };
            let held_from = assigned.timelines.held_from();
            let offset = Offset(next.0 - 1);
            assigned.timelines.release_oldest(offset, &mut self.derived);
            self.absorb(partition, now);
            self.hold_released(partition, held_from);
        }
    }
}
