//! The Kafka edge on a real broker: marks, rebalances, dead letters, and leaving.
//!
//! Members are driven by hand here, without a pipeline: what must hold is that no record is lost or
//! read twice, and that what was committed comes back.
#![cfg(feature = "demo")]

mod support;
#[path = "broker/whole.rs"]
mod whole;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::kafka::{self, PATIENCE, Record, brokers};
use support::member::{Member, STEP};
use support::{unique, wait};
use tachograph::clock::Clock;
use tachograph::config::{Config, Needs};
use tachograph::core::dialect::DeadLetterReason;
use tachograph::core::ledger::{Counted, Watermark, WorkId};
use tachograph::core::pipeline::DeadLetter;
use tachograph::core::{Coordinates, LogTime, Offset};
use tachograph::kafka_source::{Change, DeadLetters, News, SourceError, SourceEvent};

fn config(topics: &[&str], group: &str, more: &str) -> Config {
    // With KIP-848 the broker sets a member's time-outs.
    let time_outs = match more.contains("consumer") {
        true => "",
        false => "\"session.timeout.ms\" = 6000\n\"heartbeat.interval.ms\" = 1000\n",
    };
    let text = format!(
        "[kafka]\nbrokers = \"{}\"\ngroup = \"{group}\"\ntopics = {topics:?}\n{more}\n\
         [kafka.properties]\n{time_outs}\"topic.metadata.refresh.interval.ms\" = 1000\n",
        brokers()
    );
    Config::parse(&text, Needs::Nothing, &|_| Some("secret".to_owned())).expect("a right file")
}

fn with_protocol(protocol: &str, topic: &str, group: &str) -> Config {
    config(&[topic], group, &format!("group_protocol = {protocol:?}"))
}

fn records(count: usize, partitions: i32) -> Vec<Record> {
    let record = |n: usize| {
        let partition = i32::try_from(n).expect("few") % partitions;
        Record::new("k", format!("{n}")).on(partition)
    };
    (0..count).map(record).collect()
}

#[test]
fn marks_come_back_as_they_were_committed() {
    let topic = kafka::create_topic("marks", 1, &[]);
    kafka::produce(&topic, &records(50, 1));
    let config = config(&[&topic], &unique("marks"), "");
    let marks = Watermark {
        resume_from: Offset(12),
        exported_below: Offset(40),
        abandoned_before: LogTime(1_796_043_498_226),
        observed_below: Offset(45),
        observed_before: LogTime(1_796_043_498_300),
        is_clean: false,
    };

    let mut first = Member::join(&config);
    first.until("all is read", |member| member.records.len() == 50);
    let fresh = &first.assignments[0];
    assert_eq!(
        (fresh.committed, fresh.log.clone()),
        (None, Offset(0)..Offset(50))
    );
    let id = fresh.partition;
    first.source.commit(&[(id, marks)]);
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < PATIENCE, "the commit is answered");
        match first.source.next(STEP) {
            SourceEvent::News(News::Committed { is_ok }) => break assert!(is_ok),
            SourceEvent::News(News::Fatal(error)) => panic!("{error}"),
            _ => {}
        }
    }
    // Its hand-over would commit other marks: it is gone without one, as after a crash.
    drop(first);

    let mut second = Member::join(&config);
    second.until("an assignment", |member| !member.assignments.is_empty());
    assert_eq!(second.assignments[0].committed, Some(marks));
    second.until("reading goes on", |member| !member.records.is_empty());
    assert_eq!(second.records[0], (0, 12), "from the oldest evidence");
    second.leave();
}

#[test]
fn a_log_made_anew_is_not_the_one_that_was_counted() {
    let before = Clock::new().wall();
    let topic = kafka::create_topic("anew", 1, &[]);
    kafka::produce(&topic, &records(10, 1));
    let after = LogTime(Clock::new().wall().0 + 1);
    let is_made_anew = |below, before| {
        let config = config(&[&topic], &unique("anew"), "");
        let mut member = Member::join(&config);
        member.counted = Some(Counted {
            below: Offset(below),
            before,
        });
        member.until("assigned", |member| !member.assignments.is_empty());
        assert!(member.source.cluster().is_some_and(|id| !id.is_empty()));
        member.assignments[0].is_made_anew
    };
    // Whatever was counted up to now was of this log, and what was counted before it was made not.
    assert!(!is_made_anew(10, after));
    assert!(!is_made_anew(0, before), "nothing was");
    assert!(is_made_anew(5, before));
    // Nobody is shown what was aborted, nor its marker: they have no log time, and lie below what
    // was read.
    kafka::transact(brokers(), &topic, &records(3, 1), false);
    wait::until_eq("the marker", PATIENCE, (0, 14), || {
        kafka::ends(brokers(), &topic)
    });
    assert!(!is_made_anew(14, after));
}

#[test]
fn a_commit_of_somebody_else_is_a_bare_offset() {
    let topic = kafka::create_topic("bare", 1, &[]);
    kafka::produce(&topic, &records(20, 1));
    let group = unique("bare");
    let tool: BaseConsumer = kafka::client_config(brokers())
        .set("group.id", group.as_str())
        .create()
        .expect("a consumer can be made");
    let mut list = TopicPartitionList::new();
    let mut element = list.add_partition(&topic, 0);
    element
        .set_offset(KafkaOffset::Offset(7))
        .expect("an offset");
    element.set_metadata("{\"from\": \"another tool\"}");
    tool.commit(&list, rdkafka::consumer::CommitMode::Sync)
        .expect("the group is empty");

    let mut member = Member::join(&config(&[&topic], &group, ""));
    member.until("reading begins", |member| !member.records.is_empty());
    assert_eq!(
        member.assignments[0].committed,
        Some(Watermark::bare(Offset(7)))
    );
    assert_eq!(member.records[0], (0, 7));
    member.leave();
}

/// What was read: by whom, partition, offset.
type Seen = Arc<Mutex<Vec<(&'static str, i32, i64)>>>;

/// A member on a thread of its own, until told to leave.
fn spawn(who: &'static str, config: Config, seen: Seen) -> (Sender<()>, JoinHandle<Member>) {
    let (stop, stopped): (Sender<()>, Receiver<()>) = channel();
    let thread = std::thread::spawn(move || {
        let mut member = Member::join(&config);
        while stopped.try_recv().is_err() {
            assert!(member.turn().is_none());
            let new = member
                .records
                .drain(..)
                .map(|(partition, offset)| (who, partition, offset));
            seen.lock().expect("no panic inside").extend(new);
        }
        member.leave();
        let new = member
            .records
            .drain(..)
            .map(|(partition, offset)| (who, partition, offset));
        seen.lock().expect("no panic inside").extend(new);
        member
    });
    (stop, thread)
}

#[test]
fn rebalances_lose_no_record_and_read_none_twice() {
    for protocol in ["classic", "consumer"] {
        rebalance(protocol);
    }
}

fn rebalance(protocol: &str) {
    let topic = kafka::create_topic("rebalance", 6, &[]);
    let config = with_protocol(protocol, &topic, &unique("rebalance"));
    let seen = Seen::default();
    let count = || seen.lock().expect("no panic inside").len();

    let (stop_first, first) = spawn("first", config.clone(), Arc::clone(&seen));
    let mut produced = kafka::produce(&topic, &records(600, 6));
    wait::until_eq("the first reads", PATIENCE, 600, count);
    let (stop_second, second) = spawn("second", config, Arc::clone(&seen));
    wait::until("the second has its share", PATIENCE, || {
        produced.extend(kafka::produce(&topic, &records(60, 6)));
        let seen = seen.lock().expect("no panic inside");
        seen.iter()
            .any(|(who, _, _)| *who == "second")
            .then_some(())
    });
    stop_second.send(()).expect("it runs");
    let second = second.join().expect("the second member ends well");
    produced.extend(kafka::produce(&topic, &records(60, 6)));
    wait::until_eq("all is read", PATIENCE, produced.len(), count);
    stop_first.send(()).expect("it runs");
    let first = first.join().expect("the first member ends well");

    assert_eq!((first.lost, second.lost), (0, 0));
    let seen = seen.lock().expect("no panic inside").clone();
    let mut read: Vec<(i32, i64)> = seen.into_iter().map(|(_, p, offset)| (p, offset)).collect();
    read.sort_unstable();
    produced.sort_unstable();
    assert_eq!(read, produced, "each once");
}

#[test]
fn dropping_a_member_ends_whatever_it_owed() {
    let topic = kafka::create_topic("drop", 2, &[]);
    let config = config(&[&topic], &unique("drop"), "");
    let mut first = Member::join(&config);
    first.until("both are assigned", |member| member.assignments.len() == 2);
    let (done, is_done) = channel();
    let other = config.clone();
    let second = std::thread::spawn(move || {
        let mut second = Member::join(&other);
        second.until("both are taken over", |member| {
            member.assignments.len() >= 2
        });
        done.send(()).expect("the test waits");
        second.leave();
    });
    // The first is asked to let go, never answers, and dies as a panic would end it.
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < PATIENCE, "a revoke comes");
        if let SourceEvent::News(News::Changed(Change::Revoked(_))) = first.source.next(STEP) {
            break;
        }
    }
    let (dropped, is_dropped) = channel();
    std::thread::spawn(move || {
        drop(first);
        let _ = dropped.send(());
    });
    is_dropped.recv_timeout(PATIENCE).expect("dropping ends");
    is_done
        .recv_timeout(PATIENCE)
        .expect("the other takes all over");
    second.join().expect("the second ends well");
}

#[test]
fn leaving_is_quick_and_seen_by_the_others() {
    let topic = kafka::create_topic("leave", 2, &[]);
    let config = config(&[&topic], &unique("leave"), "");
    let mut first = Member::join(&config);
    first.until("both are assigned", |member| member.assignments.len() == 2);
    let started = Instant::now();
    first.leave();
    drop(first);
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    let mut second = Member::join(&config);
    let started = Instant::now();
    second.until("both are taken over", |member| {
        member.assignments.len() == 2
    });
    // Without a LeaveGroup it would take the session time-out of 6 s.
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    second.leave();
}

#[test]
fn a_missing_topic_is_waited_for() {
    let topic = unique("missing");
    let mut member = Member::join(&config(&[&topic], &unique("missing"), ""));
    let reason = member.source.reason().expect("not ready");
    assert!(
        reason.contains(&topic) && reason.contains("create it"),
        "{reason}"
    );
    kafka::create_topic_at(brokers(), &topic, 1, &[]);
    kafka::produce(&topic, &records(3, 1));
    member.until("it is read", |member| member.records.len() == 3);
    member.until("the reason goes", |member| member.source.reason().is_none());
    member.leave();
}

#[test]
fn records_gone_before_they_were_read_are_counted_and_skipped() {
    let topic = kafka::create_topic("retention", 1, &[]);
    kafka::produce(&topic, &records(100, 1));
    let config = config(&[&topic], &unique("retention"), "");
    let mut member = Member::join(&config);
    member.until("an assignment", |member| !member.assignments.is_empty());
    member.until("some are read", |member| member.records.len() >= 10);
    let id = member.assignments[0].partition;
    member
        .source
        .commit_now(&[(id, Watermark::bare(Offset(10)))])
        .expect("committed");
    drop(member);
    kafka::delete_records(brokers(), &topic, 0, 40);

    let mut member = Member::join(&config);
    let mut lost = None;
    let started = Instant::now();
    while lost.is_none() {
        assert!(started.elapsed() < PATIENCE);
        match member.source.next(STEP) {
            SourceEvent::News(News::Changed(Change::Assigned(places))) => {
                let assignments = member.source.assign(&places, &|_| None);
                member.assignments.extend(assignments);
            }
            SourceEvent::News(News::RecordsLost { records, .. }) => lost = Some(records),
            _ => {}
        }
    }
    assert_eq!(lost, Some(30));
    member.until("the rest is read", |member| !member.records.is_empty());
    assert_eq!(member.records[0], (0, 40));
    member.leave();
}

#[test]
fn a_dead_letter_keeps_what_the_record_was() {
    let topic = kafka::create_topic("poison", 1, &[]);
    let letters_topic = format!("{topic}.dead-letters");
    kafka::create_topic_at(
        brokers(),
        &letters_topic,
        1,
        &[("message.timestamp.type", "CreateTime")],
    );
    let config = config(&[&topic], &unique("poison"), "");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (settled, is_settled) = channel();
    let settle = Arc::new(move |work: WorkId| settled.send(work).expect("the test waits"));
    let letters = DeadLetters::new(&config.kafka, settle, runtime.handle().clone());
    let letters = letters.expect("a producer");
    let letter = |work: u64, payload: Vec<u8>| DeadLetter {
        work: WorkId(work),
        reason: DeadLetterReason::InvalidJson,
        at: Coordinates {
            topic: topic.as_str().into(),
            partition: 3,
            offset: Offset(77),
        },
        logged_at: LogTime(1_796_043_498_226),
        key: Some(b"key".to_vec()),
        headers: vec![("own".to_owned(), Some(b"header".to_vec()))],
        payload,
    };
    letters.send(Box::new(letter(1, b"{poison".to_vec())));
    assert_eq!(is_settled.recv_timeout(PATIENCE), Ok(WorkId(1)));
    // Not to be compressed below the broker's limit of 1 MiB.
    let mut state = 1_u64;
    let noise = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    let large: Vec<u8> = (0..3 << 20).map(noise).collect();
    letters.send(Box::new(letter(2, large.clone())));
    assert_eq!(is_settled.recv_timeout(PATIENCE), Ok(WorkId(2)));

    let read = kafka::read_all(&letters_topic, 2);
    let (key, payload, timestamp, headers) = &read[0];
    assert_eq!(
        (key.as_slice(), payload.as_slice()),
        (&b"key"[..], &b"{poison"[..])
    );
    assert_eq!(*timestamp, Some(1_796_043_498_226));
    let partition = "3".to_owned();
    let expected = [
        ("own", "header".to_owned()),
        ("tachograph_reason", "invalid_json".to_owned()),
        ("tachograph_topic", topic.clone()),
        ("tachograph_partition", partition),
        ("tachograph_offset", "77".to_owned()),
        ("tachograph_timestamp", "1796043498226".to_owned()),
        ("tachograph_version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let expected: Vec<(String, String)> = expected
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    assert_eq!(*headers, expected);
    let (_, payload, _, headers) = &read[1];
    assert_eq!(payload.as_slice(), &large[..64 << 10]);
    let truncated = ("tachograph_truncated".to_owned(), large.len().to_string());
    assert_eq!(headers.last(), Some(&truncated));
}

#[test]
fn dropped_dead_letters_are_settled_at_once() {
    let config = config(&["t"], "g", "dead_letters = \"drop\"");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (settled, is_settled) = channel();
    let settle = Arc::new(move |work: WorkId| settled.send(work).expect("the test waits"));
    let letters = DeadLetters::new(&config.kafka, settle, runtime.handle().clone());
    letters.expect("a producer").send(Box::new(DeadLetter {
        work: WorkId(5),
        reason: DeadLetterReason::Empty,
        at: Coordinates {
            topic: "t".into(),
            partition: 0,
            offset: Offset(1),
        },
        logged_at: LogTime(0),
        key: None,
        headers: Vec::new(),
        payload: Vec::new(),
    }));
    assert_eq!(is_settled.try_recv(), Ok(WorkId(5)));
}

#[test]
fn a_regex_does_not_read_its_own_dead_letters() {
    for protocol in ["classic", "consumer"] {
        let topic = kafka::create_topic(&unique("regex"), 1, &[]);
        kafka::create_topic_at(brokers(), &format!("{topic}.dead-letters"), 1, &[]);
        // Unlike this one, a broker's regex must fit the whole name, and librdkafka's knows no \d.
        let begins = topic.trim_end_matches(|c: char| c.is_ascii_digit());
        let pattern = format!("^{begins}\\d+");
        let group = unique("regex");
        let mut member = Member::join(&with_protocol(protocol, &pattern, &group));
        kafka::produce(&topic, &records(5, 1));
        member.until("it is read", |member| member.records.len() == 5);
        let late = format!("{topic}_late");
        kafka::create_topic_at(brokers(), &late, 1, &[]);
        kafka::produce(&late, &records(5, 1));
        member.until("what came later", |member| member.records.len() == 10);
        let assigned = member.assignments.iter();
        let topics: BTreeSet<&str> = assigned.map(|a| &*a.source.topic).collect();
        let letters = topics.iter().filter(|topic| topic.contains("dead-letters"));
        assert_eq!(letters.count(), 0, "{topics:?}");
        member.leave();
    }
}

#[test]
fn a_regex_that_nothing_fits_is_waited_for_and_left() {
    let begins = unique("none");
    let pattern = format!("^{begins}");
    let mut member = Member::join(&config(&[&pattern], &unique("none"), ""));
    let reason = member.source.reason().expect("not ready");
    assert!(reason.contains(&pattern), "{reason}");
    member.turn();
    member.leave();
}

#[test]
fn of_two_instances_with_one_id_one_ends_whatever_the_protocol() {
    for protocol in ["classic", "consumer"] {
        let topic = kafka::create_topic("fenced", 1, &[]);
        let mut config = with_protocol(protocol, &topic, &unique("fenced"));
        config.kafka.instance_id = "one".to_owned();
        let mut first = Member::join(&config);
        first.until("an assignment", |member| !member.assignments.is_empty());
        let mut second = Member::join(&config);
        let started = Instant::now();
        let ended = loop {
            assert!(started.elapsed() < PATIENCE, "{protocol}: one of them ends");
            let ended = first.turn().or_else(|| second.turn());
            if let Some(error) = ended {
                break error;
            }
        };
        let said = ended.to_string();
        assert!(
            matches!(ended, SourceError::Fenced(_)),
            "{protocol}: {said}"
        );
        assert!(said.contains("--instance-id"), "{said}");
    }
}
