//! The pure core, in this branch only as far as the tests of `usage` need it.
#![deny(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used
)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod usage;
