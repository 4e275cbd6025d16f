//! The lease of an attempt: whether it is certainly valid, by a clock that counts suspended time.
//! The heartbeat (`delivery/heartbeat`) renews the lease; this file has its state. A worker with an
//! unanswered tick finishes its current call and starts no other. After a long stop it waits for
//! the answer to its next tick. When the lease has expired and no call is in flight, the attempt
//! ends by itself.

use std::{sync::Arc, time::Duration};

use domain::wire::{Lease, TimeLeft};
use host::clock::{Clock, Mark};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// The duration of a lease without a tick, unless the answer to the claim or tick names a shorter
/// one. It is not longer than the ack wait of the delivery.
pub(crate) const LEASE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
struct Standing {
    /// The moment at which the last claim or tick was sent that was answered with `go on`.
    renewed_at: Mark,
    /// The duration of the lease from then on.
    lasts: Duration,
    /// A later tick was not answered.
    in_doubt: bool,
}

impl Standing {
    /// Counts from the sending: at that moment at least as much was left as at the moment of the
    /// answer.
    fn renewed(sent_at: Mark, left: TimeLeft) -> Self {
        let lasts = Duration::from_millis(left.lease_ms).min(LEASE);
        Standing { renewed_at: sent_at, lasts, in_doubt: false }
    }
}

#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) lease: Lease,
    clock: Clock,
    standing: watch::Sender<Standing>,
    tick_now: Notify,
    stop_told: Arc<Notify>,
    stopped: CancellationToken,
}

impl HeldLease {
    /// `asked_at` is the moment before the claim was sent: the lease can't have begun earlier.
    pub(crate) fn new(
        lease: Lease,
        left: TimeLeft,
        asked_at: Mark,
        clock: Clock,
        stop_told: Arc<Notify>,
    ) -> Self {
        let standing = watch::Sender::new(Standing::renewed(asked_at, left));
        let (tick_now, stopped) = (Notify::new(), CancellationToken::new());
        HeldLease { lease, clock, standing, tick_now, stop_told, stopped }
    }

    /// The duration of the lease from one renewal.
    pub(crate) fn lasts(&self) -> Duration {
        self.standing.borrow().lasts
    }

    /// The time left by the worker's own clock.
    pub(crate) fn left(&self) -> Duration {
        let standing = *self.standing.borrow();
        standing.lasts.saturating_sub(self.clock.since(standing.renewed_at))
    }

    /// Returns true if the lease has not expired by the worker's own clock.
    pub(crate) fn stands(&self) -> bool {
        !self.left().is_zero()
    }

    /// Waits until the lease is certainly valid; needed before every hold, spawn, write to the shared store, MCP tool
    /// call and result. Returns at once as long as ticks are answered.
    pub(crate) async fn live(&self) {
        let mut standing = self.standing.subscribe();
        loop {
            let in_doubt = standing.borrow_and_update().in_doubt;
            if !in_doubt && self.stands() {
                return;
            }
            if !in_doubt {
                // The lease expired unnoticed: the process was stopped, or the machine suspended.
                self.tick_now.notify_one();
            }
            standing.changed().await.expect("the sender is ours");
        }
    }

    /// Ends the attempt, because an ask was answered with `stop`. Never returns.
    pub(crate) async fn stop(&self, reason: &str) -> ! {
        tracing::debug!("the attempt is stopped");
        tracing::debug!(reason, "why");
        self.stopped.cancel();
        std::future::pending().await
    }

    /// Waits until an ask was answered with `stop`.
    pub(crate) async fn stopped(&self) {
        self.stopped.cancelled().await;
    }

    /// Waits until a tick is needed before the next regular one.
    pub(crate) async fn tick_wanted(&self) {
        self.tick_now.notified().await;
    }

    /// Waits until a broadcast asks the context to stop. Several broadcasts in the meantime wake it
    /// once.
    pub(crate) async fn stop_told(&self) {
        self.stop_told.notified().await;
    }

    /// Renews the lease, because the tick sent at `sent_at` was answered with `go on`.
    pub(crate) fn renewed(&self, sent_at: Mark, left: TimeLeft) {
        self.standing.send_replace(Standing::renewed(sent_at, left));
    }

    /// Marks the lease as doubtful, because a tick was not answered. No new work begins until a
    /// tick is answered.
    pub(crate) fn doubt(&self) {
        self.standing.send_modify(|standing| standing.in_doubt = true);
    }

    pub(crate) fn in_doubt(&self) -> bool {
        self.standing.borrow().in_doubt
    }
}
