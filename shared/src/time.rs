//! A point in time, in milliseconds since the Unix epoch. Nothing here reads a clock: the time comes in
//! with each command, and Redis TIME is the clock of record.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    pub const fn from_millis(millis: u64) -> Self {
        Timestamp(millis)
    }

    pub const fn millis(self) -> u64 {
        self.0
    }

    pub const fn plus_millis(self, millis: u64) -> Self {
        Timestamp(self.0.saturating_add(millis))
    }

    pub const fn minus_millis(self, millis: u64) -> Self {
        Timestamp(self.0.saturating_sub(millis))
    }

    /// Milliseconds since `earlier`; zero if the clock went back in between.
    pub const fn millis_since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A duration in whole milliseconds; the largest number if it does not fit.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
