//! The readiness of a coordinator: it reaches its store and its bus, and the server answers its
//! pulls from the intake. A process that only heartbeats may receive no messages, so readiness
//! depends on the pulls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bus::{Consumption, Delivery, keys::Keys};
use domain::time::millis;
use tokio::time::Instant;

use crate::loops::Handles;

/// The coordinator is not ready if the server has not answered a pull for this long.
const NOT_READY_AFTER: Duration = Duration::from_secs(40);
/// Interval at which a waiting reader records that its pulls are answered.
const RECORD_EVERY: Duration = Duration::from_secs(1);

/// When the server last answered a pull from the intake.
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

    /// The next delivery of a queue. While waiting, records that pulls are answered.
    pub(crate) async fn watch(&self, queue: &mut Consumption) -> Delivery {
        loop {
            match tokio::time::timeout(RECORD_EVERY, queue.next()).await {
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

/// Returns the fill levels of the storage if the coordinator is ready, otherwise the reason. Full
/// storage does not change readiness: other coordinators use the same storage.
pub(crate) async fn ready(handles: &Handles, pulse: &Pulse) -> Result<String, String> {
    handles.store.ping().await.map_err(|error| error.to_string())?;
    handles.bus.ping().await.map_err(|error| error.to_string())?;
    let silent = pulse.silent_for();
    if silent > NOT_READY_AFTER {
        return Err(format!(
            "the NATS server has not answered a pull from the intake for {} s",
            silent.as_secs()
        ));
    }
    let refused = handles.config.keys.as_ref().map_or(0, Keys::refused);
    let refused = if refused == 0 { String::new() } else { format!("{refused} refused as not authentic\n") };
    let damaged = match handles.damaged.load(Ordering::Relaxed) {
        0 => String::new(),
        times => format!("{times} times a stored run could not be read\n"),
    };
    Ok(handles.room.shown() + &refused + &damaged)
}
