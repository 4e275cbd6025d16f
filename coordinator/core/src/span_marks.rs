//! The marks of a context, from which its spans are built (X4). Plain values, stored one by one.

use domain::{Amount, CallId, Dimension, StepId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{ContextIndex, Requeue};

/// An event of a context that its spans show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub at: Timestamp,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Claimed,
    Lost,
    Queued {
        why: Requeue,
        not_before: Timestamp,
    },
    Waits {
        children: Vec<ContextIndex>,
    },
    Asks,
    Paused,
    Happened(Happening),
    /// It has ended, and no hold of it is open.
    Closed,
    /// It was queued once more than marks are kept for: later events have no marks.
    Cut,
}

/// An event that does not change the activity of a context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happening {
    Forfeited {
        call_id: CallId,
        amount: Amount,
        /// The attempt that took the hold.
        #[serde(default)]
        attempt: u32,
    },
    Charged {
        key: CallId,
        amount: Amount,
    },
    Exhausted {
        dimension: Dimension,
    },
    Raised {
        limit: Amount,
    },
    Skipped {
        step: StepId,
    },
}
