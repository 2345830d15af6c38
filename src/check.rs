//! `tachograph check`: every connection and right that the daemon needs, tried in turn.
//!
//! Deliberately without a trace: it joins no group, writes no record and no row, and takes away the
//! state file that it makes. What depends on something that failed is skipped and says so.

mod clickhouse;
mod kafka;
mod network;

use crate::config::{Config, Problem};
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::net::{TcpListener, ToSocketAddrs as _};
use std::path::Path;

/// How one thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    /// The daemon works, and something is weaker for it.
    Warning,
    /// It must be made, or started.
    Missing,
    /// It is there, and this login may not.
    Refused,
    /// The file, or this machine, must be changed.
    Wrong,
    /// Not tried, since it depends on what failed.
    Skipped,
}

impl Verdict {
    /// The word that a line begins with.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Missing => "missing",
            Verdict::Refused => "refused",
            Verdict::Wrong => "wrong",
            Verdict::Skipped => "skipped",
        }
    }
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub verdict: Verdict,
    /// What was tried, such as `topic`.
    pub what: &'static str,
    /// What was found, and what to do about it.
    pub says: String,
    /// The exit code that it asks for (config.md, "Exit codes"); 0: none.
    pub code: u8,
}

/// Something that is missing now and may come by itself: the daemon would wait for it.
const UNAVAILABLE: u8 = 69;
/// A file that cannot be made.
const CANNOT_CREATE: u8 = 73;
/// A login or a right that is refused.
const NO_PERMISSION: u8 = 77;
const CONFIGURATION: u8 = 78;

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = self.verdict.as_str();
        write!(f, "{verdict:<8} {:<13} {}", self.what, self.says)
    }
}

/// Tells each finding as it comes.
struct Report<'t> {
    told: &'t mut dyn FnMut(&Finding),
    code: u8,
}

impl Report<'_> {
    fn say(&mut self, verdict: Verdict, what: &'static str, says: impl Into<String>) {
        let code = match verdict {
            Verdict::Ok | Verdict::Warning | Verdict::Skipped => 0,
            Verdict::Missing => UNAVAILABLE,
            Verdict::Refused => NO_PERMISSION,
            Verdict::Wrong => CONFIGURATION,
        };
        self.say_with(verdict, what, says, code);
    }

    fn say_with(
        &mut self,
        verdict: Verdict,
        what: &'static str,
        says: impl Into<String>,
        code: u8,
    ) {
        self.code = self.code.max(code);
        (self.told)(&Finding {
            verdict,
            what,
            says: says.into(),
            code,
        });
    }
}

/// Tries everything that `config` says. Gives back the gravest exit code: 78 before 77, 73, 69, 0.
///
/// # Errors
/// Where the system gives no runtime.
pub fn run(config: &Config, told: &mut dyn FnMut(&Finding)) -> io::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut report = Report { told, code: 0 };
    report.say(Verdict::Ok, "configuration", "no problems");
    kafka::check(config, &runtime, &mut report);
    clickhouse::check(config, &runtime, &mut report);
    listen(&config.http_listen, &mut report);
    if !config.state_file.is_empty() {
        state_file(Path::new(&config.state_file), &mut report);
    }
    Ok(report.code)
}

/// The findings of a configuration that cannot be used.
pub fn of_problems(problems: &[Problem]) -> Vec<Finding> {
    let wrong = |problem: &Problem| Finding {
        verdict: Verdict::Wrong,
        what: "configuration",
        says: problem.to_string(),
        code: CONFIGURATION,
    };
    problems.iter().map(wrong).collect()
}

fn listen(address: &str, report: &mut Report<'_>) {
    let resolved = match address.to_socket_addrs() {
        Ok(mut addresses) => addresses.next(),
        Err(_) => None,
    };
    let Some(resolved) = resolved else {
        let says = format!("{address} is no address of this machine: set http.listen");
        return report.say(Verdict::Wrong, "http", says);
    };
    match TcpListener::bind(resolved) {
        Ok(_) => report.say(Verdict::Ok, "http", format!("{address} is free")),
        Err(error) => {
            let says = format!(
                "{address}: {error}: end what listens there (a running tachograph?), or set \
                 http.listen"
            );
            report.say(Verdict::Missing, "http", says);
        }
    }
}

fn state_file(path: &Path, report: &mut Report<'_>) {
    let shown = path.display();
    let tried = match path.exists() {
        true => OpenOptions::new().append(true).open(path).map(drop),
        false => try_to_create(path),
    };
    match tried {
        Ok(()) => report.say(Verdict::Ok, "state file", format!("{shown} can be written")),
        Err(error) => {
            let says = format!("{shown}: {error}: make its folder, and let this user write there");
            report.say_with(Verdict::Refused, "state file", says, CANNOT_CREATE);
        }
    }
}

/// Makes the file and takes it away again.
fn try_to_create(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?;
    std::fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(act: impl FnOnce(&mut Report<'_>)) -> (u8, Vec<String>) {
        let mut lines = Vec::new();
        let mut hear = |finding: &Finding| lines.push(finding.to_string());
        let mut report = Report {
            told: &mut hear,
            code: 0,
        };
        act(&mut report);
        (report.code, lines)
    }

    #[test]
    fn the_gravest_code_counts() {
        let (code, lines) = told(|report| {
            report.say(Verdict::Refused, "topic", "a");
            report.say(Verdict::Missing, "topic", "b");
            report.say(Verdict::Ok, "dead letters", "c");
        });
        assert_eq!(code, 77);
        assert_eq!(lines[2], "ok       dead letters  c");
    }

    #[test]
    fn an_address_in_use_is_69() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = taken.local_addr().expect("an address").to_string();
        let (code, lines) = told(|report| listen(&address, report));
        assert_eq!(code, 69);
        assert!(lines[0].contains("http.listen"), "{lines:?}");
        drop(taken);
        assert_eq!(told(|report| listen(&address, report)).0, 0);
    }

    #[test]
    fn a_state_file_is_tried_and_leaves_no_trace() {
        let folder = std::env::temp_dir().join(format!("tachograph-check-{}", std::process::id()));
        let path = folder.join("state");
        let (code, lines) = told(|report| state_file(&path, report));
        assert_eq!(code, 73, "{lines:?}");
        std::fs::create_dir(&folder).expect("a folder can be made");
        assert_eq!(told(|report| state_file(&path, report)).0, 0);
        assert!(!path.exists());
        std::fs::remove_dir(&folder).expect("it is empty");
    }
}
