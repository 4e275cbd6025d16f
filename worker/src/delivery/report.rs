//! What a worker says at the end of a delivery: how the attempt ended, or that the message makes no
//! sense. Both are stored before the delivery is acknowledged: a crash in between brings the delivery
//! again, and the claim then finds the context ended, or the dead letter is stored once by its id.

use shared::{
    ChildId, TraceId,
    bus::{Bus, Delivery, Headers, Outgoing, PublishError},
    subject::Subject,
    telemetry,
    wire::{self, DeadLetter, Failure, Lease, Payload, Refusal, Verdict},
};

use crate::{
    attempt::coordinator::{Backoff, Enough},
    files::objects as object,
};

/// The longest failure message: it is read by people, and kept in the trace.
const MESSAGE_BYTES: usize = 4096;
/// As much of a message as a dead letter holds: escaped, it still fits a server's payload limit.
const LETTER_BYTES: usize = 128 * 1024;

/// Stores the result. A queue that is full is waited for; what the bus will not take otherwise is given
/// up after a while, and the attempt with it. An older attempt's result changes no state, so a late one is
/// harmless.
pub(crate) async fn result(
    bus: &Bus,
    subject: Subject,
    headers: Headers,
    mut result: wire::Result,
    max_inline_bytes: u64,
) -> Result<(), Enough> {
    let id = name(result.trace_id, &result.report.lease);
    result.report.verdict = fit(bus, &id, result.report.verdict, max_inline_bytes).await;
    let payload = serde_json::to_vec(&result).expect("a message has string keys").into();
    store(bus, Outgoing { subject, id: Some(id), headers, payload, expect_last: None }).await
}

/// The result of an attempt, and the object that holds it if it is large.
pub(crate) fn name(trace_id: TraceId, lease: &Lease) -> String {
    format!("{}result", object::prefix(trace_id, &lease.child_id, Some(lease.attempt)))
}

/// A large result goes by reference, a long message is cut. A result that can't be stored is a failure.
pub(crate) async fn fit(bus: &Bus, id: &str, verdict: Verdict, max_inline_bytes: u64) -> Verdict {
    match verdict {
        Verdict::Completed(payload) => {
            by_size(bus, id, payload, max_inline_bytes).await.map_or_else(Verdict::Failed, Verdict::Completed)
        }
        Verdict::LastReport(payload) => by_size(bus, id, payload, max_inline_bytes)
            .await
            .map_or_else(Verdict::Failed, Verdict::LastReport),
        Verdict::Failed(failure) => {
            Verdict::Failed(Failure { message: cut(failure.message, MESSAGE_BYTES), ..failure })
        }
        verdict @ (Verdict::Halted { .. }
        | Verdict::Waiting { .. }
        | Verdict::InputRequired { .. }
        | Verdict::OutOfBudget
        | Verdict::HandedBack) => verdict,
    }
}

async fn by_size(bus: &Bus, id: &str, payload: Payload, max_inline_bytes: u64) -> Result<Payload, Failure> {
    match payload {
        Payload::Inline(value) if value.size_bytes() > max_inline_bytes => {
            object::put(bus, id, value.value().to_string().into()).await.map(Payload::Reference)
        }
        payload @ (Payload::Inline(_) | Payload::Reference(_)) => Ok(payload),
    }
}

pub(crate) fn cut(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        let end = (0..=max_bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Keeps a message that can't be taken, for the operator, and takes it out of the queue.
pub(crate) async fn dead_letter(
    bus: &Bus,
    delivery: &Delivery,
    refusal: Refusal,
    of: Option<(TraceId, ChildId)>,
) {
    tracing::warn!(subject = delivery.subject, code = refusal.code, "a dead letter: {}", refusal.message);
    let (trace_id, child_id) = of.unzip();
    let letter = DeadLetter {
        subject: delivery.subject.clone(),
        refusal,
        trace_id,
        child_id,
        call_id: None,
        payload: cut(String::from_utf8_lossy(&delivery.payload).into_owned(), LETTER_BYTES),
    };
    let kind = ChildId::new("execute").expect("a literal that fits the grammar");
    let message = Outgoing {
        subject: Subject::Dead(kind),
        // Its place and time name a message for ever: stored once, however often it comes.
        id: Some(format!("{}.{}.dead", delivery.sequence, delivery.at.millis())),
        headers: telemetry::parent(&delivery.headers)
            .map(|(trace, span)| telemetry::headers(trace, span))
            .unwrap_or_default(),
        payload: serde_json::to_vec(&letter).expect("a message has string keys").into(),
        expect_last: None,
    };
    match bus.publish(message).await {
        Ok(_) => delivery.terminate().await,
        Err(error) => {
            tracing::warn!(%error, "the dead letter could not be stored; the message will come again");
            delivery.nak(crate::delivery::claim::AGAIN).await;
        }
    }
}

async fn store(bus: &Bus, message: Outgoing) -> Result<(), Enough> {
    let mut pause = Backoff::default();
    while let Err(error) = bus.publish(message.clone()).await {
        tracing::warn!(%error, "the result could not be stored yet");
        match error {
            // There will be room, and to do the work again would cost more than to wait.
            PublishError::Full(_) | PublishError::Unacknowledged => pause.wait().await,
            PublishError::WrongSequence | PublishError::Other(_) => pause.wait_a_while().await?,
        }
    }
    Ok(())
}
