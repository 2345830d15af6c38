//! Time and allocations of decoding one record; prints a line a shape.
//!
//! No load test: nothing is read from Kafka and nothing is kept.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tachograph::core::dialect::{DecodeContext, Decoded, RecordBytes, decode};

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's layout, unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `alloc` took the pointer from the same allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LIFECYCLE: &str = r#"{"v":1,"kind":"model.end","at":1772445601200000000,"mono_ns":1200000041,"record_id":"p1-9","seq":9,"emitter":{"name":"tachograph-adk","version":"0.1.0","instance":"p1"},"runtime":{"name":"adk-python","version":"2.13.0"},"app":"support","session_id":"s-1","invocation_id":"e-1","agent":"desk","call_id":"c1","model":"gemini-2.5-flash","usage":{"promptTokenCount":40,"candidatesTokenCount":33,"totalTokenCount":73},"finish_reason":"STOP"}"#;

const START: &str = r#"{"v":1,"kind":"model.start","at":1772445600000000000,"mono_ns":41,"record_id":"p1-7","seq":7,"emitter":{"name":"tachograph-adk","version":"0.1.0","instance":"p1"},"runtime":{"name":"adk-python","version":"2.13.0"},"app":"support","session_id":"s-1","invocation_id":"e-1","agent":"desk","call_id":"c1","model":"gemini-2.5-flash","streaming":true}"#;

const NATIVE_HEAD: &str = r#"{"id":"23b206d2-b8ba-4a30-8ca8-c8aadc0f7615","invocationId":"e-f4783ea8-cdf1-406e-a5b6-fe1c94d48a4d","author":"storyteller","content":{"parts":[{"text":"Plan. ","thought":true},{"text":""#;

const NATIVE_TAIL: &str = r#"","thought":false}],"role":"model"},"actions":{"stateDelta":{},"artifactDelta":{},"requestedAuthConfigs":{},"requestedToolConfirmations":{}},"finishReason":"STOP","usageMetadata":{"cachedContentTokenCount":50,"candidatesTokenCount":21,"promptTokenCount":200,"thoughtsTokenCount":10,"totalTokenCount":231},"modelVersion":"gemini-2.5-flash","branch":"fan.desk","nodeInfo":{"path":"fan@1"},"timestamp":1796044871.346125}"#;

fn main() {
    let text = "Once upon a time there was a tachograph. ".repeat(12);
    let native = format!("{NATIVE_HEAD}{text}{NATIVE_TAIL}");
    let escaped = format!("{NATIVE_HEAD}{}{NATIVE_TAIL}", text.replace(". ", ".\\n"));
    let wrapped = format!(
        r#"{{"v":1,"kind":"event","at":1796044871.4,"record_id":"p1-7","seq":7,"session_id":"s-1","event":{native}}}"#
    );
    let odd = native.replace("231}", "231,\"x\":NaN}");
    for (name, payload) in [
        ("lifecycle start", START),
        ("lifecycle end", LIFECYCLE),
        ("native", &native),
        ("native, escapes", &escaped),
        ("native, wrapped", &wrapped),
        ("native, tolerant", &odd),
    ] {
        measure(name, payload.as_bytes());
    }
}

fn measure(name: &str, payload: &[u8]) {
    const ROUNDS: u64 = 20_000;
    let context = DecodeContext {
        dialect: None,
        payload_bytes_max: 1 << 20,
        hash_key: 7,
        id_bytes_max: 256,
        attributes_max: 16,
        attribute_bytes_max: 128,
        store_reasons: false,
    };
    let record = RecordBytes {
        payload,
        headers: &[],
    };
    let run = |rounds: u64| {
        let started = Instant::now();
        for _ in 0..rounds {
            let decoded = decode(black_box(record), &context, &mut |event| {
                black_box(&event);
            });
            assert!(matches!(decoded, Decoded::Read { events: 1, .. }));
        }
        started.elapsed().as_nanos() as u64 / rounds
    };
    run(ROUNDS);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    run(ROUNDS);
    let allocations = (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / ROUNDS as f64;
    // The fastest of many short runs: other work on the machine only ever adds.
    let nanos = (0..1_000).map(|_| run(100)).min().unwrap_or(0);
    let bytes = payload.len();
    println!("{name:18} {bytes:6} bytes {nanos:6} ns {allocations:5.1} allocations");
}
