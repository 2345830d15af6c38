//! Named invariants, checked in every build.
//!
//! Strict (tests, simulation): a violation panics. In production it is counted, and halts the
//! pipeline where data would be at risk.

/// What must always hold, one name each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// What is committed never lies ahead of a record that is still needed.
    ResumeNotAheadOfEvidence,
    /// The `exported` mark of a partition never falls.
    ExportedNeverFalls,
    /// Work in flight stays within `work_in_flight_max` and the dead letters of one record.
    WorkInFlightBounded,
    /// Records read = applied + ignored + tombstones + duplicates + dead-lettered.
    RecordsConserved,
    /// Work is settled once, and only work that was sealed.
    SettledExactlyOnce,
    /// Offsets of one partition rise.
    OffsetsRise,
    /// After a drain nothing is in flight and nothing is being filled.
    DrainedMeansCaughtUp,
}

impl Invariant {
    /// Every invariant.
    pub const ALL: [Invariant; 7] = [
        Invariant::ResumeNotAheadOfEvidence,
        Invariant::ExportedNeverFalls,
        Invariant::WorkInFlightBounded,
        Invariant::RecordsConserved,
        Invariant::SettledExactlyOnce,
        Invariant::OffsetsRise,
        Invariant::DrainedMeansCaughtUp,
    ];

    /// The label value of `tachograph_invariant_violations_total`.
    pub fn as_str(self) -> &'static str {
        match self {
            Invariant::ResumeNotAheadOfEvidence => "resume_not_ahead_of_evidence",
            Invariant::ExportedNeverFalls => "exported_never_falls",
            Invariant::WorkInFlightBounded => "work_in_flight_bounded",
            Invariant::RecordsConserved => "records_conserved",
            Invariant::SettledExactlyOnce => "settled_exactly_once",
            Invariant::OffsetsRise => "offsets_rise",
            Invariant::DrainedMeansCaughtUp => "drained_means_caught_up",
        }
    }

    /// True where going on could lose or falsify rows.
    pub fn risks_data(self) -> bool {
        matches!(
            self,
            Invariant::ResumeNotAheadOfEvidence | Invariant::ExportedNeverFalls
        )
    }
}

/// How often each invariant was found broken.
#[derive(Clone, Debug, Default)]
pub struct Violations {
    is_strict: bool,
    counts: [u64; Invariant::ALL.len()],
}

impl Violations {
    /// Panics at the first violation.
    pub fn strict() -> Violations {
        Violations {
            is_strict: true,
            ..Violations::default()
        }
    }

    /// Counts violations.
    pub fn counting() -> Violations {
        Violations::default()
    }

    /// Notes that `invariant` does not hold.
    ///
    /// # Panics
    /// When strict.
    pub fn report(&mut self, invariant: Invariant) {
        assert!(!self.is_strict, "broken invariant: {}", invariant.as_str());
        self.counts[invariant as usize] += 1;
    }

    /// Notes a violation where `holds` is false.
    pub fn check(&mut self, invariant: Invariant, holds: bool) {
        if !holds {
            self.report(invariant);
        }
    }

    /// Violations by invariant, in the order of [`Invariant::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Invariant, u64)> + '_ {
        Invariant::ALL.into_iter().zip(self.counts)
    }

    /// The first broken invariant that puts data at risk.
    pub fn fatal(&self) -> Option<Invariant> {
        self.iter()
            .find(|(invariant, count)| *count > 0 && invariant.risks_data())
            .map(|(i, _)| i)
    }
}
