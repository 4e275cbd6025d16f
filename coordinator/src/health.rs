//! Whether a coordinator is ready: it can reach its store and its bus, and its intake is being served.
//! A process that only heartbeats may be deaf; so readiness is judged by the pulls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use shared::{
    bus::{Consumption, Delivery},
    time::millis,
};
use tokio::time::Instant;

use crate::ground::Ground;

/// A queue that has not been answered for so long is not being served.
const DEAF_AFTER: Duration = Duration::from_secs(40);
/// How often a waiting reader notes that it is being served.
const NOTED_EVERY: Duration = Duration::from_secs(1);

/// When the intake was last seen to be served.
#[derive(Debug, Clone)]
pub(crate) struct Pulse {
    started: Instant,
    /// Milliseconds after `started`.
    last: Arc<AtomicU64>,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Pulse { started: Instant::now(), last: Arc::default() }
    }

    /// The next delivery of a queue; meanwhile notes that the queue is served.
    pub(crate) async fn watch(&self, queue: &mut Consumption) -> Delivery {
        loop {
            match tokio::time::timeout(NOTED_EVERY, queue.next()).await {
                Ok(delivery) => {
                    self.note(Duration::ZERO);
                    return delivery;
                }
                Err(_) => self.note(queue.silent_for()),
            }
        }
    }

    fn note(&self, ago: Duration) {
        let at = self.started.elapsed().saturating_sub(ago);
        self.last.fetch_max(millis(at), Ordering::Relaxed);
    }

    fn silent_for(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }
}

/// Why it is not ready, if it is not.
pub(crate) async fn ready(ground: &Ground, pulse: &Pulse) -> Result<(), String> {
    ground.store.ping().await.map_err(|error| error.to_string())?;
    ground.bus.ping().await.map_err(|error| error.to_string())?;
    let silent = pulse.silent_for();
    if silent > DEAF_AFTER {
        return Err(format!("the intake has not been served for {} s", silent.as_secs()));
    }
    Ok(())
}
