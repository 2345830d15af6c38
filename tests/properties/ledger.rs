//! The ledger against a model that keeps everything and computes each mark from scratch, and the
//! invariants broken on purpose.

use crate::cases;
use crate::process::{P, limits};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tachograph::core::invariant::Violations;
use tachograph::core::ledger::{Cause, Hold, Ledger, Watermark, WorkId, take_over};
use tachograph::core::pipeline::{Input, Pipeline, Record, Settings};
use tachograph::core::{LogSource, LogTime, Now, Offset, TopicDefaults};

/// One thing that happens to a partition.
#[derive(Clone, Debug)]
enum Step {
    /// The next record is read, `log_ms` later; a fact may follow, whose evidence begins so far back.
    Read {
        log_ms: i64,
        evidence: Option<i64>,
    },
    /// Log time passes and a deadline causes a fact.
    Deadline {
        log_ms: i64,
        evidence: i64,
    },
    Seal,
    /// Settles one of the unsettled.
    Settle(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0i64..50, prop::option::of(0i64..30))
            .prop_map(|(log_ms, evidence)| Step::Read { log_ms, evidence }),
        1 => (1i64..50, 0i64..30)
            .prop_map(|(log_ms, evidence)| Step::Deadline { log_ms, evidence }),
        2 => Just(Step::Seal),
        3 => any::<prop::sample::Index>().prop_map(Step::Settle),
    ]
}

/// One fact's hold, as plain numbers: evidence, and the record or the deadline that caused it.
#[derive(Clone, Copy, Debug)]
struct Held {
    evidence: i64,
    record: Option<i64>,
    deadline: Option<i64>,
}

/// Everything that ever happened.
struct Model {
    floor: Watermark,
    next: i64,
    log_ms: i64,
    filling: Vec<Held>,
    sealed: Vec<(WorkId, bool, Vec<Held>)>,
}

impl Model {
    /// What was sealed after unsettled work is held as well.
    fn held(&self) -> Vec<Held> {
        let unsettled = self
            .sealed
            .iter()
            .skip_while(|(_, is_settled, _)| *is_settled);
        let sealed = unsettled.flat_map(|(_, _, held)| held);
        sealed.chain(&self.filling).copied().collect()
    }

    fn marks(&self, segment_from: Option<i64>) -> [i64; 5] {
        let held = self.held();
        let least = |values: Vec<i64>, otherwise: i64| {
            values
                .into_iter()
                .min()
                .map_or(otherwise, |v| v.min(otherwise))
        };
        let evidence = held
            .iter()
            .map(|held| held.evidence)
            .chain(segment_from)
            .collect();
        let records = held.iter().filter_map(|held| held.record).collect();
        let deadlines = held.iter().filter_map(|held| held.deadline).collect();
        [
            least(evidence, self.next),
            least(records, self.next).max(self.floor.exported_below.0),
            least(deadlines, self.log_ms + 1).max(self.floor.abandoned_before.0),
            self.next.max(self.floor.observed_below.0),
            (self.log_ms + 1).max(self.floor.observed_before.0),
        ]
    }
}

fn floor() -> impl Strategy<Value = Option<Watermark>> {
    prop::option::of((0i64..20, 0i64..20, 0i64..20, 0i64..100).prop_map(
        |(resume, exported, observed, abandoned)| Watermark {
            resume_from: Offset(resume),
            exported_below: Offset(resume + exported),
            abandoned_before: LogTime(abandoned),
            observed_below: Offset(resume + exported + observed),
            observed_before: LogTime(abandoned + 3),
            is_clean: false,
        },
    ))
}

/// A ledger and its model, side by side.
struct Pair {
    ledger: Ledger,
    model: Model,
    filling: Option<Hold>,
    violations: Violations,
}

impl Pair {
    fn new(committed: Option<Watermark>) -> Pair {
        let taken = take_over(committed, &(Offset(0)..Offset(1_000)));
        let mut ledger = Ledger::default();
        ledger.assign(P, &taken);
        ledger.advance(P, taken.start, LogTime(0));
        let model = Model {
            floor: taken.floor,
            next: taken.start.0,
            log_ms: 0,
            filling: Vec::new(),
            sealed: Vec::new(),
        };
        Pair {
            ledger,
            model,
            filling: None,
            violations: Violations::strict(),
        }
    }

    /// A fact follows, unless a predecessor exported it.
    fn fact(&mut self, back: i64, cause: Cause) {
        let evidence = (self.model.next - back).max(0);
        let (record, deadline, is_exported) = match cause {
            Cause::Record(at) => (Some(at.0), None, at < self.model.floor.exported_below),
            Cause::Deadline(at) => (None, Some(at.0), at < self.model.floor.abandoned_before),
        };
        assert_eq!(self.ledger.is_exported(P, cause), is_exported);
        if !is_exported {
            let hold = Hold::of(Offset(evidence), cause, LogTime(self.model.log_ms));
            self.filling.get_or_insert_default().merge(hold);
            self.model.filling.push(Held {
                evidence,
                record,
                deadline,
            });
        }
    }

    fn perform(&mut self, step: &Step) {
        match step {
            Step::Read { log_ms, evidence } => {
                let at = Offset(self.model.next);
                self.model.log_ms += log_ms;
                if let Some(back) = evidence {
                    self.fact(*back, Cause::Record(at));
                }
                self.model.next += 1;
            }
            Step::Deadline { log_ms, evidence } => {
                let due = LogTime(self.model.log_ms + 1);
                self.model.log_ms += log_ms;
                self.fact(*evidence, Cause::Deadline(due));
            }
            Step::Seal => {
                if let Some(hold) = self.filling.take() {
                    let work = self.ledger.next_work();
                    self.ledger.seal(work, BTreeMap::from([(P, hold)]));
                    let held = std::mem::take(&mut self.model.filling);
                    self.model.sealed.push((work, false, held));
                }
            }
            Step::Settle(which) => {
                let unsettled = self
                    .model
                    .sealed
                    .iter_mut()
                    .filter(|(_, is_settled, _)| !is_settled);
                let mut unsettled: Vec<_> = unsettled.collect();
                if !unsettled.is_empty() {
                    let which = which.index(unsettled.len());
                    unsettled[which].1 = true;
                    let work = unsettled[which].0;
                    self.ledger.settle(work, &mut self.violations);
                }
            }
        }
        self.ledger
            .advance(P, Offset(self.model.next), LogTime(self.model.log_ms));
    }

    fn marks(&mut self, segment_from: Option<i64>) -> [i64; 5] {
        let held_from = segment_from.map(Offset);
        let marks = self
            .ledger
            .watermark(P, held_from, self.filling, &mut self.violations);
        let marks = marks.expect("the partition is assigned");
        [
            marks.resume_from.0,
            marks.exported_below.0,
            marks.abandoned_before.0,
            marks.observed_below.0,
            marks.observed_before.0,
        ]
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn the_ledger_says_what_the_model_says(
        committed in floor(),
        steps in prop::collection::vec((step(), prop::option::of(0i64..15)), 1..80),
    ) {
        let mut pair = Pair::new(committed);
        for (step, segment_back) in &steps {
            pair.perform(step);
            let segment_from = segment_back.map(|back| (pair.model.next - back).max(0));
            prop_assert_eq!(pair.marks(segment_from), pair.model.marks(segment_from), "{:?}", step);
            let waiting = pair.model.sealed.iter().skip_while(|(_, is_settled, _)| *is_settled);
            prop_assert_eq!(pair.ledger.in_flight(), waiting.count());
        }
    }
}

fn pipeline(work_in_flight_max: usize) -> Pipeline {
    let mut limits = limits();
    limits.work_in_flight_max = work_in_flight_max;
    let mut pipeline = Pipeline::new(Settings {
        limits,
        hash_key: 1,
        is_strict: true,
        has_state_file: false,
    });
    let source = LogSource {
        topic: Arc::from("t"),
        partition: 0,
        defaults: TopicDefaults::default(),
    };
    let assigned = Input::Assigned {
        partition: P,
        source,
        committed: None,
        log: Offset(0)..Offset(100),
    };
    pipeline.handle(assigned, Now(Duration::ZERO));
    pipeline
}

fn read(pipeline: &mut Pipeline, offset: i64) {
    let record = Record {
        offset: Offset(offset),
        logged_at: LogTime(0),
        key: None,
        headers: &[],
        payload: Some(b"no JSON"),
    };
    let partition = P;
    pipeline.handle(Input::Record { partition, record }, Now(Duration::ZERO));
}

#[test]
#[should_panic(expected = "offsets_rise")]
fn an_offset_that_falls_is_noticed() {
    let mut pipeline = pipeline(10);
    read(&mut pipeline, 5);
    read(&mut pipeline, 4);
}

#[test]
#[should_panic(expected = "work_in_flight_bounded")]
fn a_driver_that_ignores_pause_is_noticed() {
    let mut pipeline = pipeline(1);
    for offset in 0..3 {
        read(&mut pipeline, offset);
    }
}

#[test]
#[should_panic(expected = "exported_never_falls")]
fn work_that_appears_below_the_mark_is_noticed() {
    let mut pair = Pair::new(None);
    pair.ledger.advance(P, Offset(50), LogTime(9));
    pair.model.next = 50;
    assert_eq!(pair.marks(None)[1], 50);
    pair.filling = Some(Hold::of(Offset(3), Cause::Record(Offset(10)), LogTime(0)));
    pair.marks(None);
}
