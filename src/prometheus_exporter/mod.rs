//! What a scrape sees: samples of the core and the daemon's own health, behind one collector.
//!
//! Deliberately no arithmetic over facts: the core says by how much a series moves, and this only
//! adds. Histograms live as long as the process and restart at zero with it, as is usual; counters
//! of facts as long as the state file, where one is kept.

pub mod catalogue;
mod cell;
mod counters;
mod label;
mod own;
mod quantile;

pub use counters::{Counter, Counters};
pub use label::LabelLimits;
pub use own::{CommitResult, Rebalance};

use crate::core::fact::Table;
use crate::core::pipeline::Snapshot;
use crate::core::sample::{Family, Move, Sample};
use crate::core::{LogTime, Name};
use catalogue::{Entry, FAMILIES, Kind, Own, Source};
use cell::{Cell, Histogram, Summary};
use counters::Kept;
use label::{Admission, SeriesMap};
use own::{Health, Series};
use prometheus::core::{Collector, Desc};
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{Registry, TextEncoder};
use quantile::Windows;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The `Content-Type` of [`Exporter::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How an exporter is built.
#[derive(Clone, Debug, Default)]
pub struct ExporterSettings {
    pub labels: LabelLimits,
    /// `version` of `tachograph_build_info`.
    pub version: String,
    /// `revision` of `tachograph_build_info`; empty where the build does not know it.
    pub revision: String,
}

/// Every series of the daemon. Shared between the driver, the edges and the HTTP server.
pub struct Exporter {
    state: Arc<Mutex<State>>,
    registry: Registry,
}

/// A series of facts.
struct Slot {
    cell: Cell,
    /// The wall clock when it began.
    created: LogTime,
}

struct State {
    /// By [`Family`], in the order of [`Family::ALL`].
    facts: Vec<SeriesMap<Slot>>,
    kept: Kept,
    latencies: SeriesMap<Windows>,
    /// The wall clock of the newest scrape: a collector is given no time.
    scraped_at: LogTime,
    admission: Admission,
    health: Health,
}

impl Exporter {
    /// An exporter in which nothing has happened yet.
    pub fn new(settings: &ExporterSettings) -> Exporter {
        let labels = &settings.labels;
        let family = |family: Family| SeriesMap::new(family.labels(), labels);
        let state = Arc::new(Mutex::new(State {
            facts: Family::ALL.into_iter().map(family).collect(),
            kept: Kept::default(),
            latencies: SeriesMap::new(quantile::LABELS, &quantile::limits(labels)),
            scraped_at: LogTime(0),
            admission: Admission::new(labels),
            health: Health::new(&settings.version, &settings.revision),
        }));
        let registry = Registry::new();
        registry
            .register(Box::new(Cells::new(Arc::clone(&state))))
            .expect("the registry is new, and the catalogue names each family once");
        #[cfg(target_os = "linux")]
        registry
            .register(Box::new(
                prometheus::process_collector::ProcessCollector::for_self(),
            ))
            .expect("no family of the catalogue is called like one of the process");
        Exporter { state, registry }
    }

    /// Moves one series as the core says, and with it the window of a latency. `now` is the wall
    /// clock.
    pub fn observe(&self, sample: &Sample, now: LogTime) {
        let mut state = self.lock();
        let State {
            facts,
            kept,
            latencies,
            admission,
            ..
        } = &mut *state;
        if let Move::Observe(nanos) = sample.change
            && let Some(labels) = quantile::labels_of(sample.family, &sample.labels)
        {
            let windows = latencies.cell(&labels, admission, Windows::default);
            windows.observe(nanos, sample.logged_at, now);
        }
        let family = &mut facts[sample.family as usize];
        let zero = || Slot {
            cell: zero(entry_of(sample.family).kind),
            created: now,
        };
        let slot = family.cell(&sample.labels, admission, zero);
        kept.moves += u64::from(!matches!(sample.change, Move::Observe(_)));
        match (&mut slot.cell, sample.change) {
            (_, Move::Create) => {}
            (Cell::Counter(count), Move::Add(more)) => *count = count.saturating_add(more),
            (Cell::Histogram(histogram), Move::Observe(value)) => histogram.observe(value),
            // A family has one type, and the core knows which.
            _ => debug_assert!(false, "{:?} cannot take {:?}", sample.family, sample.change),
        }
    }

    /// Takes over the pipeline as it stands; a few times a second is often enough.
    pub fn set_snapshot(&self, snapshot: Snapshot) {
        self.lock().health.snapshot = Some(Arc::new(snapshot));
    }

    /// The pipeline as it last stood.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.lock().health.snapshot.clone()
    }

    /// `rows` were acknowledged by ClickHouse after `took`.
    pub fn inserted(&self, table: Table, rows: u64, took: Duration) {
        self.lock().health.inserted(table, rows, took);
    }

    /// An insert failed. `reason` is one of a few words of the sink.
    pub fn failed(&self, reason: &'static str) {
        self.lock().health.failed(reason);
    }

    /// Whether ClickHouse takes inserts.
    pub fn up(&self, is_up: bool) {
        self.lock().health.up(is_up);
    }

    /// A commit of one partition's marks ended.
    pub fn commit(&self, result: CommitResult) {
        self.lock().health.commit(result);
    }

    /// The assignment changed.
    pub fn rebalance(&self, kind: Rebalance) {
        self.lock().health.rebalance(kind);
    }

    /// An edge reached a limit of config.md; what the core reaches is in its snapshot.
    pub fn limit_reached(&self, limit: &'static str) {
        self.lock().health.limit_reached(limit);
    }

    /// Records of an assigned partition that are not read yet; `None` while unknown. Not to be
    /// called after [`Exporter::forget_partition`] of the same one.
    pub fn lag(&self, topic: &Name, partition: i32, records: Option<u64>) {
        self.lock().health.lag(topic, partition, records);
    }

    /// Retention removed records of a partition before they were read; 0 makes its series.
    pub fn records_lost(&self, topic: &Name, partition: i32, records: u64) {
        self.lock().health.records_lost(topic, partition, records);
    }

    /// Age of the oldest unread record in the worst partition, in seconds; `None` while unknown.
    pub fn lag_seconds(&self, seconds: Option<f64>) {
        self.lock().health.lag_seconds(seconds);
    }

    /// Drops every series of a partition that was handed over or taken away.
    pub fn forget_partition(&self, topic: &Name, partition: i32) {
        self.lock().health.forget_partition(topic, partition);
    }

    /// The exposition in Prometheus' text format 0.0.4, windows as they stand at `now`, the wall
    /// clock.
    pub fn render(&self, now: LogTime) -> String {
        self.lock().scraped_at = now;
        let families = self.registry.gather();
        TextEncoder::new()
            .encode_to_string(&families)
            .expect("the registry drops families without series, and a string takes all")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Whoever panicked while holding the lock left integers, and those are still true.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn entry_of(family: Family) -> &'static Entry {
    FAMILIES
        .iter()
        .find(|entry| entry.source == Source::Fact(family))
        .expect("a test says that every family has its row")
}

fn zero(kind: Kind) -> Cell {
    match kind {
        Kind::Counter => Cell::Counter(0),
        Kind::Gauge => Cell::Gauge(0.0),
        Kind::Histogram(bounds) => Cell::Histogram(Histogram::new(bounds)),
        Kind::Summary => Cell::Summary(Summary::default()),
    }
}

/// The one collector: every family of the catalogue but the process's own.
struct Cells {
    state: Arc<Mutex<State>>,
    descs: Vec<Desc>,
}

impl Cells {
    fn new(state: Arc<Mutex<State>>) -> Cells {
        let ours = FAMILIES.iter().filter(|e| e.source != Source::Process);
        let descs = ours.map(|entry| {
            let labels = entry.labels().iter().map(|l| (*l).to_owned()).collect();
            Desc::new(entry.name.into(), entry.help.into(), labels, HashMap::new())
                .expect("a test builds every family, so the names are valid")
        });
        Cells {
            state,
            descs: descs.collect(),
        }
    }
}

impl Collector for Cells {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // Only the copy is made under the lock: whoever counts does not wait for text.
        let series: Vec<Vec<Series>> = {
            let mut state = lock(&self.state);
            FAMILIES.iter().map(|entry| state.series(entry)).collect()
        };
        let families = FAMILIES.iter().zip(series);
        families
            .map(|(entry, series)| family_model(entry, &series))
            .collect()
    }
}

impl State {
    fn series(&mut self, entry: &Entry) -> Vec<Series> {
        match entry.source {
            Source::Process => Vec::new(),
            Source::Latency => self.latencies(),
            Source::Own(Own::InvocationsOpen, _) => self.invocations_open(),
            Source::Own(Own::SeriesFolded, _) => self.folds(),
            Source::Own(Own::StateFileUp, _) => self.state_file_up(),
            Source::Own(Own::CountersCreated, _) => self.counters_created(),
            Source::Own(own, _) => self.health.series(own),
            Source::Fact(family) => self.fact_series(family),
        }
    }

    fn latencies(&mut self) -> Vec<Series> {
        let now = self.scraped_at;
        let series = self.latencies.iter_mut();
        series
            .map(|(values, windows)| (values.to_vec(), Cell::Summary(windows.summary(now))))
            .collect()
    }

    fn folds(&self) -> Vec<Series> {
        let families = FAMILIES.iter().filter_map(|entry| {
            let folded = match entry.source {
                Source::Fact(family) => self.facts[family as usize].folded(),
                Source::Latency => self.latencies.folded(),
                Source::Own(..) | Source::Process => return None,
            };
            Some((vec![entry.name.into()], Cell::Counter(folded)))
        });
        families.collect()
    }

    fn invocations_open(&mut self) -> Vec<Series> {
        let Some(snapshot) = self.health.snapshot.clone() else {
            return Vec::new();
        };
        let mut open: BTreeMap<Name, u64> = BTreeMap::new();
        let apps = label::vocabulary("app");
        for (app, count) in &snapshot.invocations_open {
            *open.entry(self.admission.admit(apps, app)).or_insert(0) += count;
        }
        open.into_iter()
            .map(|(app, count)| (vec![app], Cell::Gauge(count as f64)))
            .collect()
    }
}

fn family_model(entry: &Entry, series: &[Series]) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(entry.name.to_owned());
    family.set_help(entry.help.to_owned());
    family.set_field_type(match entry.kind {
        Kind::Counter => MetricType::COUNTER,
        Kind::Gauge => MetricType::GAUGE,
        Kind::Histogram(_) => MetricType::HISTOGRAM,
        Kind::Summary => MetricType::SUMMARY,
    });
    let metrics = series
        .iter()
        .map(|(values, cell)| cell.model(cell::label_pairs(entry.labels(), values)));
    family.set_metric(metrics.collect());
    family
}

#[cfg(test)]
mod tests;
