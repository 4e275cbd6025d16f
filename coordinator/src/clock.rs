//! The time decisions are made at: the store's clock, carried on between two looks at it. It never
//! goes back, whatever the store's does.

use std::sync::{Arc, Mutex, PoisonError};

use shared::Timestamp;
use tokio::time::Instant;

#[derive(Debug, Clone)]
pub(crate) struct Clock(Arc<Mutex<Reading>>);

#[derive(Debug)]
struct Reading {
    /// What the store said, and when.
    said: Timestamp,
    at: Instant,
    /// The latest time anyone was told.
    told: Timestamp,
}

impl Clock {
    pub(crate) fn new(said: Timestamp) -> Self {
        Clock(Arc::new(Mutex::new(Reading { said, at: Instant::now(), told: said })))
    }

    pub(crate) fn set(&self, said: Timestamp) {
        let mut reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reading.said = said;
        reading.at = Instant::now();
    }

    pub(crate) fn now(&self) -> Timestamp {
        let mut reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = u64::try_from(reading.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let now = reading.said.plus_millis(elapsed).max(reading.told);
        reading.told = now;
        now
    }
}
