//! A pipeline without its sockets that reads made-up records, one a millisecond, and settles every batch at once.

use super::shapes::FIRST_MS;
use std::sync::Arc;
use std::time::Duration;
use tachograph::core::fact::Fact;
use tachograph::core::pipeline::{Action, Input, Pipeline, Record, Settings};
use tachograph::core::{Limits, LogSource, LogTime, Now, Offset, PartitionId, TopicDefaults};

/// The partition that is read.
pub const P: PartitionId = PartitionId(0);

/// A pipeline to which one partition is assigned.
pub fn pipeline(limits: Limits) -> Pipeline {
    let mut pipeline = Pipeline::new(Settings {
        limits,
        hash_key: 7,
        is_strict: true,
        has_state_file: false,
    });
    assign(&mut pipeline, P);
    pipeline
}

/// Assigns one more partition, whose log is empty so far.
pub fn assign(pipeline: &mut Pipeline, partition: PartitionId) {
    let source = LogSource {
        topic: Arc::from("agent-events"),
        partition: partition.0 as i32,
        defaults: TopicDefaults::default(),
    };
    let assigned = Input::Assigned {
        partition,
        source,
        committed: None,
        log: Offset(0)..Offset(i64::MAX),
    };
    pipeline.handle(assigned, Now(Duration::ZERO));
}

/// Reads the record with number `i`, a millisecond after the one before, and returns the facts that go to the sink.
pub fn read(pipeline: &mut Pipeline, partition: PartitionId, i: u64, payload: &[u8]) -> Vec<Fact> {
    read_at(pipeline, partition, i, i, payload)
}

/// Reads the record with number `i`, logged `ms` after the first.
pub fn read_at(
    pipeline: &mut Pipeline,
    partition: PartitionId,
    i: u64,
    ms: u64,
    payload: &[u8],
) -> Vec<Fact> {
    let record = Record {
        offset: Offset(i as i64),
        logged_at: LogTime((FIRST_MS + ms) as i64),
        key: None,
        headers: &[],
        payload: Some(payload),
    };
    let now = Now(Duration::from_millis(ms));
    pipeline.handle(Input::Record { partition, record }, now);
    perform(pipeline, now)
}

/// Does what the pipeline says.
pub fn perform(pipeline: &mut Pipeline, now: Now) -> Vec<Fact> {
    let mut facts = Vec::new();
    while let Some(action) = pipeline.poll_action() {
        let work = match action {
            Action::Insert(batch) => {
                facts.extend(batch.facts);
                batch.work
            }
            Action::DeadLetter(letter) => letter.work,
            _ => continue,
        };
        pipeline.handle(Input::Settled { work }, now);
    }
    facts
}

/// Nanoseconds that this thread was on a core: other work on the machine does not count.
pub fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")
        .expect("Linux tells a thread's time on the core in schedstat");
    let first = text.split_whitespace().next().map(str::parse);
    first
        .and_then(Result::ok)
        .expect("schedstat begins with nanoseconds")
}
