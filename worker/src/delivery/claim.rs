//! Claim before run: a delivery is only a hint, and the coordinator decides whether this worker may
//! run the context. Two claims with one token are the same claim, so a claim is retried freely.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bus::Delivery;
use domain::{
    LeaseToken,
    wire::{self, Answer, Ask, ClaimAnswer, Offer, Refusal},
};
use telemetry::Outage;
use tokio::time::{Instant, timeout_at};

use crate::{
    attempt::{coordinator::Coordinator, lease::LEASE},
    config::Config,
};

/// The time for which a claim is tried before the work goes back to the queue.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(30);
/// The redelivery delay after no coordinator answered.
pub(super) const REDELIVER_AFTER: Duration = Duration::from_secs(2);
/// The interval of progress acknowledgements during a claim, well below the delivery's ack wait.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(3);
/// The shortest redelivery delay of a context that another worker runs.
const MIN_DELAY: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) enum Claim {
    Ours(Box<ClaimAnswer>),
    /// The delivery is to come again after this time.
    Later(Duration),
    /// There is no work left: the context has ended, was cancelled, or must not run.
    Over,
    Refused(Refusal),
}

/// Claims a context. The token is fresh for each delivery: otherwise the redelivery of a context
/// that this worker runs would be taken for the running attempt.
pub(super) async fn claim(
    config: &Config,
    coordinator: &Coordinator,
    offer: &Offer,
    delivery: &Delivery,
    coordinators: &Mutex<Outage>,
) -> Claim {
    let token = LeaseToken::new(&format!("{:032x}", config.random.bits())).expect("hex digits");
    let claim = wire::Claim { child_id: offer.child_id.clone(), worker_id: config.id.clone(), token };
    let ask = coordinator.until_answered(Ask::Claim(claim));
    let answer = tokio::select! {
        biased;
        answer = timeout_at(Instant::now() + CLAIM_TIMEOUT, ask) => answer,
        () = keep_alive(delivery) => unreachable!("it never ends"),
    };
    match answer {
        Ok(answer) => {
            coordinators.lock().unwrap_or_else(PoisonError::into_inner).ended();
            judge(answer)
        }
        Err(_) => {
            let cause = format!("no claim was answered within {} s", CLAIM_TIMEOUT.as_secs());
            coordinators.lock().unwrap_or_else(PoisonError::into_inner).failed(&cause);
            Claim::Later(REDELIVER_AFTER)
        }
    }
}

async fn keep_alive(delivery: &Delivery) {
    loop {
        tokio::time::sleep(KEEP_ALIVE_INTERVAL).await;
        delivery.progress().await;
    }
}

fn judge(answer: Answer) -> Claim {
    match answer {
        Answer::Claimed(claimed) => Claim::Ours(claimed),
        Answer::Taken { for_ms, .. } => Claim::Later(Duration::from_millis(for_ms).clamp(MIN_DELAY, LEASE)),
        Answer::Stop { reason } => {
            tracing::debug!(reason, "the context has no work for this delivery");
            Claim::Over
        }
        Answer::Done => Claim::Over,
        Answer::Refused(refusal) => Claim::Refused(refusal),
        answer @ (Answer::GoOn { .. }
        | Answer::Denied(_)
        | Answer::Wait(_)
        | Answer::Halt { .. }
        | Answer::Spawned { .. }
        | Answer::Value { .. }
        | Answer::Keys { .. }
        | Answer::News(_)
        | Answer::Part(_)) => {
            let refusal = answer.into_refusal("claim");
            tracing::warn!(code = refusal.code, "a claim got an unexpected answer");
            Claim::Later(REDELIVER_AFTER)
        }
    }
}
