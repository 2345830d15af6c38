//! Where everything else ends up: the counters, the tally of what happened.
//!
//! Nothing here decides what is right.

use std::collections::BTreeMap;
use std::fmt;
use tachograph::core::pipeline::Input;
use tachograph::core::sample::{Family, Move, Sample};

/// A series: its family and its label values.
pub type Series = (Family, Vec<String>);
/// Counters of every life of every process together.
#[derive(Debug, Default)]
pub struct Counters {
    /// Sums of counters; of histograms the number of samples.
    pub moved: BTreeMap<Series, u64>,
    /// The part that was moved again, by the pipelines' own word.
    pub replayed: BTreeMap<Series, u64>,
}

impl Counters {
    pub fn observe(&mut self, sample: &Sample) {
        let labels = sample
            .labels
            .iter()
            .map(|label| label.to_string())
            .collect();
        let by = match sample.change {
            Move::Create => 0,
            Move::Add(by) => by,
            Move::Observe(_) => 1,
        };
        let series = (sample.family, labels);
        if sample.is_replayed {
            *self.replayed.entry(series.clone()).or_insert(0) += by;
        }
        *self.moved.entry(series).or_insert(0) += by;
    }
}

/// What happened in a run, for the report and for what may be expected of it.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub records: u64,
    pub deliveries: u64,
    pub inserted: u64,
    pub rows: u64,
    pub crashes: u64,
    pub losses: u64,
    pub handovers: u64,
    pub out_of_time: u64,
    pub commits: u64,
    pub refused: u64,
    pub letters: u64,
    pub resumes_after_release: u64,
    /// Commits that did not arrive.
    pub commits_lost: u64,
    /// Partitions handed over before the state file had what was counted of them.
    pub unsaved: u64,
    pub scrapes: u64,
    pub segments: u64,
    pub headless: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.records += other.records;
        self.deliveries += other.deliveries;
        self.inserted += other.inserted;
        self.rows += other.rows;
        self.crashes += other.crashes;
        self.losses += other.losses;
        self.handovers += other.handovers;
        self.out_of_time += other.out_of_time;
        self.commits += other.commits;
        self.refused += other.refused;
        self.letters += other.letters;
        self.resumes_after_release += other.resumes_after_release;
        self.commits_lost += other.commits_lost;
        self.unsaved += other.unsaved;
        self.scrapes += other.scrapes;
        self.segments += other.segments;
        self.headless += other.headless;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally {
            records,
            deliveries,
            segments,
            headless,
            rows,
            inserted,
            ..
        } = self;
        write!(
            f,
            "{records} records read {deliveries} times, {segments} segments "
        )?;
        write!(
            f,
            "({headless} headless), {rows} rows inserted {inserted} times, "
        )?;
        let Tally {
            crashes,
            losses,
            handovers,
            out_of_time,
            commits,
            refused,
            letters,
            ..
        } = self;
        write!(
            f,
            "{crashes} crashes, {losses} losses, {handovers} handovers ({out_of_time} out "
        )?;
        write!(
            f,
            "of time), {commits} commits ({refused} refused), {letters} dead letters, "
        )?;
        write!(
            f,
            "{} partitions resumed after release",
            self.resumes_after_release
        )?;
        if self.scrapes > 0 {
            let Tally {
                scrapes, unsaved, ..
            } = self;
            write!(f, ", {scrapes} scrapes, {unsaved} handovers not saved")?;
        }
        Ok(())
    }
}

/// An input in one line, the payload readable.
pub fn told(input: &Input<'_>) -> String {
    match input {
        Input::Record { partition, record } => {
            let text = record
                .payload
                .map_or("null".into(), String::from_utf8_lossy);
            format!("record {}/{} {text}", partition.0, record.offset.0)
        }
        Input::Assigned { partition, log, .. } => format!("assigned {} {log:?}", partition.0),
        other => format!("{other:?}"),
    }
}
