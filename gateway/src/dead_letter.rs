//! A dead letter that is sent again, or dropped. A letter has the digest of its message and not the message, so whoever sends it again brings it
//! along; the digest says whether it is the same.

use shared::{
    bus::{self, Bus, Headers, Outgoing, PublishError, Stored, Stream},
    digest,
    subject::{Filter, Subject},
    wire::DeadLetter,
};

/// Why a message is not sent again.
#[derive(Debug, thiserror::Error)]
pub enum NotSent {
    #[error("`{0}` is no queue: whoever sent it was answered, or it was read back")]
    NoQueue(String),
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

/// Sends the message of a letter again, and drops the letter. Sent twice, it is one message.
pub async fn send_again(
    bus: &Bus,
    (stored, letter): (&Stored, &DeadLetter),
    payload: Vec<u8>,
    headers: impl FnOnce(&Subject) -> Headers,
) -> Result<(), NotSent> {
    let subject = bus.namespace().parse(&letter.subject).ok().filter(is_queued);
    let subject = subject.ok_or_else(|| NotSent::NoQueue(letter.subject.clone()))?;
    // The digest stands in the letter as words.
    if !letter.payload.contains(&digest::sha256(&payload)) {
        return Err(NotSent::OtherMessage(letter.payload.clone()));
    }
    let id = Some(format!("dead.{}.{}.retry", stored.sequence, stored.at.millis()));
    let headers = headers(&subject);
    bus.publish(Outgoing { subject, id, headers, payload: payload.into(), expect_last: None }).await?;
    drop_letter(bus, stored).await?;
    Ok(())
}

/// Drops a letter.
pub async fn drop_letter(bus: &Bus, stored: &Stored) -> Result<(), bus::Error> {
    bus.delete_message(&stored.subject, stored.sequence).await
}
