//! The heartbeat of an attempt: ticks that renew its lease, until the attempt must end. A tick that
//! is sent twice only renews the lease again.
//!
//! A stop message triggers a tick at once. Any client may have sent the message, so only the answer
//! to a tick ends the attempt.
//!
//! A lease that has expired without an answer ends the attempt, unless a paid call is in flight.
//! That call is finished, because it costs the same if it is cut off (B13). Until it has ended, and
//! for one lease more, the heartbeat continues to send ticks. No new work begins meanwhile
//! (`HeldLease::live`). If no other worker has claimed the context, the next answer renews the
//! lease; otherwise it is `stop`.

use std::time::Duration;

use bus::Delivery;
use domain::wire::{Answer, Ask, Tick};
use tokio::time::{Instant, sleep_until};

use crate::{
    attempt::{Attempt, coordinator::ANSWER_TIMEOUT, lease::HeldLease},
    billing::meter::Meter,
};

/// The longest pause between two ticks.
const TICK_INTERVAL: Duration = Duration::from_secs(3);
/// The pause after a tick that was not answered.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The shortest time between a tick and the next one that a stop message triggers. Without it,
/// forged stop messages could keep a worker and its coordinator busy.
const STOP_INTERVAL: Duration = Duration::from_millis(250);

/// The reason why an attempt must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// The coordinator has decided so. `ours` is false if the lease had expired before. The
    /// delivery may then belong to another worker, and an acknowledgement would take it from that
    /// worker.
    Stopped { ours: bool },
    /// No tick was answered for a whole lease, and no call is in flight.
    Expired,
}

/// Renews the lease while the attempt may run.
pub(super) async fn run(attempt: &Attempt, meter: &Meter<'_>, delivery: &Delivery) -> Lost {
    let (lease, clock) = (&attempt.lease, attempt.config.clock);
    // While ticks are unanswered: whether a call was in flight at the last check, and the last time
    // at which one was.
    let (mut calling, mut called_at) = (false, None);
    let mut not_before = Instant::now();
    loop {
        let in_doubt = lease.in_doubt();
        let wait = if in_doubt { until_retry(lease.left()) } else { TICK_INTERVAL.min(lease.lasts() / 3) };
        tokio::select! {
            biased;
            () = lease.stopped() => return Lost::Stopped { ours: lease.stands() },
            () = lease.tick_wanted() => {}
            () = stop_told(lease, not_before) => {}
            () = tokio::time::sleep(wait) => {}
        }
        let left = lease.left();
        let was_calling = std::mem::replace(&mut calling, in_doubt && meter.in_flight());
        if calling || was_calling {
            called_at = Some(clock.mark());
            // The delivery stays with this worker while the call is finished.
            delivery.progress().await;
        }
        if in_doubt && left.is_zero() && called_at.is_none_or(|at| clock.since(at) >= lease.lasts()) {
            return Lost::Expired;
        }
        let timeout = if left.is_zero() { ANSWER_TIMEOUT } else { left.min(ANSWER_TIMEOUT) };
        let sent_at = clock.mark();
        not_before = Instant::now() + STOP_INTERVAL;
        let tick = Tick { lease: attempt.token(), progress: attempt.progress.get() };
        let answer = tokio::select! {
            biased;
            answer = attempt.coordinator.try_once(Ask::Tick(tick), timeout) => answer,
            () = lease.stopped() => return Lost::Stopped { ours: !left.is_zero() },
        };
        match answer {
            Some(Answer::GoOn { left, .. }) => {
                lease.renewed(sent_at, left);
                attempt.deadline.renew(left);
                (calling, called_at) = (false, None);
                delivery.progress().await;
            }
            Some(Answer::Stop { reason }) => {
                tracing::debug!("the coordinator stops the attempt");
                tracing::debug!(reason, "why");
                return Lost::Stopped { ours: !left.is_zero() };
            }
            Some(answer) => {
                let refusal = answer.into_refusal("tick");
                tracing::warn!(code = refusal.code, "a tick got an unexpected answer");
                lease.doubt();
            }
            None => lease.doubt(),
        }
    }
}

/// Waits for a stop message. A message that arrives during a tick triggers another tick, since the
/// coordinator may have answered that tick before the end of the context.
async fn stop_told(lease: &HeldLease, not_before: Instant) {
    lease.stop_told().await;
    sleep_until(not_before).await;
}

/// The pause before the next try. It is shorter if the lease expires first, so that the expiry is
/// noticed in time.
fn until_retry(left: Duration) -> Duration {
    if left.is_zero() { RETRY_INTERVAL } else { RETRY_INTERVAL.min(left) }
}
