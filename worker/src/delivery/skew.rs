//! The difference between this machine's time of day and the coordinators'. No deadline or lease
//! depends on it, but journals and spans have its timestamps. A wrong clock is reported once in the
//! log, and in `describe`.

use std::sync::{Mutex, PoisonError};

use domain::Timestamp;

/// A smaller difference may be the time that an answer took to arrive.
const MUCH_MS: u64 = 5_000;

#[derive(Debug, Default)]
pub(crate) struct Skew(Mutex<Option<i64>>);

impl Skew {
    /// Compares the time in a coordinator's answer with the local time.
    pub(crate) fn compare(&self, coordinators: Timestamp, ours: Timestamp) {
        let ahead = signed(ours.millis_since(coordinators)) - signed(coordinators.millis_since(ours));
        let found = (ahead.unsigned_abs() >= MUCH_MS).then_some(ahead);
        let before = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *known, found)
        };
        match (before, found) {
            (None, Some(ahead_ms)) => tracing::warn!(
                ahead_ms,
                "this machine's clock differs from the coordinators': deadlines and leases are not affected, the times in \
                 journals and spans are wrong"
            ),
            (Some(_), None) => tracing::info!("this machine's clock agrees with the coordinators' again"),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    pub(crate) fn ahead_ms(&self) -> Option<i64> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn signed(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}
