//! tachograph: a flight recorder and taximeter for AI agents.
//!
//! The library is the daemon without its `main`: a pure core and, behind the feature `io`, the
//! edges around it. `src/ARCHITECTURE.md` is the map; the modules stand in the order of its
//! picture.

#[cfg(feature = "io")]
pub mod kafka_source;

pub mod core;

#[cfg(feature = "io")]
pub mod clickhouse_sink;
#[cfg(feature = "io")]
pub mod prometheus_exporter;

#[cfg(feature = "io")]
pub mod http_server;

#[cfg(feature = "io")]
pub mod state_file;

#[cfg(feature = "io")]
pub mod driver;

#[cfg(feature = "io")]
pub mod daemon;

#[cfg(feature = "io")]
pub mod check;

#[cfg(feature = "io")]
pub mod replay;

#[cfg(feature = "io")]
pub mod config;

#[cfg(feature = "io")]
pub mod clock;

#[cfg(feature = "io")]
pub mod shutdown;

#[cfg(feature = "io")]
pub mod log;

#[cfg(feature = "demo")]
pub mod embedded;

#[cfg(feature = "demo")]
pub mod demo;
