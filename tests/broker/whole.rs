//! `tachograph replay --topic`: what a topic says, without the group and without a trace.

use super::*;
use rdkafka::message::Message as _;
use serde_json::json;
use std::path::Path;
use std::process::{Command, Output};
use support::scratch;
use support::secure::{BOB, Listener, Secure};

fn replay(config: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tachograph"))
        .args(["replay", "--config"])
        .arg(config)
        .args(arguments)
        .env("BOB_PASSWORD", BOB)
        .output()
        .expect("the binary starts")
}

/// What it printed, one line each.
fn facts(config: &Path, arguments: &[&str]) -> Vec<String> {
    let output = replay(config, &[&["--output", "facts"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(str::to_owned).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn config_file(lines: &str) -> std::path::PathBuf {
    let file = scratch("whole").join("tachograph.toml");
    std::fs::write(&file, format!("[kafka]\n{lines}")).expect("it is written");
    file
}

fn plain_config() -> std::path::PathBuf {
    config_file(&format!("brokers = \"{}\"\n", brokers()))
}

/// One step of a run.
fn step(run: &str, step: usize) -> Record {
    let end = json!({"promptTokenCount": 40, "candidatesTokenCount": 2, "totalTokenCount": 42});
    let (kind, more) = [
        ("run.start", json!({})),
        ("model.start", json!({"call_id": "c", "model": "m"})),
        (
            "model.end",
            json!({"call_id": "c", "model": "m", "usage": end}),
        ),
        ("run.end", json!({"status": "completed"})),
    ][step]
        .clone();
    let mut record = json!({"v": 1, "kind": kind, "at": 1_796_037_992 + step, "agent": "desk",
        "record_id": format!("{run}-{step}"), "run_id": run, "invocation_id": run});
    let fields = more.as_object().expect("an object").clone();
    record.as_object_mut().expect("an object").extend(fields);
    Record::new(run, record.to_string())
}

/// Partition, offset and broker's time of each record that a reader of committed transactions sees.
fn dump(topic: &str, partitions: i32, count: usize) -> Vec<(i32, i64, i64, Option<Vec<u8>>)> {
    let consumer: BaseConsumer = kafka::client_config(brokers())
        .set("group.id", "unused")
        .set("isolation.level", "read_committed")
        .create()
        .expect("a consumer can be made");
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition_offset(topic, partition, KafkaOffset::Beginning)
            .expect("an offset");
    }
    consumer.assign(&list).expect("assigned");
    let mut read = Vec::new();
    let started = Instant::now();
    while read.len() < count {
        assert!(started.elapsed() < PATIENCE, "{} of {count}", read.len());
        if let Some(Ok(message)) = consumer.poll(STEP) {
            let at = message.timestamp().to_millis().expect("a time");
            let value = message.payload().map(<[u8]>::to_vec);
            read.push((message.partition(), message.offset(), at, value));
        }
    }
    read
}

/// The same records as a file of wrapped lines.
fn file_of(topic: &str, records: &[(i32, i64, i64, Option<Vec<u8>>)]) -> String {
    let line = |(partition, offset, at, value): &(i32, i64, i64, Option<Vec<u8>>)| {
        let place = json!({"topic": topic, "partition": partition, "offset": offset,
            "timestamp": at});
        match value {
            Some(value) => {
                json!({"_kafka": place, "value_raw": String::from_utf8_lossy(value)}).to_string()
            }
            None => json!({"_kafka": place, "value": null}).to_string(),
        }
    };
    let lines: Vec<String> = records.iter().map(line).collect();
    let file = scratch("dump").join("dump.ndjson");
    std::fs::write(&file, lines.join("\n")).expect("it is written");
    file.to_str().expect("UTF-8").to_owned()
}

const RUNS: usize = 12;

/// Runs over three partitions, a run that is split over two, and what is no record of a run.
fn filled(name: &str) -> (String, usize) {
    let topic = kafka::create_topic(name, 3, &[]);
    let mut records = Vec::new();
    for at in 0..4 {
        for run in 0..RUNS {
            let partition = i32::try_from(run % 3).expect("few");
            records.push(step(&format!("r{run}"), at).on(partition));
        }
    }
    records.insert(7, Record::new("k", "not json").on(0));
    records.insert(
        9,
        Record {
            value: None,
            ..Record::new("k", "")
        }
        .on(1),
    );
    // A few at a time, so that times differ, and records of one time as well.
    for few in records.chunks(RUNS) {
        kafka::produce(&topic, few);
    }
    for (at, partition) in [(0, 0), (1, 2), (2, 0), (3, 2)] {
        kafka::produce(&topic, &[step("split", at).on(partition)]);
    }
    (topic, records.len() + 4)
}

#[test]
fn a_topic_is_its_dump_in_the_order_of_log_time() {
    let (topic, count) = filled("whole");
    let config = plain_config();
    let mut records = dump(&topic, 3, count);
    records.sort_by_key(|(partition, offset, at, _)| (*at, *partition, *offset));
    let file = file_of(&topic, &records);
    let told = facts(&config, &["--topic", &topic]);
    assert_eq!(told, facts(&config, &[&file]));
    assert_eq!(told, facts(&config, &["--topic", &topic]), "and again");
    let calls = told
        .iter()
        .filter(|line| line.contains("\"table\":\"model_calls\""));
    assert_eq!(calls.count(), RUNS + 1, "the split run is one");

    // What the daemon reads is one partition: its rows are the same to the last byte.
    for partition in 0..3 {
        let own = records.iter().filter(|(number, ..)| *number == partition);
        let own: Vec<_> = own.cloned().collect();
        let alone = facts(&config, &[&file_of(&topic, &own)]);
        let alone = alone.iter().filter(|line| !line.contains("\"split\""));
        let alone: BTreeSet<&String> = alone.collect();
        assert_eq!(alone.len(), 4 * RUNS / 3, "{alone:?}");
        for line in alone {
            assert!(told.contains(line), "{line}");
        }
    }

    let output = replay(&config, &["--output", "report", "--topic", &topic]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["counters"]["records"], count);
    assert_eq!(report["counters"]["tombstones"], 1);
    assert_eq!(report["quarantined"][0]["partition"], 0);
    let drawn = replay(&config, &["--output", "timeline", "--topic", &topic]);
    assert!(String::from_utf8_lossy(&drawn.stdout).contains("r11"));
    let group = "tachograph".to_owned();
    assert!(
        !kafka::groups(brokers()).contains(&group),
        "no group was made"
    );
}

#[test]
fn what_was_aborted_or_removed_is_not_read() {
    let topic = kafka::create_topic("aborted", 2, &[]);
    let run = |name: &str| (0..4).map(|at| step(name, at).on(0)).collect::<Vec<_>>();
    kafka::produce(&topic, &run("removed"));
    kafka::delete_records(brokers(), &topic, 0, 4);
    kafka::transact(brokers(), &topic, &run("committed"), true);
    // Nothing but markers and what was aborted lies before the end.
    kafka::transact(brokers(), &topic, &run("aborted"), false);
    let told = facts(&plain_config(), &["--topic", &topic]);
    let runs: BTreeSet<bool> = told.iter().map(|line| line.contains("committed")).collect();
    assert_eq!((told.len(), runs), (4, BTreeSet::from([true])), "{told:?}");
    let empty = kafka::create_topic("empty", 2, &[]);
    assert_eq!(facts(&plain_config(), &["--topic", &empty]).len(), 0);
}

#[test]
fn a_topic_that_cannot_be_read_is_an_exit_code_and_plain_words() {
    let fails = |config: &Path, topic: &str| {
        let output = replay(config, &["--topic", topic]);
        (output.status.code(), said(&output))
    };
    let missing = unique("missing");
    let (code, words) = fails(&plain_config(), &missing);
    assert_eq!(code, Some(69), "{words}");
    assert!(
        words.contains(&missing) && words.contains("there is no topic"),
        "{words}"
    );

    let (code, words) = fails(&config_file("brokers = \"127.0.0.1:9\"\n"), "t");
    assert_eq!(code, Some(69), "{words}");
    assert!(
        words.contains("no broker of 127.0.0.1:9 answers"),
        "{words}"
    );

    let (code, words) = fails(&config_file(""), "t");
    assert_eq!(code, Some(78), "{words}");
    assert!(
        words.contains("kafka.brokers: required and missing"),
        "{words}"
    );

    let both = replay(&plain_config(), &["--topic", "t", "file.ndjson"]);
    assert_eq!(both.status.code(), Some(64), "{}", said(&both));
}

#[test]
fn a_login_or_right_that_is_refused_is_named() {
    let secure = Secure::shared();
    let topic = unique("rights");
    let plain = secure.address(Listener::Plaintext);
    kafka::create_topic_at(&plain, &topic, 1, &[]);
    let login = |password: &str| {
        let address = secure.address(Listener::SaslPlaintext);
        config_file(&format!(
            "brokers = \"{address}\"\nprotocol = \"sasl_plaintext\"\nsasl_mechanism = \"PLAIN\"\n\
             username = \"bob\"\npassword_env = \"{password}\"\n"
        ))
    };
    let refused = replay(&login("PATH"), &["--topic", &topic]);
    let words = said(&refused);
    assert_eq!(refused.status.code(), Some(77), "{words}");
    assert!(
        words.contains("\"bob\" (PLAIN)") && words.contains("kafka.username"),
        "{words}"
    );
    let forbidden = replay(&login("BOB_PASSWORD"), &["--topic", &topic]);
    let words = said(&forbidden);
    assert_eq!(forbidden.status.code(), Some(77), "{words}");
    assert!(
        words.contains(&format!("grant READ on topic {topic}")),
        "{words}"
    );
    // A right to the group is not needed: there is none.
    secure.allow_bob(
        support::secure::Resource::Topic,
        &topic,
        support::secure::AclOperation::RD_KAFKA_ACL_OPERATION_READ,
    );
    kafka::produce_at(&plain, &topic, &[step("r", 0), step("r", 3)]);
    let told = wait::until("the right holds", PATIENCE, || {
        let output = replay(&login("BOB_PASSWORD"), &["--topic", &topic]);
        (output.status.code() == Some(0)).then_some(output)
    });
    assert!(String::from_utf8_lossy(&told.stdout).contains("\"status\":\"completed\""));
}
