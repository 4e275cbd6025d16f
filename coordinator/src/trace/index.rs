//! How a trace names its contexts within itself: by number, in the order they came.

use serde::{Deserialize, Serialize};

/// A context's number in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContextIndex(pub(super) u32);
