//! How the daemon logs: human on a terminal, else JSON; quiet when all is well, and silent about
//! content even in a crash.
//!
//! Deliberately no log line per record, and none that repeats: a trouble that lasts says so once a
//! minute.

use crate::clock::Clock;
use crate::config::LogFormat;
use crate::core::Now;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::panic::PanicHookInfo;
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

/// From here on a crash shows no content: a panic says where it was and not what was at hand, and
/// the system writes no image of the memory. `prlimit --core` allows one again.
pub fn guard_crashes() {
    std::panic::set_hook(Box::new(|info| {
        let mut text = crash_text(info);
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            text.push_str(&format!("\n{trace}"));
        }
        // Where not even that can be written, nothing can.
        let _ = writeln!(std::io::stderr(), "tachograph: {text}");
    }));
    #[cfg(unix)]
    no_core_file();
}

/// Where a panic was. Its words only where the program holds them: composed ones may quote a
/// record, as those of the standard library do when a text is cut inside a character.
fn crash_text(info: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("without name");
    let place = info
        .location()
        .map_or_else(String::new, ToString::to_string);
    let words = info.payload().downcast_ref::<&'static str>();
    let words = words.unwrap_or(&"(its words may hold content: see that line of the source)");
    format!("panicked at {place} in thread {thread}: {words}")
}

#[cfg(unix)]
fn no_core_file() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls read or write the one structure they are given, which outlives them.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit) == 0 {
            // The hard limit stays, so that the owner can allow it again.
            limit.rlim_cur = 0;
            libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic;

    #[test]
    fn a_panic_says_where_and_not_what_was_at_hand() {
        static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let usual = panic::take_hook();
        panic::set_hook(Box::new(|info| {
            let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
            said.push(crash_text(info));
        }));
        let secret = String::from("é open sesame");
        let bytes: Result<&str, Vec<u8>> = Err(secret.clone().into_bytes());
        let panics: [&(dyn Fn() + panic::RefUnwindSafe); 4] = [
            &|| drop(secret[..1].to_owned()),
            &|| assert!(bytes.as_ref().unwrap().is_empty()),
            &|| panic!("about {secret}"),
            &|| panic!("words of the program"),
        ];
        for panics in panics {
            assert!(panic::catch_unwind(panics).is_err());
        }
        panic::set_hook(usual);
        let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        let ours: Vec<&String> = said.iter().filter(|text| text.contains(file!())).collect();
        assert_eq!(ours.len(), 4, "{said:?}");
        assert!(!said.iter().any(|text| text.contains("sesame")), "{said:?}");
        assert!(ours[3].ends_with(": words of the program"), "{ours:?}");
        assert!(ours[0].contains("log.rs:"), "{ours:?}");
    }
}
