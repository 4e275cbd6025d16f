//! A dead letter that is sent again, or dropped. A letter has the digest of its message and not the message, so whoever sends it again brings it
//! along; the digest says whether it is the same.

use bus::{Bus, Outgoing, PublishError, Stored, Stream};
use domain::{
    digest,
    subject::{Filter, Subject},
    wire::{BY_HEADER, DeadLetter},
};

/// Why a message is not sent again.
#[derive(Debug, thiserror::Error)]
pub enum NotSent {
    #[error("`{0}` is no queue: whoever sent it was answered, or it was read back")]
    NoQueue(String),
    #[error("not everybody who reads dead letters may send on `{0}`")]
    NotAllowed(Subject),
    #[error("this is not its message, which has {0}")]
    OtherMessage(String),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Bus(#[from] bus::Error),
}

/// Whether its messages come to the coordinators through a queue. Requests are answered, and logs are written by coordinators alone.
fn is_queued(subject: &Subject) -> bool {
    matches!(Stream::of(&Filter::One(subject.clone())), Some(Stream::Intake | Stream::Report))
}

/// On which queue the message of a letter is sent again; none if it came on none.
pub fn queue_of(bus: &Bus, letter: &DeadLetter) -> Option<Subject> {
    bus.namespace().parse(&letter.subject).ok().filter(is_queued)
}

/// Sends the message of a letter again, and drops the letter. Sent twice, it is one message. It says who sends it (S7), whatever it is: what it
/// asks for is asked for by `by` now, who may send on its subject or not.
pub async fn send_again(
    bus: &Bus,
    (stored, letter): (&Stored, &DeadLetter),
    payload: Vec<u8>,
    by: &str,
    may_send: impl FnOnce(&Subject) -> bool,
) -> Result<(), NotSent> {
    let subject = queue_of(bus, letter).ok_or_else(|| NotSent::NoQueue(letter.subject.clone()))?;
    if !may_send(&subject) {
        return Err(NotSent::NotAllowed(subject));
    }
    // The digest stands in the letter as words.
    if !letter.payload.contains(&digest::sha256(&payload)) {
        return Err(NotSent::OtherMessage(letter.payload.clone()));
    }
    let id = Some(format!("dead.{}.{}.retry", stored.sequence, stored.at.millis()));
    let headers = [(BY_HEADER.to_owned(), by.to_owned())].into();
    bus.publish(Outgoing { subject, id, headers, payload: payload.into(), expect_last: None }).await?;
    drop_letter(bus, stored).await?;
    Ok(())
}

/// Drops a letter.
pub async fn drop_letter(bus: &Bus, stored: &Stored) -> Result<(), bus::Error> {
    bus.delete_message(&stored.subject, stored.sequence).await
}

#[cfg(test)]
mod tests {
    use bus::Memory;
    use domain::{span::Headers, wire::Refusal};

    use super::*;

    #[tokio::test]
    async fn s7_a_message_that_is_sent_again_says_who_sends_it_who_may() {
        let bus = Bus::Memory(Memory::new(Default::default()));
        let message: &[u8] = br#"{"nonsense":1}"#;
        let letter =
            DeadLetter::new("agent.cancel", Some(message), Refusal::new("malformed", "G8", "nonsense"));
        let subject = Subject::Dead("cancel".parse().unwrap());
        let (dead, cancels) = (Filter::One(subject.clone()), Filter::One(Subject::Cancel));
        let payload = serde_json::to_vec(&letter).unwrap().into();
        let outgoing = Outgoing { subject, id: None, headers: Headers::new(), payload, expect_last: None };
        bus.publish(outgoing).await.unwrap();
        let stored = bus.last(&dead).await.unwrap().unwrap();

        let refused = send_again(&bus, (&stored, &letter), message.to_vec(), "anna", |_| false).await;
        assert!(matches!(refused, Err(NotSent::NotAllowed(Subject::Cancel))), "{refused:?}");
        assert!(bus.read(&cancels).await.unwrap().is_empty() && bus.last(&dead).await.unwrap().is_some());

        send_again(&bus, (&stored, &letter), message.to_vec(), "anna", |_| true).await.unwrap();
        let sent = bus.read(&cancels).await.unwrap();
        let by: Vec<Option<&str>> =
            sent.iter().map(|sent| sent.headers.get(BY_HEADER).map(String::as_str)).collect();
        assert_eq!(by, [Some("anna")]);
        assert!(bus.last(&dead).await.unwrap().is_none());
    }
}
