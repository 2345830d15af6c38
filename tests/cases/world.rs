//! The daemon's core and its exporter over the log of a case, on a clock that the case moves
//! (README, section 3): what is committed, inserted and shown, also after a crash.
//!
//! It drives the core as the daemon's driver does. Deliberately no Kafka and no files of the
//! daemon's: the log and the state file are values that are kept.

use super::broker::{Broker, Log, Place};
use super::engine::ClickHouse;
use super::feed::{Feed, Item};
use super::notes::{Memory, Notes};
use super::steps::place_of;
use super::tables::{Flight, Tables, Way};
use indicatif::ProgressBar;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tachograph::config::{Config, Needs};
use tachograph::core::dialect::{DecodeContext, RecordBytes};
use tachograph::core::ledger::{Counted, take_over};
use tachograph::core::pipeline::{
    Action, CountedMarks, DeadLetter, Input, Pipeline, Record, Settings,
};
use tachograph::core::{LogSource, LogTime, Now, Offset, PartitionId};
use tachograph::prometheus_exporter::{Counters, Exporter, ExporterSettings, LabelLimits};
use tachograph::replay::{LogReader, LogRecord, Records as _, own_time};

/// The host of the first process.
const FIRST_HOST: &str = "pod-a";
const HASH_KEY: u64 = 7;
/// What a case wants of its world.
pub struct Setup<'s> {
    pub config: &'s str,
    pub feed: &'s Feed,
    /// Every record of the feed, in its order.
    pub log: &'s Path,
    pub clickhouse: Option<ClickHouse>,
    /// The memory that reading takes is measured.
    pub measures_memory: bool,
    /// The last batch meets a server that has too many parts.
    pub has_too_many_parts: bool,
}

/// What a process holds of a partition.
struct Held {
    id: PartitionId,
    next: Offset,
    /// A record of it was read: only then is its log time known.
    has_read: bool,
}

/// One process.
pub struct Process {
    pub pipeline: Pipeline,
    pub exporter: Arc<Exporter>,
    partitions: BTreeMap<Place, Held>,
    partitions_ever: u32,
    /// Batches that are not settled.
    pub flights: Vec<Flight>,
    is_paused: bool,
}

/// Everything around the processes.
pub struct World {
    pub config: Config,
    /// By host.
    pub processes: BTreeMap<String, Process>,
    /// The host of the process that started last.
    pub active: String,
    /// Who reads a partition, by host.
    pub owners: BTreeMap<Place, String>,
    /// State files, by host.
    files: BTreeMap<String, (CountedMarks, Counters)>,
    pub broker: Broker,
    pub tables: Tables,
    pub letters: Vec<DeadLetter>,
    pub clock: LogTime,
    begun: Option<LogTime>,
    /// Time of the process beyond the clock: what is due by age alone.
    pub aged: Duration,
    /// Inserts wait for so many steps that say how they go.
    pub inserts_told: usize,
    /// The server takes no rows for now: inserts are sent, and not waited for.
    pub is_refusing: bool,
    measures_memory: bool,
    inserts: u64,
    /// Processes that ever started.
    pub lives: u64,
    /// What each scrape showed, the last one behind a flush.
    pub scrapes: Vec<String>,
    pub notes: Notes,
    /// Expectations of steps that did not hold.
    pub errors: Vec<String>,
}

impl World {
    /// Lives through a case.
    ///
    /// # Errors
    /// A configuration, a record or a step that cannot be read, or a part that does not do its work.
    pub fn live(setup: Setup<'_>) -> Result<World, String> {
        let mut config = Config::parse(setup.config, Needs::Nothing, &|_| None)
            .map_err(|error| error.to_string())?;
        let told = || setup.feed.steps_of("clickhouse_insert");
        if told().any(|step| !step["rows_from_offsets"].is_null()) {
            // A record's rows are a batch of their own, so that its insert can be told apart.
            config.limits.batch_facts_max = 1;
        }
        let files = [setup.log.to_owned()];
        let reader = LogReader::new(&files, ProgressBar::hidden());
        let mut reader = reader.map_err(|error| error.to_string())?;
        let mut world = World {
            config,
            processes: BTreeMap::new(),
            active: FIRST_HOST.to_owned(),
            owners: BTreeMap::new(),
            files: BTreeMap::new(),
            broker: Broker::default(),
            tables: Tables::new(setup.clickhouse),
            letters: Vec::new(),
            clock: LogTime(0),
            begun: None,
            aged: Duration::ZERO,
            inserts_told: told().count(),
            is_refusing: false,
            measures_memory: setup.measures_memory,
            inserts: 0,
            lives: 0,
            scrapes: Vec::new(),
            notes: Notes::default(),
            errors: Vec::new(),
        };
        world.start(FIRST_HOST)?;
        for item in setup.feed.items() {
            match item {
                Item::Record { txn } => {
                    let record = reader.next_record().map_err(|error| error.to_string())?;
                    let record = record.ok_or("the log is shorter than the case")?;
                    world.append(record, txn.clone())?;
                }
                Item::Step(step) => world.step(step)?,
            }
        }
        if setup.has_too_many_parts {
            world.meet_too_many_parts()?;
        }
        world.finish()?;
        Ok(world)
    }

    fn step(&mut self, step: &Value) -> Result<(), String> {
        let offset = |key: &str| step[key].as_i64().map(Offset);
        let word = step["_step"].as_str().unwrap_or_default();
        match word {
            "clock" => self.clock_to(&step["now"]),
            "flush" => self.flush(),
            "scrape" => {
                self.scrape()?;
                self.check_tokens(&step["expect_tokens_input"]);
                Ok(())
            }
            "crash" => {
                self.crash(offset("committed_offset"));
                Ok(())
            }
            "restart" => self.restart(),
            "rebalance" => self.rebalance(step),
            "clickhouse_insert" => self.insert_goes(step),
            "control_record" => {
                let at = offset("offset").ok_or("control_record.offset: an offset")?;
                let txn = step["txn"].as_str().unwrap_or_default();
                let place = place_of(0);
                let log = self.broker.log(&place);
                log.mark(at, txn, step["kind"] == "COMMIT");
                self.read(&place)
            }
            "log_end" => {
                let end = offset("offset").ok_or("log_end.offset: an offset")?;
                self.broker.log(&place_of(0)).reaches(end);
                Ok(())
            }
            "committed_offset" => {
                let at = offset("offset").ok_or("committed_offset.offset: an offset")?;
                let place = place_of(step["partition"].as_i64().unwrap_or(0));
                self.broker.committed_anew(&place, at);
                Ok(())
            }
            "topic_recreated" => {
                let range = offset("log_start").zip(offset("log_end"));
                let (start, end) = range.ok_or("topic_recreated: log_start and log_end")?;
                self.recreate(Log::of(start..end))
            }
            "replay_from" => {
                let from = offset("offset").ok_or("replay_from.offset: an offset")?;
                self.replay_from(from)
            }
            "table_without_column" | "alter_table_add_column" => {
                let column = step["column"].as_str().unwrap_or_default();
                match word {
                    "table_without_column" => self.take_column(column),
                    _ => self.give_column(column),
                }
            }
            // Merges never happen, and sums are read at the end; records are generated already.
            "start" | "no_merge_yet" | "query" | "generate" => Ok(()),
            other => Err(format!("this world has no step {other}")),
        }
    }

    /// Time of the processes.
    pub fn now(&self) -> Now {
        let begun = self.begun.unwrap_or(self.clock);
        let since = u64::try_from(self.clock.0 - begun.0).unwrap_or(0);
        Now(Duration::from_millis(since) + self.aged)
    }

    /// A producer writes a record, and whoever owns its partition reads it.
    fn append(&mut self, record: LogRecord, txn: Option<String>) -> Result<(), String> {
        let place = (record.topic.clone(), record.partition);
        if !self.broker.log(&place).has(record.offset) {
            let told = record.timestamp.or_else(|| self.own_time(&record));
            let told = told.unwrap_or_default();
            self.clock = self.clock.max(told);
            self.begun.get_or_insert(self.clock);
            let logged_at = self.clock;
            self.broker.log(&place).append(record, logged_at, txn);
        }
        self.read(&place)
    }

    fn own_time(&self, record: &LogRecord) -> Option<LogTime> {
        let limits = &self.config.limits;
        let context = DecodeContext {
            dialect: self.config.topic_defaults(&record.topic).dialect,
            payload_bytes_max: limits.payload_bytes_max,
            hash_key: HASH_KEY,
            id_bytes_max: limits.id_bytes_max,
            attributes_max: limits.attributes_max,
            attribute_bytes_max: limits.attribute_bytes_max,
            store_reasons: limits.store_reasons,
        };
        let payload = record.payload.as_deref()?;
        let headers = &headers_of(record);
        own_time(RecordBytes { payload, headers }, &context)
    }

    fn owner(&self, place: &Place) -> String {
        self.owners.get(place).unwrap_or(&self.active).clone()
    }

    /// The owner reads what it can read of a partition.
    pub fn read(&mut self, place: &Place) -> Result<(), String> {
        let host = self.owner(place);
        loop {
            let Some(process) = self.processes.get_mut(&host) else {
                return Ok(());
            };
            let Some(held) = process.partitions.get_mut(place) else {
                self.assign(&host, place)?;
                continue;
            };
            let end = self.broker.log(place).stable_end();
            let next = self.broker.log(place).next(held.next, end);
            let Some(logged) = next.filter(|_| !process.is_paused) else {
                return Ok(());
            };
            let (partition, record) = (held.id, &logged.record);
            held.next = record.offset.next();
            held.has_read = true;
            let headers = headers_of(record);
            let now = self.now();
            self.notes.read(place, record.offset, now);
            let input = Input::Record {
                partition,
                record: Record {
                    offset: record.offset,
                    logged_at: logged.logged_at,
                    key: record.key.as_deref(),
                    headers: &headers,
                    payload: record.payload.as_deref(),
                },
            };
            self.tell(&host, input)?;
        }
    }

    pub fn read_all(&mut self) -> Result<(), String> {
        let places: Vec<Place> = self.broker.logs.keys().cloned().collect();
        places.iter().try_for_each(|place| self.read(place))
    }

    /// The owner takes a partition over, as `kafka_source` and the driver do it.
    fn assign(&mut self, host: &str, place: &Place) -> Result<(), String> {
        let Some(process) = self.processes.get_mut(host) else {
            return Ok(());
        };
        let (topic, number) = place;
        let committed = self.broker.committed(place);
        let log = self.broker.log(place);
        let counted = process.pipeline.counted(topic, *number);
        let is_other = |marks: &Counted| {
            let first = log.first_since(marks.before);
            marks.before.0 > 0 && first.is_some_and(|first| first < marks.below)
        };
        let is_made_anew = counted.as_ref().is_some_and(is_other);
        let range = log.range();
        let taken = take_over(committed, &range);
        self.notes.taken_over(committed, &taken);
        let exporter = &process.exporter;
        exporter.records_lost(topic, *number, taken.lost_records);
        let id = PartitionId(process.partitions_ever);
        process.partitions_ever += 1;
        let held = Held {
            id,
            next: taken.start,
            has_read: false,
        };
        process.partitions.insert(place.clone(), held);
        self.owners.insert(place.clone(), host.to_owned());
        if is_made_anew {
            let (topic, partition) = (topic.clone(), *number);
            self.tell(host, Input::MadeAnew { topic, partition })?;
        }
        let source = LogSource {
            topic: topic.clone(),
            partition: *number,
            defaults: self.config.topic_defaults(topic),
        };
        let input = Input::Assigned {
            partition: id,
            source,
            committed,
            log: range,
        };
        self.tell(host, input)
    }

    /// Tells the process of a host something, and does what it says.
    pub fn tell(&mut self, host: &str, input: Input<'_>) -> Result<(), String> {
        let Some(mut process) = self.processes.remove(host) else {
            return Ok(());
        };
        let memory = self.measures_memory.then(Memory::begin);
        process.pipeline.handle(input, self.now());
        if let Some(memory) = memory {
            self.notes.memory_kib = self.notes.memory_kib.max(memory.growth_kib()?);
        }
        let done = self.perform(host, &mut process);
        self.processes.insert(host.to_owned(), process);
        done
    }

    fn perform(&mut self, host: &str, process: &mut Process) -> Result<(), String> {
        let now = self.now();
        while let Some(action) = process.pipeline.poll_action() {
            let work = match action {
                Action::Insert(batch) => {
                    self.inserts += 1;
                    let mut flight = Flight {
                        work: batch.work,
                        facts: batch.facts,
                        number: self.inserts,
                        way: Way::Waits,
                    };
                    if self.is_refusing {
                        self.tables.send(&mut flight)?;
                    }
                    if self.is_refusing || self.inserts_told > 0 {
                        process.flights.push(flight);
                        continue;
                    }
                    let started = Instant::now();
                    self.tables.insert(&flight)?;
                    self.notes.visible(&flight.facts, now, started.elapsed());
                    flight.work
                }
                Action::DeadLetter(letter) => {
                    let work = letter.work;
                    self.letters.push(*letter);
                    work
                }
                Action::SaveState(save) => {
                    let counters = process.exporter.counters();
                    let file = (save.counted, counters.clone());
                    self.files.insert(host.to_owned(), file);
                    process.exporter.saved(counters);
                    save.work
                }
                Action::Observe(sample) => {
                    process.exporter.observe(&sample, self.clock);
                    continue;
                }
                Action::Commit {
                    partition,
                    watermark,
                } => {
                    if let Some(place) = process.place(partition) {
                        self.broker.commit(&place, watermark);
                    }
                    continue;
                }
                Action::Pause => {
                    process.is_paused = true;
                    continue;
                }
                Action::Resume => {
                    process.is_paused = false;
                    continue;
                }
                Action::Halt(invariant) => {
                    return Err(format!("broken invariant {}", invariant.as_str()));
                }
            };
            process.pipeline.handle(Input::Settled { work }, now);
        }
        Ok(())
    }

    /// Everything on its way is inserted and acknowledged.
    pub fn land_all(&mut self, host: &str) -> Result<(), String> {
        let Some(process) = self.processes.get_mut(host) else {
            return Ok(());
        };
        for flight in std::mem::take(&mut process.flights) {
            self.tables.insert(&flight)?;
            let work = flight.work;
            self.tell(host, Input::Settled { work })?;
        }
        Ok(())
    }

    fn clock_to(&mut self, now: &Value) -> Result<(), String> {
        let told = now.as_str().unwrap_or_default();
        let instant = told.parse::<jiff::Timestamp>();
        let instant = instant.map_err(|_| format!("clock: {now} is no instant"))?;
        self.clock = self.clock.max(LogTime(instant.as_millisecond()));
        self.begun.get_or_insert(self.clock);
        self.catch_up(Some(self.clock))?;
        // What was released waits in a batch, where nobody sees it.
        self.flush()?;
        self.status_at(told)
    }

    /// What a quiet partition hears: it is read to its end, and its log time has come so far.
    pub fn catch_up(&mut self, log_time: Option<LogTime>) -> Result<(), String> {
        let mut all = Vec::new();
        for (host, process) in &mut self.processes {
            let free = !process.is_paused;
            for (place, held) in process.partitions.iter_mut().filter(|_| free) {
                let log = self.broker.log(place);
                if log.next(held.next, log.stable_end()).is_none() {
                    // Markers of transactions are read over.
                    held.next = held.next.max(log.stable_end());
                    let log_time = log_time.filter(|_| held.has_read);
                    all.push((host.clone(), held.id, held.next, log_time));
                }
            }
        }
        for (host, partition, next, log_time) in all {
            let input = Input::CaughtUp {
                partition,
                next,
                log_time,
            };
            self.tell(&host, input)?;
        }
        Ok(())
    }

    /// What is due by its age goes out.
    pub fn flush(&mut self) -> Result<(), String> {
        self.pass(self.config.limits.batch_age_max + Duration::from_millis(1))
    }

    /// Time passes for the processes, and for nobody else.
    pub fn pass(&mut self, time: Duration) -> Result<(), String> {
        self.aged += time;
        let hosts: Vec<String> = self.processes.keys().cloned().collect();
        hosts
            .iter()
            .try_for_each(|host| self.tell(host, Input::Tick))
    }

    pub fn scrape(&mut self) -> Result<(), String> {
        let host = self.active.clone();
        self.tell(&host, Input::Save)?;
        let Some(process) = self.processes.get_mut(&host) else {
            return Err("scrape: no process runs".to_owned());
        };
        let snapshot = process.pipeline.snapshot();
        for status in &snapshot.partitions {
            let source = &status.source;
            let place = (source.topic.clone(), source.partition);
            let left = self.broker.log(&place).stable_end().0 - status.next.0;
            let left = u64::try_from(left).unwrap_or(0);
            let exporter = &process.exporter;
            exporter.lag(&source.topic, source.partition, Some(left));
        }
        process.exporter.set_snapshot(snapshot);
        self.scrapes.push(process.exporter.render(self.clock));
        Ok(())
    }

    fn check_tokens(&mut self, expect: &Value) {
        let Some(expect) = expect.as_f64() else {
            return;
        };
        let sum = super::exposition::input_tokens(self.scrapes.last().map_or("", String::as_str));
        if sum != expect {
            let number = self.scrapes.len();
            self.errors.push(format!(
                "scrape {number}: expected {expect} input tokens, got {sum}"
            ));
        }
    }
}

impl World {
    /// A process starts on a host, with what its state file says.
    pub fn start(&mut self, host: &str) -> Result<(), String> {
        let process = Process::new(&self.config);
        let (counted, counters) = self.files.get(host).cloned().unwrap_or_default();
        process.exporter.go_on_from(&counters);
        if let Some(real) = &self.tables.real {
            real.show_to(&process.exporter);
        }
        self.lives += 1;
        self.processes.insert(host.to_owned(), process);
        host.clone_into(&mut self.active);
        self.tell(host, Input::Restored { counted })
    }
}

impl Process {
    fn new(config: &Config) -> Process {
        let exporter = Exporter::new(&ExporterSettings {
            labels: LabelLimits {
                max_values: config.labels.max_values,
                max_series_per_family: config.labels.max_series_per_family,
                known_models: config.labels.known_models.clone(),
            },
            version: "case".to_owned(),
            revision: String::new(),
        });
        let pipeline = Pipeline::new(Settings {
            limits: config.limits.clone(),
            hash_key: HASH_KEY,
            is_strict: true,
            has_state_file: true,
        });
        Process {
            pipeline,
            exporter: Arc::new(exporter),
            partitions: BTreeMap::new(),
            partitions_ever: 0,
            flights: Vec::new(),
            is_paused: false,
        }
    }

    fn place(&self, partition: PartitionId) -> Option<Place> {
        let mut all = self.partitions.iter();
        let found = all.find(|(_, held)| held.id == partition);
        found.map(|(place, _)| place.clone())
    }

    /// Its partitions.
    pub fn held(&self) -> Vec<(Place, PartitionId)> {
        let all = self.partitions.iter();
        all.map(|(place, held)| (place.clone(), held.id)).collect()
    }

    /// Lets a partition go.
    pub fn forget(&mut self, place: &Place) -> Option<PartitionId> {
        self.partitions.remove(place).map(|held| held.id)
    }
}

fn headers_of(record: &LogRecord) -> Vec<(&str, Option<&[u8]>)> {
    let headers = record.headers.iter();
    headers
        .map(|(key, value)| (key.as_str(), value.as_deref()))
        .collect()
}
