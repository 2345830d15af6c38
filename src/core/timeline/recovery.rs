//! What an error handler decided.

use super::row::RowState;
use super::stamp::Stamp;
use crate::core::Name;

/// One decision of one handler (events.md §2.2 `recovery.decision`).
#[derive(Clone, Debug)]
pub struct RecoveryDecision {
    pub row: RowState,
    pub at: Stamp,
    pub phase: Name,
    pub call_id: Option<Name>,
    pub attempt: u32,
    pub handler: Option<Name>,
    pub action: Name,
    pub branch: Name,
    pub agent: Name,
    pub error_code: Option<Name>,
    pub is_counted: bool,
}
