//! The built daemon from a real broker to the real engine, beside a consumer that only counts bytes.
//!
//! The topic is filled before. The counter shows what broker, network and librdkafka give on this
//! machine at this hour; the daemon is judged by the ratio. Both are told in wall time and in time
//! on the core, of which only the latter means something on a machine that does other work.
//! `EVENTS=1000000` changes the number of records.
#![cfg(feature = "demo")]

#[path = "stream.rs"]
mod stream;
#[path = "../support/mod.rs"]
mod support;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use stream::Shape;
use support::engine::Database;
use support::kafka::{self, PATIENCE, Record};
use support::{scratch, tail, unique, wait};
use tachograph::embedded::http::{self, Request};

/// Bound on reading everything once.
const READ_MAX: Duration = Duration::from_secs(600);
/// Records of one run of [`Shape::USUAL`].
const RECORDS_A_RUN: u64 = 17;
/// Of the kernel's clock, in which /proc tells times on the core; fixed on Linux.
const TICKS_A_SECOND: f64 = 100.0;

fn main() {
    let events = std::env::var("EVENTS").map_or(200_000, |text| {
        text.parse().expect("EVENTS is a number of records")
    });
    let runs: u64 = events / RECORDS_A_RUN;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = since_1970.expect("after 1970").as_millis() as i64;
    let payloads = stream::lifecycle(now_ms, runs, 500, Shape::USUAL);
    let (count, bytes) = (payloads.len(), payloads.iter().map(Vec::len).sum::<usize>());
    let topic = kafka::create_topic("end_to_end", 1, &[]);
    let records: Vec<Record> = payloads.into_iter().map(|p| Record::new("k", p)).collect();
    // Some thousands at a time: the producer waits for the reports of each call.
    for part in records.chunks(20_000) {
        kafka::produce(&topic, part);
    }
    println!(
        "{count} records of {} bytes on one partition",
        bytes / count
    );
    let before = count_bytes(&topic, bytes);
    let daemon = run_daemon(&topic, count, runs);
    let after = count_bytes(&topic, bytes);
    let counter = if after.wall < before.wall {
        after
    } else {
        before
    };
    for (name, cost) in [("byte counter", counter), ("tachograph", daemon)] {
        println!(
            "{name:12} {:9.0} records/s, {:5.2} µs on the core a record",
            count as f64 / cost.wall.as_secs_f64(),
            cost.core.as_secs_f64() * 1e6 / count as f64
        );
    }
    println!(
        "ratio        {:9.2} in wall time, {:.2} on the core",
        daemon.wall.as_secs_f64() / counter.wall.as_secs_f64(),
        daemon.core.as_secs_f64() / counter.core.as_secs_f64()
    );
}

/// What reading the topic once took.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    /// All threads together.
    core: Duration,
}

/// Time on the core of a process so far.
fn core_time(process: &str) -> Duration {
    let text = fs::read_to_string(Path::new("/proc").join(process).join("stat"));
    let text = text.expect("the process lives");
    // The second field is a name in parentheses; user and system time are the 14th and the 15th.
    let after_name = text.rsplit(") ").next().unwrap_or_default();
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number of ticks");
    Duration::from_secs_f64((ticks(11) + ticks(12)) / TICKS_A_SECOND)
}

fn count_bytes(topic: &str, expected: usize) -> Cost {
    let consumer: BaseConsumer = kafka::client_config(kafka::brokers())
        .set("group.id", unique("counter"))
        .set("enable.auto.commit", "false")
        .set("fetch.queue.backoff.ms", "10")
        .create()
        .expect("a consumer can be made");
    let mut partitions = TopicPartitionList::new();
    partitions
        .add_partition_offset(topic, 0, Offset::Beginning)
        .expect("the first offset is one");
    consumer.assign(&partitions).expect("the partition exists");
    let mut bytes = 0;
    let mut begun = None;
    let limit = Instant::now() + READ_MAX;
    while bytes < expected {
        assert!(Instant::now() < limit, "{bytes} of {expected} bytes came");
        let Some(message) = consumer.poll(Duration::from_millis(100)) else {
            continue;
        };
        let message = message.expect("the broker answers");
        begun.get_or_insert_with(|| (Instant::now(), core_time("self")));
        bytes += message.payload().map_or(0, <[u8]>::len);
    }
    let (wall, core) = begun.expect("a record came");
    Cost {
        wall: wall.elapsed(),
        core: core_time("self") - core,
    }
}

/// From the first record read to the last row in ClickHouse.
fn run_daemon(topic: &str, records: usize, runs: u64) -> Cost {
    let database = Database::create("end_to_end");
    let folder = scratch("end_to_end");
    let config = folder.join("tachograph.toml");
    let text = format!(
        "[kafka]\nbrokers = \"{}\"\ngroup = \"{}\"\ntopics = [\"{topic}\"]\n\
         [clickhouse]\nurl = \"{}\"\ndatabase = \"{}\"\nuser = \"{}\"\n\
         password_env = \"TEST_PASSWORD\"\n\
         [http]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n",
        kafka::brokers(),
        unique("end_to_end"),
        database.url(),
        database.name,
        database.user()
    );
    fs::write(&config, text).expect("the configuration is written");
    let log = folder.join("log");
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tachograph"));
        command.args(arguments).arg("--config").arg(&config);
        command.env("TEST_PASSWORD", database.password());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    };
    let applied = command(&["schema", "apply"]).status();
    assert!(
        applied.expect("the binary starts").success(),
        "schema apply"
    );
    let errors = File::create(&log).expect("a log file can be made");
    let child = command(&["run"]).stderr(errors).spawn();
    let daemon = Daemon(child.expect("the binary starts"));
    let authority = wait::until("it listens", PATIENCE, || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let line = text.lines().find(|line| line.contains("\"listening\""))?;
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(line["address"].as_str()?.to_owned())
    });
    let process = daemon.0.id().to_string();
    wait::until("the first record is read", PATIENCE, || {
        (metric(&authority, "tachograph_records_read_total") > 0.0).then_some(())
    });
    let (wall, core) = (Instant::now(), core_time(&process));
    // What was read before the first look; at most 20 ms of reading.
    let read = metric(&authority, "tachograph_records_read_total");
    // An invocation's row follows from its last record.
    let ended = format!(
        "SELECT uniqExact(invocation_id) FROM `{}`.invocations",
        database.name
    );
    let limit = Instant::now() + READ_MAX;
    loop {
        let rows: u64 = database.query(&ended).trim().parse().unwrap_or(0);
        if rows >= runs {
            break;
        }
        let is_late = Instant::now() > limit;
        assert!(!is_late, "{rows} of {runs} invocations\n{}", tail(&log, 20));
        std::thread::sleep(Duration::from_millis(50));
    }
    let share = records as f64 / (records as f64 - read).max(1.0);
    Cost {
        wall: wall.elapsed().mul_f64(share),
        core: (core_time(&process) - core).mul_f64(share),
    }
}

/// Killed when dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself, which the measurement has noticed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sum of every series of a family.
fn metric(authority: &str, family: &str) -> f64 {
    let request = Request::get("/metrics", Duration::from_secs(10));
    let Ok(answer) = http::exchange(authority, &request) else {
        return 0.0;
    };
    let text = answer.text();
    let ours = text.lines().filter(|line| {
        let rest = line.strip_prefix(family);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    });
    ours.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}
