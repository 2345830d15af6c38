//! How many records a second one core takes from bytes to facts, and what it holds in memory.
//!
//! No load test: nothing is read from Kafka, batches are settled the moment they are sealed. For a figure that other
//! work on the machine does not disturb, count instructions (`ROUNDS=1` measures one stream once):
//!
//! ```sh
//! cargo bench --no-default-features --bench apply --no-run    # prints the program's path
//! ROUNDS=1 valgrind --tool=callgrind --callgrind-out-file=callgrind.out PATH
//! callgrind_annotate --inclusive=yes callgrind.out | head -60
//! ```

#[path = "counting.rs"]
mod counting;
#[path = "stream.rs"]
mod stream;

use std::sync::Arc;
use std::time::Duration;
use stream::Shape;
use tachograph::core::pipeline::{Action, Input, Pipeline, Record, Settings};
use tachograph::core::{
    Limits, LogSource, LogTime, Name0, Now, Offset, PartitionId, TopicDefaults,
};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// The first record's time: 2 March 2026, in milliseconds since 1970.
const FIRST_MS: i64 = 1_772_445_600_000;
/// Runs in progress at any time.
const AT_ONCE: usize = 500;
const P: PartitionId = PartitionId(0);

fn main() {
    let rounds: usize = std::env::var("ROUNDS").map_or(5, |text| text.parse().unwrap_or(5));
    let runs = if rounds == 1 { 2_000 } else { 12_000 };
    let records = stream::lifecycle(FIRST_MS, runs, AT_ONCE, Shape::USUAL);
    speed("lifecycle", "", &records, rounds);
    if rounds > 1 {
        speed(
            "native",
            "adk-python",
            &stream::native(FIRST_MS, runs, AT_ONCE),
            rounds,
        );
        memory();
    }
}

fn pipeline(producer: &str, silence: Duration) -> Pipeline {
    let limits = Limits {
        work_in_flight_max: 16,
        silence_max: silence,
        tool_silence_max: silence,
        ..Limits::OF_THE_CONTRACT
    };
    let mut pipeline = Pipeline::new(Settings {
        limits,
        hash_key: 7,
        is_strict: true,
        has_state_file: false,
    });
    let defaults = TopicDefaults {
        producer: Name0(Arc::from(producer)),
        ..TopicDefaults::default()
    };
    let source = LogSource {
        topic: Arc::from("agent-events"),
        partition: 0,
        defaults,
    };
    let assigned = Input::Assigned {
        partition: P,
        source,
        committed: None,
        log: Offset(0)..Offset(i64::MAX),
    };
    pipeline.handle(assigned, Now(Duration::ZERO));
    pipeline
}

/// Nanoseconds that this thread was on a core: other work on the machine does not count.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")
        .expect("Linux tells a thread's time on the core in schedstat");
    let first = text.split_whitespace().next().map(str::parse);
    first
        .and_then(Result::ok)
        .expect("schedstat begins with nanoseconds")
}

/// One record a millisecond, every batch settled at once. Returns the number of samples.
fn feed(pipeline: &mut Pipeline, records: &[Vec<u8>]) -> u64 {
    let mut samples = 0;
    for (number, payload) in records.iter().enumerate() {
        let now = Now(Duration::from_micros(4 * number as u64));
        let record = Record {
            offset: Offset(number as i64),
            logged_at: LogTime(FIRST_MS + number as i64),
            key: None,
            headers: &[],
            payload: Some(payload),
        };
        let input = Input::Record {
            partition: P,
            record,
        };
        pipeline.handle(input, now);
        samples += perform(pipeline, now);
    }
    samples
}

/// Does what the pipeline says, and counts the samples.
fn perform(pipeline: &mut Pipeline, now: Now) -> u64 {
    let mut samples = 0;
    while let Some(action) = pipeline.poll_action() {
        match action {
            Action::Insert(batch) => {
                let work = batch.work;
                pipeline.handle(Input::Settled { work }, now);
            }
            Action::Observe(_) => samples += 1,
            Action::DeadLetter(letter) => panic!("refused: {}", letter.reason.as_str()),
            _ => {}
        }
    }
    samples
}

fn speed(name: &str, producer: &str, records: &[Vec<u8>], rounds: usize) {
    let bytes = records.iter().map(Vec::len).sum::<usize>() / records.len();
    let mut nanos = Vec::new();
    let mut summary = String::new();
    for _ in 0..rounds {
        // Released after 50,000 further records: about 2,900 runs are held.
        let mut pipeline = pipeline(producer, Duration::from_secs(50));
        let allocations = counting::allocations();
        let started = cpu_nanos();
        let samples = feed(&mut pipeline, records);
        nanos.push((cpu_nanos() - started) as f64 / records.len() as f64);
        let allocations = counting::allocations() - allocations;
        let totals = pipeline.totals();
        let rows: u64 = totals.facts.values().sum();
        assert_eq!(totals.outcomes.applied, records.len() as u64);
        let each = |count: u64| count as f64 / records.len() as f64;
        summary = format!(
            "{:.1} allocations, {:.2} rows, {:.2} samples a record; {} segments held at the end",
            each(allocations),
            each(rows),
            each(samples),
            pipeline.snapshot().partitions[0].segments_held
        );
    }
    nanos.sort_by(f64::total_cmp);
    let (median, best) = (nanos[nanos.len() / 2], nanos[0]);
    println!(
        "{name:10} {:8.0} records/s {median:6.0} ns a record of {bytes} bytes (median of {rounds}, \
         best {best:.0}); {summary}",
        1e9 / median
    );
}

/// Bytes that held segments keep: the whole, then what a further call, chunk or verdict adds.
fn memory() {
    const RUNS: u64 = 2_000;
    let held = |shape: Shape| {
        let records = stream::lifecycle(FIRST_MS, RUNS, AT_ONCE, shape);
        let mut pipeline = pipeline("", Duration::from_secs(1_000_000));
        let before = counting::live_bytes();
        feed(&mut pipeline, &records);
        let end = Now(Duration::from_secs(1_000_000));
        pipeline.handle(Input::Drain, end);
        perform(&mut pipeline, end);
        assert!(pipeline.is_drained());
        let bytes = counting::live_bytes() - before;
        (
            bytes as f64 / RUNS as f64,
            records.len() as f64 / RUNS as f64,
        )
    };
    let usual = Shape::USUAL;
    let (segment, records) = held(usual);
    let (more_chunks, records_more) = held(Shape {
        chunks: usual.chunks + 10,
        ..usual
    });
    // A further call without chunks brings a tool call with it: four records.
    let (bare, _) = held(Shape { chunks: 0, ..usual });
    let (more_calls, _) = held(Shape {
        chunks: 0,
        calls: usual.calls + 4,
        ..usual
    });
    let (more_verdicts, _) = held(Shape {
        verdicts: usual.verdicts + 4,
        ..usual
    });
    println!("held       {segment:8.0} bytes a segment of {records:.0} records");
    println!(
        "           {:8.0} bytes a further model call with its tool call",
        (more_calls - bare) / 4.0
    );
    println!(
        "           {:8.0} bytes a further verdict",
        (more_verdicts - segment) / 4.0
    );
    println!(
        "           {:8.0} bytes a further chunk",
        (more_chunks - segment) / (records_more - records)
    );
}
