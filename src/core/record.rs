//! Records at the border: as the source hands them over, and as they leave again when nobody could
//! read them.

use super::dialect::DeadLetterReason;
use super::ledger::WorkId;
use super::{Coordinates, LogTime, Offset};
use std::fmt;

/// One record as the source hands it over.
#[derive(Clone, Copy)]
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
pub struct DeadLetter {
    pub work: WorkId,
    pub reason: DeadLetterReason,
    pub at: Coordinates,
    pub logged_at: LogTime,
    pub key: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub payload: Vec<u8>,
}

/// Without key, headers and payload: whatever prints it must not print content.
impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("offset", &self.offset)
            .field("logged_at", &self.logged_at)
            .field("payload_bytes", &self.payload.map(<[u8]>::len))
            .finish_non_exhaustive()
    }
}

/// Without key, headers and payload, as above.
impl fmt::Debug for DeadLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter")
            .field("work", &self.work)
            .field("reason", &self.reason)
            .field("at", &self.at)
            .field("logged_at", &self.logged_at)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}
