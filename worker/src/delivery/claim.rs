//! Claim before run: a delivery is only a hint, and the coordinator says whether this worker may have
//! the context. A claim asked twice with one token is one claim, so tries are repeated freely.

use std::time::Duration;

use shared::{
    LeaseToken, Timestamp,
    bus::Delivery,
    wire::{self, Answer, Ask, Claimed, Execute, Refusal},
};
use tokio::time::{Instant, timeout_at};

use crate::{attempt::coordinator::Coordinator, attempt::lease::LEASE, config::Config};

/// How long a claim is tried before the work goes back to the queue.
const PATIENCE: Duration = Duration::from_secs(30);
/// When work that nobody could be asked about comes again.
pub(crate) const AGAIN: Duration = Duration::from_secs(2);
/// How often the delivery is kept alive meanwhile: well within its ack wait.
const KEEP_ALIVE: Duration = Duration::from_secs(3);

/// What became of a claim.
#[derive(Debug)]
pub(crate) enum Claim {
    Ours(Box<Claimed>),
    /// Come again after this.
    Later(Duration),
    /// There is nothing to do: ended, cancelled, or not to be run.
    Over,
    Refused(Refusal),
}

/// Asks for a context. The token is fresh for each delivery: a redelivery of what this very worker
/// runs must not be taken for the running attempt.
pub(crate) async fn claim(
    config: &Config,
    coordinator: &Coordinator,
    work: &Execute,
    delivery: &Delivery,
) -> Claim {
    let token = LeaseToken::new(&uuid::Uuid::new_v4().simple().to_string()).expect("hex digits");
    let claim = wire::Claim { child_id: work.child_id.clone(), worker_id: config.id.clone(), token };
    let ask = coordinator.until_answered(Ask::Claim(claim), None);
    let answer = tokio::select! {
        answer = timeout_at(Instant::now() + PATIENCE, ask) => answer,
        () = keep_alive(delivery) => unreachable!("it never ends"),
    };
    match answer {
        Ok(answer) => judge(answer, config.clock.now()),
        Err(_) => {
            tracing::warn!("nobody answered the claim for {} s", PATIENCE.as_secs());
            Claim::Later(AGAIN)
        }
    }
}

async fn keep_alive(delivery: &Delivery) {
    loop {
        tokio::time::sleep(KEEP_ALIVE).await;
        delivery.progress().await;
    }
}

fn judge(answer: Answer, now: Timestamp) -> Claim {
    match answer {
        Answer::Claimed(claimed) => Claim::Ours(claimed),
        Answer::Taken { until } => {
            // Clocks differ between machines: at the worst it asks once too early, or a lease too late.
            let delay = Duration::from_millis(until.millis_since(now));
            Claim::Later(delay.clamp(Duration::from_millis(200), LEASE))
        }
        Answer::Stop { reason } => {
            tracing::debug!(reason, "nothing to run");
            Claim::Over
        }
        Answer::Done => Claim::Over,
        Answer::Refused(refusal) => Claim::Refused(refusal),
        Answer::GoOn { .. }
        | Answer::Denied(_)
        | Answer::Halt { .. }
        | Answer::Spawned { .. }
        | Answer::Value { .. }
        | Answer::Keys { .. } => {
            tracing::warn!("a claim was answered with something else");
            Claim::Later(AGAIN)
        }
    }
}
