//! Dead letters: read, sent again, dropped. A letter contains the digest of its message and not the
//! message. So the sender of a retry provides the message, and the digest shows whether it is the
//! same.

use bus::{Outgoing, StoredMessage, Stream};
use domain::{
    ChildId, digest,
    subject::{Filter, Subject},
    wire::DeadLetter,
};

use crate::{Client, Error};

/// A dead letter as it is stored.
#[derive(Debug, Clone)]
pub struct StoredLetter {
    pub stored: StoredMessage,
    /// The kind of its message, such as `charge`.
    pub kind: ChildId,
    pub letter: DeadLetter,
}

impl StoredLetter {
    /// Decodes a message of the stream; none if it is not a letter.
    pub fn read(stored: StoredMessage) -> Option<Self> {
        let Subject::Dead(kind) = &stored.subject else { return None };
        let (kind, letter) = (kind.clone(), serde_json::from_slice(&stored.payload).ok()?);
        Some(StoredLetter { stored, kind, letter })
    }

    /// The filter of all letters, or of those of one kind.
    pub fn filter(kind: Option<ChildId>) -> Filter {
        kind.map_or(Filter::Dead, |kind| Filter::One(Subject::Dead(kind)))
    }
}

/// The reason why the message of a letter is not sent again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RetryRefusal {
    #[error("`{0}` is not a queue: its sender had an answer already, or its messages are kept in a log")]
    NoQueue(String),
    #[error("this role may read dead letters, but may not send on `{0}`")]
    NotAllowed(Subject),
    #[error("the message differs from that of the dead letter, which has {0}")]
    OtherMessage(String),
}

/// True if coordinators read the messages of a subject from a queue. Other messages are requests,
/// or logs that only coordinators write.
fn is_queued(subject: &Subject) -> bool {
    matches!(Stream::of(&Filter::One(subject.clone())), Some(Stream::Intake | Stream::Report))
}

impl Client {
    /// All letters, or those of one kind, the oldest first.
    pub async fn dead_letters(&self, kind: Option<ChildId>) -> Result<Vec<StoredLetter>, Error> {
        let stored = self.bus().read(&StoredLetter::filter(kind)).await?;
        Ok(stored.into_iter().filter_map(StoredLetter::read).collect())
    }

    /// The queue on which the message of a letter is sent again; none if the message came on no queue.
    pub fn queue_of(&self, letter: &DeadLetter) -> Option<Subject> {
        self.bus().namespace().parse(&letter.subject).ok().filter(is_queued)
    }

    /// Sends the message of a letter again, and drops the letter. A repeated retry has the same id,
    /// so the message is stored once. Its header names the sender on every subject (S7), because
    /// this client requests the message now. `may_send`: the permission check.
    pub async fn retry_letter(
        &self,
        StoredLetter { stored, letter, .. }: &StoredLetter,
        payload: Vec<u8>,
        may_send: impl FnOnce(&Subject) -> bool,
    ) -> Result<Result<(), RetryRefusal>, Error> {
        let Some(subject) = self.queue_of(letter) else {
            return Ok(Err(RetryRefusal::NoQueue(letter.subject.clone())));
        };
        if !may_send(&subject) {
            return Ok(Err(RetryRefusal::NotAllowed(subject)));
        }
        // The text `payload` of a letter contains the digest of the message.
        if !letter.payload.contains(&digest::sha256(&payload)) {
            return Ok(Err(RetryRefusal::OtherMessage(letter.payload.clone())));
        }
        let id = Some(format!("dead.{}.{}.retry", stored.sequence, stored.at.millis()));
        let (headers, payload) = (self.by_header(), payload.into());
        self.bus().publish(Outgoing { subject, id, headers, payload, expect_last: None }).await?;
        self.drop_letter(stored).await?;
        Ok(Ok(()))
    }

    pub async fn drop_letter(&self, stored: &StoredMessage) -> Result<(), Error> {
        Ok(self.bus().delete_message(&stored.subject, stored.sequence).await?)
    }
}

#[cfg(test)]
mod tests {
    use bus::{Bus, Memory};
    use domain::{
        span::Headers,
        wire::{BY_HEADER, Refusal},
    };

    use super::*;

    #[tokio::test]
    async fn s7_a_message_that_is_sent_again_names_its_sender_if_it_may() {
        let bus = Bus::Memory(Memory::new(Default::default()));
        let client = Client::new(bus.clone(), "test").sent_by("anna");
        let message: &[u8] = br#"{"nonsense":1}"#;
        let letter =
            DeadLetter::new("agent.cancel", Some(message), Refusal::new("malformed", "G8", "nonsense"));
        let subject = Subject::Dead("cancel".parse().unwrap());
        let cancels = Filter::One(Subject::Cancel);
        let payload = serde_json::to_vec(&letter).unwrap().into();
        let outgoing = Outgoing { subject, id: None, headers: Headers::new(), payload, expect_last: None };
        bus.publish(outgoing).await.unwrap();
        let letters = client.dead_letters(None).await.unwrap();
        let [stored] = letters.as_slice() else { panic!("{letters:?}") };

        let refused = client.retry_letter(stored, message.to_vec(), |_| false).await.unwrap();
        assert_eq!(refused, Err(RetryRefusal::NotAllowed(Subject::Cancel)));
        let other = client.retry_letter(stored, b"{}".to_vec(), |_| true).await.unwrap();
        assert!(matches!(other, Err(RetryRefusal::OtherMessage(_))), "{other:?}");
        assert!(bus.read(&cancels).await.unwrap().is_empty());
        assert_eq!(client.dead_letters(Some(stored.kind.clone())).await.unwrap().len(), 1);

        client.retry_letter(stored, message.to_vec(), |_| true).await.unwrap().unwrap();
        let sent = bus.read(&cancels).await.unwrap();
        let by: Vec<Option<&str>> =
            sent.iter().map(|sent| sent.headers.get(BY_HEADER).map(String::as_str)).collect();
        assert_eq!(by, [Some("anna")]);
        assert!(client.dead_letters(None).await.unwrap().is_empty());
    }
}
