//! tachograph: a flight recorder and taximeter for AI agents.
//!
//! The library is the daemon without its `main`: a pure core and, behind the feature `io`, the edges around it.
//! `src/ARCHITECTURE.md` is the map.

#[cfg(feature = "io")]
pub mod clickhouse_sink;
pub mod core;
#[cfg(feature = "demo")]
pub mod embedded;
