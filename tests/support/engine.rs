//! A real ClickHouse: the embedded engine, one per test binary, with one database per test.
//!
//! `TEST_CLICKHOUSE=http://user:password@host:port` names a server to use instead. The library
//! comes from `make engine`; the child ends with the test process, whose pipe it reads.

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;
use tachograph::embedded::engine::{Engine, EngineError, EngineOptions};
use tachograph::embedded::http::{self, Request};

use super::{mark_real_part, scratch, unique, wait};

/// Bound on one statement.
const QUERY_MAX: Duration = Duration::from_secs(60);

static SHARED: LazyLock<Result<Server, String>> = LazyLock::new(|| {
    if let Ok(url) = std::env::var("TEST_CLICKHOUSE") {
        return Server::at(&url);
    }
    let mut engine = start_own(&scratch("engine"), 0).map_err(|error| error.to_string())?;
    engine.supervise().map_err(|error| error.to_string())?;
    let server = Server {
        authority: format!("127.0.0.1:{}", engine.port()),
        user: engine.user().to_owned(),
        password: engine.password().to_owned(),
        engine: Some(engine),
    };
    Ok(server)
});

/// A server that tests share.
pub struct Server {
    authority: String,
    user: String,
    password: String,
    /// `None` for a server that `TEST_CLICKHOUSE` named.
    engine: Option<Engine>,
}

impl Server {
    fn at(url: &str) -> Result<Server, String> {
        let form = "TEST_CLICKHOUSE must read http://user:password@host:port";
        let rest = url
            .strip_prefix("http://")
            .ok_or(form)?
            .trim_end_matches('/');
        let (login, authority) = rest.rsplit_once('@').unwrap_or(("default", rest));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        Ok(Server {
            authority: authority.to_owned(),
            user: user.to_owned(),
            password: password.to_owned(),
            engine: None,
        })
    }
}

/// An engine of a test's own, for tests that kill it; not supervised.
pub fn start_own(dir: &Path, http_port: u16) -> Result<Engine, EngineError> {
    let mut options = EngineOptions::new(dir);
    options.http_port = http_port;
    options.program = Some(env!("CARGO_BIN_EXE_tachograph").into());
    Engine::start(options)
}

/// ClickHouse's refusal of a statement.
#[derive(Debug)]
pub struct Refusal {
    /// ClickHouse's error code, 0 if it named none.
    pub code: i32,
    /// Its words.
    pub text: String,
}

/// A database on the shared server; dropped with the value.
pub struct Database {
    /// Its unique name.
    pub name: String,
    server: &'static Server,
}

impl Database {
    /// Makes a database of its own for one test, starting the engine at the first call.
    pub fn create(name: &str) -> Database {
        let server = SHARED.as_ref().unwrap_or_else(|reason| panic!("{reason}"));
        let database = Database {
            name: unique(name),
            server,
        };
        let sql = format!("CREATE DATABASE `{}`", database.name);
        send(server, "", &sql).unwrap_or_else(|refusal| panic!("{sql}: {refusal:?}"));
        mark_real_part("clickhouse");
        database
    }

    /// The server's address, such as `http://127.0.0.1:8123`.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.authority)
    }

    /// Host and port of the server, for a proxy in front of it. Such a proxy must never pass on a
    /// part of a request head: the engine aborts when the rest does not come.
    pub fn authority(&self) -> &str {
        &self.server.authority
    }

    /// Kills the server as a crash would, and waits until its owner has started it again.
    ///
    /// # Panics
    /// On a server that `TEST_CLICKHOUSE` named, which is not ours to kill.
    pub fn kill_server(&self) {
        let engine = self.server.engine.as_ref().expect("an engine of our own");
        let restarts = engine.restarts();
        engine.kill().expect("the engine runs");
        wait::until("the engine is started again", QUERY_MAX, || {
            (engine.restarts() > restarts).then_some(())
        });
    }

    /// The user to log in as.
    pub fn user(&self) -> &str {
        &self.server.user
    }

    /// Its password.
    pub fn password(&self) -> &str {
        &self.server.password
    }

    /// Runs one statement with this database as default; the answer's text, or the refusal.
    pub fn try_query(&self, sql: &str) -> Result<String, Refusal> {
        send(self.server, &self.name, sql)
    }

    /// Runs one statement that must succeed and returns its text (TSV unless `FORMAT` says else).
    pub fn query(&self, sql: &str) -> String {
        self.try_query(sql)
            .unwrap_or_else(|refusal| panic!("{sql}: {refusal:?}"))
    }

    /// The rows of a `SELECT` as text cells.
    pub fn rows(&self, select: &str) -> Vec<Vec<String>> {
        let text = self.query(select);
        text.lines()
            .map(|line| line.split('\t').map(str::to_owned).collect())
            .collect()
    }

    /// The rows of a `SELECT` as JSON objects; decimals and 64-bit integers are strings, so that
    /// nothing is rounded.
    pub fn json(&self, select: &str) -> Vec<Value> {
        let sql = format!(
            "{select} SETTINGS output_format_json_quote_decimals=1, \
             output_format_json_quote_64bit_integers=1 FORMAT JSONEachRow"
        );
        let parse = |line| serde_json::from_str(line).expect("ClickHouse writes JSON");
        self.query(&sql).lines().map(parse).collect()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // The server may be the reason for the failing test, and its folder goes anyway.
        let _ = self.try_query(&format!("DROP DATABASE IF EXISTS `{}` SYNC", self.name));
    }
}

fn send(server: &Server, database: &str, sql: &str) -> Result<String, Refusal> {
    let target = format!("/?database={}", http::percent_encode(database));
    let headers = [
        ("X-ClickHouse-User", server.user.as_str()),
        ("X-ClickHouse-Key", server.password.as_str()),
    ];
    let body = sql.as_bytes();
    let request = Request {
        method: "POST",
        target: &target,
        headers: &headers,
        body,
        timeout: QUERY_MAX,
    };
    let answer = http::exchange(&server.authority, &request).map_err(|error| Refusal {
        code: 0,
        text: error.to_string(),
    })?;
    let code = answer
        .header("x-clickhouse-exception-code")
        .and_then(|code| code.parse().ok());
    if answer.status == 200 && code.is_none() {
        return Ok(answer.text());
    }
    Err(Refusal {
        code: code.unwrap_or(0),
        text: answer.text().trim().to_owned(),
    })
}
