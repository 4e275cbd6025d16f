//! The origin of a run whose spans are exported (X5). Plain values.

use domain::{
    Timestamp,
    span::{Link, SpanId},
};
use serde::{Deserialize, Serialize};

/// The origin of a run whose spans are exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunOrigin {
    /// The time at which its submission arrived.
    pub received_at: Timestamp,
    /// The subject of the submission.
    pub subject: String,
    /// The caller's span, in the same trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SpanId>,
    /// The caller's span, in the trace of another run (X2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
}
