//! The outages of the server, and of each stream that accepts no messages. Each is logged once for
//! the whole process, however many loops notice it (X8).

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use telemetry::Outage;

#[derive(Debug)]
pub(super) struct Outages {
    connection: Mutex<Outage>,
    /// The outages that continue, by the name of the stream.
    streams: Mutex<BTreeMap<&'static str, Outage>>,
}

impl Default for Outages {
    fn default() -> Self {
        Outages { connection: Mutex::new(Outage::new("NATS")), streams: Mutex::default() }
    }
}

/// The guard is never held over an await.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outages {
    pub(super) fn disconnected(&self, cause: &str) {
        locked(&self.connection).failed(cause);
    }

    pub(super) fn connected(&self) {
        locked(&self.connection).ended();
    }

    pub(super) fn streams(&self) -> MutexGuard<'_, BTreeMap<&'static str, Outage>> {
        locked(&self.streams)
    }
}
