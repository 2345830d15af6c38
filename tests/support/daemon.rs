//! The built daemon as a process of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tachograph::embedded::http::{self, Request};

use super::kafka::PATIENCE;
use super::{tail, wait};

/// A running `tachograph run`, killed when dropped.
pub struct Daemon {
    pub child: Child,
    pub log: PathBuf,
    pub authority: String,
}

impl Daemon {
    /// Starts it, and does not wait for anything. `password` is what `TEST_PASSWORD` holds; `more`
    /// follows on the command line. Both its outputs go to `log`.
    pub fn spawn(config: &Path, log: &Path, password: &str, more: &[&str]) -> Daemon {
        Daemon::spawn_at(None, config, log, password, more)
    }

    /// As [`Daemon::spawn`], with a level of the log.
    fn spawn_at(
        level: Option<&str>,
        config: &Path,
        log: &Path,
        password: &str,
        more: &[&str],
    ) -> Daemon {
        let errors = File::create(log).expect("a log file can be made");
        let output = errors.try_clone().expect("a file descriptor is left");
        let child = Command::new(env!("CARGO_BIN_EXE_tachograph"))
            .args(["run", "--config"])
            .arg(config)
            .args(more)
            .env("TEST_PASSWORD", password)
            .env_remove("RUST_LOG")
            .envs(level.map(|level| ("RUST_LOG", level)))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .expect("the binary starts");
        Daemon {
            child,
            log: log.to_owned(),
            authority: String::new(),
        }
    }

    /// Starts it, and waits until it listens.
    pub fn start(config: &Path, log: &Path, password: &str, more: &[&str]) -> Daemon {
        Daemon::spawn(config, log, password, more).listening()
    }

    /// As [`Daemon::start`], logging everything that can be logged.
    pub fn start_talkative(config: &Path, log: &Path, password: &str) -> Daemon {
        Daemon::spawn_at(Some("trace"), config, log, password, &[]).listening()
    }

    fn listening(mut self) -> Daemon {
        self.authority = wait::until("it listens", PATIENCE, || {
            let text = fs::read_to_string(&self.log).unwrap_or_default();
            let line = text.lines().find(|line| line.contains("\"listening\""))?;
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(line["address"].as_str()?.to_owned())
        });
        self
    }

    pub fn get(&self, target: &str) -> Option<(u16, String)> {
        let request = Request::get(target, Duration::from_secs(10));
        let answer = http::exchange(&self.authority, &request).ok()?;
        Some((answer.status, answer.text()))
    }

    pub fn until_ready(&self) {
        wait::until_eq("ready", PATIENCE, Some(200), || {
            self.get("/healthz/ready").map(|(status, _)| status)
        });
    }

    /// The reasons of `/healthz/ready`, which must not be 200 for ever after.
    pub fn until_unready_for(&self, words: &str) {
        wait::until(&format!("unready for {words}"), PATIENCE, || {
            let (status, text) = self.get("/healthz/ready")?;
            (status == 503 && text.contains(words)).then_some(())
        });
    }

    /// Sum of every series of `family` whose labels contain all of `labels`.
    pub fn metric(&self, family: &str, labels: &[&str]) -> u64 {
        let (_, text) = self.get("/metrics").unwrap_or_default();
        let ours = text.lines().filter(|line| {
            let rest = line.strip_prefix(family);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        });
        let values = ours.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        values.sum::<f64>() as u64
    }

    pub fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.child.id()).expect("a process id");
        // SAFETY: the child is ours and not waited for yet, so the id is still its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    pub fn end(&mut self) -> ExitStatus {
        wait::until("the daemon ends", PATIENCE, || {
            self.child.try_wait().ok().flatten()
        })
    }

    /// An orderly end, which must be one.
    pub fn stop(mut self) {
        self.signal(libc::SIGTERM);
        let status = self.end();
        assert_eq!(status.code(), Some(0), "{}", tail(&self.log, 20));
    }

    pub fn kill(mut self) {
        self.signal(libc::SIGKILL);
        self.end();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", tail(&self.log, 30));
        }
    }
}
