//! How often a trace was rebuilt from its event log, and which rebuild counts.

use serde::{Deserialize, Serialize};
use shared::Timestamp;

/// The number of rebuilds, and the number of the event that tells the last of them. From that event on,
/// messages of earlier generations do not count.
///
/// Two generations may have one number: the store may lose a rebuild before the log has it. So the one that
/// was begun later counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Generation {
    pub number: u32,
    pub since: u64,
    #[serde(default)]
    pub begun: Timestamp,
}

impl Generation {
    pub(super) fn is_first(&self) -> bool {
        self.number == 0
    }

    /// Orders generations: the last is the one that counts.
    pub fn order(&self) -> (Timestamp, u32) {
        (self.begun, self.number)
    }

    /// When the one after it begins: always later.
    pub(super) fn next_begins(&self, now: Timestamp) -> Timestamp {
        now.max(self.begun.plus_millis(1))
    }
}
