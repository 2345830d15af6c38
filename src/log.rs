//! How the daemon logs: human on a terminal, else JSON; quiet when all is well.
//!
//! Deliberately no log line per record, and none that repeats: a trouble that lasts says so once a
//! minute.

use crate::clock::Clock;
use crate::config::LogFormat;
use crate::core::Now;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;
use tracing_subscriber::EnvFilter;

/// How often one trouble may be logged.
const REPEAT: Duration = Duration::from_secs(60);

static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::new);
static LOGGED: Mutex<BTreeMap<String, Now>> = Mutex::new(BTreeMap::new());

/// Sets up logging to standard error; `RUST_LOG` decides over levels, else `info`.
pub fn init(format: LogFormat) {
    // librdkafka's own lines repeat what its errors say.
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("info,rdkafka=error,librdkafka=error"));
    let is_human = match format {
        LogFormat::Human => true,
        LogFormat::Json => false,
        LogFormat::Auto => std::io::stderr().is_terminal(),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // A second call, in a test, keeps the first set-up.
    let _ = match is_human {
        true => builder.with_target(false).try_init(),
        false => builder.json().flatten_event(true).try_init(),
    };
}

/// True where the trouble called `key` was not logged within the last minute; then it counts as
/// logged now.
pub fn is_due(key: &str) -> bool {
    let now = CLOCK.now();
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    // The keys are a closed set, but for a name or two within them.
    if logged.len() > 1_000 {
        logged.retain(|_, at| now.0 - at.0 < REPEAT);
    }
    let is_due = logged.get(key).is_none_or(|at| now.0 - at.0 >= REPEAT);
    if is_due {
        logged.insert(key.to_owned(), now);
    }
    is_due
}

/// Logs a warning at most once a minute for each key.
#[macro_export]
macro_rules! warn_rarely {
    ($key:expr, $($rest:tt)+) => {
        if $crate::log::is_due($key) {
            tracing::warn!($($rest)+);
        }
    };
}
