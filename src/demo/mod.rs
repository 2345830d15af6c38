//! `tachograph demo`: the whole of it on one machine, with captured runs of real agents.
//!
//! Deliberately the same daemon, sink and views as in production: only Kafka is librdkafka's mock
//! cluster, and ClickHouse the embedded engine. Nothing here decides anything about data.

mod check;
pub mod corpus;
pub mod ledger;
mod metrics;
mod producer;
mod summary;

use crate::clickhouse_sink::schema;
use crate::config::{Config, LogFormat, Secret};
use crate::daemon::{self, DaemonError, sink_config};
use crate::embedded::engine::{Engine, EngineError, EngineOptions};
use crate::shutdown::{Shutdown, State};
use clap::Args;
use corpus::Recording;
use metrics::Scrape;
use producer::{Cluster, PARTITIONS, Play, Progress, STRETCH, TOPIC};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tracing_subscriber::EnvFilter;

/// The demo's own database: it is emptied at each start, so that no other one ever is.
const DATABASE: &str = "tachograph_demo";
/// Where `/metrics` listens if nobody else does.
const METRICS_PORT: u16 = 9464;
/// For the daemon to say where it listens.
const START_MAX: Duration = Duration::from_secs(30);

/// Arguments of `tachograph demo`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  tachograph demo               replays captured runs until Ctrl-C
  tachograph demo --pace 10     ten times as fast
  tachograph demo --once        one pass; exit code 0 if every sum is right, else 1")]
pub struct DemoArgs {
    /// One pass as fast as it goes, then compare every sum with the truth
    #[arg(long)]
    pub once: bool,
    /// How fast the runs are replayed: at 1, all of them within 25 s
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = pace)]
    pub pace: f64,
    /// Folder of the ClickHouse tables, its password and the log; kept
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    pub dir: PathBuf,
    /// Port of /metrics on 127.0.0.1 [default: 9464, or a free one if it is taken]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
}

fn pace(text: &str) -> Result<f64, String> {
    let pace: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match (0.1..=100.0).contains(&pace) {
        true => Ok(pace),
        false => Err("must be between 0.1 and 100".to_owned()),
    }
}

/// Why there is no demo, or no more.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the tables cannot be made: {0}")]
    Schema(#[from] schema::ApplyError),
    #[error("the mock cluster: {0}")]
    Kafka(#[from] rdkafka::error::KafkaError),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error("the daemon ended by itself; its log says why")]
    DaemonEnded,
    #[error("interrupted before the sums could be compared")]
    Interrupted,
    #[error("/metrics does not answer: {0}")]
    Metrics(io::Error),
    #[error("{path:?}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

impl DemoError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> DemoError {
        let path = path.to_owned();
        move |source| DemoError::Io { path, source }
    }
}

/// Runs the demo. True: it ended as it should, and with `--once` every sum was right.
///
/// # Errors
/// A part that does not start, or that ended by itself.
pub fn run(args: &DemoArgs) -> Result<bool, DemoError> {
    fs::create_dir_all(&args.dir).map_err(DemoError::at(&args.dir))?;
    let log = args.dir.join("daemon.log");
    log_into(File::create(&log).map_err(DemoError::at(&log))?);
    put("starting ClickHouse and Kafka\n");
    let mut engine = started_engine(&args.dir)?;
    let cluster = Cluster::start()?;
    let config = config(args, &engine, &cluster);
    schema::apply_blocking(&sink_config(
        &config.clickhouse,
        config.limits.work_in_flight_max,
    )?)?;
    let recordings = corpus::recordings();
    let (daemon, address) = listening(config, args.port)?;
    let stage = Stage {
        engine: &engine,
        shutdown: &daemon.shutdown,
        address,
        recordings: &recordings,
        dir: &args.dir,
    };
    put(&banner(&stage, &cluster.brokers(), &log));
    let ended = perform(&stage, &cluster.brokers(), args);
    let left = daemon.leave();
    engine.stop();
    // Where the daemon ended by itself, that is the reason for everything else.
    left?;
    ended
}

/// Plays the recordings while somebody watches.
fn perform(stage: &Stage<'_>, brokers: &str, args: &DemoArgs) -> Result<bool, DemoError> {
    let progress = Arc::new(Progress::default());
    let play = match args.once {
        true => Play::Once,
        false => Play::Looped { pace: args.pace },
    };
    thread::scope(|scope| {
        let producer = scope.spawn(|| producer::play(brokers, stage.recordings, play, &progress));
        let watched = match args.once {
            true => check::wait(stage, &progress)
                .and_then(|is_settled| check::compare(stage, is_settled)),
            false => {
                summary::show(stage, &progress);
                Ok(true)
            }
        };
        progress.stop();
        let sent = producer.join();
        let is_right = watched?;
        // A panic there was already printed.
        match sent {
            Ok(sent) => sent.map(|()| is_right).map_err(DemoError::from),
            Err(_) => Ok(false),
        }
    })
}

/// The engine with an empty database.
fn started_engine(dir: &Path) -> Result<Engine, DemoError> {
    let mut options = EngineOptions::new(dir.join("clickhouse"));
    options.database = DATABASE.to_owned();
    let mut engine = Engine::start(options)?;
    engine.supervise()?;
    engine.query(&format!("DROP DATABASE IF EXISTS {DATABASE} SYNC"))?;
    engine.query(&format!("CREATE DATABASE {DATABASE}"))?;
    Ok(engine)
}

/// The daemon's configuration: as in production, but for times that suit somebody who watches.
fn config(args: &DemoArgs, engine: &Engine, cluster: &Cluster) -> Config {
    let mut config = Config::default();
    config.kafka.brokers = cluster.brokers();
    config.kafka.group = "tachograph-demo".to_owned();
    config.kafka.topics = vec![TOPIC.to_owned()];
    for (name, value) in [
        // The mock cluster gives each rebalance nearly all of it.
        ("session.timeout.ms", "6000"),
        ("heartbeat.interval.ms", "500"),
    ] {
        let property = (name.to_owned(), value.to_owned());
        config.kafka.properties.extend([property]);
    }
    config.clickhouse.url = engine.url();
    config.clickhouse.database = DATABASE.to_owned();
    config.clickhouse.user = engine.user().to_owned();
    config.clickhouse.password = Secret {
        file: engine.password_file().display().to_string(),
        value: engine.password().to_owned(),
        ..Secret::default()
    };
    config.http_listen = format!("127.0.0.1:{}", args.port.unwrap_or(METRICS_PORT));
    config.log_format = LogFormat::Human;
    let limits = &mut config.limits;
    limits.batch_age_max = Duration::from_millis(300);
    limits.commit_interval = Duration::from_secs(3);
    // A run without an end is closed by silence, here within seconds instead of half an hour.
    let (silence, margin) = match args.once {
        true => (3.0, 1),
        false => (30.0_f64.max(3.0 * STRETCH.as_secs_f64() / args.pace), 5),
    };
    limits.silence_max = Duration::from_secs_f64(silence);
    limits.tool_silence_max = limits.silence_max;
    limits.quiet_margin = Duration::from_secs(margin);
    config
}

/// The daemon on the port asked for; where none was and the usual one is taken, on a free one.
fn listening(mut config: Config, port: Option<u16>) -> Result<(Daemon, SocketAddr), DemoError> {
    let started = Daemon::start(config.clone());
    match started {
        Err(DemoError::Daemon(DaemonError::Listen(_))) if port.is_none() => {
            put(&format!(
                "port {METRICS_PORT} is taken: /metrics listens on a free one\n"
            ));
            config.http_listen = "127.0.0.1:0".to_owned();
            Daemon::start(config)
        }
        started => started,
    }
}

/// Logs into a file: the screen belongs to the summary.
fn log_into(file: File) {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("info,rdkafka=error,librdkafka=error"));
    // A second call, in a test, keeps the first set-up.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(Arc::new(file))
        .try_init();
}

/// The daemon on a thread of its own, as `tachograph run` would run it.
struct Daemon {
    shutdown: Shutdown,
    thread: JoinHandle<Result<(), DaemonError>>,
}

impl Daemon {
    fn start(config: Config) -> Result<(Daemon, SocketAddr), DemoError> {
        let shutdown = Shutdown::default();
        let (tell, told) = mpsc::channel();
        let its = shutdown.clone();
        let thread = thread::Builder::new()
            .name("daemon".to_owned())
            .spawn(move || {
                daemon::run(&config, &its, |address| {
                    // Nobody listens any more only where the demo has given up.
                    let _ = tell.send(address);
                })
            })
            .map_err(DemoError::at(Path::new("thread")))?;
        let daemon = Daemon { shutdown, thread };
        match told.recv_timeout(START_MAX) {
            Ok(address) => Ok((daemon, address)),
            Err(_) => daemon.leave().and(Err(DemoError::DaemonEnded)),
        }
    }

    /// Ends it in order.
    fn leave(self) -> Result<(), DemoError> {
        self.shutdown.drain();
        // A panic there was already printed.
        let ended = self.thread.join().map_err(|_| DemoError::DaemonEnded)?;
        Ok(ended?)
    }
}

/// Everything that runs, for those who watch it.
struct Stage<'s> {
    engine: &'s Engine,
    shutdown: &'s Shutdown,
    address: SocketAddr,
    recordings: &'s [Recording],
    dir: &'s Path,
}

impl Stage<'_> {
    /// False after Ctrl-C, and where the daemon ended by itself: [`Daemon::leave`] knows why.
    fn is_running(&self) -> bool {
        self.shutdown.state() == State::Running
    }

    fn scrape(&self) -> io::Result<Scrape> {
        Scrape::of(self.address)
    }
}

/// What runs where, and two things to try.
fn banner(stage: &Stage<'_>, brokers: &str, log: &Path) -> String {
    let (user, url) = (stage.engine.user(), stage.engine.url());
    let password = stage.engine.password_file();
    let password = password.display();
    let records: usize = stage.recordings.iter().map(Recording::record_count).sum();
    format!(
        "
{count} captured runs of ADK Python ({records} records) go through Kafka into the daemon

  kafka        {brokers}   mock cluster, topic {TOPIC}, {PARTITIONS} partitions
  /metrics     http://{address}/metrics
  clickhouse   {url}   user {user}, password in {password}, database {DATABASE}
  log          {log}

try in another terminal:

  curl -s http://{address}/metrics | grep '^tachograph_tokens_total' | sort -k2 -n -r | head -5

  curl -s -u \"{user}:$(cat {password})\" {url} --data-binary 'SELECT app, count() AS calls,
    sum(total) AS tokens, round(quantileExact(0.9)(completion_ms), 1) AS p90_ms
    FROM {DATABASE}.v_model_calls GROUP BY app ORDER BY tokens DESC LIMIT 5 FORMAT PrettyCompact'

",
        count = stage.recordings.len(),
        address = stage.address,
        log = log.display(),
    )
}

/// Writes to standard output; whoever closed it has heard enough.
fn put(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
