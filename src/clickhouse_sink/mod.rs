//! The sink: batches of facts become rows in ClickHouse, and come back as settled work.
//!
//! It drops nothing and gives up never: what ClickHouse did not acknowledge is tried again for as
//! long as it takes. It knows no offsets, and no rule of the domain.

mod column;
mod connection;
mod error;
mod health;
mod money;
pub mod rights;
pub mod row;
pub mod schema;
#[cfg(feature = "tls")]
mod tls;

pub use connection::{Compression, Connection, SinkConfig};
pub use error::{FailureReason, SinkError};
pub use health::{HealthSnapshot, SchemaState, SinkHealth, SinkObserver, Unobserved};
#[cfg(feature = "tls")]
pub use tls::{Trust, TrustError};

use crate::core::batch::Batch;
use crate::core::fact::{Fact, Table};
use crate::core::ledger::WorkId;
use row::FactRow;
use std::collections::{BTreeMap, HashMap};
use std::mem::{Discriminant, discriminant};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// Table partitions that one insert may touch; the server refuses more than 100 by default.
const PARTITIONS_MAX: usize = 100;
/// First wait after a failure; doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Time between two log lines about one kind of trouble.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// Wait for room in the channel back, which the driver sizes so that there always is some.
const ROOM_WAIT: Duration = Duration::from_millis(5);

/// Where the sink's news go.
pub struct SinkEvents {
    /// Settled work, strictly after ClickHouse acknowledged all of it. Sized by the driver for all
    /// work that may be in flight.
    pub settled: SyncSender<WorkId>,
    /// Called after each settled work, to wake the driver.
    pub wake: Box<dyn Fn() + Send + Sync>,
    /// Told of each insert.
    pub observer: Arc<dyn SinkObserver>,
}

/// The driver's end of the sink. Dropping it ends the sink at once; what it had not settled stays
/// unsettled, which is harmless.
pub struct SinkHandle {
    batches: mpsc::Sender<Batch>,
    health: Arc<SinkHealth>,
    task: JoinHandle<()>,
}

impl SinkHandle {
    /// Hands over one batch without waiting.
    ///
    /// # Errors
    /// The batch, where `work_in_flight_max` batches wait already or the sink has ended: a broken
    /// invariant of the driver.
    pub fn send(&self, batch: Batch) -> Result<(), Box<Batch>> {
        self.batches
            .try_send(batch)
            .map_err(|error| Box::new(error.into_inner()))
    }

    /// How the sink is.
    pub fn health(&self) -> Arc<SinkHealth> {
        Arc::clone(&self.health)
    }
}

impl Drop for SinkHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts the sink on `runtime`. It looks at the schema at once, and goes on by itself when a
/// missing server or schema comes.
pub fn spawn(runtime: &Handle, config: SinkConfig, events: SinkEvents) -> SinkHandle {
    let (batches, waiting) = mpsc::channel(config.work_in_flight_max.max(1));
    let health = Arc::new(SinkHealth::default());
    let sink = Sink {
        connection: Connection::new(&config),
        events,
        health: Arc::clone(&health),
        said: Mutex::default(),
    };
    SinkHandle {
        batches,
        health,
        task: runtime.spawn(sink.run(waiting)),
    }
}

/// Asks the server for one answer, before anything depends on it.
///
/// # Errors
/// `LoginRefused` (exit code 77), or what the server or the network reports, which the sink itself
/// would wait out.
pub async fn probe(config: &SinkConfig) -> Result<(), SinkError> {
    Connection::new(config).ping().await
}

struct Sink {
    connection: Connection,
    events: SinkEvents,
    health: Arc<SinkHealth>,
    /// When each kind of trouble was last logged. A refused insert and the schema that explains it
    /// are two: the second says what to do.
    said: Mutex<HashMap<(FailureReason, Discriminant<SinkError>), Instant>>,
}

/// Rows of one table that go in one insert.
struct Portion<'b> {
    table: Table,
    facts: Vec<&'b Fact>,
}

impl Sink {
    async fn run(self, mut waiting: mpsc::Receiver<Batch>) {
        self.until_schema_is_there().await;
        let look_every = self.connection.config().look_every;
        loop {
            match timeout(look_every, waiting.recv()).await {
                Ok(Some(batch)) => {
                    self.deliver(&batch.facts).await;
                    if !self.settle(batch.work).await {
                        return;
                    }
                }
                Ok(None) => return,
                // Idle: readiness is to notice a server that goes away all the same.
                Err(_) => match self.connection.ping().await {
                    Ok(()) => self.up(),
                    Err(error) => self.down(&error),
                },
            }
        }
    }

    /// Returns once every row is acknowledged; tries only what is not, for as long as it takes.
    async fn deliver(&self, facts: &[Fact]) {
        let mut open = portions(facts);
        let mut backoff = Backoff::new(self.connection.config().backoff_max);
        loop {
            let mut worst = None;
            let mut left = Vec::new();
            for portion in open {
                let is_pointless = worst.as_ref().is_some_and(SinkError::is_unreachable);
                if is_pointless {
                    left.push(portion);
                } else if let Err(error) = self.insert(&portion).await {
                    left.push(portion);
                    worst = Some(error);
                }
            }
            let Some(error) = worst else { return };
            open = left;
            let is_schema = error.reason() == FailureReason::Schema;
            if is_schema && self.connection.check_schema().await.is_err() {
                self.until_schema_is_there().await;
            } else {
                sleep(backoff.next()).await;
            }
        }
    }

    async fn insert(&self, portion: &Portion<'_>) -> Result<(), SinkError> {
        let started = Instant::now();
        match write(&self.connection, portion).await {
            Ok(()) => {
                let rows = portion.facts.len() as u64;
                self.health.inserted(portion.table, rows);
                let observer = &self.events.observer;
                observer.inserted(portion.table, rows, started.elapsed());
                self.up();
                Ok(())
            }
            Err(error) => {
                self.down(&error);
                Err(error)
            }
        }
    }

    /// Returns once everything is there that rows need.
    async fn until_schema_is_there(&self) {
        let config = self.connection.config();
        let mut backoff = Backoff::new(config.backoff_max);
        loop {
            match self.connection.check_schema().await {
                Ok(()) => {
                    self.health.set_schema(SchemaState::Current);
                    self.up();
                    return;
                }
                Err(error @ SinkError::SchemaBehind(_)) => {
                    let state = SchemaState::Behind(error.chain());
                    self.health.set_schema(state);
                    self.down(&error);
                    sleep(config.look_every).await;
                }
                Err(error) => {
                    self.down(&error);
                    sleep(backoff.next()).await;
                }
            }
        }
    }

    /// False where nobody listens any more.
    async fn settle(&self, work: WorkId) -> bool {
        loop {
            match self.events.settled.try_send(work) {
                Ok(()) => {
                    (self.events.wake)();
                    return true;
                }
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(_)) => sleep(ROOM_WAIT).await,
            }
        }
    }

    fn up(&self) {
        if self.health.set_up(None) {
            self.events.observer.up(true);
        }
    }

    fn down(&self, error: &SinkError) {
        self.say(error);
        self.health.failed(error.reason());
        self.events.observer.failed(error.reason());
        if self.health.set_up(Some(error.chain())) {
            self.events.observer.up(false);
        }
    }

    /// Logs one kind of trouble at most once a minute (config.md).
    fn say(&self, error: &SinkError) {
        let now = Instant::now();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = (error.reason(), discriminant(error));
        let last = said.insert(kind, now);
        match last {
            Some(last) if now.duration_since(last) < SAY_EVERY => {
                said.insert(kind, last);
            }
            _ => tracing::warn!(
                reason = error.reason().as_str(),
                url = self.connection.config().url,
                "ClickHouse takes no rows now, trying again: {}",
                error.chain()
            ),
        }
    }
}

/// One insert per table, and further ones where it would touch too many table partitions. Tables in
/// the order of facts.md §1.
fn portions(facts: &[Fact]) -> Vec<Portion<'_>> {
    let mut tables: BTreeMap<Table, BTreeMap<i64, Vec<&Fact>>> = BTreeMap::new();
    for fact in facts {
        tables
            .entry(fact.body.table())
            .or_default()
            .entry(column::partition_day(fact.segment_logged_at))
            .or_default()
            .push(fact);
    }
    let mut portions = Vec::new();
    for (table, days) in tables {
        let days: Vec<Vec<&Fact>> = days.into_values().collect();
        portions.extend(days.chunks(PARTITIONS_MAX).map(|days| Portion {
            table,
            facts: days.concat(),
        }));
    }
    portions
}

async fn write(connection: &Connection, portion: &Portion<'_>) -> Result<(), SinkError> {
    async fn rows<R: FactRow>(to: &Connection, facts: &[&Fact]) -> Result<(), SinkError> {
        to.insert::<R>(facts).await
    }
    let facts = &portion.facts;
    match portion.table {
        Table::Invocations => rows::<row::InvocationRow>(connection, facts).await,
        Table::Branches => rows::<row::BranchRow>(connection, facts).await,
        Table::AgentRuns => rows::<row::AgentRunRow>(connection, facts).await,
        Table::ModelCalls => rows::<row::ModelCallRow>(connection, facts).await,
        Table::LocalAnswers => rows::<row::LocalAnswerRow>(connection, facts).await,
        Table::ToolCalls => rows::<row::ToolCallRow>(connection, facts).await,
        Table::GuardrailDecisions => rows::<row::GuardrailDecisionRow>(connection, facts).await,
        Table::RecoveryDecisions => rows::<row::RecoveryDecisionRow>(connection, facts).await,
        Table::Anomalies => rows::<row::AnomalyRow>(connection, facts).await,
    }
}

/// Waits between tries: doubling, with jitter so that many daemons do not come back as one.
struct Backoff {
    base: Duration,
    most: Duration,
}

impl Backoff {
    fn new(most: Duration) -> Backoff {
        Backoff {
            base: BACKOFF_MIN,
            most,
        }
    }

    fn next(&mut self) -> Duration {
        let base = self.base.min(self.most);
        self.base = base * 2;
        base.mul_f64(rand::random_range(0.5..1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_limit_and_never_beyond() {
        let mut backoff = Backoff::new(Duration::from_secs(30));
        let waits: Vec<Duration> = (0..20).map(|_| backoff.next()).collect();
        assert!(waits[0] <= BACKOFF_MIN);
        assert!(waits[19] >= Duration::from_secs(15), "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(30)));
    }

    #[test]
    fn a_password_is_never_printed() {
        let config = SinkConfig::new("http://localhost", "d", "u", "hunter2");
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
