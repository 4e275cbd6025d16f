//! The time of the last request, for a process that stops its server when it is idle.

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

    /// True if a request arrived within the last `time`.
    pub fn within(&self, time: Duration) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|last| last.elapsed() < time)
    }
}
