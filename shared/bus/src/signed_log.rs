//! The signed logs, as a coordinator with keys reads and writes them (S3). Its messages are signed.
//! A message without a valid signature is left out, as if it did not exist: it neither stops a
//! valid message from being stored nor takes its room.

use domain::subject::{Filter, Subject};

use super::{
    authentic::{self, Verifier},
    error::{Error, PublishError},
    handle::Bus,
    message::{Outgoing, PublishReceipt, StoredMessage},
    stream::MessagesInFlight,
    topology::Stream,
};
use crate::keys::Why;

/// The number of retries of a publish whose place an invalid message took.
const TRIES: usize = 3;

impl Bus {
    pub(super) fn verifier(&self) -> Option<Verifier> {
        Some(Verifier::new(self.keys()?.clone(), self.namespace().clone()))
    }

    /// Sends messages in order, without waiting until they are stored. [`MessagesInFlight::stored`]
    /// waits for that.
    pub async fn send(&self, mut messages: Vec<Outgoing>) -> MessagesInFlight {
        messages.iter_mut().for_each(|message| self.sign(message));
        self.send_signed(messages).await
    }

    fn sign(&self, message: &mut Outgoing) {
        if let Some(keys) = self.keys() {
            authentic::sign(keys, self.namespace(), message, self.fits(message.payload.len()));
        }
    }

    /// Publishes one message and waits until it is stored. An invalid message can't block it,
    /// either by following the message that `expect_last` names or by filling the subject.
    pub async fn publish(&self, mut message: Outgoing) -> Result<PublishReceipt, PublishError> {
        self.sign(&mut message);
        let expected = message.expect_last;
        for _ in 0..TRIES {
            let published = self.publish_signed(message.clone()).await;
            message.expect_last = match (&published, expected) {
                (Err(PublishError::WrongSequence), Some(expected)) if self.keys().is_some() => {
                    match Box::pin(self.last_refused(&message.subject, expected)).await {
                        Some(last) => Some(last),
                        None => return published,
                    }
                }
                // Boxed because it is rare and large, and every publish has this future.
                (Err(PublishError::Full(_)), expected)
                    if Box::pin(self.make_room(&message.subject)).await =>
                {
                    expected
                }
                (_, _) => return published,
            };
        }
        self.publish_signed(message).await
    }

    /// Publishes a message whose predecessor was removed together with all messages before it, so
    /// the subject must be empty.
    pub async fn publish_behind_removed(
        &self,
        mut message: Outgoing,
    ) -> Result<PublishReceipt, PublishError> {
        self.sign(&mut message);
        message.expect_last = Some(0);
        self.publish_signed(message).await
    }

    /// Removes surplus messages of a full subject. A full subject rejects new messages, so that a
    /// forged message can't push out a valid one; coordinators remove the surplus.
    ///
    /// Messages without a valid signature go first, then the oldest. Messages of a coordinator that
    /// may have other keys stay as long as there is room. Returns true if a message was removed.
    async fn make_room(&self, subject: &Subject) -> bool {
        let filter = Filter::One(subject.clone());
        let kept = Stream::of(&filter).and_then(Stream::kept_per_subject);
        let Some(kept) = kept.and_then(|kept| usize::try_from(kept).ok()) else { return false };
        let Ok(all) = self.read_unjudged(&filter).await else { return false };
        if all.len() <= kept {
            // Other subjects fill the stream.
            return false;
        }
        let (mut counts, mut foreign, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        let mut verifier = self.verifier();
        for stored in &all {
            match verifier.as_mut().map_or(Ok(()), |verifier| verifier.judge(stored)) {
                Ok(()) => counts.push(stored.sequence),
                Err(why) if why.is_foreign() => foreign.push(stored.sequence),
                Err(_) => gone.push(stored.sequence),
            }
        }
        let room = kept.saturating_sub(counts.len());
        gone.extend(&foreign[..foreign.len().saturating_sub(room)]);
        gone.extend(&counts[..counts.len().saturating_sub(kept)]);
        for sequence in &gone {
            if let Err(error) = self.delete_message(subject, *sequence).await {
                tracing::warn!(%error, %subject, "a subject is full, and its surplus messages could not be removed");
                return false;
            }
        }
        !gone.is_empty()
    }

    async fn publish_signed(&self, message: Outgoing) -> Result<PublishReceipt, PublishError> {
        let mut results = self.send_signed(vec![message]).await.stored().await;
        results.pop().unwrap_or(Err(PublishError::Unacknowledged))
    }

    /// The last message on a subject, if every message after the expected one is invalid.
    async fn last_refused(&self, subject: &Subject, expected: u64) -> Option<u64> {
        let all = self.read_unjudged(&Filter::One(subject.clone())).await.ok()?;
        let mut verifier = self.verifier()?;
        let mut last = None;
        for stored in &all {
            let counts = verifier.takes(stored);
            if stored.sequence > expected {
                last = if counts { return None } else { Some(stored.sequence) };
            }
        }
        last
    }

    /// All messages stored under a filter now, oldest first.
    pub async fn read(&self, filter: &Filter) -> Result<Vec<StoredMessage>, Error> {
        let mut all = self.read_unjudged(filter).await?;
        if let Some(mut verifier) = self.verifier() {
            all.retain(|stored| verifier.takes(stored));
        }
        Ok(all)
    }

    /// Like `read`, with the sequences of messages that a coordinator with other keys, or without
    /// keys, may have stored.
    pub async fn read_judged(&self, filter: &Filter) -> Result<(Vec<StoredMessage>, Vec<u64>), Error> {
        let mut all = self.read_unjudged(filter).await?;
        let mut foreign = Vec::new();
        if let Some(mut verifier) = self.verifier() {
            all.retain(|stored| {
                let judged = verifier.judge(stored);
                foreign.extend(judged.is_err_and(Why::is_foreign).then_some(stored.sequence));
                judged.is_ok()
            });
        }
        Ok((all, foreign))
    }

    /// The messages under a filter without a valid signature, to be removed.
    pub async fn read_refused(&self, filter: &Filter) -> Result<Vec<StoredMessage>, Error> {
        let Some(mut verifier) = self.verifier() else { return Ok(Vec::new()) };
        let mut all = self.read_unjudged(filter).await?;
        all.retain(|stored| !verifier.takes(stored));
        Ok(all)
    }

    /// The last message stored under a filter.
    pub async fn last(&self, filter: &Filter) -> Result<Option<StoredMessage>, Error> {
        let last = self.last_unjudged(filter).await?;
        let (Some(verifier), Some(stored)) = (self.verifier(), &last) else { return Ok(last) };
        let in_place = match verifier.check(stored) {
            Err(_) => false,
            Ok(None) => true,
            // A valid code can also belong to an earlier message that was stored again. The
            // sequence of its predecessor distinguishes the two.
            Ok(Some(after)) => self.next_behind(&stored.subject, after).await? == Some(stored.sequence),
        };
        if in_place { Ok(last) } else { Ok(self.read(filter).await?.pop()) }
    }

    /// Like `subjects`, without the subjects that have only invalid messages. Without keys it costs
    /// as little as `subjects`; with keys it reads every message.
    pub async fn authentic_subjects(&self, filter: &Filter) -> Result<Vec<Subject>, Error> {
        match self.keys() {
            None => self.subjects(filter).await,
            Some(_) => Ok(self.read(filter).await?.into_iter().map(|stored| stored.subject).collect()),
        }
    }

    /// Stores messages of a subject again, signed with the first key, if another key signed them or
    /// none did, and removes each old copy. `all`: every message, in order; otherwise the last.
    /// Returns the number of messages stored again.
    ///
    /// A second run is harmless. If another writer stores a message meanwhile, the remaining
    /// messages stay unchanged.
    pub async fn sign_again(&self, subject: &Subject, all: bool) -> Result<usize, Error> {
        let Some(keys) = self.keys() else { return Ok(0) };
        let filter = Filter::One(subject.clone());
        let counts =
            if all { self.read(&filter).await? } else { self.last(&filter).await?.into_iter().collect() };
        let is_old = |stored: &StoredMessage| {
            authentic::signer(&stored.headers).as_deref() != Some(keys.signing().id())
        };
        // All messages after the first old one are stored again too, so that their order stays the
        // same.
        let Some(first) = counts.iter().position(is_old) else { return Ok(0) };
        let mut last = counts.last().map_or(0, |last| last.sequence);
        for (done, StoredMessage { headers, payload, sequence, .. }) in counts[first..].iter().enumerate() {
            let (headers, payload) = (headers.clone(), payload.clone());
            let again =
                Outgoing { subject: subject.clone(), id: None, headers, payload, expect_last: Some(last) };
            last = match self.publish(again).await {
                Ok(published) => published.sequence,
                Err(PublishError::WrongSequence) => return Ok(done),
                Err(error) => {
                    let doing = format!("signing `{subject}` again");
                    return Err(Error::Failed { doing, reason: error.to_string() });
                }
            };
            self.delete_message(subject, *sequence).await?;
        }
        Ok(counts.len() - first)
    }
}
