//! The sink, the schema and the views against a real ClickHouse.

#[path = "clickhouse/facts.rs"]
mod facts;
mod support;
#[path = "clickhouse/views.rs"]
mod views;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use tachograph::clickhouse_sink::schema::{self, ApplyError};
use tachograph::clickhouse_sink::{
    FailureReason, HealthSnapshot, SchemaState, SinkConfig, SinkError, SinkEvents, SinkHandle,
    Unobserved, probe, row, spawn,
};
use tachograph::core::LogTime;
use tachograph::core::batch::Batch;
use tachograph::core::fact::{Fact, Table};
use tachograph::core::ledger::WorkId;

use facts::{call, one_of_each, usage, with_usage};
use support::engine::{Database, start_own};
use support::proxy::{Mischief, Proxy};
use support::wait;

/// Bound on everything that takes milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);
const DAY_MS: i64 = 86_400_000;

/// A sink with its runtime and the channel back.
struct Rig {
    sink: SinkHandle,
    settled: Receiver<WorkId>,
    runtime: tokio::runtime::Runtime,
    next: u64,
}

impl Rig {
    fn start(config: SinkConfig) -> Rig {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (sender, settled) = sync_channel(config.work_in_flight_max);
        let events = SinkEvents {
            settled: sender,
            wake: Box::new(|| {}),
            observer: Arc::new(Unobserved),
        };
        Rig {
            sink: spawn(runtime.handle(), config, events),
            settled,
            runtime,
            next: 0,
        }
    }

    fn send(&mut self, facts: Vec<Fact>) -> WorkId {
        self.next += 1;
        let work = WorkId(self.next);
        self.sink.send(Batch { work, facts }).unwrap();
        work
    }

    fn settle(&mut self, facts: Vec<Fact>) {
        let work = self.send(facts);
        assert_eq!(self.settled.recv_timeout(PATIENCE), Ok(work));
    }

    fn health(&self) -> HealthSnapshot {
        self.sink.health().snapshot()
    }
}

fn config(database: &Database) -> SinkConfig {
    let mut config = SinkConfig::new(
        database.url(),
        database.name.clone(),
        database.user(),
        database.password(),
    );
    config.look_every = Duration::from_millis(100);
    config.backoff_max = Duration::from_millis(500);
    config
}

/// A database with the schema, and a sink into it.
fn prepared(name: &str) -> (Database, Rig) {
    let database = Database::create(name);
    let config = config(&database);
    schema::apply_blocking(&config).unwrap();
    (database, Rig::start(config))
}

fn cell(database: &Database, select: &str) -> String {
    database.query(select).trim_end().to_owned()
}

#[test]
fn the_schema_is_applied_once_and_every_column_says_what_it_is() {
    let database = Database::create("schema");
    let config = config(&database);
    let missing = schema::check_blocking(&config).unwrap_err().to_string();
    assert!(
        missing.contains("table invocations is missing: run"),
        "{missing}"
    );
    let applied = schema::apply_blocking(&config).unwrap();
    let files = schema::FILES.map(|file| file.name);
    assert_eq!(applied, files);
    assert!(schema::apply_blocking(&config).unwrap().is_empty());
    schema::check_blocking(&config).unwrap();
    let here = format!("database = '{}'", database.name);
    let bare = format!(
        "SELECT table, name FROM system.columns WHERE {here} AND comment = '' AND table IN \
         (SELECT name FROM system.tables WHERE {here} AND engine != 'View')"
    );
    assert_eq!(database.query(&bare), "");
    let bare = format!("SELECT name FROM system.tables WHERE {here} AND comment = ''");
    assert_eq!(database.query(&bare), "");
    for table in Table::ALL {
        let there = format!(
            "SELECT count() FROM system.columns WHERE {here} AND table = '{}'",
            table.as_str()
        );
        assert_eq!(
            cell(&database, &there),
            row::columns(table).len().to_string()
        );
    }
    database.query("ALTER TABLE branches ADD COLUMN of_tomorrow String");
    schema::check_blocking(&config).unwrap();
    database.query("ALTER TABLE branches DROP COLUMN of_tomorrow, DROP COLUMN waiting_ms");
    let missing = schema::check_blocking(&config).unwrap_err().to_string();
    assert!(
        missing.contains("column waiting_ms of table branches is missing: run"),
        "{missing}"
    );
}

#[test]
fn a_database_is_made_and_a_changed_file_is_refused() {
    let database = Database::create("made");
    database.query(&format!("DROP DATABASE `{}` SYNC", database.name));
    let config = config(&database);
    let missing = schema::check_blocking(&config).unwrap_err().to_string();
    assert!(missing.contains("database made_"), "{missing}");
    schema::apply_blocking(&config).unwrap();
    schema::check_blocking(&config).unwrap();
    database.query("INSERT INTO schema_migrations (number, name, checksum) VALUES (1, 'x', 'y')");
    let refused = schema::apply_blocking(&config).unwrap_err();
    assert!(
        matches!(refused, ApplyError::TextDiffers { .. }),
        "{refused}"
    );
}

/// CLK-04.
#[test]
fn a_backfill_of_150_days_is_split_and_never_refused() {
    let (database, mut rig) = prepared("backfill");
    let day = |n: i64| {
        call(&format!("c{n}"), |fact| {
            fact.segment_logged_at = LogTime(facts::TEN * 1_000 - n * DAY_MS);
            with_usage(fact, usage(10, 1));
        })
    };
    rig.settle((0..150).map(day).collect());
    let seen = cell(
        &database,
        "SELECT count(), sum(input_total) FROM v_model_calls",
    );
    assert_eq!(seen, "150\t1500");
    let health = rig.health();
    assert_eq!((health.inserts, health.failures.len()), (2, 0));
}

/// CLK-05: 10,000 rows in a batch are one insert.
#[test]
fn many_rows_are_one_insert() {
    let (database, mut rig) = prepared("many");
    rig.settle(
        (0..10_000)
            .map(|n| call(&format!("c{n}"), |_| {}))
            .collect(),
    );
    assert_eq!(
        cell(&database, "SELECT count() FROM v_model_calls"),
        "10000"
    );
    assert_eq!(rig.health().inserts, 1);
}

/// CLK-01: the rows are there, the answer never came.
#[test]
fn an_insert_that_timed_out_but_was_applied_is_harmless() {
    let database = Database::create("lost");
    let mut config = config(&database);
    schema::apply_blocking(&config).unwrap();
    let proxy = Proxy::start(database.authority());
    config.url = proxy.url();
    config.answer_max = Duration::from_secs(1);
    let mut rig = Rig::start(config);
    proxy.strike(Mischief::Swallow, 2);
    rig.settle(vec![
        call("c1", |fact| with_usage(fact, usage(10, 1))),
        call("c2", |fact| with_usage(fact, usage(20, 2))),
    ]);
    assert_eq!(proxy.struck(), 2);
    assert_eq!(rig.health().failures[&FailureReason::TimeOut], 2);
    let stored = cell(&database, "SELECT count() >= 4 FROM model_calls");
    assert_eq!(stored, "1", "the repeats were written");
    let sums = "SELECT count(), sum(input_total), sum(output_total) FROM v_model_calls";
    assert_eq!(cell(&database, sums), "2\t30\t3");
}

/// CLK-10.
#[test]
fn a_missing_column_is_named_and_waited_for() {
    let (database, mut rig) = prepared("behind");
    rig.settle(vec![call("c1", |_| {})]);
    database.query("ALTER TABLE model_calls DROP COLUMN cache_write_1h");
    let work = rig.send(vec![call("c2", |_| {})]);
    let behind = wait::until("the schema is seen to be behind", PATIENCE, || {
        match rig.health().schema {
            SchemaState::Behind(reason) => Some(reason),
            _ => None,
        }
    });
    assert_eq!(
        behind,
        "the schema is behind: column cache_write_1h of table model_calls is missing: \
         run `tachograph schema apply`"
    );
    assert!(!rig.health().is_up);
    assert!(
        rig.settled.try_recv().is_err(),
        "nothing is settled meanwhile"
    );
    database.query("ALTER TABLE model_calls ADD COLUMN cache_write_1h Nullable(UInt64)");
    assert_eq!(rig.settled.recv_timeout(PATIENCE), Ok(work));
    assert_eq!(rig.health().schema, SchemaState::Current);
    assert!(rig.health().is_up);
    assert_eq!(cell(&database, "SELECT count() FROM v_model_calls"), "2");
}

#[test]
fn a_schema_that_comes_later_is_waited_for() {
    let database = Database::create("later");
    let config = config(&database);
    let mut rig = Rig::start(config.clone());
    let work = rig.send(one_of_each());
    wait::until("the sink says what it waits for", PATIENCE, || {
        matches!(rig.health().schema, SchemaState::Behind(_)).then_some(())
    });
    schema::apply_blocking(&config).unwrap();
    assert_eq!(rig.settled.recv_timeout(PATIENCE), Ok(work));
}

#[test]
fn a_server_that_is_killed_and_comes_back_loses_nothing() {
    let mut engine = start_own(&support::scratch("killed"), 0).unwrap();
    engine.supervise().unwrap();
    let mut config = SinkConfig::new(engine.url(), "tachograph", engine.user(), engine.password());
    config.backoff_max = Duration::from_millis(200);
    schema::apply_blocking(&config).unwrap();
    let mut rig = Rig::start(config);
    for round in 0..6 {
        let key = |n| format!("c{round}-{n}");
        let work = rig.send((0..500).map(|n| call(&key(n), |_| {})).collect());
        if round % 2 == 1 {
            engine.kill().unwrap();
        }
        assert_eq!(rig.settled.recv_timeout(PATIENCE), Ok(work));
    }
    let rows = "SELECT count(), uniqExact(call_key) FROM tachograph.v_model_calls";
    assert_eq!(engine.query(rows).unwrap(), "3000\t3000\n");
    assert_eq!(engine.restarts(), 3);
}

#[test]
fn a_wrong_password_is_told_at_once_and_a_missing_server_is_not_final() {
    let (database, rig) = prepared("login");
    let good = config(&database);
    rig.runtime.block_on(probe(&good)).unwrap();
    let mut wrong = good.clone();
    wrong.password = "hunter2".to_owned();
    let refused = rig.runtime.block_on(probe(&wrong)).unwrap_err();
    assert!(
        matches!(refused, SinkError::LoginRefused { .. }),
        "{refused}"
    );
    assert!(!refused.is_retryable());
    assert!(!refused.chain().contains("hunter2"));
    let mut nowhere = good.clone();
    nowhere.url = "http://127.0.0.1:1".to_owned();
    let error = rig.runtime.block_on(probe(&nowhere)).unwrap_err();
    assert!(error.is_retryable() && error.is_unreachable(), "{error}");
}
