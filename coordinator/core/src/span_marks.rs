//! The marks of a context: what its spans are made of (X4). Plain values, stored one by one.

use domain::{Amount, CallId, Dimension, StepId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{ContextIndex, Requeue};

/// Something that the spans of a context tell.
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
    /// It had ended, and nothing of it is held any more.
    Closed,
    /// It was queued once more, and what came later has no marks.
    Cut,
}

/// What changes nothing of what a context is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happening {
    Forfeited {
        call_id: CallId,
        amount: Amount,
        /// The attempt that held it.
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
