//! The connection: one HTTP client that says explicitly what servers default differently.
//!
//! It retries nothing and knows no batches.

use clickhouse::{Client, Compression as ClientCompression};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use std::fmt;
use std::time::Duration;
use tokio::time::timeout;

use super::error::SinkError;
use super::row::FactRow;
use super::schema;
#[cfg(feature = "tls")]
use super::tls::Trust;
use crate::core::fact::Fact;

/// Time for a TCP connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Silence after which the system asks whether the peer is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// Less than any server's keep-alive time, so that no request meets a connection just closed.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// Time for a question that reads next to nothing.
const QUESTION_MAX: Duration = Duration::from_secs(15);

/// How request bodies are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// For a server on the same machine.
    None,
    #[default]
    Lz4,
}

/// Where ClickHouse is and how it is spoken to. The password is never printed.
#[derive(Clone)]
pub struct SinkConfig {
    /// Such as `http://localhost:8123`.
    pub url: String,
    pub database: String,
    pub user: String,
    pub password: String,
    pub compression: Compression,
    /// Whom to trust where `url` begins with `https:`; without it there is no such connection.
    #[cfg(feature = "tls")]
    pub trust: Option<Trust>,
    /// Longest silence while a piece of a body is sent.
    pub send_max: Duration,
    /// Longest wait for the answer to an insert; the server gives up then as well.
    pub answer_max: Duration,
    /// Time between two looks at a schema that is behind, and at an idle server.
    pub look_every: Duration,
    /// Longest wait between two tries.
    pub backoff_max: Duration,
    /// Batches that may wait (config.md `work_in_flight_max`).
    pub work_in_flight_max: usize,
}

impl SinkConfig {
    /// A configuration with the default limits.
    pub fn new(
        url: impl Into<String>,
        database: impl Into<String>,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> SinkConfig {
        SinkConfig {
            url: url.into(),
            database: database.into(),
            user: user.into(),
            password: password.into(),
            compression: Compression::default(),
            #[cfg(feature = "tls")]
            trust: None,
            send_max: Duration::from_secs(30),
            answer_max: Duration::from_secs(120),
            look_every: Duration::from_secs(10),
            backoff_max: Duration::from_secs(30),
            work_in_flight_max: 4,
        }
    }
}

impl fmt::Debug for SinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkConfig")
            .field("url", &self.url)
            .field("database", &self.database)
            .field("user", &self.user)
            .field("password", &"(hidden)")
            .field("compression", &self.compression)
            .field("send_max", &self.send_max)
            .field("answer_max", &self.answer_max)
            .field("look_every", &self.look_every)
            .field("backoff_max", &self.backoff_max)
            .field("work_in_flight_max", &self.work_in_flight_max)
            .finish()
    }
}

/// A client of one database.
pub struct Connection {
    /// With the database chosen; it remembers the columns of tables.
    client: Client,
    /// Without one, for what must work before the database exists.
    outside: Client,
    config: SinkConfig,
}

impl Connection {
    /// Opens nothing yet.
    pub fn new(config: &SinkConfig) -> Connection {
        let outside = client_of(config);
        Connection {
            client: outside.clone().with_database(config.database.clone()),
            outside,
            config: config.clone(),
        }
    }

    /// The configuration that it speaks by.
    pub fn config(&self) -> &SinkConfig {
        &self.config
    }

    /// Runs one statement in the database, or in none where it does not exist yet.
    ///
    /// # Errors
    /// Whatever the server or the network reports.
    pub async fn execute(&self, sql: &str, in_database: bool) -> Result<(), SinkError> {
        let client = match in_database {
            true => &self.client,
            false => &self.outside,
        };
        let run = client.query_raw(sql).execute();
        self.bounded(self.config.answer_max, run).await
    }

    /// Asks for rows in the database.
    ///
    /// # Errors
    /// Whatever the server or the network reports.
    pub async fn fetch<T>(&self, sql: &str) -> Result<Vec<T>, SinkError>
    where
        T: clickhouse::RowOwned + clickhouse::RowRead,
    {
        let run = self.client.query_raw(sql).fetch_all::<T>();
        self.bounded(QUESTION_MAX, run).await
    }

    /// As [`Connection::fetch`], without a database, which may not be there.
    ///
    /// # Errors
    /// Whatever the server or the network reports.
    pub async fn fetch_outside<T>(&self, sql: &str) -> Result<Vec<T>, SinkError>
    where
        T: clickhouse::RowOwned + clickhouse::RowRead,
    {
        let run = self.outside.query_raw(sql).fetch_all::<T>();
        self.bounded(QUESTION_MAX, run).await
    }

    /// True where the server answers and takes the login.
    ///
    /// # Errors
    /// Whatever the server or the network reports.
    pub async fn ping(&self) -> Result<(), SinkError> {
        let run = self.outside.query_raw("SELECT 1").execute();
        self.bounded(QUESTION_MAX, run).await
    }

    /// Forgets what it knows of the tables, so that the next insert looks again.
    pub async fn forget_tables(&self) {
        self.client.clear_cached_metadata().await;
    }

    /// Writes the rows of one table in one insert; acknowledged is committed.
    ///
    /// # Errors
    /// Whatever the server or the network reports. After an error the rows may be there or not.
    pub async fn insert<R: FactRow>(&self, facts: &[&Fact]) -> Result<(), SinkError> {
        let start = self.client.insert::<R>(R::TABLE.as_str());
        let insert = self.bounded(QUESTION_MAX, start).await?;
        let (send_max, answer_max) = (self.config.send_max, self.config.answer_max);
        let mut insert = insert.with_timeouts(Some(send_max), Some(answer_max));
        let error = |error| SinkError::of(error, &self.config.user);
        for row in facts.iter().filter_map(|fact| R::of(fact)) {
            insert.write(&row).await.map_err(error)?;
        }
        insert.end().await.map_err(error)
    }

    /// What is missing of the schema, if anything.
    ///
    /// # Errors
    /// `SchemaBehind` with the first thing that is missing, else what the network reports.
    pub async fn check_schema(&self) -> Result<(), SinkError> {
        self.forget_tables().await;
        schema::check(self).await
    }

    async fn bounded<T>(
        &self,
        most: Duration,
        run: impl Future<Output = clickhouse::error::Result<T>>,
    ) -> Result<T, SinkError> {
        match timeout(most, run).await {
            Ok(result) => result.map_err(|error| SinkError::of(error, &self.config.user)),
            Err(_) => Err(SinkError::TimedOut),
        }
    }
}

fn client_of(config: &SinkConfig) -> Client {
    connected(config)
        .with_url(config.url.clone())
        .with_user(config.user.clone())
        .with_password(config.password.clone())
        .with_compression(match config.compression {
            Compression::None => ClientCompression::None,
            Compression::Lz4 => ClientCompression::Lz4,
        })
        // Acknowledged must mean committed, and a batch is big enough by itself.
        .with_setting("async_insert", "0")
        // A retry collapses by identity; a window would drop equal blocks that are meant.
        .with_setting("insert_deduplicate", "0")
        .with_setting(
            "max_execution_time",
            config.answer_max.as_secs().max(1).to_string(),
        )
}

#[cfg(feature = "tls")]
fn connected(config: &SinkConfig) -> Client {
    match &config.trust {
        Some(trust) => over(trust.over(plain_http())),
        None => over(plain_http()),
    }
}

#[cfg(not(feature = "tls"))]
fn connected(_config: &SinkConfig) -> Client {
    over(plain_http())
}

fn over<C>(connector: C) -> Client
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let mut client = HttpClient::builder(TokioExecutor::new());
    client.pool_idle_timeout(IDLE_MAX);
    Client::with_http_client(client.build(connector))
}

/// Without Nagle's algorithm: it would cost 40 ms an insert (reference clickhouse.md §3).
fn plain_http() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEP_ALIVE));
    connector.set_connect_timeout(Some(CONNECT_MAX));
    connector
}
