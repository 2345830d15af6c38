//! tachograph
