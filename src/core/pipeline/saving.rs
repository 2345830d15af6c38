//! When marks are committed, and the state file that must be written before.
//!
//! Counters live in memory, and a commit says up to where they were moved. Where a state file is
//! kept, it holds both at one instant: the counters as the actions so far have moved them, and the
//! marks as they stand when `SaveState` is queued behind those actions. A commit waits for it, so
//! that no commit ever says more than the file. This knows no files and no counters.

use super::{Action, Pipeline};
use crate::core::invariant::Invariant;
use crate::core::ledger::{Counted, Watermark, WorkId};
use crate::core::{LogSource, Name, Now, PartitionId};
use std::collections::BTreeMap;

/// Up to where counters have been moved, by topic and partition number.
pub type CountedMarks = BTreeMap<(Name, i32), Counted>;

/// What the state file must hold beside the counters.
#[derive(Debug)]
pub struct Save {
    pub work: WorkId,
    /// Of every partition that this process ever held.
    pub counted: CountedMarks,
}

/// A save on its way, and what waits for it.
#[derive(Debug)]
struct Waiting {
    work: WorkId,
    commits: Vec<(PartitionId, Watermark)>,
    counted: BTreeMap<PartitionId, Counted>,
}

/// What is saved, what is being saved, and what is remembered of partitions that are not held.
#[derive(Debug, Default)]
pub(super) struct Saving {
    is_wanted: bool,
    /// One at a time.
    waiting: Option<Waiting>,
    /// Of held partitions: what the newest file says.
    saved: BTreeMap<PartitionId, Counted>,
    /// Of others: what the counters of this process hold of them.
    gone: CountedMarks,
}

impl Saving {
    pub fn want(&mut self) {
        self.is_wanted = true;
    }

    pub fn restore(&mut self, counted: CountedMarks) {
        self.gone = counted;
    }

    pub fn made_anew(&mut self, topic: Name, partition: i32) {
        self.gone.remove(&(topic, partition));
    }

    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// What this process counted of a partition that it does not hold.
    pub fn counted(&self, topic: &Name, partition: i32) -> Option<Counted> {
        self.gone.get(&(topic.clone(), partition)).copied()
    }

    /// The counters keep what was counted, so the mark stays beside them.
    pub fn forget(&mut self, partition: PartitionId, source: &LogSource, counted: Counted) {
        let key = (source.topic.clone(), source.partition);
        self.gone.insert(key, counted);
        self.saved.remove(&partition);
        if let Some(waiting) = &mut self.waiting {
            waiting.commits.retain(|(id, _)| *id != partition);
            waiting.counted.remove(&partition);
        }
    }
}

impl Pipeline {
    /// The marks to commit when a partition is handed over in order. `None` where it is not
    /// assigned, or where they say more than the state file: the next owner counts again.
    pub fn hand_over(&mut self, partition: PartitionId) -> Option<Watermark> {
        let marks = self.watermark(partition)?;
        if self.settings.has_state_file && !self.is_partition_saved(partition) {
            return None;
        }
        if self.is_drained() {
            let next = self.ledger.next_offset(partition)?;
            let is_caught_up = marks.exported_below >= next;
            self.violations
                .check(Invariant::DrainedMeansCaughtUp, is_caught_up);
        }
        let is_clean = self.ledger.is_certain(partition, &marks);
        Some(Watermark { is_clean, ..marks })
    }

    /// What this process counted of a partition that it does not hold: to be compared with the log
    /// before the partition is assigned.
    pub fn counted(&self, topic: &Name, partition: i32) -> Option<Counted> {
        self.saving.counted(topic, partition)
    }

    pub(super) fn watermark(&mut self, partition: PartitionId) -> Option<Watermark> {
        let held_from = self.assigned.get(&partition)?.timelines.held_from();
        let filling = self.batcher.hold(partition);
        self.ledger
            .watermark(partition, held_from, filling, &mut self.violations)
    }

    /// Commits what is due: at once, or behind the state file.
    pub(super) fn commit_due(&mut self, now: Now) {
        if self.settings.has_state_file {
            self.save_due(now);
            return;
        }
        let due = self.assigned.iter();
        let due = due.filter(|(_, assigned)| assigned.commit_due <= now);
        let due: Vec<PartitionId> = due.map(|(id, _)| *id).collect();
        for (partition, watermark) in self.marks_to_commit(due, now) {
            self.actions.push_back(Action::Commit {
                partition,
                watermark,
            });
        }
    }

    /// Queues a save with the commits that wait for it: of all partitions as soon as one is due,
    /// so that one file serves them all.
    fn save_due(&mut self, now: Now) {
        if self.saving.is_waiting() {
            return;
        }
        let mut commits = Vec::new();
        if self.assigned.values().any(|held| held.commit_due <= now) {
            let all: Vec<PartitionId> = self.assigned.keys().copied().collect();
            commits = self.marks_to_commit(all, now);
        }
        if commits.is_empty() && !self.saving.is_wanted {
            return;
        }
        self.saving.is_wanted = false;
        let work = self.ledger.next_work();
        let counted = self.counted_by_partition();
        let mut all = self.saving.gone.clone();
        for (id, marks) in &counted {
            if let Some(held) = self.assigned.get(id) {
                let key = (held.source.topic.clone(), held.source.partition);
                all.insert(key, *marks);
            }
        }
        self.saving.waiting = Some(Waiting {
            work,
            commits,
            counted,
        });
        self.actions
            .push_back(Action::SaveState(Save { work, counted: all }));
    }

    fn counted_by_partition(&self) -> BTreeMap<PartitionId, Counted> {
        let held = self.assigned.keys();
        let counted = held.filter_map(|id| Some((*id, self.ledger.counted(*id)?)));
        counted.collect()
    }

    /// Marks of those partitions that have something new to say.
    fn marks_to_commit(
        &mut self,
        partitions: Vec<PartitionId>,
        now: Now,
    ) -> Vec<(PartitionId, Watermark)> {
        let mut commits = Vec::new();
        for partition in partitions {
            let marks = self.watermark(partition);
            let Some(assigned) = self.assigned.get_mut(&partition) else {
                continue;
            };
            assigned.commit_due = Now(now.0 + self.settings.limits.commit_interval);
            // Also what was said before: a commit may have got lost, and of an empty partition that
            // was made anew the old marks would come true again as it grows.
            commits.extend(marks.map(|watermark| (partition, watermark)));
        }
        commits
    }

    /// An edge settled something: work of the ledger, or a save that commits wait for.
    pub(super) fn settle(&mut self, work: WorkId) {
        match self.saving.waiting.take() {
            Some(saved) if saved.work == work => {
                self.saving.saved = saved.counted;
                for (partition, watermark) in saved.commits {
                    self.actions.push_back(Action::Commit {
                        partition,
                        watermark,
                    });
                }
            }
            other => {
                self.saving.waiting = other;
                self.ledger.settle(work, &mut self.violations);
            }
        }
    }

    /// True where the state file has all that was counted, or none is kept.
    pub(super) fn is_saved(&self) -> bool {
        let is_saved = |id: &PartitionId| self.is_partition_saved(*id);
        !self.settings.has_state_file || self.assigned.keys().all(is_saved)
    }

    fn is_partition_saved(&self, partition: PartitionId) -> bool {
        self.saving.saved.get(&partition).copied() == self.ledger.counted(partition)
    }
}
