//! Writing: appends a message after the last one that its writer has read, and removes earlier
//! messages.

use bus::{Outgoing, PublishError, PublishReceipt, StoredMessage};
use domain::subject::{Filter, Subject};

use super::{Appended, Error, Known, Record, Registry};

impl<R: Record> Registry<R> {
    /// Appends a message after the last message of the record that its writer has read.
    pub(crate) async fn append(
        &self,
        key: &R::Key,
        known: &Known<R>,
        subject: Subject,
        payload: Vec<u8>,
    ) -> Result<Appended<R>, Error> {
        let message = message(&subject, &payload, known.last(&subject));
        let published = self.bus.publish(message).await;
        self.appended(key, &subject, &payload, published).await
    }

    /// Appends the only message of a subject, whose earlier messages were removed from the log.
    pub(crate) async fn append_alone(
        &self,
        key: &R::Key,
        known: &Known<R>,
        subject: Subject,
        payload: Vec<u8>,
    ) -> Result<Appended<R>, Error> {
        let message = message(&subject, &payload, known.last(&subject));
        let published = self.bus.publish_behind_removed(message).await;
        self.appended(key, &subject, &payload, published).await
    }

    async fn appended(
        &self,
        key: &R::Key,
        subject: &Subject,
        payload: &[u8],
        published: Result<PublishReceipt, PublishError>,
    ) -> Result<Appended<R>, Error> {
        if let Err(PublishError::WrongSequence) = published {
            return Ok(Appended::Behind);
        }
        let last = self.last(subject).await?;
        match (published, last) {
            (Ok(_), Some(last)) => Ok(Appended::Done(self.memory().take_last(key, &last))),
            (Ok(_), None) => Ok(Appended::Done(self.copy(key).unwrap_or_default())),
            // The message was stored; only its acknowledgement was lost.
            (Err(_), Some(last)) if last.payload == payload => {
                Ok(Appended::Done(self.memory().take_last(key, &last)))
            }
            (Err(source), _) => Err(Error::Write { title: R::title(key), source }),
        }
    }

    /// Removes the messages of a subject that are earlier than this sequence.
    pub(crate) async fn remove_before(&self, subject: &Subject, sequence: u64) -> Result<(), Error> {
        for stored in self.stored(subject).await?.iter().filter(|stored| stored.sequence < sequence) {
            self.remove(stored).await?;
        }
        Ok(())
    }

    /// As `remove_before`, for messages that are not authentic, which readers ignore.
    pub(crate) async fn remove_refused_before(&self, subject: &Subject, sequence: u64) -> Result<(), Error> {
        let refused = self.bus.read_refused(&Filter::One(subject.clone())).await.map_err(Error::read::<R>)?;
        for stored in refused.iter().filter(|stored| stored.sequence < sequence) {
            self.remove(stored).await?;
        }
        Ok(())
    }

    async fn remove(&self, stored: &StoredMessage) -> Result<(), Error> {
        self.bus.delete_message(&stored.subject, stored.sequence).await.map_err(Error::read::<R>)
    }

    /// Removes the messages of a subject except the last ones.
    pub(crate) async fn remove_all_but(&self, subject: &Subject, kept: usize) -> Result<(), Error> {
        for stored in self.stored(subject).await?.iter().rev().skip(kept) {
            self.remove(stored).await?;
        }
        Ok(())
    }
}

fn message(subject: &Subject, payload: &[u8], after: u64) -> Outgoing {
    Outgoing {
        subject: subject.clone(),
        id: None,
        headers: Default::default(),
        payload: payload.to_vec().into(),
        expect_last: Some(after),
    }
}
