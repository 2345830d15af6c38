//! Encrypted and guarded connections: to a real broker, and to the real ClickHouse behind TLS.
//!
//! What is good must work with records going through, and what is bad must end in words that say
//! what to do.
#![cfg(all(feature = "demo", feature = "tls"))]

#[path = "secure/check.rs"]
mod check;
#[path = "secure/clickhouse.rs"]
mod clickhouse;
mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use support::kafka::{self, PATIENCE, Record};
use support::member::{Member, STEP};
use support::secure::{ALICE, BOB, Listener, Secure, text_of};
use support::unique;
use tachograph::clock::Clock;
use tachograph::config::{Config, Needs};
use tachograph::core::dialect::DeadLetterReason;
use tachograph::core::ledger::WorkId;
use tachograph::core::pipeline::DeadLetter;
use tachograph::core::{Coordinates, LogTime, Offset};
use tachograph::daemon::DaemonError;
use tachograph::kafka_source::{DeadLetters, Source};

const RECORDS: usize = 20;

/// The `[kafka]` of a test; `more` is lines of it.
fn kafka_lines(listener: Listener, topic: &str, more: &str) -> String {
    format!(
        "[kafka]\nbrokers = \"{}\"\ngroup = \"{}\"\ntopics = [\"{topic}\"]\n{more}",
        Secure::shared().address(listener),
        unique("secure")
    )
}

fn config(listener: Listener, topic: &str, more: &str) -> Config {
    let text = kafka_lines(listener, topic, more) + "[clickhouse]\nurl = \"http://127.0.0.1:9\"\n";
    // The password is the name of its variable.
    Config::parse(&text, Needs::Everything, &|name| Some(name.to_owned())).expect("a right file")
}

fn login(protocol: &str, mechanism: &str, user: &str, password: &str) -> String {
    format!(
        "protocol = \"{protocol}\"\nsasl_mechanism = \"{mechanism}\"\nusername = \"{user}\"\n\
         password_env = \"{password}\"\n"
    )
}

/// The line of whom we trust.
fn trusting(path: &Path) -> String {
    format!("ca_file = \"{}\"\n", text_of(path))
}

fn ours() -> String {
    trusting(&Secure::shared().authority.certificate)
}

/// The lines of our own certificate.
fn showing(name: &str) -> String {
    let signed = Secure::shared().authority.signed(name);
    let (certificate, key) = (text_of(&signed.certificate), text_of(&signed.key));
    format!("certificate_file = \"{certificate}\"\nkey_file = \"{key}\"\n")
}

/// A topic with [`RECORDS`] records, and one for its dead letters.
fn topic_with_records(name: &str) -> String {
    let brokers = Secure::shared().address(Listener::Plaintext);
    let topic = unique(name);
    kafka::create_topic_at(&brokers, &topic, 1, &[]);
    kafka::create_topic_at(&brokers, &format!("{topic}.dead-letters"), 1, &[]);
    let records: Vec<Record> = (0..RECORDS)
        .map(|n| Record::new("k", n.to_string()))
        .collect();
    kafka::produce_at(&brokers, &topic, &records);
    topic
}

/// Records come in and a dead letter goes out.
fn must_work(listener: Listener, more: &str) {
    let topic = topic_with_records("good");
    let config = config(listener, &topic, more);
    let mut member = Member::join(&config);
    member.until("records come", |member| member.records.len() == RECORDS);
    assert_eq!(member.source.reason(), None);
    member.leave();

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (settled, is_settled) = channel();
    let settle = Arc::new(move |work: WorkId| settled.send(work).expect("the test waits"));
    let letters = DeadLetters::new(&config.kafka, settle, runtime.handle().clone());
    letters.expect("a producer").send(Box::new(DeadLetter {
        work: WorkId(1),
        reason: DeadLetterReason::InvalidJson,
        at: Coordinates {
            topic: topic.as_str().into(),
            partition: 0,
            offset: Offset(1),
        },
        logged_at: LogTime(0),
        key: None,
        headers: Vec::new(),
        payload: b"{".to_vec(),
    }));
    assert_eq!(is_settled.recv_timeout(PATIENCE), Ok(WorkId(1)));
}

/// The login is refused at the start, with exit code 77; gives back the words.
fn must_be_refused(listener: Listener, more: &str) -> String {
    let Err(error) = Source::connect(&config(listener, "any", more), Clock::new()) else {
        panic!("{listener:?} took {more}");
    };
    let error = DaemonError::Kafka(error);
    assert_eq!(error.exit_code(), 77, "{error}");
    error.to_string()
}

/// The daemon starts and waits, and in time says why in these words.
fn must_wait(config: &Config, words: &[&str]) {
    let mut source = Source::connect(config, Clock::new()).unwrap_or_else(|e| panic!("{e}"));
    let started = Instant::now();
    loop {
        let said = source.reason().expect("it is not ready");
        if words.iter().all(|words| said.contains(words)) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{words:?} in {said}");
        source.next(STEP);
    }
}

#[test]
fn records_go_through_tls() {
    must_work(Listener::Ssl, &format!("protocol = \"ssl\"\n{}", ours()));
}

#[test]
fn a_broker_of_another_authority_is_not_believed() {
    let stranger = trusting(&Secure::shared().stranger.certificate);
    for whom in [stranger.as_str(), ""] {
        let more = format!("protocol = \"ssl\"\n{whom}");
        let words = ["certificate verify failed", "kafka.ca_file"];
        must_wait(&config(Listener::Ssl, "any", &more), &words);
    }
}

#[test]
fn a_broker_by_another_name_is_not_believed() {
    let address = Secure::shared().address(Listener::Ssl);
    let more = format!("protocol = \"ssl\"\n{}", ours());
    let mut config = config(Listener::Ssl, "any", &more);
    // The certificate says localhost.
    config.kafka.brokers = address.replace("localhost", "127.0.0.1");
    must_wait(&config, &["certificate verify failed"]);
}

#[test]
fn records_go_through_tls_on_both_sides() {
    let more = format!("protocol = \"ssl\"\n{}{}", ours(), showing("daemon"));
    must_work(Listener::Mutual, &more);
}

#[test]
fn a_broker_that_wants_a_certificate_says_so() {
    let said = must_be_refused(Listener::Mutual, &format!("protocol = \"ssl\"\n{}", ours()));
    assert!(said.contains("kafka.certificate_file"), "{said}");
}

#[test]
fn records_go_through_each_login() {
    must_work(
        Listener::SaslPlaintext,
        &login("sasl_plaintext", "PLAIN", "alice", ALICE),
    );
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let more = login("sasl_ssl", mechanism, "alice", ALICE) + &ours();
        must_work(Listener::SaslSsl, &more);
    }
    must_work(
        Listener::SaslPlaintext,
        &login("sasl_plaintext", "SCRAM-SHA-512", "alice", ALICE),
    );
}

#[test]
fn a_wrong_password_is_refused_in_words() {
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let started = Instant::now();
        let more = login("sasl_ssl", mechanism, "alice", "wrong") + &ours();
        let said = must_be_refused(Listener::SaslSsl, &more);
        for words in ["\"alice\"", mechanism, "password"] {
            assert!(said.contains(words), "{words} in {said}");
        }
        assert!(
            !said.contains("wrong"),
            "the password is not repeated: {said}"
        );
        assert!(started.elapsed() < PATIENCE);
    }
    let said = must_be_refused(
        Listener::SaslPlaintext,
        &login("sasl_plaintext", "PLAIN", "nobody", BOB),
    );
    assert!(said.contains("\"nobody\""), "{said}");
}

#[test]
fn a_listener_of_another_kind_is_named() {
    let more = format!("protocol = \"ssl\"\n{}", ours());
    must_wait(&config(Listener::Plaintext, "any", &more), &["PLAINTEXT"]);
}

#[test]
fn a_file_that_holds_no_certificate_is_78() {
    let more = format!("protocol = \"ssl\"\n{}", trusting("Cargo.toml".as_ref()));
    let Err(error) = Source::connect(&config(Listener::Ssl, "any", &more), Clock::new()) else {
        panic!("it was taken");
    };
    let error = DaemonError::Kafka(error);
    assert_eq!(error.exit_code(), 78, "{error}");
    assert!(error.to_string().contains("ssl.ca.location"), "{error}");
}
