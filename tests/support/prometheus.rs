//! A real Prometheus of a test's own, and promtool.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;
use tachograph::embedded::http::{self, Request};

use super::{mark_real_part, scratch, tail, wait};

const INSTALL: &str = "apt-get install -y --no-install-recommends prometheus";
/// Bound on the start and on the first scrape; a loaded machine once took more than 5 s.
const PATIENCE: Duration = Duration::from_secs(60);
const REQUEST_MAX: Duration = Duration::from_secs(10);

/// What is scraped, every second.
#[derive(Debug, Clone)]
pub struct Target {
    /// The job's name.
    pub job: String,
    /// Host and port; the path is `/metrics`.
    pub authority: String,
}

impl Target {
    /// A job that scrapes `authority`.
    pub fn new(job: &str, authority: &str) -> Target {
        Target {
            job: job.to_owned(),
            authority: authority.to_owned(),
        }
    }
}

/// One series of an instant query's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// All labels, `__name__` included.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

/// A Prometheus that runs until this is dropped or the process ends.
pub struct Prometheus {
    authority: String,
    log: PathBuf,
    owner: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Prometheus {
    /// Starts one that scrapes `targets` and waits until it is ready.
    pub fn start(targets: &[Target]) -> Prometheus {
        Self::start_with_rules(targets, &[])
    }

    /// The same, which also evaluates rule files every second.
    pub fn start_with_rules(targets: &[Target], rules: &[&Path]) -> Prometheus {
        let folder = scratch("prometheus");
        fs::write(folder.join("prometheus.yml"), configuration(targets, rules))
            .expect("the scratch folder can be written");
        // The port is free when asked for and may be taken when used: then the process ends.
        let mut last = String::new();
        for _ in 0..3 {
            match Self::launch(&folder) {
                Ok(prometheus) => return prometheus,
                Err(reason) => last = reason,
            }
        }
        panic!("Prometheus did not start: {last}");
    }

    fn launch(folder: &Path) -> Result<Prometheus, String> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let authority = listener.local_addr().expect("it is bound").to_string();
        drop(listener);
        let log = folder.join("prometheus.log");
        let mut command = Command::new("prometheus");
        command
            .arg(format!(
                "--config.file={}",
                folder.join("prometheus.yml").display()
            ))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("data").display()
            ))
            .arg(format!("--web.listen-address={authority}"))
            .args([
                "--log.level=warn",
                "--enable-feature=exemplar-storage,native-histograms",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("the scratch folder can be written"));
        let owner = own(command).unwrap_or_else(|error| panic!("{}", missing(&error)));
        let prometheus = Prometheus {
            authority,
            log,
            owner: Some(owner),
        };
        let is_ready = wait::until("Prometheus answers or ends", PATIENCE, || match prometheus
            .get("/-/ready")
        {
            Ok((200, _)) => Some(true),
            _ if prometheus.has_ended() => Some(false),
            _ => None,
        });
        if is_ready {
            Ok(prometheus)
        } else {
            Err(tail(&prometheus.log, 10))
        }
    }

    /// The address, such as `http://127.0.0.1:9090`.
    pub fn url(&self) -> String {
        format!("http://{}", self.authority)
    }

    /// Host and port.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Waits until the last scrape of every target of `job` succeeded.
    pub fn wait_up(&self, job: &str) {
        wait::until(&format!("job {job} is scraped"), PATIENCE, || {
            let series = self.query(&format!("up{{job=\"{job}\"}}"));
            (!series.is_empty() && series.iter().all(|one| one.value == 1.0)).then_some(())
        });
        mark_real_part("prometheus");
    }

    /// The answer to an instant query, sorted by labels.
    ///
    /// # Panics
    /// If the query is refused.
    pub fn query(&self, promql: &str) -> Vec<Series> {
        let target = format!("/api/v1/query?query={}", http::percent_encode(promql));
        let answer = self.api(&target);
        let result = answer["data"]["result"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let mut series: Vec<Series> = result.iter().map(series_of).collect();
        series.sort_by(|one, other| one.labels.cmp(&other.labels));
        series
    }

    /// The value of a query that has exactly one series, or none yet.
    pub fn value(&self, promql: &str) -> Option<f64> {
        let series = self.query(promql);
        assert!(
            series.len() < 2,
            "{promql}: more than one series: {series:?}"
        );
        series.first().map(|one| one.value)
    }

    /// Any `GET` of the API; `target` is already percent-encoded.
    ///
    /// # Panics
    /// If there is no answer, or not `"status": "success"`.
    pub fn api(&self, target: &str) -> Value {
        let (status, text) = self.get(target).unwrap_or_else(|error| {
            panic!("Prometheus, {target}: {error}\n{}", tail(&self.log, 10))
        });
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        assert!(
            answer["status"] == "success",
            "Prometheus, {target}: {status} {text}"
        );
        answer
    }

    fn get(&self, target: &str) -> io::Result<(u16, String)> {
        let answer = http::exchange(&self.authority, &Request::get(target, REQUEST_MAX))?;
        Ok((answer.status, answer.text()))
    }

    fn has_ended(&self) -> bool {
        self.owner
            .as_ref()
            .is_none_or(|(_, thread)| thread.is_finished())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.owner.take() {
            drop(stop);
            // It waits for a killed process only.
            let _ = thread.join();
        }
    }
}

/// Runs `command` on a thread of its own until the sender is dropped or the process ends.
///
/// The kernel kills it when the thread that started it ends, and with that at the latest when this
/// process does: hence not on the thread of whichever test came first.
fn own(mut command: Command) -> io::Result<(mpsc::Sender<()>, JoinHandle<()>)> {
    let (stop, stopped) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    // SAFETY: between fork and exec only one system call is made.
    unsafe {
        command.pre_exec(
            || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            },
        );
    }
    let thread = thread::spawn(move || match command.spawn() {
        Ok(child) => {
            let _ = tell.send(Ok(()));
            keep(child, &stopped);
        }
        Err(error) => {
            let _ = tell.send(Err(error));
        }
    });
    told.recv().expect("the thread tells how the start went")?;
    Ok((stop, thread))
}

fn keep(mut child: Child, stopped: &mpsc::Receiver<()>) {
    let look_every = Duration::from_millis(100);
    while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(look_every) {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn configuration(targets: &[Target], rules: &[&Path]) -> String {
    let mut text = String::from("global: {scrape_interval: 1s, evaluation_interval: 1s}\n");
    text.push_str("rule_files:\n");
    for rule in rules {
        text.push_str(&format!("  - {:?}\n", rule.display().to_string()));
    }
    text.push_str("scrape_configs:\n");
    for Target { job, authority } in targets {
        text.push_str(&format!(
            "  - job_name: {job:?}\n    static_configs: [{{targets: [{authority:?}]}}]\n"
        ));
    }
    text
}

fn series_of(result: &Value) -> Series {
    let labels = result["metric"]
        .as_object()
        .expect("an instant vector")
        .iter();
    let labels = labels.map(|(key, value)| {
        (
            key.clone(),
            value.as_str().expect("labels are text").to_owned(),
        )
    });
    let value = result["value"][1].as_str().expect("a value is text");
    let value = value.parse().expect("NaN, +Inf and numbers read as f64");
    Series {
        labels: labels.collect(),
        value,
    }
}

/// `promtool check metrics` over a scrape body in the text format (OpenMetrics does not parse).
///
/// # Panics
/// If it does not parse (exit code 1) or a rule of style is broken (3), with promtool's words.
pub fn check_metrics(body: &str) {
    let (status, words) = promtool(&["check", "metrics"], body);
    assert!(
        status.success(),
        "promtool check metrics: {status}\n{words}"
    );
}

/// `promtool check rules` over the text of a rule file.
///
/// # Panics
/// If a rule or an expression is refused.
pub fn check_rules(rules: &str) {
    let file = scratch("rules").join("rules.yml");
    fs::write(&file, rules).expect("the scratch folder can be written");
    let (status, words) = promtool(&["check", "rules", &file.display().to_string()], "");
    assert!(status.success(), "promtool check rules: {status}\n{words}");
}

/// Runs promtool; its status and all it said.
pub fn promtool(arguments: &[&str], input: &str) -> (ExitStatus, String) {
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}", missing(&error)));
    let mut pipe = child.stdin.take().expect("it was asked for");
    // promtool reads all before it says anything, so this cannot block for ever. It may end early,
    // and then its status tells.
    let _ = pipe.write_all(input.as_bytes());
    drop(pipe);
    let done = child.wait_with_output().expect("it was started");
    let mut words = String::from_utf8_lossy(&done.stdout).into_owned();
    words.push_str(&String::from_utf8_lossy(&done.stderr));
    (done.status, words)
}

fn missing(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("Prometheus is missing; install it with: {INSTALL}"),
        _ => format!("Prometheus cannot be run: {error}"),
    }
}
