//! Dead letters: messages that were refused for good, kept for the operator with the reason.

use shared::{
    ChildId, Problems, TraceId,
    bus::{Bus, Delivery, Headers, Message, Outgoing},
    subject::Subject,
    wire::{DeadLetter, Refusal},
};

/// A dead letter about a message from a queue. Its id follows from the message, so that it is stored once
/// however often the message is delivered.
pub(crate) fn about(
    delivery: &Delivery,
    kind: &str,
    refusal: Refusal,
    of: Option<(TraceId, Option<ChildId>)>,
) -> Outgoing {
    let id = format!("{kind}.{}.{}.dead", delivery.sequence, delivery.at.millis());
    letter(&delivery.subject, kind, &delivery.payload, refusal, of, Some(id))
}

/// A dead letter about a request.
pub(crate) fn about_request(message: &Message, subject: String, refusal: Refusal) -> Outgoing {
    letter(&subject, message.subject.kind(), &message.payload, refusal, None, None)
}

/// The kind of a subject; `unknown` if it does not parse.
fn kind(subject: Option<&Subject>) -> &'static str {
    subject.map_or("unknown", Subject::kind)
}

/// Stores a dead letter about a message that names nobody to reply to, and removes the message from its
/// queue. If the dead letter can't be stored, the message is delivered again.
pub(crate) async fn keep(bus: &Bus, delivery: &Delivery, subject: Option<&Subject>, problems: Problems) {
    let kind = kind(subject);
    tracing::warn!(subject = delivery.subject, %problems, "a message is refused: it becomes a dead letter");
    let refusal = Refusal::invalid(&problems);
    match bus.publish(about(delivery, kind, refusal, None)).await {
        Ok(_) => delivery.terminate().await,
        Err(error) => {
            tracing::warn!(%error, "a dead letter could not be stored; the message will be delivered again")
        }
    }
}

/// Stores a dead letter about a request.
pub(crate) async fn keep_request(bus: &Bus, message: &Message, problems: Problems) {
    let refusal = Refusal::invalid(&problems);
    let letter = about_request(message, bus.namespace().subject(&message.subject), refusal);
    if let Err(error) = bus.publish(letter).await {
        tracing::warn!(%error, "a dead letter could not be stored");
    }
}

fn letter(
    subject: &str,
    kind: &str,
    payload: &[u8],
    refusal: Refusal,
    of: Option<(TraceId, Option<ChildId>)>,
    id: Option<String>,
) -> Outgoing {
    let (trace_id, child_id) = of.map_or((None, None), |(trace_id, child_id)| (Some(trace_id), child_id));
    let letter = DeadLetter::new(subject, payload, refusal).about(trace_id, child_id);
    Outgoing {
        subject: Subject::Dead(ChildId::new(kind).expect("kinds are words")),
        id,
        headers: Headers::new(),
        payload: serde_json::to_vec(&letter).expect("a message has string keys only").into(),
        expect_last: None,
    }
}
