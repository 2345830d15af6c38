//! Memory of the pipeline over minutes of steady traffic, with about 200,000 segments held all the time.
//!
//! Runs come at 3,400 a second, in real time, and are released after a minute of silence. When the first have been
//! released, memory must stay where it is: every minute the held segments, the live bytes of the heap and the resident
//! pages are told, and the program ends with exit code 1 where either leaves ±10 %.
//!
//! ```sh
//! SOAK_MINUTES=10 cargo bench --no-default-features --bench soak
//! ```

#[path = "counting.rs"]
#[allow(dead_code, reason = "calls of the allocator are not counted here")]
mod counting;
#[path = "../hostile/feed.rs"]
#[allow(dead_code, reason = "one partition is enough")]
mod feed;
#[path = "../hostile/shapes.rs"]
#[allow(dead_code, reason = "of the streams only the form of a record is used")]
mod shapes;

use std::process::ExitCode;
use std::time::{Duration, Instant};
use tachograph::core::Limits;
use tachograph::core::pipeline::Pipeline;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Runs that begin in a second; each is held for a minute after its last record.
const RUNS_A_SECOND: u64 = 3_400;
/// Records of a run: it begins, calls a model, and ends.
const RECORDS: u64 = 3;
/// A record's place in the stream stands for so many microseconds of log time.
const MICROS_A_RECORD: u64 = 1_000_000 / (RUNS_A_SECOND * RECORDS);
/// Bytes of a page of memory on x86-64.
const PAGE: u64 = 4_096;
/// How far memory may leave its first figure, in hundredths.
const PERCENT_MAX: f64 = 10.0;

fn main() -> ExitCode {
    let minutes: u64 = std::env::var("SOAK_MINUTES").map_or(10, |text| text.parse().unwrap_or(10));
    let silence = Duration::from_secs(60);
    let mut pipeline = feed::pipeline(Limits {
        silence_max: silence,
        tool_silence_max: silence,
        ..Limits::OF_THE_CONTRACT
    });
    let started = Instant::now();
    let mut first: Option<Memory> = None;
    let mut is_flat = true;
    // The minute in which the table fills does not count.
    for minute in 0..=minutes {
        for second in minute * 60..(minute + 1) * 60 {
            let ahead = Duration::from_secs(second).saturating_sub(started.elapsed());
            std::thread::sleep(ahead);
            read_second(&mut pipeline, second);
        }
        let now = Memory::of(&mut pipeline);
        let base = first.unwrap_or(now);
        let heap = percent(now.heap_bytes, base.heap_bytes);
        let resident = percent(now.resident_bytes, base.resident_bytes);
        println!(
            "minute {minute:3}: {} segments, heap {} MB ({heap:+.1} %), resident {} MB ({resident:+.1} %)",
            now.segments,
            now.heap_bytes >> 20,
            now.resident_bytes >> 20,
        );
        is_flat &= heap.abs() <= PERCENT_MAX && resident.abs() <= PERCENT_MAX;
        if minute == 1 {
            first = Some(now);
        }
    }
    println!("{:.0} s of real time", started.elapsed().as_secs_f64());
    match is_flat {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

#[derive(Clone, Copy)]
struct Memory {
    segments: usize,
    heap_bytes: u64,
    resident_bytes: u64,
}

impl Memory {
    fn of(pipeline: &mut Pipeline) -> Memory {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells memory");
        let pages = statm.split_whitespace().nth(1).map(str::parse::<u64>);
        let pages = pages.expect("two fields").expect("a number of pages");
        Memory {
            segments: pipeline.snapshot().partitions[0].segments_held,
            heap_bytes: counting::live_bytes().unsigned_abs(),
            resident_bytes: pages * PAGE,
        }
    }
}

fn percent(now: u64, first: u64) -> f64 {
    100.0 * (now as f64 / first as f64 - 1.0)
}

/// The records of one second of log time: runs overlap, and each has ended a few records after it began.
fn read_second(pipeline: &mut Pipeline, second: u64) {
    let records = RUNS_A_SECOND * RECORDS;
    for i in second * records..(second + 1) * records {
        let (run, step) = match i % RECORDS {
            0 => (i / RECORDS, 0),
            step => ((i / RECORDS).saturating_sub(step * 100), step),
        };
        let ms = i * MICROS_A_RECORD / 1_000;
        feed::read_at(pipeline, feed::P, i, ms, &record(ms, i, run, step));
    }
}

fn record(ms: u64, i: u64, run: u64, step: u64) -> Vec<u8> {
    let at = shapes::FIRST_MS + ms;
    let (kind, fields) = match step {
        0 => ("run.start", r#","root_agent":"desk""#),
        1 => (
            "model.end",
            r#","call_id":"c1","model":"gemini-2.5-flash","usage":{"promptTokenCount":40,"candidatesTokenCount":33,"totalTokenCount":73}"#,
        ),
        _ => ("run.end", r#","status":"completed""#),
    };
    format!(
        r#"{{"v":1,"kind":"{kind}","at":{at},"record_id":"r-{i}","invocation_id":"e-{run:012}-59e0-83c7","session_id":"s-{}","app":"app-{}","agent":"desk"{fields}}}"#,
        run / 3,
        run % 16
    )
    .into_bytes()
}
