//! Fits a result into a message: a large result goes to the object store and is passed by
//! reference, and a long failure message is cut.

use domain::{
    wire::{Failure, Payload, Verdict},
    wording::cut,
};

use super::objects;
use crate::attempt::Attempt;

/// The longest failure message. Users read it, and the trace stores it.
const MAX_MESSAGE_BYTES: usize = 4096;

/// The name of an attempt's result: the id of its message, and the name of its object if it is
/// large.
pub(crate) fn name(attempt: &Attempt) -> String {
    format!("{}result", objects::prefix(attempt))
}

/// The verdict as it is sent. A result that can't be stored becomes a failure.
pub(crate) async fn fit(attempt: &Attempt, verdict: Verdict, max_inline_bytes: u64) -> Verdict {
    match verdict {
        Verdict::Completed(payload) => {
            by_size(attempt, payload, max_inline_bytes).await.map_or_else(Verdict::Failed, Verdict::Completed)
        }
        Verdict::LastReport(payload) => by_size(attempt, payload, max_inline_bytes)
            .await
            .map_or_else(Verdict::Failed, Verdict::LastReport),
        Verdict::Failed(failure) => {
            Verdict::Failed(Failure { message: cut(failure.message, MAX_MESSAGE_BYTES), ..failure })
        }
        verdict @ (Verdict::Halted { .. }
        | Verdict::Waiting { .. }
        | Verdict::InputRequired { .. }
        | Verdict::OutOfBudget
        | Verdict::HandedBack) => verdict,
    }
}

async fn by_size(attempt: &Attempt, payload: Payload, max_inline_bytes: u64) -> Result<Payload, Failure> {
    match payload {
        Payload::Inline(value) if value.size_bytes() > max_inline_bytes => {
            let bytes = attempt.redactor.message(value.value().to_string().into_bytes()).into();
            objects::put(&attempt.bus, &name(attempt), bytes).await.map(Payload::Reference)
        }
        payload @ (Payload::Inline(_) | Payload::Reference(_)) => Ok(payload),
    }
}
