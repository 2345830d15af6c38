//! When something happened, by the clocks of whoever said so, and what may be computed from two
//! such instants.

use crate::core::fact::{Flag, Flags};
use crate::core::{EventTime, Nanos};

/// One instant as one emitter told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub at: EventTime,
    /// The emitter's monotonic clock, nanoseconds.
    pub mono_ns: Option<i64>,
    /// Which emitter instance, numbered within the segment; 0 is unknown.
    pub instance: u32,
    /// False where another clock stands in for an unusable time: it orders, and gives no duration
    /// (events.md §3).
    pub is_valid: bool,
    /// True where the time says when the record's subject happened at all; template times of native
    /// events do not.
    pub is_arrival: bool,
}

impl Stamp {
    /// An instant that a record of the same emitter declares besides its own.
    pub fn declared(self, at: EventTime) -> Stamp {
        if at == self.at {
            self
        } else {
            Stamp {
                at,
                mono_ns: None,
                ..self
            }
        }
    }

    /// The span between two instants: monotonic clocks first, wall clocks of one emitter second,
    /// across hosts flagged (facts.md §4). `None` where no clock can tell. May be negative; the
    /// caller decides what that means.
    pub fn since(self, earlier: Stamp, flags: &mut Flags) -> Option<Nanos> {
        if !(self.is_valid && earlier.is_valid && self.is_arrival && earlier.is_arrival) {
            return None;
        }
        if self.instance == earlier.instance
            && self.instance != 0
            && let (Some(to), Some(from)) = (self.mono_ns, earlier.mono_ns)
        {
            return Some(Nanos(to.saturating_sub(from)));
        }
        if self.instance != earlier.instance && self.instance != 0 && earlier.instance != 0 {
            flags.insert(Flag::CrossHostLatency);
        }
        Some(self.at.since(earlier.at))
    }
}

impl Stamp {
    /// True where this instant lies before `other`: by the monotonic clock they share, else by
    /// their wall clocks.
    pub fn is_before(self, other: Stamp) -> bool {
        if self.instance == other.instance
            && self.instance != 0
            && let (Some(this), Some(that)) = (self.mono_ns, other.mono_ns)
        {
            return this < that;
        }
        self.at < other.at
    }
}

/// The earlier of two optional instants; equal ones keep the first.
pub fn earliest(known: Option<Stamp>, other: Stamp) -> Option<Stamp> {
    Some(
        known
            .filter(|known| !other.is_before(*known))
            .unwrap_or(other),
    )
}

/// The later of two optional instants; equal ones take the second.
pub fn latest(known: Option<Stamp>, other: Stamp) -> Option<Stamp> {
    Some(
        known
            .filter(|known| other.is_before(*known))
            .unwrap_or(other),
    )
}
