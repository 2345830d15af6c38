//! What the user must be allowed for inserts to work.
//!
//! Deliberately asked of the server (`CHECK GRANT`), which knows of roles and wild cards.

use super::connection::Connection;
use super::error::SinkError;
use super::schema::{MIGRATIONS, quoted};
use crate::core::fact::Table;

/// The grants that are missing, each as the statement that gives it.
///
/// # Errors
/// Whatever the server or the network reports; servers before 24.11 do not know the question.
pub async fn missing(connection: &Connection) -> Result<Vec<String>, SinkError> {
    let inserts = Table::ALL.iter().map(|table| ("INSERT", table.as_str()));
    let needed = inserts.chain([("SELECT", MIGRATIONS)]);
    let database = quoted(&connection.config().database);
    let user = quoted(&connection.config().user);
    let mut missing = Vec::new();
    for (right, table) in needed {
        let right_on = format!("{right} ON {database}.{}", quoted(table));
        let answer = connection
            .fetch_outside::<u8>(&format!("CHECK GRANT {right_on}"))
            .await?;
        if answer.first() != Some(&1) {
            missing.push(format!("GRANT {right_on} TO {user}"));
        }
    }
    Ok(missing)
}
