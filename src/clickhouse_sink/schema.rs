//! The schema: the files of deploy/clickhouse, their application, and whether they were applied.
//!
//! The daemon only looks and never changes a table; an operator applies, with `tachograph schema
//! apply`. Names in the files are unqualified, and the database is chosen on the connection; only
//! calls of parameterised views name it, since the server does not fix it for them.

use super::connection::{Connection, SinkConfig};
use super::error::SinkError;
use super::row;
use crate::core::fact::Table;
use clickhouse::Row;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// One file of deploy/clickhouse; append-only once released.
pub struct SchemaFile {
    /// From 1, without holes.
    pub number: u32,
    /// The file's name.
    pub name: &'static str,
    /// Its text: statements that end with a semicolon at the end of a line.
    pub sql: &'static str,
}

/// Every file, in order.
pub const FILES: [SchemaFile; 5] = [
    SchemaFile {
        number: 1,
        name: "0001_tables.sql",
        sql: include_str!("../../deploy/clickhouse/0001_tables.sql"),
    },
    SchemaFile {
        number: 2,
        name: "0002_views.sql",
        sql: include_str!("../../deploy/clickhouse/0002_views.sql"),
    },
    SchemaFile {
        number: 3,
        name: "0003_unmetered_cause.sql",
        sql: include_str!("../../deploy/clickhouse/0003_unmetered_cause.sql"),
    },
    SchemaFile {
        number: 4,
        name: "0004_what_followed.sql",
        sql: include_str!("../../deploy/clickhouse/0004_what_followed.sql"),
    },
    SchemaFile {
        number: 5,
        name: "0005_windows_of_invocations.sql",
        sql: include_str!("../../deploy/clickhouse/0005_windows_of_invocations.sql"),
    },
];

/// How the files name the database where they must.
const DATABASE_PREFIX: &str = "tachograph.";
/// The table that says which files were applied.
pub(super) const MIGRATIONS: &str = "schema_migrations";

/// What is missing, in words for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaProblem {
    #[error("database {0} is missing: run `tachograph schema apply`")]
    DatabaseMissing(String),
    #[error("table {0} is missing: run `tachograph schema apply`")]
    TableMissing(String),
    #[error("file {1} (number {0}) was never applied: run `tachograph schema apply`")]
    MigrationMissing(u32, &'static str),
    #[error("column {column} of table {table} is missing: run `tachograph schema apply`")]
    ColumnMissing {
        /// The table that lacks it.
        table: &'static str,
        /// The column that the daemon writes.
        column: &'static str,
    },
}

/// Why the schema could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A file that was applied before has another text now.
    #[error("{name} was applied to this database with another text; files are append-only")]
    TextDiffers {
        /// The file.
        name: &'static str,
    },
    /// A statement failed; what came before it stays, and applying again goes on from there.
    #[error("{name}, statement {statement}: {source}")]
    Statement {
        /// The file.
        name: &'static str,
        /// From 1.
        statement: usize,
        /// What the server or the network reports.
        #[source]
        source: SinkError,
    },
    /// The server could not be asked.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// No runtime could be started.
    #[error("cannot start: {0}")]
    Runtime(#[from] std::io::Error),
}

#[derive(Row, Deserialize)]
struct AppliedFile {
    number: u32,
    checksum: String,
}

#[derive(Row, Deserialize)]
struct KnownColumn {
    table: String,
    name: String,
}

impl SchemaFile {
    /// SHA-256 of the text, in hex.
    pub fn checksum(&self) -> String {
        let mut hex = String::with_capacity(64);
        for byte in Sha256::digest(self.sql.as_bytes()) {
            let _ = write!(hex, "{byte:02x}");
        }
        hex
    }

    /// The statements, without the semicolons at their ends and without empty ones.
    pub fn statements(&self) -> impl Iterator<Item = &'static str> {
        let is_code = |line: &str| !line.trim().is_empty() && !line.trim().starts_with("--");
        self.sql
            .split(";\n")
            .map(str::trim)
            .filter(move |statement| statement.lines().any(is_code))
    }
}

/// The whole schema as one script.
pub fn print() -> String {
    let mut script = String::new();
    for file in &FILES {
        let _ = writeln!(script, "-- {}\n{}", file.name, file.sql);
    }
    script
}

/// Makes the database if need be, and applies the files that it does not have yet. Returns the
/// names of those.
///
/// # Errors
/// See [`ApplyError`]. What was done stays; applying again goes on from there.
pub async fn apply(connection: &Connection) -> Result<Vec<&'static str>, ApplyError> {
    make_database(connection).await?;
    let applied = applied_files(connection).await?;
    let prefix = format!("{}.", quoted(&connection.config().database));
    let mut names = Vec::new();
    for file in &FILES {
        match applied.get(&file.number) {
            Some(checksum) if *checksum == file.checksum() => continue,
            Some(_) => return Err(ApplyError::TextDiffers { name: file.name }),
            None => {}
        }
        for (index, sql) in file.statements().enumerate() {
            let statement = index + 1;
            let failed = |source| ApplyError::Statement {
                name: file.name,
                statement,
                source,
            };
            let sql = sql.replace(DATABASE_PREFIX, &prefix);
            connection.execute(&sql, true).await.map_err(failed)?;
        }
        let record = format!(
            "INSERT INTO {MIGRATIONS} (number, name, checksum) VALUES ({}, '{}', '{}')",
            file.number,
            file.name,
            file.checksum()
        );
        connection.execute(&record, true).await?;
        names.push(file.name);
    }
    connection.forget_tables().await;
    Ok(names)
}

/// Whether everything is there that the daemon writes. Columns, tables and files that it does not
/// know are fine.
///
/// # Errors
/// `SchemaBehind` with the first thing that is missing; else what the server or the network
/// reports.
pub async fn check(connection: &Connection) -> Result<(), SinkError> {
    let sql = "SELECT table, name FROM system.columns WHERE database = currentDatabase()";
    let known = match connection.fetch::<KnownColumn>(sql).await {
        Err(SinkError::Refused { code: 81, .. }) => {
            let database = connection.config().database.clone();
            return Err(SinkError::SchemaBehind(SchemaProblem::DatabaseMissing(
                database,
            )));
        }
        other => other?,
    };
    let mut columns: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for column in &known {
        columns
            .entry(&column.table)
            .or_default()
            .insert(&column.name);
    }
    missing_column(&columns).map_err(SinkError::SchemaBehind)?;
    let applied = applied_files(connection).await?;
    match FILES
        .iter()
        .find(|file| !applied.contains_key(&file.number))
    {
        Some(file) => Err(SinkError::SchemaBehind(SchemaProblem::MigrationMissing(
            file.number,
            file.name,
        ))),
        None => Ok(()),
    }
}

/// [`apply`] for callers without a runtime.
///
/// # Errors
/// See [`apply`].
pub fn apply_blocking(config: &SinkConfig) -> Result<Vec<&'static str>, ApplyError> {
    runtime()?.block_on(async { apply(&Connection::new(config)).await })
}

/// [`check`] for callers without a runtime.
///
/// # Errors
/// See [`check`].
pub fn check_blocking(config: &SinkConfig) -> Result<(), ApplyError> {
    runtime()?.block_on(async { Ok(check(&Connection::new(config)).await?) })
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// The right to make databases is only needed where there is something to make.
async fn make_database(connection: &Connection) -> Result<(), SinkError> {
    match connection.execute("SELECT 1", true).await {
        Err(SinkError::Refused { code: 81, .. }) => {
            let name = quoted(&connection.config().database);
            connection
                .execute(&format!("CREATE DATABASE IF NOT EXISTS {name}"), false)
                .await
        }
        other => other,
    }
}

/// Checksums by number; none where the table is not there.
async fn applied_files(connection: &Connection) -> Result<BTreeMap<u32, String>, SinkError> {
    let sql = format!("SELECT number, checksum FROM {MIGRATIONS} FINAL");
    match connection.fetch::<AppliedFile>(&sql).await {
        Err(SinkError::Refused { code: 60, .. }) => Ok(BTreeMap::new()),
        other => {
            let pair = |file: AppliedFile| (file.number, file.checksum);
            Ok(other?.into_iter().map(pair).collect())
        }
    }
}

fn missing_column(columns: &BTreeMap<&str, BTreeSet<&str>>) -> Result<(), SchemaProblem> {
    for table in Table::ALL {
        let Some(there) = columns.get(table.as_str()) else {
            return Err(SchemaProblem::TableMissing(table.as_str().to_owned()));
        };
        let missing = row::columns(table)
            .iter()
            .find(|column| !there.contains(*column));
        if let Some(column) = missing {
            return Err(SchemaProblem::ColumnMissing {
                table: table.as_str(),
                column,
            });
        }
    }
    Ok(())
}

/// The name as an identifier of SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checksums of the files as they were released: a change is a new file, not a new checksum.
    const PINNED: [&str; FILES.len()] = [
        "cd09e52c11d4661806682b27fcf897b46f6e4385b02e0e1d85e6e9d99fb098c6",
        "14aa89cfc3eecc4ab30df5b42a91c4ac99393b1b71aa7d8b762553b5d8ab3b0c",
        "71f5f2d72dd15fb724c5b6a45bf4343d1d4ce966f18b19778528901332a39ba4",
        "e9668faa353b5d719d5ed3a292a83f56d8f4eccb3adff9c4675448969313b53c",
        "2ea54ddbf2868f479e302318e5d98b351ccf7964cffd29150f1e3180cc0eb530",
    ];

    #[test]
    fn files_never_change() {
        assert_eq!(FILES.map(|file| file.checksum()), PINNED);
    }

    #[test]
    fn files_are_numbered_without_holes_and_idempotent() {
        for (index, file) in FILES.iter().enumerate() {
            assert_eq!(usize::try_from(file.number), Ok(index + 1));
            assert!(file.name.starts_with(&format!("{:04}_", file.number)));
            for statement in file.statements() {
                let code: Vec<&str> = statement
                    .lines()
                    .filter(|line| !line.starts_with("--"))
                    .collect();
                let code = code.join("\n");
                let starts = ["CREATE TABLE IF NOT EXISTS ", "CREATE OR REPLACE VIEW "];
                let makes = starts.iter().any(|start| code.trim().starts_with(start));
                let adds = code.matches("ADD COLUMN IF NOT EXISTS ").count();
                let changes = code.trim().starts_with("ALTER TABLE ")
                    && adds == code.matches("COLUMN").count()
                    && adds == code.matches(" COMMENT '").count();
                assert!(makes && code.contains("\nCOMMENT '") || changes, "{code}");
            }
        }
    }

    #[test]
    fn every_view_that_people_read_has_its_twin() {
        for view in [
            "v_invocations",
            "v_model_calls",
            "v_tool_calls",
            "v_usage_daily",
            "v_timeline",
            "v_guardrail_audit",
            "v_unmetered",
        ] {
            let script = print();
            assert!(script.contains(&format!("VIEW {view} AS")), "{view}");
            assert!(
                script.contains(&format!("VIEW {view}_between AS")),
                "{view}"
            );
        }
    }

    #[test]
    fn problems_say_what_to_do() {
        let problem = missing_column(&BTreeMap::new()).unwrap_err();
        assert_eq!(
            problem.to_string(),
            "table invocations is missing: run `tachograph schema apply`"
        );
        assert_eq!(quoted("a`b\\"), "`a\\`b\\\\`");
    }
}
