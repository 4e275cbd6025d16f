//! The origin of a run whose spans are exported (X5). Plain values.

use domain::{
    Timestamp,
    span::{Link, SpanId},
};
use serde::{Deserialize, Serialize};

/// Where an exported run came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunOrigin {
    /// When its submission came.
    pub received_at: Timestamp,
    /// The subject that it came on.
    pub subject: String,
    /// The caller's span, in the same trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SpanId>,
    /// The caller's span, in a trace that another run has (X2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
}
