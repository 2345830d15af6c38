//! The whole daemon: a real broker, a real ClickHouse, the built binary, and exact sums.
//!
//! Every test ends with the same question: are rows and counters what the records say, whatever
//! happened on the way? Nothing here looks inside the process.
#![cfg(feature = "demo")]

#[path = "daemon/hostile.rs"]
mod hostile;
#[path = "daemon/membership.rs"]
mod membership;
#[path = "daemon/planted.rs"]
mod planted;
#[path = "daemon/questions.rs"]
mod questions;
#[path = "daemon/secrets.rs"]
mod secrets;
#[path = "daemon/state.rs"]
mod state;
mod support;
#[path = "daemon/topics.rs"]
mod topics;
#[path = "daemon/transactions.rs"]
mod transactions;
#[path = "daemon/verdicts.rs"]
mod verdicts;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use support::daemon::Daemon;
use support::engine::{Database, start_own};
use support::kafka::{self, PATIENCE, Record, brokers};
use support::prometheus::{Prometheus, Target, check_metrics};
use support::{scratch, unique, wait};
use tachograph::clickhouse_sink::{SinkConfig, schema};
use tachograph::embedded::engine::Engine;
use tachograph::embedded::http::{self, Request};

const INVOCATIONS: usize = 60;
const CALLS: usize = 4;
const PARTITIONS: i32 = 4;

/// What ClickHouse, or the counters, say about all model calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    calls: u64,
    input: u64,
    output: u64,
}

impl std::ops::Add for Sums {
    type Output = Sums;

    fn add(self, other: Sums) -> Sums {
        Sums {
            calls: self.calls + other.calls,
            input: self.input + other.input,
            output: self.output + other.output,
        }
    }
}

/// Invocations that run side by side: `invocations` times `CALLS` model calls with usage, each
/// record on its invocation's partition, step by step over all of them.
fn workload(name: &str, invocations: usize) -> (Vec<Record>, Sums) {
    let started = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let mut at_ns = u64::try_from(started.as_nanos()).expect("before 2554");
    let mut records = Vec::new();
    let mut sums = Sums::default();
    let mut seq = 0;
    let mut say = |invocation: usize, kind: &str, fields: String| {
        at_ns += 100_000;
        seq += 1;
        let id = format!("{name}-{invocation}");
        let line = format!(
            "{{\"v\":1,\"kind\":\"{kind}\",\"at\":{at_ns},\"record_id\":\"{name}-{seq}\",\
             \"seq\":{seq},\"emitter\":{{\"name\":\"test\",\"version\":\"1\",\
             \"instance\":\"{name}\"}},\"app\":\"shop\",\"session_id\":\"s-{id}\",\
             \"invocation_id\":\"{id}\",\"run_id\":\"r-{id}\",\"agent\":\"desk\"{fields}}}"
        );
        let partition = i32::try_from(invocation).expect("few") % PARTITIONS;
        records.push(Record::new(&id, line).on(partition));
    };
    for i in 0..invocations {
        say(i, "run.start", ",\"root_agent\":\"desk\"".to_owned());
    }
    for call in 0..CALLS {
        let id = format!(",\"call_id\":\"c{call}\"");
        for i in 0..invocations {
            say(
                i,
                "model.start",
                format!("{id},\"model\":\"m-1\",\"streaming\":true"),
            );
        }
        for i in 0..invocations {
            say(i, "model.chunk", format!("{id},\"content\":\"text\""));
        }
        for i in 0..invocations {
            let (input, output) = (40 + i as u64, 7 + call as u64);
            sums = sums
                + Sums {
                    calls: 1,
                    input,
                    output,
                };
            let usage = format!(
                "\"promptTokenCount\":{input},\"candidatesTokenCount\":{output},\
                 \"totalTokenCount\":{}",
                input + output
            );
            let end = format!("{id},\"model\":\"m-1\",\"usage\":{{{usage}}}");
            say(i, "model.end", format!("{end},\"finish_reason\":\"STOP\""));
        }
    }
    for i in 0..invocations {
        say(i, "run.end", ",\"status\":\"completed\"".to_owned());
    }
    (records, sums)
}

/// Where a test's ClickHouse is.
#[derive(Clone)]
struct Login {
    url: String,
    database: String,
    user: String,
    password: String,
}

impl Login {
    fn of(database: &Database) -> Login {
        Login {
            url: database.url(),
            database: database.name.clone(),
            user: database.user().to_owned(),
            password: database.password().to_owned(),
        }
    }

    fn apply_schema(&self) {
        let sink = SinkConfig::new(&*self.url, &*self.database, &*self.user, &*self.password);
        schema::apply_blocking(&sink).expect("the schema is applied");
    }
}

/// One test's topic, group and configuration file.
struct Stage {
    topic: String,
    folder: PathBuf,
    config: PathBuf,
    password: String,
}

impl Stage {
    fn new(name: &str, login: &Login) -> Stage {
        let topic = kafka::create_topic(name, PARTITIONS, &[]);
        Stage::on(name, login, topic)
    }

    fn on(name: &str, login: &Login, topic: String) -> Stage {
        let folder = scratch(name);
        let config = folder.join("tachograph.toml");
        let text = format!(
            "[kafka]\nbrokers = \"{}\"\ngroup = \"{}\"\ntopics = [\"{topic}\"]\n\
             [kafka.properties]\n\"session.timeout.ms\" = 6000\n\"heartbeat.interval.ms\" = 1000\n\
             \"topic.metadata.refresh.interval.ms\" = 1000\n\
             [clickhouse]\nurl = \"{}\"\ndatabase = \"{}\"\nuser = \"{}\"\n\
             password_env = \"TEST_PASSWORD\"\n\
             [http]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n\
             [limits]\nbatch_age_max = \"200 ms\"\ndrain_max = \"1 s\"\n\
             commit_interval = \"1500 ms\"\n",
            brokers(),
            unique(name),
            login.url,
            login.database,
            login.user
        );
        fs::write(&config, text).expect("the configuration is written");
        Stage {
            topic,
            folder,
            config,
            password: login.password.clone(),
        }
    }

    /// Changes the configuration file.
    fn replace(&self, old: &str, new: &str) {
        let text = fs::read_to_string(&self.config).expect("it was written");
        assert!(text.contains(old), "{old} in {text}");
        fs::write(&self.config, text.replacen(old, new, 1)).expect("it can be written");
    }

    fn start(&self) -> Daemon {
        self.start_with(&[])
    }

    fn start_with(&self, more: &[&str]) -> Daemon {
        let log = self.folder.join(unique("log"));
        Daemon::start(&self.config, &log, &self.password, more)
    }

    fn spawn(&self) -> Daemon {
        let log = self.folder.join(unique("log"));
        Daemon::spawn(&self.config, &log, &self.password, &[])
    }
}

/// How many of the records end a model call.
fn ends_of_calls(records: &[Record]) -> u64 {
    let is_end = |record: &&Record| {
        let value = record.value.as_deref().unwrap_or_default();
        String::from_utf8_lossy(value).contains("\"model.end\"")
    };
    records.iter().filter(is_end).count() as u64
}

const SUMS: &str = "SELECT count(), sum(input_total), sum(output_total) FROM v_model_calls";

fn counted(daemon: &Daemon) -> Sums {
    let tokens = |class| daemon.metric("tachograph_tokens_total", &[class]);
    Sums {
        calls: daemon.metric("tachograph_model_calls_total", &["status=\"ok\""]),
        input: tokens("token_class=\"input_uncached\""),
        output: tokens("token_class=\"answer\""),
    }
}

fn sums_of(row: &[String]) -> Sums {
    let number = |text: &String| text.parse().unwrap_or(0);
    let numbers: Vec<u64> = row.iter().map(number).collect();
    Sums {
        calls: numbers[0],
        input: numbers[1],
        output: numbers[2],
    }
}

fn stored(database: &Database) -> Sums {
    sums_of(&database.rows(SUMS)[0])
}

fn invocations_completed(database: &Database) -> u64 {
    let sql = "SELECT count() FROM v_invocations WHERE status = 'completed'";
    database.rows(sql)[0][0].parse().expect("a count")
}

fn until_stored(database: &Database, expected: Sums) {
    wait::until_eq("rows", PATIENCE, expected, || stored(database));
}

fn until_read(daemons: &[&Daemon], records: usize) {
    let read = |daemon: &&Daemon| daemon.metric("tachograph_records_read_total", &[]);
    wait::until_eq("records read", PATIENCE, records as u64, || {
        daemons.iter().map(read).sum()
    });
}

/// Waits until every run left memory and everything derived is stored.
fn until_settled(daemon: &Daemon, records: usize) {
    until_read(&[daemon], records);
    wait::until_eq("no run is held", PATIENCE, 0, || {
        daemon.metric("tachograph_segments_held", &[])
    });
    wait::until("every fact is a row", PATIENCE, || {
        let (_, text) = daemon.get("/debug/pipeline")?;
        let state: serde_json::Value = serde_json::from_str(&text).ok()?;
        let is_idle = state["work_in_flight"] == 0 && state["facts_waiting"] == 0;
        is_idle.then_some(())
    });
}

fn database(name: &str) -> (Database, Login) {
    let database = Database::create(name);
    let login = Login::of(&database);
    login.apply_schema();
    (database, login)
}

#[test]
fn what_was_said_is_stored_and_counted() {
    let (database, login) = database("whole");
    let stage = Stage::new("whole", &login);
    let daemon = stage.start();
    daemon.until_ready();
    let (records, sums) = workload("w", INVOCATIONS);
    kafka::produce(&stage.topic, &records);
    until_stored(&database, sums);
    wait::until_eq("invocations", PATIENCE, INVOCATIONS as u64, || {
        invocations_completed(&database)
    });
    assert_eq!(counted(&daemon), sums);
    let applied = daemon.metric("tachograph_records_total", &["outcome=\"applied\""]);
    assert_eq!(applied, records.len() as u64);
    wait::until_eq("no lag", PATIENCE, 0, || {
        daemon.metric("tachograph_lag_records", &[])
    });
    wait::until("a commit", PATIENCE, || {
        (daemon.metric("tachograph_commits_total", &["result=\"ok\""]) > 0).then_some(())
    });
    scraped(&daemon, sums);
    daemon.stop();
}

/// A real Prometheus scrapes the daemon and finds the same sums; promtool has nothing to say.
fn scraped(daemon: &Daemon, sums: Sums) {
    let prometheus = Prometheus::start(&[Target::new("tachograph", &daemon.authority)]);
    prometheus.wait_up("tachograph");
    wait::until_eq(
        "calls, as scraped",
        PATIENCE,
        Some(sums.calls as f64),
        || prometheus.value("sum(tachograph_model_calls_total)"),
    );
    let (_, text) = daemon.get("/metrics").expect("the daemon answers");
    check_metrics(&text);
}

#[test]
fn an_orderly_restart_in_the_middle_counts_nothing_twice() {
    let (database, login) = database("restart");
    let stage = Stage::new("restart", &login);
    let (records, sums) = workload("r", INVOCATIONS);
    let (before, after) = records.split_at(records.len() / 2);

    let first = stage.start();
    first.until_ready();
    kafka::produce(&stage.topic, before);
    until_read(&[&first], before.len());
    // The counters of the first half: nothing moves any more.
    let share = counted(&first);
    first.stop();
    let second = stage.start();
    second.until_ready();
    kafka::produce(&stage.topic, after);
    until_stored(&database, sums);
    wait::until_eq("counters", PATIENCE, sums, || share + counted(&second));
    assert_eq!(second.metric("tachograph_facts_replayed_total", &[]), 0);
    wait::until_eq("invocations", PATIENCE, INVOCATIONS as u64, || {
        invocations_completed(&database)
    });
    second.stop();
}

#[test]
fn a_rebalance_in_the_middle_counts_nothing_twice() {
    let (database, login) = database("two");
    let stage = Stage::new("two", &login);
    let (records, sums) = workload("t", INVOCATIONS);
    let third = records.len() / 3;

    let first = stage.start();
    first.until_ready();
    kafka::produce(&stage.topic, &records[..third]);
    until_read(&[&first], third);
    let second = stage.start();
    second.until_ready();
    wait::until("the second has partitions", PATIENCE, || {
        let (_, text) = second.get("/metrics")?;
        text.contains("tachograph_log_time_seconds{").then_some(())
    });
    kafka::produce(&stage.topic, &records[third..2 * third]);
    let ends = ends_of_calls(&records[..2 * third]);
    wait::until_eq("calls", PATIENCE, ends, || {
        counted(&first).calls + counted(&second).calls
    });
    let share = counted(&second);
    second.stop();
    kafka::produce(&stage.topic, &records[2 * third..]);
    until_stored(&database, sums);
    wait::until_eq("counters", PATIENCE, sums, || share + counted(&first));
    first.stop();
}

#[test]
fn a_crash_in_the_middle_leaves_rows_exact() {
    let (database, login) = database("crash");
    let stage = Stage::new("crash", &login);
    let (records, sums) = workload("c", INVOCATIONS);
    let (before, after) = records.split_at(records.len() / 2);
    let first = stage.start();
    first.until_ready();
    kafka::produce(&stage.topic, before);
    until_read(&[&first], before.len());
    first.kill();
    kafka::produce(&stage.topic, after);
    let second = stage.start();
    until_stored(&database, sums);
    wait::until_eq("invocations", PATIENCE, INVOCATIONS as u64, || {
        invocations_completed(&database)
    });
    second.until_ready();
    assert_eq!(stored(&database), sums, "and stays so");
    second.stop();
}

/// As [`stored`], on an engine of the test's own; `None` while it does not answer.
fn stored_at(engine: &Engine, login: &Login) -> Option<Sums> {
    let authority = format!("127.0.0.1:{}", engine.port());
    let target = format!("/?database={}", login.database);
    let headers = [
        ("X-ClickHouse-User", login.user.as_str()),
        ("X-ClickHouse-Key", login.password.as_str()),
    ];
    let request = Request {
        method: "POST",
        target: &target,
        headers: &headers,
        body: SUMS.as_bytes(),
        timeout: PATIENCE,
    };
    let answer = http::exchange(&authority, &request).ok()?;
    let text = answer.text();
    let row: Vec<String> = text.trim().split('\t').map(str::to_owned).collect();
    (answer.status == 200 && row.len() == 3).then(|| sums_of(&row))
}

#[test]
fn clickhouse_away_for_a_while_delays_and_loses_nothing() {
    let folder = scratch("away-engine");
    let mut engine = start_own(&folder, 0).expect("an engine");
    let port = engine.port();
    let login = Login {
        url: engine.url(),
        database: "tachograph".to_owned(),
        user: engine.user().to_owned(),
        password: engine.password().to_owned(),
    };
    login.apply_schema();
    let stage = Stage::new("away", &login);
    let daemon = stage.start();
    daemon.until_ready();
    let (records, sums) = workload("a", INVOCATIONS);
    let (before, after) = records.split_at(records.len() / 2);
    kafka::produce(&stage.topic, before);
    until_read(&[&daemon], before.len());
    engine.stop();
    kafka::produce(&stage.topic, after);
    daemon.until_unready_for("clickhouse");
    // What was derived is seen meanwhile; what fits into the batches in flight is read.
    wait::until("counters move on", PATIENCE, || {
        (counted(&daemon) == sums).then_some(())
    });
    let engine = start_own(&folder, port).expect("the engine again");
    wait::until_eq("rows", PATIENCE, Some(sums), || stored_at(&engine, &login));
    daemon.until_ready();
    assert_eq!(counted(&daemon), sums);
    daemon.stop();
}

#[test]
fn poison_goes_to_the_dead_letters_and_nothing_else_does() {
    let (database, login) = database("poison");
    let stage = Stage::new("poison", &login);
    let letters = format!("{}.dead-letters", stage.topic);
    let (mut records, sums) = workload("p", 20);
    let poison = [
        "{\"v\":1,\"kind\":",
        "not json",
        "{\"no\":\"envelope\"}",
        "[1,2",
    ];
    for (index, text) in poison.iter().enumerate() {
        records.insert(10 + 40 * index, Record::new("k", *text).on(1));
    }
    records.insert(
        5,
        Record {
            value: None,
            ..Record::new("k", "").on(2)
        },
    );
    let daemon = stage.start();
    daemon.until_ready();
    kafka::produce(&stage.topic, &records);
    // The topic is not there yet: offsets are held, and the daemon says why.
    daemon.until_unready_for("dead_letters");
    kafka::create_topic_at(brokers(), &letters, 1, &[]);
    until_stored(&database, sums);
    assert_eq!(counted(&daemon), sums);
    let outcome = |word: &str| {
        let label = format!("outcome=\"{word}\"");
        daemon.metric("tachograph_records_total", &[label.as_str()])
    };
    assert_eq!((outcome("dead_lettered"), outcome("tombstone")), (4, 1));
    daemon.until_ready();
    wait::until_eq("letters", PATIENCE, poison.len(), || letters_of(&letters));
    daemon.stop();
    assert_eq!(letters_of(&letters), poison.len(), "each once");
}

fn letters_of(topic: &str) -> usize {
    let (low, high) = kafka::ends(brokers(), topic);
    usize::try_from(high - low).expect("a count")
}

#[test]
fn a_topic_and_a_schema_that_come_later_are_waited_for() {
    let database = Database::create("late");
    let login = Login::of(&database);
    let topic = unique("late");
    let stage = Stage::on("late", &login, topic.clone());
    let daemon = stage.start();
    daemon.until_unready_for("schema apply");
    daemon.until_unready_for(&topic);
    let live = daemon.get("/healthz/live").map(|(status, _)| status);
    assert_eq!(live, Some(200), "unready is not dead");
    kafka::create_topic_at(brokers(), &topic, PARTITIONS, &[]);
    login.apply_schema();
    let (records, sums) = workload("l", 8);
    kafka::produce(&topic, &records);
    until_stored(&database, sums);
    daemon.until_ready();
    daemon.stop();
}

#[test]
fn a_refused_login_is_77_and_says_whose() {
    let (_database, mut login) = database("login");
    login.password = "wrong".to_owned();
    let stage = Stage::new("login", &login);
    let mut daemon = stage.start();
    let status = daemon.end();
    let said = fs::read_to_string(&daemon.log).expect("a log");
    assert_eq!(status.code(), Some(77), "{said}");
    assert!(
        said.contains(&login.user) && said.contains(&login.url),
        "{said}"
    );
    assert!(said.contains("check clickhouse.user"), "{said}");
}

#[test]
fn it_says_what_it_does_and_nothing_of_what_was_said() {
    let (database, login) = database("quiet");
    let stage = Stage::new("quiet", &login);
    let daemon = stage.start();
    daemon.until_ready();
    let (records, sums) = workload("q", 20);
    kafka::produce(&stage.topic, &records);
    until_stored(&database, sums);
    let log = daemon.log.clone();
    daemon.stop();
    let text = fs::read_to_string(log).expect("a log");
    let mut levels: BTreeMap<String, usize> = BTreeMap::new();
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        *levels.entry(line["level"].to_string()).or_default() += 1;
    }
    assert_eq!(levels.len(), 1, "only INFO where all is well: {text}");
    assert!(text.lines().count() < 20, "{text}");
    assert!(!text.contains(&stage.password) || stage.password.is_empty());
}
