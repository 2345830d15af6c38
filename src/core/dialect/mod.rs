//! Bytes to runtime events: placeholder signatures until the dialects land.

use super::event::{Dialect, ReadFlags, RuntimeEvent};

/// One record as it came.
#[derive(Clone, Copy, Debug)]
pub struct RecordBytes<'p> {
    pub payload: &'p [u8],
    pub headers: &'p [(&'p str, Option<&'p [u8]>)],
}

/// What decoding must know.
#[derive(Clone, Copy, Debug)]
pub struct DecodeContext {
    pub dialect: Option<Dialect>,
    pub payload_bytes_max: usize,
    pub hash_key: u64,
    pub id_bytes_max: usize,
    pub attributes_max: usize,
    pub attribute_bytes_max: usize,
}

/// Why a record is quarantined (rules.md §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeadLetterReason {
    InvalidJson,
    TooDeep,
    TooLarge,
    Empty,
    NoEnvelope,
    NoInvocationId,
}

impl DeadLetterReason {
    /// The word of rules.md §1.
    pub fn as_str(self) -> &'static str {
        match self {
            DeadLetterReason::InvalidJson => "invalid_json",
            DeadLetterReason::TooDeep => "too_deep",
            DeadLetterReason::TooLarge => "too_large",
            DeadLetterReason::Empty => "empty",
            DeadLetterReason::NoEnvelope => "no_envelope",
            DeadLetterReason::NoInvocationId => "no_invocation_id",
        }
    }
}

/// What became of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    Read { events: u32, flags: ReadFlags },
    Ignored,
    Refused(DeadLetterReason),
}

/// Calls `each` for every event of the record.
pub fn decode(
    _record: RecordBytes<'_>,
    _context: &DecodeContext,
    _each: &mut dyn FnMut(RuntimeEvent<'_>),
) -> Decoded {
    Decoded::Refused(DeadLetterReason::NoEnvelope)
}
