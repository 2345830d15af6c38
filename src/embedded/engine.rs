//! The real ClickHouse engine as a child process, with the server's own HTTP port on loopback.
//!
//! Deliberately not a server to put in front of strangers: a connection that ends inside its first
//! request head aborts the engine. Acknowledged rows survive that, so the owner starts it again on
//! the same port ([`Engine::supervise`]) and clients retry.

mod child;
mod files;
mod foreground;
mod library;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use child::{CHILD_COMMAND, run_child};
pub use foreground::run_foreground;
pub use library::{ENGINE_VERSION, LIBRARY_VARIABLE, find as find_library};

use crate::embedded::http::{self, Answer, Request};
use files::Files;

/// How long a start may take; 0.2 s is usual, a loaded machine takes several.
const START_MAX: Duration = Duration::from_secs(60);
/// How long an orderly stop may take before the child is killed.
const STOP_MAX: Duration = Duration::from_secs(10);
/// How often a running or starting child is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Bound on one query of [`Engine::query`].
const QUERY_MAX: Duration = Duration::from_secs(60);
/// Wait before a second start in a row; doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest wait between two starts.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A child that lived this long owes its end to something new: the wait starts over.
const STEADY_AFTER: Duration = Duration::from_secs(10);

/// How much of the child's standard error goes into an error's text.
const COMPLAINT_BYTES_MAX: u64 = 8 << 10;

/// What an engine is started with.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The shared library; `None` looks it up (see [`find_library`]).
    pub library: Option<PathBuf>,
    /// Folder of tables, configuration and password; made if need be, kept at the end.
    pub dir: PathBuf,
    /// Port on 127.0.0.1; 0 lets the system choose at the first start.
    pub http_port: u16,
    /// Database to make; one of its own, as `default` has its quirks here.
    pub database: String,
    /// The binary whose `main` serves [`CHILD_COMMAND`]; `None` is the running one.
    pub program: Option<PathBuf>,
}

impl EngineOptions {
    /// An engine in `dir` on a free port, with the database `tachograph`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        EngineOptions {
            library: None,
            dir: dir.into(),
            http_port: 0,
            database: "tachograph".to_owned(),
            program: None,
        }
    }
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No library where one was named or looked for.
    #[error(
        "the ClickHouse engine is not here (looked at {}); fetch it with: make engine",
        list(.looked_at)
    )]
    LibraryMissing {
        /// Every path that was tried, in order.
        looked_at: Vec<PathBuf>,
    },
    /// No engine is published for this system.
    #[error(
        "there is no embedded ClickHouse engine for this system (x86_64 Linux with glibc only): \
         set the URL of a ClickHouse server"
    )]
    NoEngineForPlatform,
    /// The library is no engine of the pinned version.
    #[error("cannot load the ClickHouse engine {path:?}: {source}; fetch it with: make engine")]
    Load {
        /// The library.
        path: PathBuf,
        /// What the loader said.
        source: libloading::Error,
    },
    /// A file or process of the engine.
    #[error("{path:?}: {source}")]
    Io {
        /// What was worked on.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder's name goes into XML and SQL.
    #[error("the engine's folder {path:?} must have a name in UTF-8")]
    PathNotText {
        /// The folder.
        path: PathBuf,
    },
    /// Such as when the folder or the port is in use.
    #[error("the ClickHouse engine ended before it was ready ({status}): {complaint}")]
    EndedBeforeReady {
        /// How the child ended.
        status: ExitStatus,
        /// The last lines of its standard error.
        complaint: String,
    },
    /// It runs and does not answer.
    #[error("the ClickHouse engine was not ready after {} s: {complaint}", .waited.as_secs())]
    NotReady {
        /// How long was waited.
        waited: Duration,
        /// The last lines of its standard error.
        complaint: String,
    },
    /// By its owner, possibly while it started.
    #[error("the ClickHouse engine is stopped")]
    Stopped,
    /// A query was refused; the text is the engine's.
    #[error("ClickHouse answered {status}, code {code}: {text}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// ClickHouse's error code, 0 if it named none.
        code: i32,
        /// The engine's words.
        text: String,
    },
}

impl EngineError {
    /// For `map_err`: an input or output error at `path`.
    fn at(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> EngineError {
        move |source| EngineError::Io {
            path: path.as_ref().to_path_buf(),
            source,
        }
    }
}

/// A running engine and its owner's side. Dropping it stops the engine.
pub struct Engine {
    shared: Arc<Shared>,
    supervisor: Option<JoinHandle<()>>,
}

/// What the owner and the supervising thread both need.
struct Shared {
    program: PathBuf,
    library: PathBuf,
    files: Files,
    password: String,
    /// Known after the first start and the same ever after.
    port: u16,
    child: Mutex<Option<Child>>,
    restarts: AtomicU64,
    is_stopping: AtomicBool,
    /// Wakes the supervising thread out of its wait; goes with `child`.
    stop_asked: Condvar,
}

impl Engine {
    /// Starts an engine and returns once it answered its own user and has its database.
    ///
    /// # Errors
    /// See [`EngineError`]; a child that was started has ended then.
    pub fn start(options: EngineOptions) -> Result<Engine, EngineError> {
        let library = find_library(options.library.as_deref())?;
        let program = match options.program {
            Some(program) => program,
            None => std::env::current_exe().map_err(EngineError::at("/proc/self/exe"))?,
        };
        let files = Files::in_folder(&options.dir)?;
        let password = files.write()?;
        let mut shared = Shared {
            program,
            library,
            files,
            password,
            port: options.http_port,
            child: Mutex::new(None),
            restarts: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
            stop_asked: Condvar::new(),
        };
        let (child, port) = shared.launch()?;
        shared.port = port;
        *shared.lock() = Some(child);
        // From here on a failure drops the engine, which stops the child.
        let engine = Engine {
            shared: Arc::new(shared),
            supervisor: None,
        };
        let name = options.database.replace('\\', "\\\\").replace('`', "\\`");
        engine.query(&format!("CREATE DATABASE IF NOT EXISTS `{name}`"))?;
        Ok(engine)
    }

    /// Starts the child again whenever it ends by itself, on the same port and folder, until
    /// [`Engine::stop`]. Starts that fail are repeated after 0.1 s, 0.2 s and so on up to 5 s.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn supervise(&mut self) -> Result<(), EngineError> {
        if self.supervisor.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name("clickhouse-owner".to_owned());
            let spawned = thread.spawn(move || shared.keep_running());
            self.supervisor = Some(spawned.map_err(EngineError::at("thread"))?);
        }
        Ok(())
    }

    /// The address of the HTTP port, such as `http://127.0.0.1:8123`.
    pub fn url(&self) -> String {
        format!("http://{}", self.shared.authority())
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.shared.port
    }

    /// The user to log in as; it may do everything.
    pub fn user(&self) -> &str {
        files::USER
    }

    /// That user's password, random per folder.
    pub fn password(&self) -> &str {
        &self.shared.password
    }

    /// The file (mode 0600) that holds the password.
    pub fn password_file(&self) -> PathBuf {
        self.shared.files.password()
    }

    /// How often the child was started again after it had ended by itself.
    pub fn restarts(&self) -> u64 {
        self.shared.restarts.load(Ordering::Acquire)
    }

    /// The child's process id, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.shared.lock().as_ref().map(Child::id)
    }

    /// Runs one statement as [`Engine::user`] and returns the answer's text, unchanged.
    ///
    /// # Errors
    /// [`EngineError::Refused`] with ClickHouse's code, [`EngineError::Io`] without a connection.
    pub fn query(&self, sql: &str) -> Result<String, EngineError> {
        self.shared.query(sql, QUERY_MAX)
    }

    /// Ends the engine: in order within 10 s, else by force. Tables stay. Does nothing twice.
    pub fn stop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        // Taken and given back, so that the supervisor is either before its look at the flag or
        // already waiting: the wake-up cannot fall between the two.
        drop(self.shared.lock());
        self.shared.stop_asked.notify_all();
        if let Some(supervisor) = self.supervisor.take() {
            // A panic there was already printed; the child is ended below all the same.
            let _ = supervisor.join();
        }
        if let Some(child) = self.shared.lock().take() {
            end(child);
        }
    }

    /// Kills the child as a crash would (SIGKILL). With [`Engine::supervise`] it comes back.
    ///
    /// # Errors
    /// The child has ended already.
    pub fn kill(&self) -> Result<(), EngineError> {
        match self.shared.lock().as_mut() {
            Some(child) => child.kill().map_err(EngineError::at("kill")),
            None => Err(EngineError::Stopped),
        }
    }
}

/// Without the password.
impl fmt::Debug for Engine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Engine")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        // No step under the lock leaves it half done, so a poisoned one is as good.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn query(&self, sql: &str, timeout: Duration) -> Result<String, EngineError> {
        query_at(&self.authority(), &self.password, sql, timeout)
    }

    /// One start: spawns the child, waits for its port and for its answer to our own password.
    fn launch(&self) -> Result<(Child, u16), EngineError> {
        let port_file = self.files.port();
        match fs::remove_file(&port_file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(EngineError::at(&port_file)(error));
            }
            _ => {}
        }
        let complaints = self.files.complaints();
        let stderr = File::create(&complaints).map_err(EngineError::at(&complaints))?;
        let mut child = Command::new(&self.program)
            .arg(CHILD_COMMAND)
            .arg(&self.library)
            .arg(self.files.folder())
            .arg(self.port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(EngineError::at(&self.program))?;
        match self.await_ready(&mut child) {
            Ok(port) => Ok((child, port)),
            Err(error) => {
                end(child);
                Err(error)
            }
        }
    }

    fn await_ready(&self, child: &mut Child) -> Result<u16, EngineError> {
        let port_file = self.files.port();
        let started = Instant::now();
        loop {
            if self.is_stopping.load(Ordering::Acquire) {
                return Err(EngineError::Stopped);
            }
            if let Some(status) = child.try_wait().map_err(EngineError::at("wait"))? {
                return Err(EngineError::EndedBeforeReady {
                    status,
                    complaint: self.complaint(),
                });
            }
            // Only our own child writes that file, so another server on the port is not taken
            // for it; and no connection is opened before there is one to answer.
            if let Some(port) = fs::read_to_string(&port_file)
                .ok()
                .and_then(|t| port_in(&t))
            {
                let authority = format!("127.0.0.1:{port}");
                let answer = query_at(&authority, &self.password, files::IS_LOCKED, START_MAX);
                if answer.is_ok_and(|text| text == "1\n") {
                    return Ok(port);
                }
            }
            if started.elapsed() > START_MAX {
                let complaint = self.complaint();
                return Err(EngineError::NotReady {
                    waited: START_MAX,
                    complaint,
                });
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// The last lines of the child's standard error, without the frames of a stack trace.
    fn complaint(&self) -> String {
        let tail = || -> io::Result<String> {
            let mut file = File::open(self.files.complaints())?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(COMPLAINT_BYTES_MAX)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = tail().unwrap_or_default();
        let said: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !is_frame(line))
            .collect();
        if said.is_empty() {
            "it said nothing".to_owned()
        } else {
            said.join("; ")
        }
    }

    /// The supervising thread.
    fn keep_running(&self) {
        let mut backoff = BACKOFF_MIN;
        let mut started = Instant::now();
        while self.wait_for_end() {
            if started.elapsed() >= STEADY_AFTER {
                backoff = BACKOFF_MIN;
            }
            started = Instant::now();
            match self.launch() {
                Ok((child, _)) => {
                    *self.lock() = Some(child);
                    self.restarts.fetch_add(1, Ordering::Release);
                    tracing::warn!(port = self.port, "ClickHouse engine ended, started again");
                }
                Err(EngineError::Stopped) => return,
                Err(error) => tracing::warn!(%error, "ClickHouse engine did not start again"),
            }
            if self.pause(backoff) {
                return;
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Waits until the child has ended by itself (true) or the owner stops (false).
    fn wait_for_end(&self) -> bool {
        let mut slot = self.lock();
        loop {
            if self.is_stopping.load(Ordering::Acquire) {
                return false;
            }
            let has_ended = match slot.as_mut() {
                Some(child) => !matches!(child.try_wait(), Ok(None)),
                None => true,
            };
            if has_ended {
                *slot = None;
                return true;
            }
            slot = match self.stop_asked.wait_timeout(slot, LOOK_EVERY) {
                Ok((slot, _)) => slot,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Waits `length`, or less if the owner stops; true if it does.
    fn pause(&self, length: Duration) -> bool {
        let asked = || self.is_stopping.load(Ordering::Acquire);
        let slot = self.lock();
        drop(
            self.stop_asked
                .wait_timeout_while(slot, length, |_| !asked()),
        );
        asked()
    }
}

fn query_at(
    authority: &str,
    password: &str,
    sql: &str,
    timeout: Duration,
) -> Result<String, EngineError> {
    let headers = [
        ("X-ClickHouse-User", files::USER),
        ("X-ClickHouse-Key", password),
    ];
    let request = Request {
        method: "POST",
        target: "/",
        headers: &headers,
        body: sql.as_bytes(),
        timeout,
    };
    let answer = http::exchange(authority, &request).map_err(EngineError::at(authority))?;
    accept(&answer)
}

/// The text of an answer, or ClickHouse's refusal.
fn accept(answer: &Answer) -> Result<String, EngineError> {
    let code = answer
        .header("x-clickhouse-exception-code")
        .and_then(|code| code.parse().ok());
    if answer.status == 200 && code.is_none() {
        return Ok(answer.text());
    }
    Err(EngineError::Refused {
        status: answer.status,
        code: code.unwrap_or(0),
        text: answer.text().trim().to_owned(),
    })
}

/// The port in the child's file, once its line is complete.
fn port_in(text: &str) -> Option<u16> {
    text.strip_suffix('\n')?
        .parse()
        .ok()
        .filter(|port| *port != 0)
}

/// A frame such as `12. name @ 0x000000001c8fa579`, which tells a user nothing.
fn is_frame(line: &str) -> bool {
    line.starts_with(|first: char| first.is_ascii_digit()) && line.contains(" @ 0x")
}

/// Ends a child: closes its standard input, waits, then kills. It is reaped either way.
fn end(mut child: Child) {
    drop(child.stdin.take());
    let asked = Instant::now();
    while asked.elapsed() < STOP_MAX {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    // It ended in the meantime if this fails, and `wait` then returns at once.
    let _ = child.kill();
    let _ = child.wait();
}

fn list(paths: &[PathBuf]) -> String {
    let texts: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_counts_once_its_line_is_complete() {
        assert_eq!(port_in("8123\n"), Some(8123));
        assert_eq!(
            (port_in("812"), port_in(""), port_in("0\n")),
            (None, None, None)
        );
    }
}
