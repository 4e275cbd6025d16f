//! When somebody asked last: whoever ends a server may wait until nobody does.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

#[derive(Debug, Clone, Default)]
pub struct LastRequest(Arc<Mutex<Option<Instant>>>);

impl LastRequest {
    pub(crate) fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether somebody asked within this time.
    pub fn within(&self, time: Duration) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|last| last.elapsed() < time)
    }
}
