//! ClickHouse: address, login, schema, and the rights that inserts need.

use super::network::{self, host_and_port};
use super::{Report, Verdict};
use crate::clickhouse_sink::{Connection, SinkConfig, SinkError, rights};
use crate::config::{ClickHouse, Config};
use crate::daemon;
use tokio::runtime::Runtime;

const WHAT: &str = "clickhouse";

pub(super) fn check(config: &Config, runtime: &Runtime, report: &mut Report<'_>) {
    let clickhouse = &config.clickhouse;
    let sink = match daemon::sink_config(clickhouse, config.limits.work_in_flight_max) {
        Ok(sink) => sink,
        Err(error) => return report.say(Verdict::Wrong, WHAT, error.to_string()),
    };
    let is_in = address(clickhouse, report) && runtime.block_on(login(clickhouse, &sink, report));
    if is_in {
        runtime.block_on(tables(clickhouse, &sink, report));
    } else {
        report.say(Verdict::Skipped, WHAT, "schema and rights: no login yet");
    }
}

fn address(clickhouse: &ClickHouse, report: &mut Report<'_>) -> bool {
    let default_port = match clickhouse.url.starts_with("https:") {
        true => 443,
        false => 80,
    };
    let (host, port) = host_and_port(&clickhouse.url, default_port);
    let trouble = network::trouble(&host, port, "clickhouse.url");
    let is_reached = trouble.is_none();
    match trouble {
        None => report.say(
            Verdict::Ok,
            WHAT,
            format!("{host}:{port} takes connections"),
        ),
        Some(trouble) => report.say(Verdict::Missing, WHAT, trouble),
    }
    is_reached
}

async fn login(clickhouse: &ClickHouse, sink: &SinkConfig, report: &mut Report<'_>) -> bool {
    let user = &clickhouse.user;
    match Connection::new(sink).ping().await {
        Ok(()) => {
            report.say(Verdict::Ok, WHAT, format!("{user:?} is let in"));
            return true;
        }
        Err(SinkError::LoginRefused { .. }) => {
            let says = format!(
                "{user:?} is refused: correct clickhouse.user and the password \
                 (password_env, password_file)"
            );
            report.say(Verdict::Refused, WHAT, says);
        }
        Err(error @ SinkError::Tls(_)) => report.say(Verdict::Refused, WHAT, error.chain()),
        Err(error) => {
            let says = format!(
                "{}: is clickhouse.url that of ClickHouse's HTTP interface?",
                error.chain()
            );
            report.say(Verdict::Missing, WHAT, says);
        }
    }
    false
}

async fn tables(clickhouse: &ClickHouse, sink: &SinkConfig, report: &mut Report<'_>) {
    let connection = Connection::new(sink);
    match connection.check_schema().await {
        Ok(()) => {
            let says = format!("database {:?} has every table", clickhouse.database);
            report.say(Verdict::Ok, "schema", says);
        }
        Err(SinkError::SchemaBehind(problem)) => {
            let says = format!("{problem} (or grant this user to see it)");
            report.say(Verdict::Missing, "schema", says);
        }
        Err(error) => report.say(Verdict::Refused, "schema", error.chain()),
    }
    match rights::missing(&connection).await {
        Ok(missing) if missing.is_empty() => {
            let says = format!("{:?} may insert", clickhouse.user);
            report.say(Verdict::Ok, "rights", says);
        }
        Ok(missing) => {
            for grant in missing {
                let says = format!("{:?} lacks one: {grant}", clickhouse.user);
                report.say(Verdict::Refused, "rights", says);
            }
        }
        Err(error) => {
            let says = format!(
                "the server does not say what {:?} may do ({})",
                clickhouse.user,
                error.chain()
            );
            report.say(Verdict::Warning, "rights", says);
        }
    }
}
