//! The counters of facts at one instant, to be written down and to go on from.
//!
//! Deliberately counters alone: histograms, windows and the daemon's own figures begin anew with
//! the process, as is usual. Where a state file is kept, a scrape shows the counters that the file
//! has: what Prometheus has seen must never be more than what a restart goes on from, since a
//! counter that falls is a reset to it, and its whole value an increase.

use super::cell::Cell;
use super::own::Series;
use super::{Exporter, Slot, State, entry_of, zero};
use crate::core::sample::Family;
use crate::core::{LogTime, Name};
use std::sync::Arc;

/// One counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counter {
    /// Values in the order of [`Family::labels`].
    pub labels: Arc<[Name]>,
    pub count: u64,
    /// When it began, by the wall clock of the process in which it did.
    pub created: LogTime,
}

/// Every counter of facts at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By family, in the order of [`Family::ALL`].
    pub families: Vec<(Family, Vec<Counter>)>,
    /// Moves of this process so far.
    moves: u64,
}

impl Counters {
    /// Counters out of a file.
    pub fn of(families: Vec<(Family, Vec<Counter>)>) -> Counters {
        Counters { families, moves: 0 }
    }

    fn of_family(&self, family: Family) -> &[Counter] {
        let found = self.families.iter().find(|(of, _)| *of == family);
        found.map_or(&[], |(_, counters)| counters)
    }
}

/// What is kept beside the cells where a state file is.
#[derive(Default)]
pub(super) struct Kept {
    /// The counters that the newest file has, and a scrape shows; `None` where it shows the cells.
    shown: Option<Arc<Counters>>,
    /// Moves of counters so far, and of those that a scrape has shown.
    pub moves: u64,
    moves_shown: u64,
    /// `None` where no file is kept.
    is_up: Option<bool>,
}

impl Exporter {
    /// The counters as they stand.
    pub fn counters(&self) -> Counters {
        let state = self.lock();
        let families = Family::ALL.into_iter().zip(&state.facts);
        let families = families.filter_map(|(family, series)| {
            let counters = series.iter().filter_map(|(labels, slot)| match slot.cell {
                Cell::Counter(count) => Some(Counter {
                    labels: Arc::clone(labels),
                    count,
                    created: slot.created,
                }),
                _ => None,
            });
            let counters: Vec<Counter> = counters.collect();
            (!counters.is_empty()).then_some((family, counters))
        });
        Counters {
            families: families.collect(),
            moves: state.kept.moves,
        }
    }

    /// Goes on from these counters, before anything was counted, and shows what files have from
    /// now on. Where the budgets have shrunk since, series fold and their sum stays.
    pub fn go_on_from(&self, counters: &Counters) {
        let mut state = self.lock();
        let State {
            facts, admission, ..
        } = &mut *state;
        for (family, counters) in &counters.families {
            for counter in counters {
                let zero = || Slot {
                    cell: zero(entry_of(*family).kind),
                    created: counter.created,
                };
                let slot = facts[*family as usize].cell(&counter.labels, admission, zero);
                if let Cell::Counter(count) = &mut slot.cell {
                    *count = count.saturating_add(counter.count);
                }
                slot.created = slot.created.min(counter.created);
            }
        }
        drop(state);
        let counters = Arc::new(self.counters());
        let kept = &mut self.lock().kept;
        (kept.shown, kept.is_up) = (Some(counters), Some(true));
    }

    /// Begins all counters anew: what they went on from was of another cluster.
    pub fn begin_anew(&self) {
        let mut state = self.lock();
        for (family, series) in Family::ALL.into_iter().zip(&mut state.facts) {
            if matches!(zero(entry_of(family).kind), Cell::Counter(_)) {
                series.clear();
            }
        }
        state.kept.shown = Some(Arc::default());
    }

    /// A file has these counters: a scrape shows them, unless one has shown more while no file
    /// could be written.
    pub fn saved(&self, counters: Counters) {
        let kept = &mut self.lock().kept;
        kept.is_up = Some(true);
        if counters.moves >= kept.moves_shown {
            kept.shown = Some(Arc::new(counters));
        }
    }

    /// No file has the counters: a scrape shows them as they stand.
    pub fn not_saved(&self) {
        let kept = &mut self.lock().kept;
        (kept.shown, kept.is_up) = (None, Some(false));
    }

    /// True where a scrape shows the counters as they stand.
    pub fn is_all_shown(&self) -> bool {
        let kept = &self.lock().kept;
        let shown = kept.shown.as_ref();
        shown.is_some_and(|counters| counters.moves == kept.moves)
    }
}

impl State {
    /// The series of one family of facts, as a scrape shows them.
    pub(super) fn fact_series(&mut self, family: Family) -> Vec<Series> {
        let kept = &mut self.kept;
        let is_counter = matches!(zero(entry_of(family).kind), Cell::Counter(_));
        if let Some(counters) = kept.shown.as_ref().filter(|_| is_counter) {
            kept.moves_shown = kept.moves_shown.max(counters.moves);
            let series = counters.of_family(family).iter();
            return series
                .map(|counter| (counter.labels.to_vec(), Cell::Counter(counter.count)))
                .collect();
        }
        if is_counter {
            kept.moves_shown = kept.moves;
        }
        let series = self.facts[family as usize].iter();
        series
            .map(|(labels, slot)| (labels.to_vec(), slot.cell.clone()))
            .collect()
    }

    pub(super) fn state_file_up(&self) -> Vec<Series> {
        let up = self.kept.is_up.map(|is_up| f64::from(u8::from(is_up)));
        up.map(|up| (Vec::new(), Cell::Gauge(up)))
            .into_iter()
            .collect()
    }

    /// When the oldest counter began, in seconds since 1970.
    pub(super) fn counters_created(&self) -> Vec<Series> {
        let slots = self.facts.iter().flat_map(|series| series.iter());
        let counters = slots.filter(|(_, slot)| matches!(slot.cell, Cell::Counter(_)));
        let oldest = counters.map(|(_, slot)| slot.created).min();
        let oldest = oldest.map(|at| (Vec::new(), Cell::Gauge(at.0 as f64 / 1_000.0)));
        oldest.into_iter().collect()
    }
}
