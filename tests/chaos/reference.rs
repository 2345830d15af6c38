//! What the log alone says: its rows in a database of their own, and its counters.
//!
//! Rows follow from the whole topic as `tachograph replay --topic` reads it, each round anew; what
//! retention removed since stays as it was. Counters follow from each record once, by a pipeline
//! that nothing disturbs.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use indicatif::ProgressBar;
use tachograph::clickhouse_sink::{SinkEvents, Unobserved, spawn};
use tachograph::config::{Config, Needs};
use tachograph::core::batch::Batch;
use tachograph::core::fact::Fact;
use tachograph::core::ledger::WorkId;
use tachograph::core::pipeline::{Action, Input, Pipeline, Record, Settings};
use tachograph::core::{LogSource, LogTime, Now, Offset, PartitionId};
use tachograph::prometheus_exporter::{Exporter, ExporterSettings, LabelLimits};
use tachograph::replay::{
    InputError, LogRecord, Records, ReplaySettings, Replayed, TopicReader, facts_text, replay,
};

use crate::stage::{PARTITIONS, Series, Stage, apply_schema, sink_config};
use crate::support::engine::Database;
use crate::support::kafka::PATIENCE;

/// Facts of one insert.
const BATCH: usize = 2_000;

pub struct Reference {
    pub database: Database,
    config: Config,
    file: std::path::PathBuf,
    topic: String,
    counting: Counting,
    /// Partition and offset of every record that cannot be read.
    pub quarantined: BTreeSet<(i32, i64)>,
    pub rounds: usize,
    pub rows: usize,
    pub records: usize,
}

/// The pipeline that reads each record once.
struct Counting {
    pipeline: Pipeline,
    exporter: Exporter,
    next: BTreeMap<i32, i64>,
}

impl Reference {
    pub fn new(stage: &Stage) -> Reference {
        let database = Database::create("reference");
        apply_schema(&database);
        let file = stage.hosts[0].config.clone();
        let text = std::fs::read_to_string(&file).expect("it was written");
        let config = Config::parse(&text, Needs::Nothing, &|_| None).expect("a right file");
        Reference {
            database,
            counting: Counting::new(&config, &stage.topic),
            config,
            file,
            topic: stage.topic.clone(),
            quarantined: BTreeSet::new(),
            rounds: 0,
            rows: 0,
            records: 0,
        }
    }

    /// Reads the topic as it is now.
    pub fn read(&mut self) {
        let config = self.config.clone();
        let settings = ReplaySettings {
            limits: config.limits.clone(),
            defaults_of: Arc::new(move |topic| config.topic_defaults(topic)),
            is_strict: true,
            ..ReplaySettings::default()
        };
        let bar = ProgressBar::hidden();
        let reader = TopicReader::open(&self.config.kafka, &self.topic, bar);
        let mut reader = Both {
            reader: reader.unwrap_or_else(|error| panic!("{error}")),
            counting: &mut self.counting,
        };
        let replayed = replay(&mut reader, &settings).unwrap_or_else(|error| panic!("{error}"));
        let places = replayed.quarantined.iter();
        let places = places.map(|one| (one.at.partition, one.at.offset.0));
        self.quarantined.extend(places);
        self.is_what_the_command_says(&replayed);
        self.rounds += 1;
        self.records = self.counting.read();
        // A hole in an emitter's numbers is of no run, and only a whole log tells of it.
        let is_of_a_run = |fact: &Fact| !fact.invocation_id.is_empty();
        let facts: Vec<Fact> = replayed.facts.into_iter().filter(is_of_a_run).collect();
        self.rows = facts.len();
        insert(&self.database, facts);
    }

    /// `tachograph replay --topic … --output facts` prints exactly these facts.
    fn is_what_the_command_says(&self, replayed: &Replayed) {
        let output = Command::new(env!("CARGO_BIN_EXE_tachograph"))
            .args(["replay", "--output", "facts", "--topic", &self.topic])
            .arg("--config")
            .arg(&self.file)
            .output()
            .expect("the binary starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(
            printed == facts_text(&replayed.facts),
            "the command differs"
        );
    }

    /// The series that counting each record once moves.
    pub fn series(&self) -> Series {
        let counted = self.counting.exporter.render(LogTime(0));
        let lines = counted.lines().filter(|line| !line.starts_with('#'));
        let pair = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_owned(), value.parse().ok()?))
        };
        lines.filter_map(pair).collect()
    }

    pub fn tally(&self) -> String {
        let (rounds, records, rows) = (self.rounds, self.records, self.rows);
        format!("{rounds} rounds, {records} records read, {rows} rows of what is left of the topic")
    }
}

/// Gives what it reads to both readers.
struct Both<'r> {
    reader: TopicReader,
    counting: &'r mut Counting,
}

impl Records for Both<'_> {
    fn next_record(&mut self) -> Result<Option<LogRecord>, InputError> {
        let record = self.reader.next_record()?;
        if let Some(record) = &record {
            self.counting.record(record);
        }
        Ok(record)
    }
}

impl Counting {
    fn new(config: &Config, topic: &str) -> Counting {
        let mut limits = config.limits.clone();
        limits.batch_age_max = Duration::MAX;
        limits.commit_interval = Duration::MAX;
        let mut pipeline = Pipeline::new(Settings {
            limits,
            hash_key: 7,
            is_strict: true,
            has_state_file: false,
        });
        for partition in 0..PARTITIONS {
            let assigned = Input::Assigned {
                partition: PartitionId(partition.unsigned_abs()),
                source: LogSource {
                    topic: topic.into(),
                    partition,
                    defaults: config.topic_defaults(topic),
                },
                committed: None,
                log: Offset(0)..Offset(i64::MAX),
            };
            pipeline.handle(assigned, Now::default());
        }
        Counting {
            pipeline,
            exporter: Exporter::new(&ExporterSettings {
                labels: LabelLimits {
                    max_values: config.labels.max_values,
                    max_series_per_family: config.labels.max_series_per_family,
                    known_models: Vec::new(),
                },
                version: "reference".to_owned(),
                revision: String::new(),
            }),
            next: BTreeMap::new(),
        }
    }

    fn read(&self) -> usize {
        usize::try_from(self.pipeline.totals().outcomes.read).expect("few")
    }

    fn record(&mut self, told: &LogRecord) {
        let next = self.next.entry(told.partition).or_default();
        if told.offset.0 < *next {
            return;
        }
        *next = told.offset.0 + 1;
        let headers = told.headers.iter();
        let headers: Vec<_> = headers
            .map(|(name, value)| (name.as_str(), value.as_deref()))
            .collect();
        self.handle(Input::Record {
            partition: PartitionId(told.partition.unsigned_abs()),
            record: Record {
                offset: told.offset,
                logged_at: told.timestamp.expect("the broker's"),
                key: told.key.as_deref(),
                headers: &headers,
                payload: told.payload.as_deref(),
            },
        });
    }

    fn handle(&mut self, input: Input<'_>) {
        let now = Now::default();
        self.pipeline.handle(input, now);
        while let Some(action) = self.pipeline.poll_action() {
            let work = match action {
                Action::Insert(batch) => batch.work,
                Action::DeadLetter(letter) => letter.work,
                Action::Observe(sample) => {
                    self.exporter.observe(&sample, LogTime(0));
                    continue;
                }
                Action::Halt(invariant) => panic!("broken invariant {}", invariant.as_str()),
                _ => continue,
            };
            self.pipeline.handle(Input::Settled { work }, now);
        }
    }
}

/// Inserts facts by the daemon's own sink, without anything in between.
fn insert(database: &Database, facts: Vec<Fact>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let config = sink_config(database);
    let (sender, settled) = sync_channel(config.work_in_flight_max);
    let events = SinkEvents {
        settled: sender,
        wake: Box::new(|| {}),
        observer: Arc::new(Unobserved),
    };
    let sink = spawn(runtime.handle(), config, events);
    for (work, facts) in facts.chunks(BATCH).enumerate() {
        let work = WorkId(work as u64 + 1);
        let facts = facts.to_vec();
        sink.send(Batch { work, facts }).expect("room for one");
        assert_eq!(settled.recv_timeout(PATIENCE), Ok(work));
    }
}
