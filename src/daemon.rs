//! `tachograph run`: every edge is built, the loop turns, everything ends in order.
//!
//! Deliberately the only place that knows all edges; none of them knows another.

use crate::clickhouse_sink::{
    self, Compression as SinkCompression, FailureReason, SinkConfig, SinkError, SinkEvents,
    SinkObserver,
};
use crate::clock::Clock;
use crate::config::{ClickHouse, Compression, Config};
use crate::core::fact::Table;
use crate::core::invariant::Invariant;
use crate::core::ledger::WorkId;
use crate::core::pipeline::{Pipeline, Settings};
use crate::driver::{Driver, Edges, Ended, READY_PARTS};
use crate::http_server::{Bound, Liveness, Readiness, ServeError, Server, ServerState};
use crate::kafka_source::{DeadLetters, Source, SourceError};
use crate::prometheus_exporter::{Exporter, ExporterSettings, LabelLimits};
use crate::shutdown::Shutdown;
use crate::state_file::{Saver, StateError, StateFile};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};

/// A loop that has not come round for so long is dead; a commit while a broker is away takes 7 s,
/// and taking over many partitions longer.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// How long ClickHouse may take to say whether it knows us before the daemon goes on unready.
const LOGIN_MAX: Duration = Duration::from_secs(5);
/// For answers under way at the end.
const SERVER_GRACE: Duration = Duration::from_secs(3);

/// Why the daemon ended, or never began.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("http.listen: {0:?} is no address of this machine: {1}")]
    Address(String, io::Error),
    #[error(transparent)]
    Listen(ServeError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Kafka(SourceError),
    #[error("{error}; check clickhouse.user and the password for {url}")]
    ClickHouseLogin { url: String, error: SinkError },
    #[error("clickhouse.ca_file: {0}")]
    Trust(String),
    #[error("broken invariant {}: stopped, since going on could falsify rows", .0.as_str())]
    Halted(Invariant),
    #[error("the system refuses what a daemon needs: {0}")]
    System(#[from] io::Error),
}

impl DaemonError {
    /// The exit code of config.md.
    pub fn exit_code(&self) -> u8 {
        match self {
            DaemonError::Address(..)
            | DaemonError::Trust(_)
            | DaemonError::State(_)
            | DaemonError::Kafka(SourceError::Configuration(_) | SourceError::Fenced(_)) => 78,
            DaemonError::Listen(_) => 69,
            DaemonError::Kafka(SourceError::LoginRefused { .. })
            | DaemonError::ClickHouseLogin { .. } => 77,
            DaemonError::Kafka(_) | DaemonError::Halted(_) | DaemonError::System(_) => 70,
        }
    }
}

/// Runs until a signal, or `shutdown` by other means. `told` hears the address of `/metrics`.
///
/// # Errors
/// What keeps it from beginning, and what puts data at risk. Services that are away are none.
pub fn run(
    config: &Config,
    shutdown: &Shutdown,
    told: impl FnOnce(SocketAddr),
) -> Result<(), DaemonError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let ended = turn(config, shutdown, told, &runtime);
    shutdown.stop();
    // Inserts still under way are unsettled, hence not committed.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

fn turn(
    config: &Config,
    shutdown: &Shutdown,
    told: impl FnOnce(SocketAddr),
    runtime: &Runtime,
) -> Result<(), DaemonError> {
    let clock = Clock::new();
    let _entered = runtime.enter();
    shutdown.listen()?;
    let bound = bind(config, runtime)?;
    let address = bound.address();
    let exporter = Arc::new(Exporter::new(&exporter_settings(config)));
    let liveness = Arc::new(Liveness::new(SILENCE_MAX));
    let readiness = Arc::new(Readiness::starting(&READY_PARTS));
    // The pipeline's bound, the one dead letter beyond it, and room that is never used: a message
    // that finds none would hold its offset for ever.
    let (settle, settled) = sync_channel(2 * config.limits.work_in_flight_max + 8);
    let state_file = state_file(config, &exporter, &settle, clock)?;
    let state = ServerState {
        gate: state_file.as_ref().map(Saver::gate),
        exporter: Arc::clone(&exporter),
        liveness: Arc::clone(&liveness),
        readiness: Arc::clone(&readiness),
        clock,
        version: env!("CARGO_PKG_VERSION"),
    };
    let stop = shutdown.clone();
    let server = runtime.spawn(async move {
        Server::serve(bound, state, async move { stop.stopped().await }).await;
    });
    announce(address);
    told(address);
    let sink_config = sink_config(&config.clickhouse, config.limits.work_in_flight_max)?;
    runtime.block_on(knock(&sink_config))?;
    let source = Source::connect(config, clock).map_err(DaemonError::Kafka)?;
    let has_state_file = state_file.is_some();
    let observer = Arc::new(Observer(Arc::clone(&exporter)));
    let edges = Edges {
        source,
        sink: clickhouse_sink::spawn(
            runtime.handle(),
            sink_config,
            SinkEvents {
                settled: settle.clone(),
                wake: Box::new(|| {}),
                observer,
            },
        ),
        dead_letters: dead_letters(config, settle, runtime.handle().clone())?,
        settled,
        state_file,
        exporter,
        readiness,
        liveness,
    };
    let pipeline = Pipeline::new(Settings {
        limits: config.limits.clone(),
        hash_key: rand::random(),
        is_strict: false,
        has_state_file,
    });
    let ended = Driver::new(edges, pipeline, clock, shutdown.clone()).run();
    shutdown.stop();
    let _ = runtime.block_on(async { tokio::time::timeout(SERVER_GRACE, server).await });
    match ended {
        Ended::Left => Ok(()),
        Ended::Halted(invariant) => Err(DaemonError::Halted(invariant)),
        Ended::Source(error) => Err(DaemonError::Kafka(error)),
    }
}

/// The state file, where one is configured. Counters go on from it before anything can be scraped.
fn state_file(
    config: &Config,
    exporter: &Arc<Exporter>,
    settle: &SyncSender<WorkId>,
    clock: Clock,
) -> Result<Option<Saver>, DaemonError> {
    if config.state_file.is_empty() {
        return Ok(None);
    }
    let group = &config.kafka.group;
    let (file, stored) = StateFile::open(Path::new(&config.state_file), group)?;
    let saver = Saver::start(file, stored, group, exporter, settle.clone(), clock)?;
    Ok(Some(saver))
}

fn bind(config: &Config, runtime: &Runtime) -> Result<Bound, DaemonError> {
    let listen = &config.http_listen;
    let failed = |error| DaemonError::Address(listen.clone(), error);
    let mut addresses = listen.to_socket_addrs().map_err(failed)?;
    let address = addresses
        .next()
        .ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let bound = runtime.block_on(Server::bind(address));
    bound.map_err(DaemonError::Listen)
}

/// Says where it listens, and warns where others may come.
fn announce(address: SocketAddr) {
    tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "listening");
    if !address.ip().to_canonical().is_loopback() {
        tracing::warn!(%address, "http.listen is open to other machines, without access control or \
            encryption: put a proxy in front, or set it to 127.0.0.1");
    }
}

/// A refused login is final at the start; everything else is waited for.
async fn knock(config: &SinkConfig) -> Result<(), DaemonError> {
    let answer = tokio::time::timeout(LOGIN_MAX, clickhouse_sink::probe(config)).await;
    match answer {
        Ok(Err(error @ SinkError::LoginRefused { .. })) => Err(DaemonError::ClickHouseLogin {
            url: config.url.clone(),
            error,
        }),
        _ => Ok(()),
    }
}

fn dead_letters(
    config: &Config,
    settle: SyncSender<WorkId>,
    runtime: Handle,
) -> Result<DeadLetters, DaemonError> {
    let settle = Arc::new(move |work| {
        // The driver sizes the channel for all work in flight; after its end nobody asks.
        let _ = settle.try_send(work);
    });
    DeadLetters::new(&config.kafka, settle, runtime).map_err(DaemonError::Kafka)
}

fn exporter_settings(config: &Config) -> ExporterSettings {
    ExporterSettings {
        labels: LabelLimits {
            max_values: config.labels.max_values,
            max_series_per_family: config.labels.max_series_per_family,
            known_models: config.labels.known_models.clone(),
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: option_env!("TACHOGRAPH_REVISION").unwrap_or("").to_owned(),
    }
}

/// The sink's share of the configuration.
///
/// # Errors
/// `DaemonError::Trust`, where it cannot be known whom to trust.
pub fn sink_config(
    clickhouse: &ClickHouse,
    work_in_flight_max: usize,
) -> Result<SinkConfig, DaemonError> {
    let mut sink = SinkConfig::new(
        clickhouse.url.as_str(),
        clickhouse.database.as_str(),
        clickhouse.user.as_str(),
        clickhouse.password.value.as_str(),
    );
    sink.compression = match clickhouse.compression {
        Compression::None => SinkCompression::None,
        Compression::Lz4 => SinkCompression::Lz4,
    };
    sink.work_in_flight_max = work_in_flight_max;
    #[cfg(feature = "tls")]
    if clickhouse.url.starts_with("https:") {
        let trust = match clickhouse.ca_file.as_str() {
            "" => clickhouse_sink::Trust::of_system(),
            path => clickhouse_sink::Trust::of_file(path.as_ref()),
        };
        sink.trust = Some(trust.map_err(|error| DaemonError::Trust(error.to_string()))?);
    }
    Ok(sink)
}

/// Passes on what the sink sees to the exporter.
struct Observer(Arc<Exporter>);

impl SinkObserver for Observer {
    fn inserted(&self, table: Table, rows: u64, took: Duration) {
        self.0.inserted(table, rows, took);
    }

    fn failed(&self, reason: FailureReason) {
        self.0.failed(reason.as_str());
    }

    fn up(&self, is_up: bool) {
        self.0.up(is_up);
    }
}
