//! Publishes each message until it is acknowledged. If a message was stored and its acknowledgement
//! lost, it is sent again under the same id, and the server answers that it is a duplicate.

use std::{fmt, time::Duration};

use async_nats::{
    HeaderMap,
    jetstream::{
        ErrorCode,
        context::{PublishAckFuture, PublishError as Refused, PublishErrorKind},
        message::PublishMessage,
    },
};
use bytes::Bytes;
use domain::subject::Filter;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::{
    Error, Nats, Outgoing, PublishError, PublishReceipt, Stream, backoff, objects::Large, server_error,
    to_map,
};

/// The time for which a message is sent again before its publish fails as unacknowledged.
const GIVE_UP_AFTER: Duration = Duration::from_secs(30);
/// The time for which a stream may be missing while a server starts.
const NO_STREAM_FOR: Duration = Duration::from_secs(3);
/// The most messages of one sender in flight at once.
const WINDOW: usize = 4096;
/// The error code of JetStream without a leader, or not started yet.
const UNAVAILABLE: u64 = 10_008;
/// The error code of a stream that could not store the message; with `discard: new` because it is
/// full.
const STORE_FAILED: u64 = 10_077;

/// Messages in flight.
pub(crate) struct Sending {
    nats: Nats,
    since: Instant,
    entries: Vec<Entry>,
}

struct Entry {
    subject: String,
    headers: HeaderMap,
    payload: Bytes,
    id: Option<String>,
    fence: Option<u64>,
    tries: usize,
    state: State,
}

enum State {
    Waiting(PublishAckFuture),
    /// The message may have been stored or not.
    Unknown,
    Done(Result<PublishReceipt, PublishError>),
}

impl Nats {
    pub(in super::super) async fn send(&self, messages: Vec<Outgoing>) -> Sending {
        let mut sending = Sending { nats: self.clone(), since: Instant::now(), entries: Vec::new() };
        self.make_pools(&messages).await;
        for (index, message) in messages.into_iter().enumerate() {
            if index % WINDOW == WINDOW - 1 {
                // The capacity for unacknowledged messages is shared. One sender must not use all
                // of it.
                sending.hear().await;
            }
            let mut entry = self.prepare(message).await;
            self.post(&mut entry).await;
            sending.entries.push(entry);
        }
        sending
    }

    async fn prepare(&self, message: Outgoing) -> Entry {
        let subject = self.namespace().subject(&message.subject);
        let mut payload = message.payload;
        let mut state = State::Unknown;
        let mut headers = to_map(&message.headers).unwrap_or_else(|reason| {
            state = State::Done(Err(PublishError::Other(reason)));
            HeaderMap::new()
        });
        if let Some(id) = &message.id {
            match id.parse::<async_nats::HeaderValue>() {
                Ok(id) => headers.insert(async_nats::header::NATS_MESSAGE_ID, id),
                Err(_) => {
                    state = State::Done(Err(PublishError::Other(format!("`{id}` can't be a message id"))))
                }
            }
        }
        if let Some(last) = message.expect_last {
            headers.insert(async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, last.to_string());
        }
        if matches!(state, State::Unknown) {
            let large = Large::of(&message.subject);
            let to = (subject.as_str(), message.id.as_deref());
            match self.fit(&mut headers, payload.clone(), to, large).await {
                Ok(fitting) => payload = fitting,
                Err(Error::Denied(denied)) => state = State::Done(Err(denied.into())),
                Err(error) => state = State::Done(Err(PublishError::Other(error.to_string()))),
            }
        }
        let (id, fence) = (message.id, message.expect_last);
        Entry { subject, headers, payload, id, fence, tries: 0, state }
    }

    /// The sequence of a message that was stored and whose acknowledgement was lost. The server
    /// checks the expected sequence before the id (2.15 does), so the repeated message is rejected
    /// because of its own first copy. This looks up whether the message after the expected sequence
    /// has this message's id.
    async fn stored_before(&self, entry: &Entry) -> Option<u64> {
        let (id, fence) = (entry.id.as_deref()?, entry.fence?);
        let stream = Stream::of(&Filter::One(self.namespace().parse(&entry.subject).ok()?))?;
        let stream = self.0.api.get_stream_no_info(self.stream(stream)).await.ok()?;
        let next = stream.raw_message_builder().sequence(fence + 1).next_by_subject(&entry.subject);
        let next = next.send().await.ok()?;
        let its = next.headers.get(async_nats::header::NATS_MESSAGE_ID)?;
        (its.as_str() == id).then_some(next.sequence)
    }

    async fn post(&self, entry: &mut Entry) {
        if matches!(entry.state, State::Done(_)) {
            return;
        }
        entry.tries += 1;
        let message = PublishMessage::build().payload(entry.payload.clone()).headers(entry.headers.clone());
        entry.state = match self.0.publisher.send_publish(entry.subject.clone(), message).await {
            Ok(waiting) => State::Waiting(waiting),
            Err(error) => entry.judge(&error, Duration::ZERO),
        };
    }
}

impl Sending {
    pub(in super::super) async fn stored(mut self) -> Vec<Result<PublishReceipt, PublishError>> {
        let mut round = 0;
        loop {
            self.hear().await;
            self.hold_back_the_fenced();
            let again = |entry: &Entry| {
                matches!(entry.state, State::Unknown) && (entry.id.is_some() || entry.fence.is_some())
            };
            if !self.entries.iter().any(again) || self.since.elapsed() >= GIVE_UP_AFTER {
                break;
            }
            tokio::time::sleep(backoff(round)).await;
            round += 1;
            // One after another, so that they arrive in order.
            let nats = self.nats.clone();
            for entry in self.entries.iter_mut().filter(|entry| again(entry)) {
                nats.post(entry).await;
            }
        }
        let result = |entry: Entry| match entry.state {
            State::Done(result) => (entry.subject, result),
            State::Waiting(_) | State::Unknown => (entry.subject, Err(PublishError::Unacknowledged)),
        };
        let (subjects, results): (Vec<String>, Vec<_>) = self.entries.into_iter().map(result).unzip();
        self.nats.tell_published(subjects.iter().map(String::as_str).zip(&results));
        results
    }

    /// Waits for the acknowledgement of all messages in flight.
    async fn hear(&mut self) {
        let (since, nats) = (self.since, &self.nats);
        let waits = self.entries.iter_mut().map(|entry| async move {
            if !matches!(entry.state, State::Waiting(_)) {
                return;
            }
            let State::Waiting(waiting) = std::mem::replace(&mut entry.state, State::Unknown) else { return };
            entry.state = match nats.permitted_since(&entry.subject, since, waiting.into_future()).await {
                Ok(Ok(ack)) => {
                    State::Done(Ok(PublishReceipt { sequence: ack.sequence, duplicate: ack.duplicate }))
                }
                Ok(Err(error)) => entry.judge(&error, since.elapsed()),
                Err(denied) => State::Done(Err(denied.into())),
            };
            if matches!(entry.state, State::Done(Err(PublishError::WrongSequence)))
                && let Some(sequence) = nats.stored_before(entry).await
            {
                entry.state = State::Done(Ok(PublishReceipt { sequence, duplicate: true }));
            }
        });
        join_all(waits).await;
    }

    /// Reopens rejected messages whose predecessor on the same subject is still in flight. Such a
    /// message expects its predecessor, so it is not rejected for good, but sent again.
    fn hold_back_the_fenced(&mut self) {
        for index in 0..self.entries.len() {
            let (before, rest) = self.entries.split_at_mut(index);
            let Some(entry) = rest.first_mut() else { return };
            let fenced_off = matches!(entry.state, State::Done(Err(PublishError::WrongSequence)));
            let open =
                |other: &Entry| matches!(other.state, State::Unknown) && other.subject == entry.subject;
            if fenced_off && before.iter().any(open) {
                entry.state = State::Unknown;
            }
        }
    }
}

impl Entry {
    fn judge(&self, error: &Refused, after: Duration) -> State {
        let done = |error| State::Done(Err(error));
        if let Some(error) = server_error(error) {
            let code = error.error_code();
            return if code == ErrorCode::STREAM_WRONG_LAST_SEQUENCE
                || code == ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT
            {
                // A message without an id was sent twice: the second copy may have been rejected
                // because of the first.
                if self.tries > 1 && self.id.is_none() {
                    done(PublishError::Unacknowledged)
                } else {
                    done(PublishError::WrongSequence)
                }
            } else if is_full(code) {
                done(PublishError::Full(error.to_string()))
            } else if code.0 == UNAVAILABLE {
                State::Unknown
            } else {
                done(PublishError::Other(error.to_string()))
            };
        }
        match error.kind() {
            PublishErrorKind::WrongLastSequence => done(PublishError::WrongSequence),
            PublishErrorKind::StreamNotFound if after >= NO_STREAM_FOR || self.id.is_none() => {
                done(PublishError::Other(format!("no stream holds `{}`", self.subject)))
            }
            PublishErrorKind::StreamNotFound | PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => {
                State::Unknown
            }
            PublishErrorKind::WrongLastMessageId
            | PublishErrorKind::MaxAckPending
            | PublishErrorKind::MaxPayloadExceeded
            | PublishErrorKind::Other => done(PublishError::Other(error.to_string())),
        }
    }
}

fn is_full(code: ErrorCode) -> bool {
    code.0 == STORE_FAILED
        || [
            ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
            ErrorCode::INSUFFICIENT_RESOURCES,
            ErrorCode::MEMORY_RESOURCES_EXCEEDED,
            ErrorCode::STORAGE_RESOURCES_EXCEEDED,
            ErrorCode::STREAM_MAX_STREAM_BYTES_EXCEEDED,
        ]
        .contains(&code)
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending").field("messages", &self.entries.len()).finish_non_exhaustive()
    }
}
