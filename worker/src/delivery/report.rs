//! The report of an attempt: its verdict, stored before the delivery is acknowledged. After a crash
//! in between the delivery comes again, and the answer to its claim decides: drop it, wait, or run
//! it. The result of an older attempt changes no state, so a late report is harmless.

use bus::{Bus, Outgoing, PublishError};
use domain::wire::{self, Report, Verdict};

use crate::{
    attempt::Attempt,
    files::result,
    retry::{Backoff, RetriesExhausted},
};

/// Stores the result. A full queue and a missing acknowledgement are retried without a limit. Any
/// other failure is retried up to the limit; then the attempt is given up.
pub(super) async fn send(attempt: &Attempt, verdict: Verdict) -> Result<(), RetriesExhausted> {
    let id = attempt.message_id(&format!("{}.result", attempt.number()));
    let verdict = result::fit(attempt, verdict, attempt.work.limits.max_result_bytes).await;
    let report = Report { lease: attempt.token(), progress: attempt.progress.get(), verdict };
    let result = wire::Result { trace_id: attempt.trace_id(), report };
    let payload = serde_json::to_vec(&result).expect("a message has string keys");
    let message = Outgoing {
        subject: attempt.result_subject(),
        id: Some(id),
        headers: attempt.headers(),
        payload: attempt.redactor.message(payload).into(),
        expect_last: None,
    };
    store(&attempt.bus, message).await
}

async fn store(bus: &Bus, message: Outgoing) -> Result<(), RetriesExhausted> {
    let mut backoff = Backoff::default();
    while let Err(error) = bus.publish(message.clone()).await {
        tracing::debug!(%error, "could not store the result yet");
        match error {
            // There will be room, and waiting is cheaper than repeating the work.
            PublishError::Full(_) | PublishError::Unacknowledged => backoff.wait().await,
            PublishError::WrongSequence | PublishError::Denied(_) | PublishError::Other(_) => {
                backoff.wait_bounded().await?
            }
        }
    }
    Ok(())
}
