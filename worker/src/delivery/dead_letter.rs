//! Deliveries that can't be handled: stored for the operator as dead letters, and removed from the
//! queue. The dead letter is stored before the delivery ends. After a crash in between the delivery
//! comes again, and the letter is stored once, by its id.

use bus::{Bus, Delivery, Outgoing};
use domain::{
    ChildId, TraceId,
    subject::Subject,
    wire::{DeadLetter, Refusal},
};

use super::claim::REDELIVER_AFTER;

/// Stores the delivery as a dead letter, and removes it from the queue.
pub(crate) async fn store(
    bus: &Bus,
    delivery: &Delivery,
    refusal: Refusal,
    context: Option<(TraceId, ChildId)>,
) {
    tracing::debug!(subject = delivery.subject, said = refusal.message, "a message is refused");
    let code = refusal.code.clone();
    let (trace_id, child_id) = context.unzip();
    let letter =
        DeadLetter::new(&delivery.subject, Some(&delivery.payload), refusal).about(trace_id, child_id);
    let kind = ChildId::new("execute").expect("a literal that fits the grammar");
    let message = Outgoing {
        subject: Subject::Dead(kind),
        // Sequence and time identify a message, so a repeated delivery stores no second dead
        // letter.
        id: Some(format!("{}.{}.dead", delivery.sequence, delivery.at.millis())),
        headers: domain::span::caller(&delivery.headers)
            .filter(|caller| caller.sampled)
            .map(|caller| domain::span::headers(caller.trace_id, caller.span))
            .unwrap_or_default(),
        payload: serde_json::to_vec(&letter).expect("a message has string keys").into(),
        expect_last: None,
    };
    match bus.publish(message).await {
        Ok(published) => {
            if !published.duplicate {
                tracing::info!(kind = "execute", code, "a message became a dead letter");
            }
            delivery.terminate().await;
        }
        Err(error) => {
            tracing::debug!(%error, "could not store the dead letter; the message will be delivered again");
            delivery.nak(REDELIVER_AFTER).await;
        }
    }
}
