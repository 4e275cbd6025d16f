//! Reads stored messages without a consumer. Works for queues as well as for logs.

use std::{collections::BTreeMap, time::Duration};

use async_nats::{
    StatusCode,
    jetstream::{
        message::StreamMessage,
        response::Response,
        stream::{self, LastRawMessageErrorKind, RawMessageErrorKind},
    },
};
use domain::subject::{Filter, Subject};
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::json;

use super::{
    super::topology::stream_of_all,
    Error, Nats, StoredMessage, backoff, failed, from_map, id_of,
    objects::{overflow, own_overflow},
    timestamp,
};

/// The most messages in the answer to one request.
const BATCH: usize = 1000;
/// The longest wait for the next message while the server has more to send.
pub(super) const NEXT_WITHIN: Duration = Duration::from_secs(5);
/// The most attempts in a row to continue an interrupted read that receives no message.
pub(super) const TRIES: usize = 20;

impl Nats {
    /// The last message stored under a filter, which may have wildcards. The leader of the stream
    /// answers, because only the leader certainly has every acknowledged message.
    pub(in super::super) async fn last(&self, filter: &Filter) -> Result<Option<StoredMessage>, Error> {
        let found = self.last_raw(filter).await?;
        match found {
            Some(message) => self.stored(message).await,
            None => Ok(None),
        }
    }

    pub(super) async fn last_raw(&self, filter: &Filter) -> Result<Option<StreamMessage>, Error> {
        let stream = self.stream(stream_of_all(std::slice::from_ref(filter))?);
        self.last_of(&stream, &self.namespace().filter(filter)).await
    }

    /// The last message of a subject of a stream, from the leader.
    pub(super) async fn last_of(&self, stream: &str, subject: &str) -> Result<Option<StreamMessage>, Error> {
        let doing = || format!("reading the last of `{subject}`");
        let handle = self.0.api.get_stream_no_info(stream).await.map_err(|error| failed(doing(), &error))?;
        let to = self.call(&format!("STREAM.MSG.GET.{stream}"));
        match self.permitted(&to, handle.get_last_raw_message_by_subject(subject)).await? {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(failed(doing(), &error)),
        }
    }

    /// Reads all messages up to the one that is the last at the start. A batch may come from a
    /// replica that lacks the newest messages; these are then requested again.
    pub(in super::super) async fn read(&self, filter: &Filter) -> Result<Vec<StoredMessage>, Error> {
        let doing = || format!("reading `{}`", self.namespace().filter(filter));
        let mut found = Vec::new();
        let Some(last) = self.last_raw(filter).await? else { return Ok(found) };
        let (mut next, mut tries) = (1, 0);
        while next <= last.sequence {
            let messages = match self.batch(filter, next, BATCH).await {
                Ok(messages) => messages,
                Err(denied @ Error::Denied(_)) => return Err(denied),
                Err(error) => {
                    tracing::debug!(%error, "a read was interrupted; continuing it");
                    Vec::new()
                }
            };
            if let Some(message) = messages.last() {
                (next, tries) = (message.sequence + 1, 0);
            } else {
                // The remaining messages may have been purged since the read began.
                match self.last_raw(filter).await? {
                    Some(now) if now.sequence >= next && tries < TRIES => {}
                    Some(now) if now.sequence >= next => {
                        return Err(failed(doing(), &"the server sent fewer messages than it has"));
                    }
                    Some(_) | None => break,
                }
                tokio::time::sleep(backoff(tries)).await;
                tries += 1;
            }
            for message in messages.into_iter().filter(|message| message.sequence <= last.sequence) {
                found.extend(self.stored(message).await?);
            }
        }
        Ok(found)
    }

    /// The sequence of the first message on a subject after the given sequence.
    pub(in super::super) async fn next_behind(
        &self,
        subject: &Subject,
        sequence: u64,
    ) -> Result<Option<u64>, Error> {
        let found = self.batch(&Filter::One(subject.clone()), sequence + 1, 1).await?;
        Ok(found.first().map(|message| message.sequence))
    }

    /// Reads at most `count` messages from a sequence on, with one request.
    async fn batch(&self, filter: &Filter, from: u64, count: usize) -> Result<Vec<StreamMessage>, Error> {
        let stream = self.stream(stream_of_all(std::slice::from_ref(filter))?);
        self.batch_of(&stream, &self.namespace().filter(filter), from, count).await
    }

    /// Reads at most `most` messages of a subject, from a sequence on, with one request. It needs
    /// no consumer. So readers need no right to create consumers, with which they could have the
    /// server send messages to other subjects.
    pub(super) async fn batch_of(
        &self,
        stream: &str,
        subject: &str,
        from: u64,
        most: usize,
    ) -> Result<Vec<StreamMessage>, Error> {
        self.batch_within(stream, subject, from, most, 0).await
    }

    /// Like `batch_of`, with a limit on the bytes of all messages. 0 is the server's own limit.
    pub(super) async fn batch_within(
        &self,
        stream: &str,
        subject: &str,
        from: u64,
        most: usize,
        most_bytes: u64,
    ) -> Result<Vec<StreamMessage>, Error> {
        let client = &self.0.client;
        let doing = || format!("reading `{subject}` from {from}");
        let inbox = client.new_inbox();
        let subscribed = client.subscribe(inbox.clone()).await;
        let mut answers = subscribed.map_err(|error| failed(doing(), &error))?;
        let request = json!({ "seq": from, "batch": most, "max_bytes": most_bytes, "next_by_subj": subject })
            .to_string();
        let to = self.call(&format!("DIRECT.GET.{stream}"));
        let asked = tokio::time::Instant::now();
        let sent = client.publish_with_reply(to.clone(), inbox, request.into()).await;
        sent.map_err(|error| failed(doing(), &error))?;
        let mut messages = Vec::new();
        loop {
            let answer = tokio::time::timeout(NEXT_WITHIN, answers.next());
            let Ok(Some(answer)) = self.permitted_since(&to, asked, answer).await? else {
                return Err(failed(doing(), &"no answer in time"));
            };
            match answer.status {
                None => messages.push(answer.try_into().map_err(|error| failed(doing(), &error))?),
                // 204 (no content) ends a batch; 404 (not found) is the answer for an empty batch.
                Some(status) if status.as_u16() == 204 || status == StatusCode::NOT_FOUND => {
                    return Ok(messages);
                }
                Some(status) => {
                    let reason = answer.description.unwrap_or_default();
                    return Err(failed(doing(), &format!("{status} {reason}")));
                }
            }
        }
    }

    pub(in super::super) async fn subjects(&self, filter: &Filter) -> Result<Vec<Subject>, Error> {
        let stream = self.stream(stream_of_all(std::slice::from_ref(filter))?);
        let names = self.subject_names(&stream, &self.namespace().filter(filter)).await?;
        Ok(names.iter().filter_map(|text| self.namespace().parse(text).ok()).collect())
    }

    /// The subjects of a stream that have messages, in order.
    pub(super) async fn subject_names(&self, stream: &str, wanted: &str) -> Result<Vec<String>, Error> {
        #[derive(Deserialize)]
        struct Page {
            state: State,
            #[serde(default)]
            total: usize,
        }
        #[derive(Deserialize)]
        struct State {
            #[serde(default)]
            subjects: BTreeMap<String, u64>,
        }
        let doing = || format!("listing the subjects of `{wanted}`");
        let info = format!("STREAM.INFO.{stream}");
        let to = self.call(&info);
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let request = json!({ "subjects_filter": wanted, "offset": offset });
            let answer = self.permitted(&to, self.0.api.request(info.clone(), &request)).await?;
            let page: Page = match answer.map_err(|error| failed(doing(), &error))? {
                Response::Ok(page) => page,
                Response::Err { error } => return Err(failed(doing(), &error)),
            };
            let received = page.state.subjects.len();
            offset += received;
            names.extend(page.state.subjects.into_keys());
            if received == 0 || offset >= page.total {
                return Ok(names);
            }
        }
    }

    /// Removes the messages stored under a filter, and the objects with payloads that were too
    /// large for them.
    pub(in super::super) async fn purge(&self, filter: &Filter) -> Result<(), Error> {
        let subject = self.namespace().filter(filter);
        let objects = self.overflow_of(filter).await?;
        let stream = self.stream(stream_of_all(std::slice::from_ref(filter))?);
        let to = self.call(&format!("STREAM.PURGE.{stream}"));
        let purge = self.handle(filter).await?.purge().filter(&subject);
        let purged = self.permitted(&to, purge.into_future()).await?;
        purged.map_err(|error| failed(format!("purging `{subject}`"), &error))?;
        for object in objects {
            self.delete_object(&object).await?;
        }
        Ok(())
    }

    /// Removes a message, and the object with its payload unless another message names that object.
    pub(in super::super) async fn delete_message(
        &self,
        subject: &Subject,
        sequence: u64,
    ) -> Result<(), Error> {
        let doing = || format!("deleting message {sequence} of `{subject}`");
        let stream = self.handle(&Filter::One(subject.clone())).await?;
        let object = match stream.get_raw_message(sequence).await {
            Ok(message) => own_overflow(&message.headers, &message.subject),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => return Ok(()),
            Err(error) => return Err(failed(doing(), &error)),
        };
        stream.delete_message(sequence).await.map_err(|error| failed(doing(), &error))?;
        match object {
            Some(object) if !self.is_named(subject, &object).await? => self.delete_object(&object).await,
            Some(_) | None => Ok(()),
        }
    }

    /// Returns true if a message of the subject names this object as its payload. A copy of a
    /// message names the same object as the original. The removal of the copy must not remove that
    /// object (S3).
    async fn is_named(&self, subject: &Subject, object: &str) -> Result<bool, Error> {
        let filter = Filter::One(subject.clone());
        let mut next = 1;
        loop {
            let messages = self.batch(&filter, next, BATCH).await?;
            let Some(last) = messages.last() else { return Ok(false) };
            next = last.sequence + 1;
            if messages.iter().any(|message| overflow(&message.headers).as_deref() == Some(object)) {
                return Ok(true);
            }
        }
    }

    /// The objects that hold payloads of the messages stored under a filter.
    async fn overflow_of(&self, filter: &Filter) -> Result<Vec<String>, Error> {
        let (mut objects, mut next) = (Vec::new(), 1);
        loop {
            let messages = self.batch(filter, next, BATCH).await?;
            let Some(last) = messages.last() else { return Ok(objects) };
            next = last.sequence + 1;
            let own = |message: &StreamMessage| own_overflow(&message.headers, &message.subject);
            objects.extend(messages.iter().filter_map(own));
        }
    }

    async fn handle(&self, filter: &Filter) -> Result<stream::Stream<()>, Error> {
        let name = self.stream(stream_of_all(std::slice::from_ref(filter))?);
        let handle = self.0.api.get_stream_no_info(&name).await;
        handle.map_err(|error| failed(format!("reading the state of the stream `{name}`"), &error))
    }

    /// Reads the payload of a stored message. `None` for a message with an unknown subject.
    pub(super) async fn stored(&self, message: StreamMessage) -> Result<Option<StoredMessage>, Error> {
        let subject = match self.namespace().parse(message.subject.as_str()) {
            Ok(subject) => subject,
            Err(error) => {
                tracing::warn!(%error, "skipped a stored message with an unknown subject");
                return Ok(None);
            }
        };
        let (mut headers, id) = (from_map(Some(&message.headers)), id_of(Some(&message.headers)));
        let payload = self.logged(&subject, &message.headers, &message.payload).await?.told(&mut headers);
        let (sequence, at) = (message.sequence, timestamp(message.time));
        Ok(Some(StoredMessage { subject, id, headers, payload, sequence, at }))
    }
}

pub(super) async fn stream_info(nats: &Nats, stream: &str) -> Result<stream::Info, Error> {
    let asked =
        nats.permitted(&nats.call(&format!("STREAM.INFO.{stream}")), nats.0.api.get_stream(stream)).await?;
    let found =
        asked.map_err(|error| failed(format!("reading the state of the stream `{stream}`"), &error))?;
    Ok(found.cached_info().clone())
}
