//! Records at the border: as the source hands them over, and as they leave again when nobody could
//! read them.

use super::dialect::DeadLetterReason;
use super::ledger::WorkId;
use super::{Coordinates, LogTime, Offset};

/// One record as the source hands it over.
#[derive(Clone, Copy, Debug)]
pub struct Record<'p> {
    pub offset: Offset,
    /// The broker's time of the record.
    pub logged_at: LogTime,
    pub key: Option<&'p [u8]>,
    pub headers: &'p [(&'p str, Option<&'p [u8]>)],
    /// `None`: a tombstone.
    pub payload: Option<&'p [u8]>,
}

/// A record that could not be read, on its way to the dead-letter topic. The only copy of a
/// payload.
#[derive(Debug)]
pub struct DeadLetter {
    pub work: WorkId,
    pub reason: DeadLetterReason,
    pub at: Coordinates,
    pub logged_at: LogTime,
    pub key: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub payload: Vec<u8>,
}
