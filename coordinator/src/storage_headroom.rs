//! Refuses new runs while the storage is nearly full. Journals and objects must never be full,
//! because a paid step could not be written. So new submissions are refused well before, and the
//! rest of the room is for existing runs. Each coordinator measures on its own, at an interval.
//! Queues are not measured: they drain on their own, and messages that they reject are sent again.
//!
//! A published submission stays in the intake meanwhile, and is taken when there is room again: its
//! publisher knows that it is stored, and may not wait for more. Beyond a number of waiting
//! submissions, the next are refused with a dead letter. The server stops deliveries while too many
//! are unacknowledged, so cancels and deletes would wait behind them.

use std::{
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bus::{Bus, Consumer, Delivery, Error, Fill, Storage};
use domain::wire::Refusal;
use telemetry::Outage;

/// From this level on new runs are refused.
pub const MARK_PERCENT: u64 = 80;
const MEASURE_EVERY: Duration = Duration::from_secs(2);
/// Published submissions that may wait for room: half of what the server delivers unacknowledged.
const MOST_WAITING: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Room {
    fills: RwLock<Arc<Vec<Fill>>>,
    /// The unacknowledged deliveries of the intake at the last count, and those put off since.
    unacknowledged: AtomicUsize,
    put_off: AtomicUsize,
}

impl Room {
    /// Measures at an interval, until the future is dropped.
    pub(crate) async fn watch(&self, bus: &Bus) {
        let mut interval = tokio::time::interval(MEASURE_EVERY);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut outage = Outage::new("the fill level of the storage");
        let mut pools = Outage::new("the queue of a pool");
        loop {
            interval.tick().await;
            if let Err(error) = self.measure(bus).await {
                bus.tell(&mut outage, &error);
            } else {
                outage.ended();
            }
            if let Err(error) = bus.keep_pools().await {
                bus.tell(&mut pools, &error);
            } else {
                pools.ended();
            }
        }
    }

    pub(crate) async fn measure(&self, bus: &Bus) -> Result<(), Error> {
        let fills = bus.fill().await?;
        let was_full = self.refusal().is_some();
        *self.fills.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fills);
        match self.refusal() {
            Some(refusal) if !was_full => tracing::warn!(code = refusal.code, "new runs are refused"),
            None if was_full => tracing::info!("the storage has room again; new runs are accepted"),
            Some(_) | None => {}
        }
        self.unacknowledged.store(bus.unacknowledged(&Consumer::Intake).await?, Ordering::Relaxed);
        self.put_off.store(0, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn fills(&self) -> Arc<Vec<Fill>> {
        self.fills.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The refusal of new runs, if they are refused now.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        let fills = self.fills();
        let full =
            fills.iter().find(|fill| fill.storage.is_kept_for_runs() && fill.percent() >= MARK_PERCENT)?;
        let message = format!(
            "{} is {} % full, and from {MARK_PERCENT} % on, new runs are refused, so that existing runs can continue; {}",
            full.storage.name(),
            full.percent(),
            advice(full.storage)
        );
        Some(Refusal::storage_full(message))
    }

    /// Returns true if a published submission may wait for room in the intake.
    pub(crate) fn may_wait(&self, delivery: &Delivery) -> bool {
        // A message that is delivered again was counted before.
        let more = usize::from(delivery.delivered == 1);
        let put_off = self.put_off.fetch_add(more, Ordering::Relaxed);
        self.unacknowledged.load(Ordering::Relaxed) + put_off < MOST_WAITING
    }

    /// The fill levels of all storage, for the health endpoint.
    pub(crate) fn shown(&self) -> String {
        let one = |fill: &Fill| format!("storage: {} {} %\n", fill.storage.name(), fill.percent());
        let refused = self.refusal().map(|refusal| format!("no new runs: {}\n", refusal.message));
        self.fills().iter().map(one).chain(refused).collect()
    }
}

/// The advice to an operator.
fn advice(storage: Storage) -> String {
    let size = match storage {
        Storage::Objects => "--max-output-bytes",
        Storage::Core | Storage::Answers => "--max-queue-bytes",
        Storage::Stream(_) => "--max-journal-bytes",
    };
    format!(
        "delete runs (`trellis runs delete`), or give the coordinators a shorter --retention or a larger {size}"
    )
}
