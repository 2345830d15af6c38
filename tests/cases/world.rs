//! The daemon's core and its exporter over the log of a case, on a clock that the case moves
//! (README, section 3): what a scrape shows, also after a crash.
//!
//! Deliberately no sockets and no files of the daemon's: the state file is a value that is kept.

use super::feed::{Feed, Item};
use indicatif::ProgressBar;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tachograph::config::{Config, Needs};
use tachograph::core::ledger::Watermark;
use tachograph::core::pipeline::{Action, CountedMarks, Input, Pipeline, Record, Settings};
use tachograph::core::{LogSource, LogTime, Name, Now, Offset, PartitionId};
use tachograph::prometheus_exporter::{Counters, Exporter, ExporterSettings, LabelLimits};
use tachograph::replay::{LogReader, LogRecord};

/// Steps that this world has.
pub const STEPS: [&str; 7] = [
    "start", "clock", "flush", "scrape", "crash", "restart", "generate",
];
/// Those of them that change nothing of what a replay prints.
pub const STEPS_OF_REPLAY: [&str; 4] = ["start", "flush", "scrape", "generate"];
const INPUT_CLASSES: [&str; 4] = [
    "input_uncached",
    "cache_read",
    "cache_write",
    "tool_use_input",
];

type Place = (Name, i32);

/// One process.
struct Process {
    pipeline: Pipeline,
    exporter: Exporter,
    partitions: BTreeMap<Place, (PartitionId, Offset)>,
}

/// The host and what it went through.
pub struct World {
    config: Config,
    process: Process,
    clock: LogTime,
    begun: LogTime,
    /// Time of the process beyond the clock: what is due by age alone.
    aged: Duration,
    /// What the state file holds.
    kept: Option<(CountedMarks, Counters)>,
    /// Where the next process begins to read.
    committed: BTreeMap<Place, Offset>,
    log: Vec<LogRecord>,
    /// What each scrape showed, the last one behind a flush.
    pub scrapes: Vec<String>,
    /// Expectations of steps that did not hold.
    pub errors: Vec<String>,
}

impl World {
    /// Lives through a case.
    ///
    /// # Errors
    /// A configuration, a record or a step that cannot be read.
    pub fn live(config: &str, feed: &Feed, log: &Path) -> Result<World, String> {
        let config = Config::parse(config, Needs::Nothing, &|_| None);
        let config = config.map_err(|error| error.to_string())?;
        let files = [log.to_owned()];
        let reader = LogReader::new(&files, ProgressBar::hidden());
        let mut reader = reader.map_err(|error| error.to_string())?;
        let mut world = World {
            process: Process::new(&config, None),
            config,
            clock: LogTime(0),
            begun: LogTime(0),
            aged: Duration::ZERO,
            kept: None,
            committed: BTreeMap::new(),
            log: Vec::new(),
            scrapes: Vec::new(),
            errors: Vec::new(),
        };
        for (i, item) in feed.items().iter().enumerate() {
            match item {
                Item::Record => {
                    let record = reader.next_record().map_err(|error| error.to_string())?;
                    let record = record.ok_or("the log is shorter than the case")?;
                    world.take(&record);
                    world.log.push(record);
                }
                Item::Step(step) => world.step(step, feed.has_records_after(i)),
            }
        }
        world.flush();
        world.scrape();
        Ok(world)
    }

    fn step(&mut self, step: &Value, has_records: bool) {
        match step["_step"].as_str().unwrap_or_default() {
            "clock" => self.clock_to(&step["now"]),
            "flush" => self.flush(),
            "scrape" => {
                self.scrape();
                self.check_tokens(&step["expect_tokens_input"]);
            }
            "crash" => {
                let offset = Offset(step["committed_offset"].as_i64().unwrap_or(0));
                let places = self.process.partitions.keys().cloned();
                self.committed = places.map(|place| (place, offset)).collect();
                self.process = Process::new(&self.config, self.kept.as_ref());
            }
            "restart" if !has_records => {
                for record in std::mem::take(&mut self.log) {
                    let place = (record.topic.clone(), record.partition);
                    if self
                        .committed
                        .get(&place)
                        .is_none_or(|from| record.offset >= *from)
                    {
                        self.take(&record);
                    }
                    self.log.push(record);
                }
            }
            _ => {}
        }
    }

    fn now(&self) -> Now {
        let since = u64::try_from(self.clock.0 - self.begun.0).unwrap_or(0);
        Now(Duration::from_millis(since) + self.aged)
    }

    fn take(&mut self, record: &LogRecord) {
        let own = record
            .timestamp
            .or_else(|| own_time(record.payload.as_deref()));
        self.clock = self.clock.max(own.unwrap_or_default());
        if self.begun == LogTime(0) {
            self.begun = self.clock;
        }
        let place = (record.topic.clone(), record.partition);
        let known = self.process.partitions.get(&place).map(|(id, _)| *id);
        let partition = known.unwrap_or_else(|| self.assign(&place));
        self.process
            .partitions
            .insert(place, (partition, record.offset.next()));
        let headers: Vec<(&str, Option<&[u8]>)> = record
            .headers
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_deref()))
            .collect();
        self.handle(Input::Record {
            partition,
            record: Record {
                offset: record.offset,
                logged_at: self.clock,
                key: record.key.as_deref(),
                headers: &headers,
                payload: record.payload.as_deref(),
            },
        });
    }

    fn assign(&mut self, place: &Place) -> PartitionId {
        let partition = PartitionId(u32::try_from(self.process.partitions.len()).unwrap_or(0));
        let (topic, number) = place;
        self.handle(Input::Assigned {
            partition,
            source: LogSource {
                topic: topic.clone(),
                partition: *number,
                defaults: self.config.topic_defaults(topic),
            },
            committed: self
                .committed
                .get(place)
                .map(|offset| Watermark::bare(*offset)),
            log: Offset(0)..Offset(i64::MAX),
        });
        partition
    }

    fn clock_to(&mut self, now: &Value) {
        let instant = now
            .as_str()
            .and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let Some(instant) = instant else {
            self.errors.push(format!("clock: {now} is no instant"));
            return;
        };
        self.clock = self.clock.max(LogTime(instant.as_millisecond()));
        let partitions: Vec<(PartitionId, Offset)> =
            self.process.partitions.values().copied().collect();
        for (partition, next) in partitions {
            let log_time = Some(self.clock);
            self.handle(Input::CaughtUp {
                partition,
                next,
                log_time,
            });
        }
    }

    fn flush(&mut self) {
        self.aged += self.config.limits.batch_age_max + Duration::from_millis(1);
        self.handle(Input::Tick);
    }

    fn scrape(&mut self) {
        self.handle(Input::Save);
        let snapshot = self.process.pipeline.snapshot();
        self.process.exporter.set_snapshot(snapshot);
        self.scrapes.push(self.process.exporter.render(self.clock));
    }

    fn check_tokens(&mut self, expect: &Value) {
        let Some(expect) = expect.as_f64() else {
            return;
        };
        let shown = self.scrapes.last().map_or("", String::as_str);
        let series = super::exposition::parse(shown).unwrap_or_default();
        let of_input = series.iter().filter(|one| {
            one.name == "tachograph_tokens_total"
                && INPUT_CLASSES
                    .iter()
                    .any(|class| one.label("token_class") == Some(class))
        });
        let sum: f64 = of_input.map(|one| one.value).sum();
        if sum != expect {
            let number = self.scrapes.len();
            self.errors.push(format!(
                "scrape {number}: expected {expect} input tokens, got {sum}"
            ));
        }
    }

    fn handle(&mut self, input: Input<'_>) {
        let now = self.now();
        self.process.pipeline.handle(input, now);
        while let Some(action) = self.process.pipeline.poll_action() {
            let work = match action {
                Action::Insert(batch) => batch.work,
                Action::DeadLetter(letter) => letter.work,
                Action::SaveState(save) => {
                    let counters = self.process.exporter.counters();
                    self.kept = Some((save.counted, counters.clone()));
                    self.process.exporter.saved(counters);
                    save.work
                }
                Action::Observe(sample) => {
                    self.process.exporter.observe(&sample, self.clock);
                    continue;
                }
                Action::Halt(invariant) => {
                    self.errors
                        .push(format!("broken invariant {}", invariant.as_str()));
                    continue;
                }
                Action::Commit { .. } | Action::Pause | Action::Resume => continue,
            };
            self.process.pipeline.handle(Input::Settled { work }, now);
        }
    }
}

impl Process {
    fn new(config: &Config, kept: Option<&(CountedMarks, Counters)>) -> Process {
        let exporter = Exporter::new(&ExporterSettings {
            labels: LabelLimits {
                max_values: config.labels.max_values,
                max_series_per_family: config.labels.max_series_per_family,
                known_models: config.labels.known_models.clone(),
            },
            version: "case".to_owned(),
            revision: String::new(),
        });
        let (counted, counters) = kept.cloned().unwrap_or_default();
        exporter.go_on_from(&counters);
        let mut pipeline = Pipeline::new(Settings {
            limits: config.limits.clone(),
            hash_key: 7,
            is_strict: true,
            has_state_file: true,
        });
        pipeline.handle(Input::Restored { counted }, Now::default());
        Process {
            pipeline,
            exporter,
            partitions: BTreeMap::new(),
        }
    }
}

/// The record's own time, by the number rule of events.md §2.1; `None` where it has none.
fn own_time(payload: Option<&[u8]>) -> Option<LogTime> {
    let mut value: Value = serde_json::from_slice(payload?).ok()?;
    // Envelopes around it.
    for inner in ["data", "event"] {
        let is_wrapped = value["at"].is_null() && value["timestamp"].is_null();
        if is_wrapped && value[inner].is_object() {
            value = value[inner].take();
        }
    }
    let told = ["at", "timestamp"]
        .iter()
        .map(|key| &value[*key])
        .find(|told| !told.is_null())?;
    let number = match told.as_str() {
        Some(text) => match text.parse::<jiff::Timestamp>() {
            Ok(instant) => return Some(LogTime(instant.as_millisecond())),
            Err(_) => text.parse().ok()?,
        },
        None => told.as_f64()?,
    };
    let ms = match number.abs() {
        size if size < 1e11 => number * 1e3,
        size if size < 1e14 => number,
        size if size < 1e17 => number / 1e3,
        _ => number / 1e6,
    };
    Some(LogTime(ms.floor() as i64))
}
