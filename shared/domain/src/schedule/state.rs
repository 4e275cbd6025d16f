//! The state of a schedule between two ticks, as it is stored on `agent.ticks.<name>`. The
//! definition is not part of it.

use serde::{Deserialize, Serialize};

use crate::{Timestamp, TraceId, Usd, wire::TickRecord};

/// The most live runs of a schedule. The state lists all of them.
pub const MAX_LIVE: usize = 8;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct State {
    /// The revision of the definition that the state was decided with.
    pub revision: u64,
    /// Every tick up to this time is decided.
    pub done: Timestamp,
    /// A run that is decided and may not be submitted yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Run>,
    /// The runs that had not ended when the last tick was decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub live: Vec<Run>,
    /// The day of the last tick that was run or skipped. `spent_nanos` is the cost of that day's
    /// runs that have ended; it may be more than the largest single amount.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub day: String,
    #[serde(default)]
    pub spent_nanos: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<PauseState>,
    #[serde(default)]
    pub runs: u64,
    #[serde(default)]
    pub skipped: u64,
    #[serde(default)]
    pub missed: u64,
    /// The decision for which this state was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<TickRecord>,
}

/// A run of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Run {
    /// The tick of the run.
    pub at: Timestamp,
    pub trace_id: TraceId,
    /// The day whose budget pays for the run. It is later than the tick's day if a later day had
    /// begun already, in another time zone or by a run on request.
    #[serde(default)]
    pub day: String,
    /// The run's ceiling, as last read.
    pub ceiling_usd: Usd,
    /// The revision of the definition to submit; 0 after the submission.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub revision: u64,
    /// True for a run that a user requested.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if takes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A pause or a resume, and the revision at which it was requested. A later definition may override
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PauseState {
    pub revision: u64,
    pub paused: bool,
}
