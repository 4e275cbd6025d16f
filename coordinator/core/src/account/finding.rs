//! The findings of an audit.

use domain::ChildId;
use serde::Serialize;

/// The parts of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The log has every event once.
    Log,
    /// Every cent is booked by an event, and the sums agree.
    Books,
    /// The store has the state that the log gives.
    Store,
    /// The journals and the books agree.
    Journal,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: Check,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_id: Option<ChildId>,
    /// The sequence of the message that shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    pub message: String,
}

impl Finding {
    pub(super) fn new(check: Check, message: String) -> Self {
        Finding { check, child_id: None, sequence: None, message }
    }

    pub(super) fn of(check: Check, child_id: &ChildId, message: String) -> Self {
        Finding { child_id: Some(child_id.clone()), ..Finding::new(check, message) }
    }
}
