//! The heartbeat of an attempt: ticks that renew its lease, until the attempt must end. A tick that is sent
//! twice only moves the lease on.

use std::time::Duration;

use shared::{
    bus::Delivery,
    wire::{Answer, Ask, Tick},
};

use crate::attempt::{Attempt, coordinator::ANSWER_TIMEOUT};

/// The longest pause between two ticks.
const TICK_INTERVAL: Duration = Duration::from_secs(3);
/// The pause after a tick that was not answered.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Why an attempt must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// The coordinator has decided so. `ours` is false if the lease had expired before: the delivery may be
    /// another worker's by now, and an acknowledgement would take it from that worker.
    Stopped { ours: bool },
    /// No tick was answered for a whole lease.
    Expired,
}

/// Renews the lease as long as the attempt may run.
pub(super) async fn run(attempt: &Attempt, delivery: &Delivery) -> Lost {
    let lease = &attempt.lease;
    loop {
        let in_doubt = lease.in_doubt();
        let wait =
            if in_doubt { RETRY_INTERVAL.min(lease.left()) } else { TICK_INTERVAL.min(lease.lasts() / 3) };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = lease.tick_wanted() => {}
            () = lease.stopped() => return Lost::Stopped { ours: lease.stands() },
        }
        let left = lease.left();
        if in_doubt && left.is_zero() {
            return Lost::Expired;
        }
        let timeout = if left.is_zero() { ANSWER_TIMEOUT } else { left.min(ANSWER_TIMEOUT) };
        let sent_at = attempt.config.clock.mark();
        let tick = Tick { lease: attempt.token(), progress: attempt.progress.get() };
        let answer = tokio::select! {
            answer = attempt.coordinator.try_once(Ask::Tick(tick), timeout) => answer,
            () = lease.stopped() => return Lost::Stopped { ours: !left.is_zero() },
        };
        match answer {
            Some(Answer::GoOn { left, .. }) => {
                lease.renewed(sent_at, left);
                attempt.deadline.renew(left);
                delivery.progress().await;
            }
            Some(Answer::Stop { reason }) => {
                tracing::info!(reason, "the coordinator stops the attempt");
                return Lost::Stopped { ours: !left.is_zero() };
            }
            Some(answer) => {
                let refusal = answer.into_refusal("tick");
                tracing::warn!(message = refusal.message, "a tick was not answered as expected");
                lease.doubt();
            }
            None => lease.doubt(),
        }
    }
}
