//! The state of a schedule between two ticks, as it is stored on `agent.ticks.<name>`. The
//! definition is not part of it.

use serde::{Deserialize, Serialize};

use crate::{Timestamp, TraceId, Usd, wire::TickRecord};

/// The most live runs of a schedule. The state lists all of them.
pub const MAX_LIVE: usize = 8;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct State {
    /// The revision of the definition that it was decided with.
    pub revision: u64,
    /// Every tick up to here is decided.
    pub done: Timestamp,
    /// To be run, and perhaps not submitted yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Run>,
    /// Runs that had not ended when the last tick was decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub live: Vec<Run>,
    /// The day of the last tick that was run or skipped, and what its runs that have ended have cost. A sum may pass what a
    /// single amount may be.
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
    /// What this state was stored for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<TickRecord>,
}

/// A run of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Run {
    /// Its tick.
    pub at: Timestamp,
    pub trace_id: TraceId,
    /// The day on whose budget it counts. Not that of its tick if a later day had begun, by another time zone or by a run that
    /// somebody asked for.
    #[serde(default)]
    pub day: String,
    /// The most it may cost, as last seen.
    pub ceiling_usd: Usd,
    /// Of the definition that is submitted; 0 once it is.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub revision: u64,
    /// Somebody asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if takes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Whether it was paused, and at which revision that was said: a later definition may say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PauseState {
    pub revision: u64,
    pub paused: bool,
}
