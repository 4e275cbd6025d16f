//! The time that decisions are made at: the store's clock, advanced by our own between two readings. It
//! never goes back. If the store's clock is set back, ours runs at half speed until the two meet, so that
//! leases and timers still expire.

use std::sync::{Arc, Mutex, PoisonError};

use shared::{Timestamp, time::millis};
use tokio::time::Instant;

#[derive(Debug, Clone)]
pub(crate) struct Clock(Arc<Mutex<Reading>>);

#[derive(Debug)]
struct Reading {
    /// The store's last reading, and when it was taken.
    said: Timestamp,
    at: Instant,
    /// The latest time given out, and when.
    told: Timestamp,
    told_at: Instant,
}

impl Clock {
    pub(crate) fn new(said: Timestamp) -> Self {
        let at = Instant::now();
        Clock(Arc::new(Mutex::new(Reading { said, at, told: said, told_at: at })))
    }

    pub(crate) fn set(&self, said: Timestamp) {
        let mut reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reading.said = said;
        reading.at = Instant::now();
    }

    pub(crate) fn now(&self) -> Timestamp {
        let mut reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let real = reading.said.plus_millis(millis(reading.at.elapsed()));
        let slow = reading.told.plus_millis(millis(reading.told_at.elapsed()) / 2);
        // Advances of less than a millisecond are not lost: `told_at` moves only together with `told`.
        if real.max(slow) > reading.told {
            reading.told = real.max(slow);
            reading.told_at = Instant::now();
        }
        reading.told
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn f28_it_never_goes_back_and_never_stands_still() {
        let at = Timestamp::from_millis;
        let clock = Clock::new(at(1_000_000));
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(clock.now(), at(1_000_500));
        clock.set(at(9_000_000));
        assert_eq!(clock.now(), at(9_000_000), "set ahead, it follows");
        clock.set(at(1_000_600));
        assert_eq!(clock.now(), at(9_000_000), "set back, it does not");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(clock.now(), at(9_005_000), "but goes on, at half speed");
    }
}
