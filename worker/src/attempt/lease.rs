//! A lease and what keeps it: ticks, and a clock that counts suspended time. A worker that can't tick
//! finishes its current call and starts no other; when the lease has run out it gives up by itself.
//! Woken from a long stop, it does nothing before its next tick was answered.

use std::time::Duration;

use shared::{
    Timestamp,
    bus::Delivery,
    clock::{Clock, Mark},
    wire::{Answer, Ask, Lease, Tick},
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::Counters,
    attempt::coordinator::{self, Coordinator},
};

/// How long a claim lasts without a tick, unless the claim says less.
pub(crate) const LEASE: Duration = Duration::from_secs(10);
const SHORTEST: Duration = Duration::from_secs(1);
/// How often a worker ticks, at the least.
const TICK: Duration = Duration::from_secs(3);
/// How soon it tries again after a tick that nobody answered.
const RETRY: Duration = Duration::from_millis(500);

/// Why an attempt must not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The coordinator has decided. `ours` unless the lease had run out before: then the delivery may
    /// be somebody else's by now, and an ack would take it from them.
    Stopped { ours: bool },
    /// Nobody has answered for a whole lease.
    RanOut,
}

#[derive(Debug, Clone, Copy)]
struct Standing {
    /// When the tick was sent that was last answered with `go on`.
    good_at: Mark,
    /// A later tick went unanswered.
    in_doubt: bool,
}

#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) lease: Lease,
    clock: Clock,
    lasts: Duration,
    standing: watch::Sender<Standing>,
    tick_now: Notify,
    stopped: CancellationToken,
}

impl Keeper {
    /// `asked_at` is the moment before the claim was sent: the lease can't have begun earlier.
    pub(crate) fn new(lease: Lease, until: Timestamp, asked_at: Mark, clock: Clock) -> Self {
        // Clocks differ between machines: what the claim says counts only if it makes sense here.
        let given = Duration::from_millis(until.millis_since(clock.now()));
        let lasts = if (SHORTEST..LEASE).contains(&given) { given } else { LEASE };
        let standing = watch::Sender::new(Standing { good_at: asked_at, in_doubt: false });
        let (tick_now, stopped) = (Notify::new(), CancellationToken::new());
        Keeper { lease, clock, lasts, standing, tick_now, stopped }
    }

    fn left(&self) -> Duration {
        self.lasts.saturating_sub(self.clock.since(self.standing.borrow().good_at))
    }

    /// Whether it has not run out by our own clock.
    pub(crate) fn stands(&self) -> bool {
        !self.left().is_zero()
    }

    /// Waits until the lease certainly stands: what comes before a hold, a spawn, a context write and
    /// the result. Returns at once as long as ticks are answered.
    pub(crate) async fn live(&self) {
        let mut standing = self.standing.subscribe();
        loop {
            let in_doubt = standing.borrow_and_update().in_doubt;
            if !in_doubt && self.stands() {
                return;
            }
            if !in_doubt {
                // Ran out unnoticed: the process was stopped, or the machine suspended.
                self.tick_now.notify_one();
            }
            standing.changed().await.expect("the sender is ours");
        }
    }

    /// An ask was answered with `stop`: never comes back, since the attempt ends around it.
    pub(crate) async fn stop(&self, reason: &str) -> ! {
        tracing::info!(reason, "told to stop");
        self.stopped.cancel();
        std::future::pending().await
    }

    /// Ticks for as long as the attempt may go on; a tick sent twice only moves the lease on.
    pub(crate) async fn keep(
        &self,
        coordinator: &Coordinator,
        counters: &Counters,
        delivery: &Delivery,
    ) -> Lost {
        loop {
            let in_doubt = self.standing.borrow().in_doubt;
            let wait = if in_doubt { RETRY.min(self.left()) } else { TICK.min(self.lasts / 3) };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.tick_now.notified() => {}
                () = self.stopped.cancelled() => return Lost::Stopped { ours: self.stands() },
            }
            let left = self.left();
            if in_doubt && left.is_zero() {
                return Lost::RanOut;
            }
            let patience =
                if left.is_zero() { coordinator::PATIENCE } else { left.min(coordinator::PATIENCE) };
            let sent_at = self.clock.mark();
            let tick = Tick { lease: self.lease.clone(), progress: counters.progress() };
            let answer = tokio::select! {
                answer = coordinator.once(Ask::Tick(tick), patience) => answer,
                () = self.stopped.cancelled() => return Lost::Stopped { ours: !left.is_zero() },
            };
            match answer {
                Some(Answer::GoOn { .. }) => {
                    self.standing.send_replace(Standing { good_at: sent_at, in_doubt: false });
                    delivery.progress().await;
                }
                Some(Answer::Stop { reason }) => {
                    tracing::info!(reason, "told to stop");
                    return Lost::Stopped { ours: !left.is_zero() };
                }
                Some(
                    Answer::Claimed(_)
                    | Answer::Taken { .. }
                    | Answer::Done
                    | Answer::Denied(_)
                    | Answer::Halt { .. }
                    | Answer::Spawned { .. }
                    | Answer::Value { .. }
                    | Answer::Keys { .. }
                    | Answer::Refused(_),
                ) => {
                    tracing::warn!("a tick was answered with something else");
                    self.doubt();
                }
                None => self.doubt(),
            }
        }
    }

    fn doubt(&self) {
        self.standing.send_modify(|standing| standing.in_doubt = true);
    }
}
