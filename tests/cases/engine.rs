//! The real ClickHouse of a case: its own database with the project's schema, and the real sink
//! behind a wire that can fail.
//!
//! Merges are stopped from the beginning: what is read must be right before any of them.

use super::support::engine::{Database, Refusal};
use super::support::proxy::{Mischief, Proxy};
use super::support::wait;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tachograph::clickhouse_sink::{
    FailureReason, HealthSnapshot, SchemaState, SinkConfig, SinkEvents, SinkHandle, SinkObserver,
    schema, spawn,
};
use tachograph::clock::Clock;
use tachograph::core::batch::Batch;
use tachograph::core::fact::{Fact, Table};
use tachograph::core::ledger::WorkId;
use tachograph::embedded::http::{Request, exchange};
use tachograph::http_server::{Liveness, Readiness, Server, ServerState};
use tachograph::prometheus_exporter::Exporter;

/// Bound on everything that takes milliseconds on an idle machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a sink waits for an answer that nobody will hear.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// What may happen to an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server has the rows, and its answer reaches nobody.
    AnswerLost,
    /// The connection is cut before anything is written.
    NotWritten,
}

/// A sink and its wire.
struct Wire {
    proxy: Proxy,
    sink: SinkHandle,
    settled: Receiver<WorkId>,
}

impl Wire {
    fn send(&self, work: WorkId, facts: Vec<Fact>) -> Result<(), String> {
        let sent = self.sink.send(Batch { work, facts });
        sent.map_err(|batch| format!("the sink does not take batch {}", batch.work.0))
    }

    fn await_settled(&self, work: WorkId) -> Result<(), String> {
        match self.settled.recv_timeout(PATIENCE) {
            Ok(settled) if settled == work => Ok(()),
            Ok(settled) => Err(format!("batch {} is settled, not {}", settled.0, work.0)),
            Err(_) => Err(format!("batch {} is not settled", work.0)),
        }
    }

    fn health(&self) -> HealthSnapshot {
        self.sink.health().snapshot()
    }
}

/// What is measured while inserts happen.
struct Watcher {
    database: Arc<Database>,
    parts: AtomicU64,
    /// Most parts that one insert made: one a table partition, as nothing merges.
    parts_most: AtomicU64,
    refused_at: Mutex<Vec<Instant>>,
    exporter: Mutex<Option<Arc<Exporter>>>,
}

impl Watcher {
    fn refused_at(&self) -> Vec<Instant> {
        let refused = self.refused_at.lock();
        refused.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn show(&self, show: impl Fn(&Exporter)) {
        let exporter = self.exporter.lock();
        let exporter = exporter.unwrap_or_else(PoisonError::into_inner);
        exporter.iter().for_each(|exporter| show(exporter));
    }
}

impl SinkObserver for Watcher {
    fn inserted(&self, table: Table, rows: u64, took: Duration) {
        self.show(|exporter| exporter.inserted(table, rows, took));
        let select =
            "SELECT count() FROM system.parts WHERE database = currentDatabase() AND active";
        let parts = self.database.query(select).trim().parse().unwrap_or(0);
        let before = self.parts.swap(parts, Ordering::AcqRel);
        let made = parts.saturating_sub(before);
        self.parts_most.fetch_max(made, Ordering::AcqRel);
    }

    fn failed(&self, reason: FailureReason) {
        self.show(|exporter| exporter.failed(reason.as_str()));
        if reason == FailureReason::TooManyParts {
            let refused = self.refused_at.lock();
            refused
                .unwrap_or_else(PoisonError::into_inner)
                .push(Instant::now());
        }
    }

    fn up(&self, is_up: bool) {
        self.show(|exporter| exporter.up(is_up));
    }
}

/// What `/healthz/ready` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    pub status: u16,
    pub body: String,
}

pub struct ClickHouse {
    // Before the runtime: sinks end with their handles.
    main: Wire,
    /// Wires of inserts that went amiss.
    aside: BTreeMap<WorkId, Wire>,
    /// What sinks that are gone had done.
    gone: Vec<(HealthSnapshot, Vec<String>)>,
    config: SinkConfig,
    database: Arc<Database>,
    watcher: Arc<Watcher>,
    /// Types of columns that were taken away, by table.
    taken: BTreeMap<String, String>,
    runtime: tokio::runtime::Runtime,
}

impl ClickHouse {
    /// # Errors
    /// A schema that cannot be applied.
    pub fn start(name: &str) -> Result<ClickHouse, String> {
        let database = Arc::new(Database::create(name));
        let mut config = SinkConfig::new(
            database.url(),
            database.name.clone(),
            database.user(),
            database.password(),
        );
        config.look_every = Duration::from_millis(50);
        config.backoff_max = Duration::from_millis(500);
        schema::apply_blocking(&config).map_err(|error| error.to_string())?;
        for table in Table::ALL {
            database.query(&format!("SYSTEM STOP MERGES {}", table.as_str()));
        }
        let watcher = Arc::new(Watcher {
            database: Arc::clone(&database),
            parts: AtomicU64::new(0),
            parts_most: AtomicU64::new(0),
            refused_at: Mutex::default(),
            exporter: Mutex::default(),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        Ok(ClickHouse {
            main: wire(&config, &database, &watcher, &runtime),
            aside: BTreeMap::new(),
            gone: Vec::new(),
            config,
            database,
            watcher,
            taken: BTreeMap::new(),
            runtime,
        })
    }

    /// Whom to tell of inserts from now on.
    pub fn show_to(&self, exporter: &Arc<Exporter>) {
        let told = self.watcher.exporter.lock();
        *told.unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(exporter));
    }

    fn wire(&self, config: &SinkConfig) -> Wire {
        wire(config, &self.database, &self.watcher, &self.runtime)
    }

    /// Sends a batch and waits until it is settled.
    pub fn insert(&mut self, work: WorkId, facts: Vec<Fact>) -> Result<(), String> {
        self.main.send(work, facts)?;
        self.main.await_settled(work)
    }

    /// Sends a batch, and waits for nothing.
    pub fn send(&mut self, work: WorkId, facts: Vec<Fact>) -> Result<(), String> {
        self.main.send(work, facts)
    }

    /// Waits for what `send` sent.
    pub fn await_settled(&mut self, work: WorkId) -> Result<(), String> {
        self.main.await_settled(work)
    }

    /// Sends a batch through a wire of its own, on which its inserts fail until it is healed.
    pub fn insert_amiss(
        &mut self,
        work: WorkId,
        facts: Vec<Fact>,
        fault: Fault,
    ) -> Result<(), String> {
        let again = self.aside.remove(&work);
        let is_first = again.is_none();
        let wire = again.unwrap_or_else(|| {
            let mut config = self.config.clone();
            config.answer_max = ANSWER_MAX;
            self.wire(&config)
        });
        let before = wire.proxy.struck();
        match fault {
            Fault::AnswerLost => wire.proxy.strike(Mischief::Swallow, 1),
            Fault::NotWritten => wire.proxy.strike(Mischief::Reset, usize::MAX),
        }
        // A sink tries again by itself.
        if is_first {
            wire.send(work, facts)?;
        }
        wait::until("an insert goes amiss", PATIENCE, || {
            (wire.proxy.struck() > before).then_some(())
        });
        self.aside.insert(work, wire);
        Ok(())
    }

    /// The sink's next try of a batch that went amiss reaches the server and is answered.
    pub fn heal(&mut self, work: WorkId) -> Result<(), String> {
        let Some(wire) = self.aside.remove(&work) else {
            return Err(format!("batch {} did not go amiss", work.0));
        };
        wire.proxy.calm();
        wire.await_settled(work)?;
        self.retire(&wire);
        Ok(())
    }

    /// The daemon dies: its sink as well, whatever it was about.
    pub fn crash(&mut self) {
        for wire in std::mem::take(&mut self.aside).into_values() {
            self.retire(&wire);
        }
        let main = self.wire(&self.config);
        let dead = std::mem::replace(&mut self.main, main);
        self.retire(&dead);
    }

    fn retire(&mut self, wire: &Wire) {
        self.gone.push((wire.health(), wire.proxy.inserts()));
    }

    fn healths(&self) -> Vec<HealthSnapshot> {
        let wires = self.aside.values().chain([&self.main]);
        let gone = self.gone.iter().map(|(health, _)| health.clone());
        wires.map(Wire::health).chain(gone).collect()
    }

    /// Acknowledged inserts.
    pub fn inserts(&self) -> u64 {
        self.healths().iter().map(|health| health.inserts).sum()
    }

    /// Inserts that the server refused.
    pub fn insert_errors(&self) -> u64 {
        let is_of_wire = |reason: &FailureReason| {
            matches!(reason, FailureReason::Network | FailureReason::TimeOut)
        };
        let healths = self.healths();
        let failures = healths.iter().flat_map(|health| &health.failures);
        let refused = failures.filter(|(reason, _)| !is_of_wire(reason));
        refused.map(|(_, count)| count).sum()
    }

    /// Most table partitions in one insert.
    pub fn partitions_most(&self) -> u64 {
        self.watcher.parts_most.load(Ordering::Acquire)
    }

    /// True where every insert named its columns; there was one at least.
    pub fn names_columns(&self) -> bool {
        let wires = self.aside.values().chain([&self.main]);
        let heads: Vec<String> = wires
            .flat_map(|wire| wire.proxy.inserts())
            .chain(self.gone.iter().flat_map(|(_, heads)| heads.clone()))
            .collect();
        let names = |head: &String| {
            let (_, statement) = head.split_once("INSERT").unwrap_or_default();
            let statement = statement.split("FORMAT").next().unwrap_or_default();
            statement.contains('(') || statement.contains("%28")
        };
        !heads.is_empty() && heads.iter().all(names)
    }

    /// The tables lack a column from now on.
    pub fn take_column(&mut self, column: &str) -> Result<(), String> {
        let tables: Vec<&str> = Table::ALL.iter().map(|table| table.as_str()).collect();
        let select = format!(
            "SELECT table, type FROM system.columns WHERE database = currentDatabase() \
             AND name = '{column}' AND table IN ('{}')",
            tables.join("', '")
        );
        for row in self.database.rows(&select) {
            let alter = format!("ALTER TABLE {} DROP COLUMN {column}", row[0]);
            self.ask(&alter)?;
            self.taken.insert(row[0].clone(), row[1].clone());
        }
        match self.taken.is_empty() {
            true => Err(format!("no table has a column {column}")),
            false => Ok(()),
        }
    }

    /// Waits until the sink says that the schema is behind.
    pub fn await_behind(&self) -> String {
        wait::until("the schema is seen to be behind", PATIENCE, || {
            match self.main.health().schema {
                SchemaState::Behind(reason) => Some(reason),
                _ => None,
            }
        })
    }

    pub fn give_column(&mut self, column: &str) -> Result<(), String> {
        for (table, kind) in std::mem::take(&mut self.taken) {
            self.ask(&format!("ALTER TABLE {table} ADD COLUMN {column} {kind}"))?;
        }
        Ok(())
    }

    /// From now on the server refuses inserts into a table for its many parts, or no longer.
    pub fn refuse_parts(&self, table: Table, is_refusing: bool) -> Result<(), String> {
        let setting = match is_refusing {
            true => "MODIFY SETTING parts_to_throw_insert = 1",
            false => "RESET SETTING parts_to_throw_insert",
        };
        self.ask(&format!("ALTER TABLE {} {setting}", table.as_str()))?;
        Ok(())
    }

    /// Waits until so many inserts were refused for too many parts; the waits between them.
    pub fn await_refusals(&self, count: usize) -> Vec<Duration> {
        let refused = wait::until("inserts are refused", PATIENCE, || {
            Some(self.watcher.refused_at()).filter(|refused| refused.len() >= count)
        });
        let pairs = refused.windows(2);
        pairs.map(|pair| pair[1].duration_since(pair[0])).collect()
    }

    /// What the daemon answers to `/healthz/ready` as its sink is now.
    pub fn ready(&self, exporter: &Arc<Exporter>) -> Result<Ready, String> {
        let readiness = Arc::new(Readiness::starting(&["clickhouse"]));
        readiness.set_reason("clickhouse", self.main.health().reason());
        let _entered = self.runtime.enter();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let bound = self.runtime.block_on(Server::bind(address));
        let bound = bound.map_err(|error| error.to_string())?;
        let authority = bound.address().to_string();
        let state = ServerState {
            exporter: Arc::clone(exporter),
            liveness: Arc::new(Liveness::new(PATIENCE)),
            readiness,
            clock: Clock::new(),
            gate: None,
            version: "case",
        };
        let server = self
            .runtime
            .spawn(Server::serve(bound, state, std::future::pending()));
        let answer = exchange(&authority, &Request::get("/healthz/ready", PATIENCE));
        server.abort();
        let answer = answer.map_err(|error| error.to_string())?;
        Ok(Ready {
            status: answer.status,
            body: answer.text(),
        })
    }

    /// Rows of a table, the newest version of each.
    pub fn rows(&self, table: Table) -> Result<u64, String> {
        let count = self.ask(&format!("SELECT count() FROM {} FINAL", table.as_str()))?;
        count
            .trim()
            .parse()
            .map_err(|_| format!("{count} is no count"))
    }

    /// Runs a statement.
    pub fn ask(&self, sql: &str) -> Result<String, String> {
        let failed = |refusal: Refusal| format!("{sql}: {}", refusal.text);
        self.database.try_query(sql).map_err(failed)
    }
}

fn wire(
    config: &SinkConfig,
    database: &Database,
    watcher: &Arc<Watcher>,
    runtime: &tokio::runtime::Runtime,
) -> Wire {
    let proxy = Proxy::start(database.authority());
    let mut config = config.clone();
    config.url = proxy.url();
    let (sender, settled) = sync_channel(config.work_in_flight_max + 1);
    let events = SinkEvents {
        settled: sender,
        wake: Box::new(|| {}),
        observer: Arc::<Watcher>::clone(watcher),
    };
    Wire {
        proxy,
        sink: spawn(runtime.handle(), config, events),
        settled,
    }
}
