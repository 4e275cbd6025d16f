//! Dead letters: messages that could not be taken, kept for the operator with the reason.

use shared::{
    ChildId, TraceId,
    bus::{Delivery, Headers, Message, Outgoing},
    subject::Subject,
    wire::{DeadLetter, Refusal},
};

/// A letter about a message from a queue. Its id is the message's own, so that there is one however
/// often the message comes.
pub(crate) fn about(
    delivery: &Delivery,
    kind: &str,
    refusal: Refusal,
    of: Option<(TraceId, Option<ChildId>)>,
) -> Outgoing {
    let id = format!("{kind}.{}.{}.dead", delivery.sequence, delivery.at.millis());
    letter(&delivery.subject, kind, &delivery.payload, refusal, of, Some(id))
}

/// A letter about a request nobody could be told about.
pub(crate) fn about_request(message: &Message, subject: String, refusal: Refusal) -> Outgoing {
    letter(&subject, message.subject.kind(), &message.payload, refusal, None, None)
}

/// The kind of a subject that may be none of ours.
pub(crate) fn kind(subject: Option<&Subject>) -> &'static str {
    subject.map_or("unknown", Subject::kind)
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
        payload: serde_json::to_vec(&letter).expect("plain fields").into(),
        expect_last: None,
    }
}
