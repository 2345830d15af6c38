//! tachograph: a flight recorder and taximeter for AI agents.
//!
//! The library is the daemon without its `main`: a pure core and, behind the feature `io`, the edges around it.
//! `src/ARCHITECTURE.md` is the map.

pub mod core;

#[cfg(feature = "io")]
pub mod clock;
#[cfg(feature = "io")]
pub mod config;
#[cfg(feature = "io")]
pub mod kafka_source;
#[cfg(feature = "io")]
pub mod log;
#[cfg(feature = "io")]
pub mod shutdown;
