//! What the tests with real parts share: a broker, an engine, a Prometheus, a bad wire, and waiting.
//!
//! Deliberately no mocks. A part that is missing fails with the one line that installs it; each one
//! ends when the test process ends, however that happens. A test binary says `mod support;` and
//! uses what it needs, hence the one `allow`.
#![allow(dead_code)]

pub mod daemon;
pub mod engine;
pub mod kafka;
pub mod member;
pub mod prometheus;
pub mod proxy;
pub mod rows;
pub mod secure;
#[cfg(feature = "tls")]
pub mod tls;
pub mod wait;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// `target/tmp/run-<pid>`. What dead test processes left there is removed first.
static RUN_FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(all).expect("target/tmp can be made");
    for entry in fs::read_dir(all).expect("target/tmp can be read").flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        if let Some(pid) = name.strip_prefix("run-")
            && !Path::new("/proc").join(pid).exists()
        {
            // Another test process may be removing the same one.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let own = all.join(format!("run-{}", std::process::id()));
    fs::create_dir_all(&own).expect("a folder in target/tmp can be made");
    own
});

static NEXT: AtomicU32 = AtomicU32::new(1);

/// A name no other test of this or another running process has, valid for topics, groups and
/// databases.
pub fn unique(name: &str) -> String {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{name}_{}_{number}", std::process::id())
}

/// A new folder for one test, removed when a later test process starts.
pub fn scratch(name: &str) -> PathBuf {
    let folder = RUN_FOLDER.join(unique(name));
    fs::create_dir_all(&folder).expect("a folder in target/tmp can be made");
    folder
}

/// The build's target folder, wherever cargo was told to put it.
pub fn target_folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("target/tmp lies in target")
}

/// Notes that a real `part` served a test. `make test` fails where such a note is missing, so that
/// a run which skipped a part cannot pass for a green one.
pub fn mark_real_part(part: &str) {
    let folder = target_folder().join("real-parts");
    fs::create_dir_all(&folder).expect("target/real-parts can be made");
    fs::write(folder.join(part), "served a test\n").expect("target/real-parts can be written");
}

/// The last `lines` lines of a log, for messages of failure.
pub fn tail(path: &Path, lines: usize) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
