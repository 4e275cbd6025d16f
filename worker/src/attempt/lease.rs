//! The lease of an attempt: whether it certainly holds, by a clock that counts suspended time. The
//! heartbeat (`delivery/heartbeat`) renews it; this file keeps its state. A worker whose ticks are not
//! answered finishes its current call and starts no other; after a long stop it does nothing before its
//! next tick is answered. When the lease has expired and no call is in flight, the attempt ends by itself.

use std::{sync::Arc, time::Duration};

use domain::wire::{Lease, TimeLeft};
use host::clock::{Clock, Mark};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// How long a lease lasts without a tick, unless the answer to the claim or tick says less: no longer than
/// the delivery's ack wait.
pub(crate) const LEASE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
struct Standing {
    /// When the claim or tick was sent that was last answered with `go on`.
    renewed_at: Mark,
    /// How long the lease lasts from then on.
    lasts: Duration,
    /// A later tick was not answered.
    in_doubt: bool,
}

impl Standing {
    /// What was left when the answer was made was left when the question was sent, at least.
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

    /// How long it lasts from one renewal.
    pub(crate) fn lasts(&self) -> Duration {
        self.standing.borrow().lasts
    }

    /// How much of it is left by our own clock.
    pub(crate) fn left(&self) -> Duration {
        let standing = *self.standing.borrow();
        standing.lasts.saturating_sub(self.clock.since(standing.renewed_at))
    }

    /// Whether it has not expired by our own clock.
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
                // It expired unnoticed: the process was stopped, or the machine suspended.
                self.tick_now.notify_one();
            }
            standing.changed().await.expect("the sender is ours");
        }
    }

    /// An ask was answered with `stop`. Never returns, because the attempt ends.
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

    /// Waits until a broadcast says that the context is to stop. However many say so meanwhile, it returns once more.
    pub(crate) async fn stop_told(&self) {
        self.stop_told.notified().await;
    }

    /// The tick sent at `sent_at` was answered with `go on`.
    pub(crate) fn renewed(&self, sent_at: Mark, left: TimeLeft) {
        self.standing.send_replace(Standing::renewed(sent_at, left));
    }

    /// A tick was not answered: nothing new may begin until one is.
    pub(crate) fn doubt(&self) {
        self.standing.send_modify(|standing| standing.in_doubt = true);
    }

    pub(crate) fn in_doubt(&self) -> bool {
        self.standing.borrow().in_doubt
    }
}
