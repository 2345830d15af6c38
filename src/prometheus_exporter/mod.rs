//! What a scrape sees: samples of the core and the daemon's own health, behind one collector.
//!
//! Deliberately no arithmetic over facts: the core says by how much a series moves, and this only
//! adds. Counters live as long as the process; histograms restart at zero with it, as is usual.

pub mod catalogue;
mod cell;
mod label;
mod own;

pub use label::LabelLimits;
pub use own::{CommitResult, Rebalance};

use crate::core::Name;
use crate::core::fact::Table;
use crate::core::pipeline::Snapshot;
use crate::core::sample::{Family, Move, Sample};
use catalogue::{Entry, FAMILIES, Kind, Own, Source};
use cell::{Cell, Histogram};
use label::{Admission, SeriesMap};
use own::{Health, Series};
use prometheus::core::{Collector, Desc};
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{Registry, TextEncoder};
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

struct State {
    /// By [`Family`], in the order of [`Family::ALL`].
    facts: Vec<SeriesMap>,
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

    /// Moves one series as the core says.
    pub fn observe(&self, sample: &Sample) {
        let mut state = self.lock();
        let State {
            facts, admission, ..
        } = &mut *state;
        let family = &mut facts[sample.family as usize];
        let zero = || zero(entry_of(sample.family).kind);
        let cell = family.cell(&sample.labels, admission, zero);
        match (cell, sample.change) {
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

    /// The exposition in Prometheus' text format 0.0.4.
    pub fn render(&self) -> String {
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
            Source::Own(Own::InvocationsOpen, _) => self.invocations_open(),
            Source::Own(Own::SeriesFolded, _) => self.folds(),
            Source::Own(own, _) => self.health.series(own),
            Source::Fact(family) => {
                let series = self.facts[family as usize].iter();
                series
                    .map(|(values, cell)| (values.to_vec(), cell.clone()))
                    .collect()
            }
        }
    }

    fn folds(&self) -> Vec<Series> {
        let families = Family::ALL.into_iter().zip(&self.facts);
        families
            .map(|(family, series)| {
                (
                    vec![entry_of(family).name.into()],
                    Cell::Counter(series.folded()),
                )
            })
            .collect()
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
    });
    let metrics = series
        .iter()
        .map(|(values, cell)| cell.model(cell::label_pairs(entry.labels(), values)));
    family.set_metric(metrics.collect());
    family
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ledger::Watermark;
    use crate::core::pipeline::{PartitionStatus, Totals};
    use crate::core::{LogSource, LogTime, Offset, PartitionId, TopicDefaults};

    fn exporter() -> Exporter {
        Exporter::new(&ExporterSettings {
            version: "1.2.3".to_owned(),
            revision: "abc".to_owned(),
            ..ExporterSettings::default()
        })
    }

    fn sample(family: Family, labels: &[&str], change: Move) -> Sample {
        Sample {
            family,
            labels: labels.iter().map(|value| Name::from(*value)).collect(),
            change,
            is_replayed: false,
        }
    }

    fn partition(number: i32, log_time: i64, complete_up_to: i64) -> PartitionStatus {
        PartitionStatus {
            partition: PartitionId(number.unsigned_abs()),
            source: LogSource {
                topic: "events".into(),
                partition: number,
                defaults: TopicDefaults::default(),
            },
            records_read: 7,
            next: Offset(7),
            log_time: LogTime(log_time),
            is_replaying: false,
            segments_held: 2,
            held_records: 3,
            watermark: Watermark::bare(Offset(4)),
            complete_up_to: LogTime(complete_up_to),
        }
    }

    fn snapshot(partitions: Vec<PartitionStatus>) -> Snapshot {
        Snapshot {
            totals: Totals::default(),
            partitions,
            work_in_flight: 0,
            facts_waiting: 0,
            is_paused: false,
            invocations_open: [("desk".into(), 2)].into(),
            violations: Vec::new(),
        }
    }

    /// Lines of the exposition that begin with `start`.
    fn lines(exporter: &Exporter, start: &str) -> Vec<String> {
        let text = exporter.render();
        let lines = text.lines().filter(|line| line.starts_with(start));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn the_index_of_a_family_is_its_place() {
        for (at, family) in Family::ALL.into_iter().enumerate() {
            assert_eq!(family as usize, at);
            assert_eq!(entry_of(family).labels(), family.labels());
        }
    }

    #[test]
    fn a_series_is_at_0_before_it_moves() {
        let exporter = exporter();
        let labels = ["app", "", "m1", "desk", "model", "ok"];
        let moved = |change| exporter.observe(&sample(Family::ModelCalls, &labels, change));
        moved(Move::Create);
        let series = "tachograph_model_calls_total{app=\"app\",tenant=\"\",model=\"m1\",\
                      agent=\"desk\",served_by=\"model\",status=\"ok\"}";
        let start = "tachograph_model_calls_total";
        assert_eq!(lines(&exporter, start), [format!("{series} 0")]);
        moved(Move::Add(2));
        moved(Move::Add(1));
        assert_eq!(lines(&exporter, start), [format!("{series} 3")]);
    }

    #[test]
    fn what_strangers_say_is_escaped() {
        let exporter = exporter();
        let labels = ["", "", "m1", "he said \"hi\"\nback\\slash\u{0}", "answer"];
        exporter.observe(&sample(Family::Tokens, &labels, Move::Add(1)));
        assert_eq!(
            lines(&exporter, "tachograph_tokens_total"),
            ["tachograph_tokens_total{app=\"\",tenant=\"\",model=\"m1\",\
              agent=\"he said \\\"hi\\\"\\nback\\\\slash\u{fffd}\",token_class=\"answer\"} 1"]
        );
    }

    #[test]
    fn durations_come_in_seconds() {
        let exporter = exporter();
        let labels = ["a", "t", ""];
        let family = Family::ExecuteToolDuration;
        exporter.observe(&sample(family, &labels, Move::Observe(1_500_000_000)));
        let start = "gen_ai_execute_tool_duration_seconds";
        let lines = lines(&exporter, start);
        let with = |part: &str| {
            lines
                .iter()
                .find(|line| line.contains(part))
                .unwrap()
                .clone()
        };
        assert!(with("_sum").ends_with(" 1.5"), "{lines:?}");
        assert!(with("le=\"1.28\"").ends_with(" 0"), "{lines:?}");
        assert!(with("le=\"2.56\"").ends_with(" 1"), "{lines:?}");
        assert!(with("le=\"+Inf\"").ends_with(" 1"), "{lines:?}");
    }

    #[test]
    fn what_is_unknown_has_no_series() {
        let exporter = exporter();
        for start in [
            "tachograph_lag",
            "tachograph_sink_up",
            "tachograph_complete_up_to",
            "tachograph_log_time",
        ] {
            assert_eq!(lines(&exporter, start), [""; 0]);
        }
        exporter.set_snapshot(snapshot(vec![
            partition(0, 5_000, 4_500),
            partition(1, i64::MIN, i64::MIN),
        ]));
        let complete = "tachograph_complete_up_to_timestamp_seconds";
        assert_eq!(lines(&exporter, complete), [""; 0]);
        // The second partition is known to be empty: nothing of it can be missing.
        exporter.lag(&"events".into(), 1, Some(0));
        assert_eq!(lines(&exporter, complete), [format!("{complete} 4.5")]);
        assert_eq!(
            lines(&exporter, "tachograph_log_time"),
            ["tachograph_log_time_seconds{topic=\"events\",partition=\"0\"} 5"]
        );
    }

    #[test]
    fn a_partition_that_is_gone_leaves_no_series() {
        let exporter = exporter();
        exporter.set_snapshot(snapshot(vec![partition(0, 1, 1), partition(1, 1, 1)]));
        exporter.lag(&"events".into(), 0, Some(4));
        exporter.lag(&"events".into(), 1, Some(5));
        assert!(exporter.render().contains("partition=\"0\""));
        exporter.forget_partition(&"events".into(), 0);
        let text = exporter.render();
        assert!(!text.contains("partition=\"0\""), "{text}");
        assert!(text.contains("tachograph_lag_records{topic=\"events\",partition=\"1\"} 5\n"));
        assert!(text.contains("tachograph_records_read_total{topic=\"events\",partition=\"1\"} 7"));
    }

    #[test]
    fn the_process_and_the_build_show_themselves() {
        let exporter = exporter();
        assert_eq!(
            lines(&exporter, "tachograph_build_info"),
            ["tachograph_build_info{version=\"1.2.3\",revision=\"abc\"} 1"]
        );
        let text = exporter.render();
        for entry in FAMILIES.iter().filter(|e| e.source == Source::Process) {
            let head = format!(
                "# HELP {} {}\n# TYPE {} {}\n",
                entry.name,
                entry.help,
                entry.name,
                entry.kind.as_str()
            );
            assert!(text.contains(&head), "{head}");
        }
    }

    #[test]
    fn the_edges_are_counted() {
        let exporter = exporter();
        exporter.inserted(Table::ToolCalls, 20, Duration::from_millis(3));
        exporter.failed("timeout");
        exporter.up(false);
        exporter.commit(CommitResult::Ok);
        exporter.rebalance(Rebalance::Lost);
        exporter.limit_reached("drain_max");
        exporter.lag_seconds(Some(1.5));
        let text = exporter.render();
        for line in [
            "tachograph_rows_inserted_total{table=\"tool_calls\"} 20",
            "tachograph_rows_inserted_total{table=\"branches\"} 0",
            "tachograph_insert_seconds_sum{table=\"tool_calls\"} 0.003",
            "tachograph_insert_errors_total{reason=\"timeout\"} 1",
            "tachograph_sink_up 0",
            "tachograph_commits_total{result=\"ok\"} 1",
            "tachograph_commits_total{result=\"failed\"} 0",
            "tachograph_rebalances_total{kind=\"lost\"} 1",
            "tachograph_limit_reached_total{limit=\"drain_max\"} 1",
            "tachograph_lag_seconds 1.5",
        ] {
            assert!(text.lines().any(|have| have == line), "{line}\n{text}");
        }
    }
}
