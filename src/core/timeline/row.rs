//! What a row must remember between exports: who spoke for it, and what it said last.

use crate::core::Offset;
use crate::core::fact::{Fact, FactBody};
use ahash::AHasher;
use std::hash::{Hash, Hasher};

/// Raised by a build whose rules give other answers for the same log (facts.md §8.4).
pub const RULES_REVISION: u64 = 1;

const EVIDENCE_BITS: u32 = 20;
const OFFSET_BITS: u32 = 36;
/// Set in the evidence of a row whose own end was told: more than any number of records before it.
const ENDED: u64 = 1 << (EVIDENCE_BITS - 1);

/// The memory of one row.
#[derive(Clone, Debug)]
pub struct RowState {
    pub first: Offset,
    pub last: Offset,
    /// Records that spoke for the row; a release counts as one more.
    evidence: u64,
    /// Evidence at the last export.
    evidence_exported: u64,
    /// Hash of the body exported last.
    exported: Option<u64>,
    /// Identity at the first export.
    #[cfg(debug_assertions)]
    identity: Vec<String>,
}

impl RowState {
    /// A row whose first evidence is the record at `offset`.
    pub fn new(offset: Offset) -> RowState {
        RowState {
            first: offset,
            last: offset,
            evidence: 0,
            evidence_exported: 0,
            exported: None,
            #[cfg(debug_assertions)]
            identity: Vec::new(),
        }
    }

    /// The record at `offset` speaks for the row.
    pub fn speak(&mut self, offset: Offset) {
        self.evidence += 1;
        self.last = self.last.max(offset);
        self.first = self.first.min(offset);
    }

    /// The end of what the row tells of was told. It wins over rows without one, however many
    /// records spoke for them: the end of a call that outlasted its run's silence comes alone, in
    /// another segment, and only it has the usage.
    pub fn end(&mut self) {
        self.evidence |= ENDED;
    }

    /// A release speaks for the row.
    pub fn release(&mut self) {
        self.evidence += 1;
    }

    /// True once the row was exported.
    pub fn is_exported(&self) -> bool {
        self.exported.is_some()
    }

    /// Takes note of an export; `None` where the row already says exactly this. A change that came
    /// from evidence about something else (a verdict judged by what followed) counts the record at
    /// `cause` as evidence.
    pub fn export(&mut self, body: &FactBody, cause: Offset) -> Option<u64> {
        let mut hasher = AHasher::default();
        body.hash(&mut hasher);
        let hash = hasher.finish();
        if self.exported == Some(hash) {
            return None;
        }
        if self.exported.is_some() && self.evidence == self.evidence_exported {
            self.speak(cause);
        }
        self.exported = Some(hash);
        self.evidence_exported = self.evidence;
        Some(self.version())
    }

    /// Panics in builds for tests where an exported identity changes (facts.md §8.2).
    pub fn keep_identity(&mut self, _fact: &Fact) {
        #[cfg(debug_assertions)]
        {
            let identity = _fact.identity();
            if self.identity.is_empty() {
                self.identity = identity;
            } else {
                assert_eq!(self.identity, identity, "an exported identity changed");
            }
        }
    }

    /// facts.md §8.4: rules revision, evidence, last offset; the larger wins.
    pub fn version(&self) -> u64 {
        let evidence = self.evidence.min((1 << EVIDENCE_BITS) - 1);
        let evidence = RULES_REVISION << (EVIDENCE_BITS + OFFSET_BITS) | evidence << OFFSET_BITS;
        version_at(evidence, self.last)
    }
}

/// The same version with another last offset: where a log was read as a part of one that counts by
/// itself, its rows get the versions that the daemon gives them.
pub fn version_at(version: u64, last: Offset) -> u64 {
    version & !((1 << OFFSET_BITS) - 1) | last.0.cast_unsigned() & ((1 << OFFSET_BITS) - 1)
}

/// Appends without spare room while there are few: most runs have one or two of each kind, and are
/// held long after they ended.
pub fn push_tight<T>(items: &mut Vec<T>, item: T) {
    if items.len() == items.capacity() && items.len() < 4 {
        items.reserve_exact(1);
    }
    items.push(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_evidence_wins_then_the_later_offset() {
        let mut early = RowState::new(Offset(5));
        early.speak(Offset(5));
        let mut late = early.clone();
        late.speak(Offset(3));
        assert!(late.version() > early.version());
        let mut other = RowState::new(Offset(9));
        other.speak(Offset(9));
        assert!(other.version() > early.version());
        assert!(late.version() > other.version());
        other.end();
        assert!(other.version() > late.version());
    }
}
