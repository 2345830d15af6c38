//! tachograph
#[cfg(feature = "demo")]
pub mod embedded;
