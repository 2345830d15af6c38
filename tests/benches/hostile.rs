//! What a record of a hostile stream costs, at growing sizes: no cost may grow with the size for long.
//!
//! ```sh
//! SIZES=1000,10000,100000 SHAPE=verdicts cargo bench --no-default-features --bench hostile
//! ```

#[path = "counting.rs"]
#[allow(dead_code, reason = "calls of the allocator are not counted here")]
mod counting;
#[path = "../hostile/feed.rs"]
#[allow(dead_code, reason = "one partition is enough")]
mod feed;
#[path = "../hostile/shapes.rs"]
#[allow(dead_code, reason = "only the list of the streams is used")]
mod shapes;

use std::time::Duration;
use tachograph::core::Limits;
use tachograph::core::Now;
use tachograph::core::pipeline::Input;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// A stream is given up after this much time on the core.
const NANOS_MAX: u64 = 20_000_000_000;

fn main() {
    let sizes = std::env::var("SIZES").unwrap_or_else(|_| "1000,10000,100000".to_owned());
    let sizes: Vec<u64> = sizes.split(',').filter_map(|n| n.parse().ok()).collect();
    let wanted = std::env::var("SHAPE").unwrap_or_default();
    println!("nanoseconds of a core a record, release included; live bytes a record before it");
    for (name, shape) in shapes::SHAPES
        .iter()
        .filter(|(name, _)| name.contains(&wanted))
    {
        let cells: Vec<String> = sizes.iter().map(|n| cell(*shape, *n)).collect();
        println!("{name:32} {}", cells.join("  "));
    }
}

fn cell(shape: shapes::Shape, n: u64) -> String {
    let before = counting::live_bytes();
    let mut pipeline = feed::pipeline(Limits::OF_THE_CONTRACT);
    let mut nanos = 0;
    for i in 0..n {
        let payload = shape(i, n);
        let started = feed::cpu_nanos();
        feed::read(&mut pipeline, feed::P, i, &payload);
        nanos += feed::cpu_nanos() - started;
        if nanos > NANOS_MAX {
            return format!("> {:9} after {i}", nanos / (i + 1));
        }
    }
    let bytes = (counting::live_bytes() - before) / n as i64;
    let started = feed::cpu_nanos();
    let released = Input::CaughtUp {
        partition: feed::P,
        next: tachograph::core::Offset(n as i64),
        log_time: Some(tachograph::core::LogTime(i64::MAX / 2)),
    };
    let now = Now(Duration::from_secs(1_000_000));
    pipeline.handle(released, now);
    feed::perform(&mut pipeline, now);
    let release = feed::cpu_nanos() - started;
    let ms = release / 1_000_000;
    format!("{:9} ({bytes:5} B, {ms:5} ms)", (nanos + release) / n)
}
