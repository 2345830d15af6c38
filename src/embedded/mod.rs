//! The parts that the demo and the tests carry with them, so that nothing need be installed first.
//!
//! Deliberately not for production: the engine listens on loopback only and is no server for
//! strangers. The sink never comes here; it speaks HTTP to this engine as to any other server.

pub mod engine;
pub mod http;
