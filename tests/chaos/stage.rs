//! The real parts of one chaos: brokers, engine, wire, and hosts with a daemon each.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tachograph::clickhouse_sink::{SinkConfig, schema};

use crate::support::daemon::Daemon;
use crate::support::engine::Database;
use crate::support::kafka::{self, Cluster, PATIENCE, Record};
use crate::support::proxy::Proxy;
use crate::support::{mark_real_part, scratch, unique, wait};

pub const PARTITIONS: i32 = 12;
/// Hosts that run all the time; one more comes and goes.
pub const HOSTS: usize = 3;
/// Time for all that takes seconds with three brokers on a loaded machine.
pub const LONG: Duration = Duration::from_secs(180);

const SILENCE_MAX: Duration = Duration::from_secs(3);

/// Every series of a scrape, by its name and labels as written.
pub type Series = BTreeMap<String, f64>;

/// A machine with a state file, on which a daemon runs, or not.
pub struct Host {
    pub name: String,
    pub folder: PathBuf,
    pub config: PathBuf,
    pub daemon: Option<Daemon>,
    /// The last scrape that was taken at rest, or before a kill.
    pub seen: Series,
    /// What lives that ended showed as counted again.
    pub replayed: f64,
    password: String,
}

impl Host {
    /// Where its state file is.
    pub fn state_folder(&self) -> PathBuf {
        self.folder.join("state")
    }

    pub fn start(&mut self) {
        assert!(self.daemon.is_none(), "{} runs", self.name);
        let log = self.folder.join(unique("log"));
        self.daemon = Some(Daemon::start(&self.config, &log, &self.password, &[]));
    }

    pub fn running(&self) -> &Daemon {
        self.daemon.as_ref().expect("the daemon runs")
    }

    /// Scrapes it, and keeps what it shows.
    pub fn scrape(&mut self) -> &Series {
        let (_, text) = self.running().get("/metrics").unwrap_or_default();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pair = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_owned(), value.parse().ok()?))
        };
        let series: Series = lines.filter_map(pair).collect();
        if !series.is_empty() {
            self.seen = series;
        }
        &self.seen
    }

    /// What its lives showed as counted again, as of the last scrape.
    pub fn replayed(&self) -> f64 {
        self.replayed + self.shown("tachograph_facts_replayed_total")
    }

    fn shown(&self, series: &str) -> f64 {
        self.seen.get(series).copied().unwrap_or(0.0)
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.scrape();
        self.ended();
        self.daemon.take().expect("the daemon runs").kill();
    }

    /// An orderly end, which must be one.
    pub fn stop(&mut self) {
        self.scrape();
        self.ended();
        self.daemon.take().expect("the daemon runs").stop();
    }

    fn ended(&mut self) {
        self.replayed = self.replayed();
        self.seen.remove("tachograph_facts_replayed_total");
    }
}

pub struct Stage {
    cluster: Cluster,
    pub topic: String,
    pub proxy: Proxy,
    pub database: Database,
    pub hosts: Vec<Host>,
    /// Records that retention ate so far.
    pub eaten: u64,
}

impl Stage {
    pub fn new() -> Stage {
        let cluster = Cluster::start(3).unwrap_or_else(|reason| panic!("{reason}"));
        mark_real_part("kafka-three");
        let topic = unique("chaos");
        kafka::create_topic_at(&cluster.brokers, &topic, PARTITIONS, &[]);
        kafka::create_topic_at(&cluster.brokers, &letters(&topic), 3, &[]);
        let database = Database::create("chaos");
        apply_schema(&database);
        let proxy = Proxy::start(database.authority());
        let mut stage = Stage {
            cluster,
            topic,
            proxy,
            database,
            hosts: Vec::new(),
            eaten: 0,
        };
        let group = unique("chaos");
        for number in 0..=HOSTS {
            let host = stage.host(number, &group);
            stage.hosts.push(host);
        }
        for host in &mut stage.hosts[..HOSTS] {
            host.start();
        }
        stage.until_ready();
        stage
    }

    fn host(&self, number: usize, group: &str) -> Host {
        let name = format!("host{number}");
        let folder = scratch(&name);
        let config = folder.join("tachograph.toml");
        let state = folder.join("state");
        fs::create_dir(&state).expect("a folder can be made");
        let state = state.join("file");
        let text = format!(
            "[kafka]\nbrokers = \"{}\"\ngroup = \"{group}\"\ntopics = [\"{}\"]\n\
             [kafka.properties]\n\"session.timeout.ms\" = 6000\n\"heartbeat.interval.ms\" = 1000\n\
             \"topic.metadata.refresh.interval.ms\" = 1000\n\
             [clickhouse]\nurl = \"{}\"\ndatabase = \"{}\"\nuser = \"{}\"\n\
             password_env = \"TEST_PASSWORD\"\n[state]\nfile = {state:?}\n\
             [http]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n\
             [labels]\nmax_values = 1000\n\
             [limits]\nbatch_age_max = \"200 ms\"\ndrain_max = \"1 s\"\n\
             commit_interval = \"1500 ms\"\nsilence_max = \"3 s\"\ntool_silence_max = \"3 s\"\n",
            self.brokers(),
            self.topic,
            self.proxy.url(),
            self.database.name,
            self.database.user()
        );
        fs::write(&config, text).expect("the configuration is written");
        Host {
            name,
            folder,
            config,
            daemon: None,
            seen: Series::new(),
            replayed: 0.0,
            password: self.database.password().to_owned(),
        }
    }

    pub fn brokers(&self) -> &str {
        &self.cluster.brokers
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub fn letters(&self) -> String {
        letters(&self.topic)
    }

    /// Those that run, with their numbers.
    pub fn running(&self) -> impl Iterator<Item = (usize, &Host)> {
        let all = self.hosts.iter().enumerate();
        all.filter(|(_, host)| host.daemon.is_some())
    }

    /// Sum of a family over the daemons that run.
    pub fn sum(&self, family: &str) -> u64 {
        let daemons = self.running().map(|(_, host)| host.running());
        daemons.map(|daemon| daemon.metric(family, &[])).sum()
    }

    /// Waits until all that run are ready, and have every partition between them.
    pub fn until_ready(&self) {
        let expected = (PARTITIONS as usize, BTreeMap::new());
        wait::until_eq("owners who are ready", LONG, expected, || {
            let mut partitions = 0;
            let mut reasons = BTreeMap::new();
            for (_, host) in self.running() {
                partitions += partitions_of(host.running()).map_or(0, |own| own.len());
                match host.running().get("/healthz/ready") {
                    Some((200, _)) => {}
                    Some((_, text)) => drop(reasons.insert(host.name.clone(), text)),
                    None => drop(reasons.insert(host.name.clone(), "no answer".to_owned())),
                }
            }
            (partitions, reasons)
        });
    }

    /// All hosts run, log time passes every deadline, and nothing is left to be done.
    pub fn come_to_rest(&mut self) {
        kafka::until_whole(self.brokers());
        for host in &mut self.hosts {
            // Also the one that came and went: it may have counted.
            if host.daemon.is_none() && !host.seen.is_empty() {
                host.start();
            }
        }
        self.until_ready();
        let ends = self.let_time_pass();
        wait::until("all is read, derived and stored", LONG, || {
            let mut next = BTreeMap::new();
            for (_, host) in self.running() {
                let state = pipeline_of(host.running())?;
                if state["work_in_flight"] != 0 || state["facts_waiting"] != 0 {
                    return None;
                }
                for (partition, state) in partitions_of(host.running())? {
                    if state["segments_held"] != 0 {
                        return None;
                    }
                    next.insert(partition, state["next"].as_i64()?);
                }
            }
            let is_read = |(partition, end): (&i64, &i64)| next.get(partition) > Some(end);
            ends.iter().all(is_read).then_some(())
        });
    }

    /// Waits for `silence_max` after the last record, and makes each partition know.
    fn let_time_pass(&self) -> BTreeMap<i64, i64> {
        let now = || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            now.expect("after 1970")
        };
        let until = now() + SILENCE_MAX + Duration::from_millis(100);
        wait::until("silence", LONG, || (now() > until).then_some(()));
        let tombstone = |partition| {
            let key = Some(b"silence".to_vec());
            Record {
                key,
                ..Record::default()
            }
            .on(partition)
        };
        let tombstones: Vec<Record> = (0..PARTITIONS).map(tombstone).collect();
        let written = kafka::produce_at(self.brokers(), &self.topic, &tombstones);
        let place = |(partition, offset): (i32, i64)| (i64::from(partition), offset);
        written.into_iter().map(place).collect()
    }

    /// Ends every daemon in order.
    pub fn leave(&mut self) {
        for host in &mut self.hosts {
            if host.daemon.is_some() {
                host.stop();
            }
        }
    }
}

fn letters(topic: &str) -> String {
    format!("{topic}.dead-letters")
}

pub fn apply_schema(database: &Database) {
    let sink = sink_config(database);
    schema::apply_blocking(&sink).expect("the schema is applied");
}

pub fn sink_config(database: &Database) -> SinkConfig {
    let (url, name) = (database.url(), database.name.clone());
    SinkConfig::new(url, name, database.user(), database.password())
}

/// What `/debug/pipeline` says.
fn pipeline_of(daemon: &Daemon) -> Option<serde_json::Value> {
    let (_, text) = daemon.get("/debug/pipeline")?;
    serde_json::from_str(&text).ok()
}

/// The partitions that a daemon has, by number.
pub fn partitions_of(daemon: &Daemon) -> Option<BTreeMap<i64, serde_json::Value>> {
    let state = pipeline_of(daemon)?;
    let own = |one: &serde_json::Value| Some((one["partition"].as_i64()?, one.clone()));
    state["partitions"].as_array()?.iter().map(own).collect()
}

/// Waits until a family of one daemon says so.
pub fn until_metric(daemon: &Daemon, family: &str, expected: u64) {
    wait::until_eq(family, PATIENCE, expected, || daemon.metric(family, &[]));
}
