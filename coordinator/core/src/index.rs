//! Numbers the contexts of a trace in the order of their admission.

use serde::{Deserialize, Serialize};

/// A context's number in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContextIndex(pub(super) u32);
