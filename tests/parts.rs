//! Each real part on its own: what the other tests and the demo rely on, and nothing of ours.

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::{Offset, TopicPartitionList};
use tachograph::embedded::engine::{Engine, EngineError, EngineOptions};
use tachograph::embedded::http::{self, Answer, Request};

use support::engine::Database;
use support::kafka::Record;
use support::prometheus::{Prometheus, Target};
use support::wait;

const PATIENCE: Duration = Duration::from_secs(60);

/// One statement over HTTP as `user`.
fn ask(engine: &Engine, user: &str, password: &str, sql: &str) -> Answer {
    let headers = [("X-ClickHouse-User", user), ("X-ClickHouse-Key", password)];
    let body = sql.as_bytes();
    let request = Request {
        method: "POST",
        target: "/",
        headers: &headers,
        body,
        timeout: PATIENCE,
    };
    http::exchange(&format!("127.0.0.1:{}", engine.port()), &request).unwrap()
}

fn code(answer: &Answer) -> &str {
    answer
        .header("x-clickhouse-exception-code")
        .unwrap_or("none")
}

/// The engine's local session needs a user without a password, and `file()` is not confined here:
/// without the lock-down any local user could read this user's files.
fn assert_locked_down(engine: &Engine) {
    for sql in [
        "SELECT * FROM file('/etc/passwd', 'LineAsString', 'line String')",
        "SYSTEM START LISTEN TCP",
    ] {
        let answer = ask(engine, "default", "", sql);
        assert_eq!(code(&answer), "201", "{sql}: {}", answer.text());
        assert!(!answer.text().contains("root:"), "{}", answer.text());
    }
    let refused = ask(engine, engine.user(), "wrong", "SELECT 1");
    assert_eq!(code(&refused), "516", "{}", refused.text());
    let admitted = ask(
        engine,
        engine.user(),
        engine.password(),
        "SELECT currentUser()",
    );
    assert_eq!(
        (admitted.status, admitted.text()),
        (200, "daemon\n".to_owned())
    );
}

#[test]
fn the_engine_is_locked_down() {
    let dir = support::scratch("lockdown");
    let engine = support::engine::start_own(&dir, 0).unwrap();
    assert_locked_down(&engine);
    assert!(!format!("{engine:?}").contains(engine.password()));
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(engine.password_file()), 0o600);
    assert_eq!(mode(dir.join("users.xml")), 0o600);
    let files = [
        dir.join("users.xml"),
        dir.join("config.xml"),
        dir.join("engine.log"),
    ];
    for file in files {
        assert!(
            !fs::read_to_string(file)
                .unwrap()
                .contains(engine.password())
        );
    }
}

#[test]
fn a_killed_engine_comes_back_on_its_port_with_its_rows() {
    let mut engine = support::engine::start_own(&support::scratch("killed"), 0).unwrap();
    engine.supervise().unwrap();
    engine
        .query("CREATE TABLE tachograph.t (n UInt64) ENGINE = MergeTree ORDER BY n")
        .unwrap();
    for round in 1..=3 {
        let (port, pid) = (engine.port(), engine.pid().unwrap());
        engine
            .query(&format!("INSERT INTO tachograph.t VALUES ({round})"))
            .unwrap();
        engine.kill().unwrap();
        wait::until_eq("the engine is started again", PATIENCE, round, || {
            engine.restarts()
        });
        assert_eq!(engine.port(), port);
        assert_ne!(engine.pid().unwrap(), pid);
        let count = engine.query("SELECT count() FROM tachograph.t").unwrap();
        assert_eq!(count, format!("{round}\n"));
    }
    assert_locked_down(&engine);
}

#[test]
fn a_stray_byte_costs_one_restart_and_no_row() {
    use std::io::Write as _;
    let mut engine = support::engine::start_own(&support::scratch("stray"), 0).unwrap();
    engine.supervise().unwrap();
    engine
        .query("CREATE TABLE tachograph.t ENGINE = MergeTree ORDER BY n AS SELECT 7 AS n")
        .unwrap();
    let mut stray = std::net::TcpStream::connect(("127.0.0.1", engine.port())).unwrap();
    stray.write_all(b"F").unwrap();
    drop(stray);
    wait::until_eq("the engine is started again", PATIENCE, 1, || {
        engine.restarts()
    });
    assert_eq!(engine.query("SELECT n FROM tachograph.t").unwrap(), "7\n");
}

#[test]
fn an_engine_stopped_and_started_again_keeps_rows_and_password() {
    let dir = support::scratch("again");
    let mut engine = support::engine::start_own(&dir, 0).unwrap();
    engine.supervise().unwrap();
    let (port, password) = (engine.port(), engine.password().to_owned());
    engine
        .query("CREATE TABLE tachograph.t ENGINE = MergeTree ORDER BY n AS SELECT 7 AS n")
        .unwrap();
    let in_use = support::engine::start_own(&dir, 0).unwrap_err();
    assert!(
        matches!(in_use, EngineError::EndedBeforeReady { .. }),
        "{in_use}"
    );
    engine.stop();
    assert_eq!((engine.pid(), engine.restarts()), (None, 0));
    let engine = support::engine::start_own(&dir, port).unwrap();
    assert_eq!(
        (engine.port(), engine.password()),
        (port, password.as_str())
    );
    assert_eq!(engine.query("SELECT n FROM tachograph.t").unwrap(), "7\n");
}

/// The processes that `pid` started and that still live.
fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| numbers(&list)).collect()
}

fn numbers(list: &str) -> Vec<u32> {
    list.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

#[test]
fn the_command_ends_its_engine_in_order_and_when_killed() {
    let dir = support::scratch("command");
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let mut owner = Command::new(env!("CARGO_BIN_EXE_tachograph"))
            .args(["clickhouse", "--port", "0", "--dir"])
            .arg(&dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = String::new();
        let mut lines = BufReader::new(owner.stdout.take().unwrap());
        while !told.contains("password") {
            assert_ne!(lines.read_line(&mut told).unwrap(), 0, "it ended: {told}");
        }
        let password = fs::read_to_string(dir.join("password")).unwrap();
        assert!(told.contains("url       http://127.0.0.1:"), "{told}");
        assert!(!told.contains(password.trim()), "the password was printed");
        let engine = children(owner.id());
        assert_eq!(engine.len(), 1);
        // SAFETY: the process is our child and not yet waited for, so its id is its own.
        assert_eq!(unsafe { libc::kill(owner.id() as i32, signal) }, 0);
        let status = owner.wait().unwrap();
        assert_eq!(status.success(), signal == libc::SIGTERM, "{status}");
        wait::until("the engine ends with its owner", PATIENCE, || {
            (!Path::new("/proc").join(engine[0].to_string()).exists()).then_some(())
        });
    }
}

#[test]
fn a_missing_library_names_the_command_that_fetches_it() {
    let mut options = EngineOptions::new(support::scratch("missing"));
    options.library = Some("/nowhere/libchdb.so".into());
    let error = Engine::start(options).unwrap_err().to_string();
    assert!(error.contains("make engine"), "{error}");
}

#[test]
fn each_test_has_a_database_of_its_own() {
    let (one, other) = (Database::create("parts"), Database::create("parts"));
    for (database, value) in [(&one, 1), (&other, 2)] {
        database.query("CREATE TABLE t (n UInt64, d Decimal(38, 12)) ENGINE = Log");
        database.query(&format!("INSERT INTO t VALUES ({value}, 0.1)"));
    }
    assert_eq!(one.rows("SELECT n, d FROM t"), [["1", "0.1"]]);
    let row = &other.json("SELECT n, d FROM t")[0];
    assert_eq!(
        (row["n"].as_str(), row["d"].as_str()),
        (Some("2"), Some("0.1"))
    );
    assert_eq!(one.try_query("SELECT * FROM nothing").unwrap_err().code, 60);
}

#[test]
fn what_is_produced_is_consumed() {
    let topic = support::kafka::create_topic("parts", 3, &[]);
    let records: Vec<Record> = (0..300)
        .map(|n| Record::new(&format!("k{}", n % 7), n.to_string()))
        .collect();
    let places = support::kafka::produce(&topic, &records);

    let consumer: BaseConsumer = support::kafka::client_config(support::kafka::brokers())
        .set("group.id", support::unique("parts"))
        .create()
        .unwrap();
    let mut from_start = TopicPartitionList::new();
    for partition in 0..3 {
        from_start
            .add_partition_offset(&topic, partition, Offset::Beginning)
            .unwrap();
    }
    consumer.assign(&from_start).unwrap();
    let mut seen = std::collections::BTreeMap::new();
    wait::until(
        &format!("300 records\n{}", support::kafka::diagnose()),
        PATIENCE,
        || {
            while let Some(polled) = consumer.poll(Duration::from_millis(100)) {
                let message = polled.unwrap();
                assert!(matches!(
                    message.timestamp(),
                    rdkafka::Timestamp::LogAppendTime(_)
                ));
                let value = String::from_utf8(message.payload().unwrap().to_vec()).unwrap();
                let before = seen.insert((message.partition(), message.offset()), value);
                assert_eq!(before, None);
            }
            (seen.len() == 300).then_some(())
        },
    );
    for (record, place) in records.iter().zip(&places) {
        assert_eq!(
            Some(seen[place].as_bytes()),
            record.value.as_deref(),
            "{place:?}"
        );
    }
}

#[test]
fn prometheus_scrapes_itself() {
    let first = Prometheus::start(&[]);
    let second = Prometheus::start(&[Target::new("other", first.authority())]);
    second.wait_up("other");
    assert_eq!(second.value("count(up)"), Some(1.0));
    let metrics = http::exchange(first.authority(), &Request::get("/metrics", PATIENCE)).unwrap();
    assert!(metrics.text().contains("prometheus_build_info"));
    let (status, words) = support::prometheus::promtool(&["check", "metrics"], "not a metric\n");
    assert_eq!(status.code(), Some(1), "{words}");
    support::prometheus::check_metrics("# HELP a_total A.\n# TYPE a_total counter\na_total 1\n");
    support::prometheus::check_rules("groups: [{name: g, rules: [{record: a:b, expr: up}]}]");
}
