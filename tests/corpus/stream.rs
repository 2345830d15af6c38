//! One stream of a recording through the core, as one partition.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tachograph::core::fact::{Fact, Table};
use tachograph::core::pipeline::{Action, Input, Pipeline, Record, Settings};
use tachograph::core::{
    Limits, LogSource, LogTime, Name0, Now, Offset, PartitionId, TopicDefaults,
};

pub fn limits() -> Limits {
    Limits {
        work_in_flight_max: 1_000,
        ..Limits::OF_THE_CONTRACT
    }
}

/// The facts of a log as they stand at its end: nothing is released. `producer`: what the topic's configuration says of
/// its native events; empty where records say it themselves. `are_arrivals`: whether it says that their times are arrivals.
pub fn facts(text: &str, producer: &str, are_arrivals: bool) -> Vec<Fact> {
    let settings = Settings {
        limits: limits(),
        hash_key: 7,
        is_strict: true,
        has_state_file: false,
    };
    let mut pipeline = Pipeline::new(settings);
    let partition = PartitionId(0);
    let defaults = TopicDefaults {
        producer: Name0(Arc::from(producer)),
        event_times_are_arrivals: are_arrivals,
        ..TopicDefaults::default()
    };
    let source = LogSource {
        topic: Arc::from("corpus"),
        partition: 0,
        defaults,
    };
    let now = Now(Duration::ZERO);
    let lines: Vec<&str> = text.lines().collect();
    let log = Offset(0)..Offset(lines.len() as i64);
    pipeline.handle(
        Input::Assigned {
            partition,
            source,
            committed: None,
            log,
        },
        now,
    );
    let mut rows: BTreeMap<(Table, String, Vec<String>), Fact> = BTreeMap::new();
    let mut logged_at = 0;
    for (number, line) in lines.iter().enumerate() {
        logged_at = told_at(line).max(logged_at);
        let record = Record {
            offset: Offset(number as i64),
            logged_at: LogTime(logged_at),
            key: None,
            headers: &[],
            payload: Some(line.as_bytes()),
        };
        pipeline.handle(Input::Record { partition, record }, now);
    }
    pipeline.handle(Input::Drain, now);
    while let Some(action) = pipeline.poll_action() {
        match action {
            Action::Insert(batch) => batch
                .facts
                .into_iter()
                .for_each(|fact| keep(&mut rows, fact)),
            Action::DeadLetter(letter) => {
                let (at, reason) = (letter.at.offset.0, letter.reason.as_str());
                panic!("{reason}: {}", lines[at as usize])
            }
            _ => {}
        }
    }
    pipeline
        .held_facts()
        .into_iter()
        .for_each(|fact| keep(&mut rows, fact));
    rows.into_values().collect()
}

/// When a line says that it happened, ms since 1970: the broker had it then, or later.
fn told_at(line: &str) -> i64 {
    let line: Value = serde_json::from_str(line).unwrap();
    let keys = ["at", "timestamp", "Timestamp"];
    let told = keys.iter().find_map(|key| line.get(key)).unwrap();
    match told {
        Value::String(text) => text.parse::<jiff::Timestamp>().unwrap().as_millisecond(),
        // Nanoseconds of a lifecycle record, milliseconds, or seconds and a fraction.
        told => match told.as_f64().unwrap() {
            seconds if seconds < 1e11 => (seconds * 1e3) as i64,
            millis if millis < 1e14 => millis as i64,
            nanos => (nanos / 1e6) as i64,
        },
    }
}

fn keep(rows: &mut BTreeMap<(Table, String, Vec<String>), Fact>, fact: Fact) {
    let key = (
        fact.body.table(),
        fact.invocation_id.to_string(),
        fact.identity(),
    );
    match rows.get(&key) {
        Some(known) if known.version > fact.version => {}
        _ => {
            rows.insert(key, fact);
        }
    }
}
