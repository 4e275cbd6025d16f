//! How often a trace was rebuilt from its event log.

use serde::{Deserialize, Serialize};

/// The number of rebuilds, and the number of the event that tells the last of them. From that event on,
/// messages of earlier generations do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Generation {
    pub number: u32,
    pub since: u64,
}

impl Generation {
    pub(super) fn is_first(&self) -> bool {
        self.number == 0
    }
}
