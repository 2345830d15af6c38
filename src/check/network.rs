//! Names and ports, before anything is said to whoever listens there.

use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Looks the name up and connects, without sending a byte. `None` where that works, else why not,
/// and what to do; `key` is where the address was configured.
pub fn trouble(host: &str, port: u16, key: &str) -> Option<String> {
    let addresses = match (host, port).to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(error) => {
            return Some(format!(
                "{host}:{port}: the name {host:?} is unknown here ({error}): correct {key}, or the \
                 name service"
            ));
        }
    };
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(_) => return None,
            Err(error) => last = error,
        }
    }
    Some(format!(
        "{host}:{port}: no connection ({last}): start what should listen there, open the way to \
         it, or correct {key}"
    ))
}

/// Host and port of one element of `kafka.brokers`, or of an address without its scheme.
pub fn host_and_port(address: &str, default_port: u16) -> (String, u16) {
    let address = address.trim();
    let address = address.split_once("://").map_or(address, |(_, rest)| rest);
    let address = address.split('/').next().unwrap_or(address);
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') => (host, port.parse().ok()),
        _ => (address, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (host.to_owned(), port.unwrap_or(default_port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        for (address, host, port) in [
            ("kafka-1:9093", "kafka-1", 9093),
            (" kafka-1 ", "kafka-1", 9092),
            ("SASL_SSL://kafka-1:9094", "kafka-1", 9094),
            ("[::1]:9095", "::1", 9095),
            ("https://clickhouse:8443/path", "clickhouse", 8443),
        ] {
            assert_eq!(host_and_port(address, 9092), (host.to_owned(), port));
        }
    }

    #[test]
    fn a_name_that_nobody_knows_is_not_a_closed_port() {
        for (host, words) in [
            ("no.such.name.invalid", "the name"),
            ("127.0.0.1", "no connection"),
        ] {
            let said = trouble(host, 9, "a.key").expect("nothing listens there");
            assert!(said.contains(words) && said.contains("a.key"), "{said}");
        }
    }
}
