//! Following a log, through a temporary consumer. Whenever messages may have been missed, it is replaced by
//! one at the next sequence.

use std::{collections::VecDeque, time::Duration};

use async_nats::{
    datetime::DateTime,
    jetstream::{
        self,
        consumer::{AckPolicy, DeliverPolicy, pull},
        message,
    },
};

use super::{
    super::topology::stream_of_all,
    Error, From, Nats, Stored, failed, from_map, id_of,
    pull::{Pulled, Puller},
    timestamp,
};
use crate::subject::Filter;

/// Messages in flight to a follower at once.
const PREFETCH: usize = 500;
/// The server removes the consumer of a lost follower after this time.
const FORGET_AFTER: Duration = Duration::from_secs(60);

impl Nats {
    pub(in super::super) async fn follow(&self, filters: &[Filter], from: From) -> Result<Follow, Error> {
        self.follow_what(filters, from, What::Messages).await
    }

    pub(super) async fn follow_what(
        &self,
        filters: &[Filter],
        from: From,
        what: What,
    ) -> Result<Follow, Error> {
        let stream = self.stream(stream_of_all(filters)?);
        let filters: Vec<_> = filters.iter().map(|filter| self.namespace().filter(filter)).collect();
        let info = stream_info(self, &stream).await?;
        let next = match from {
            From::Start => 1,
            From::Sequence(sequence) => sequence.max(1),
            From::Now => info.state.last_sequence + 1,
        };
        let puller = Puller::new(self, &stream, "").await?;
        let mut follow = Follow {
            nats: self.clone(),
            stream,
            created: info.created,
            filters,
            what,
            next,
            puller,
            consumer: None,
            held: VecDeque::new(),
        };
        follow.puller.want(PREFETCH);
        follow.attach().await?;
        Ok(follow)
    }
}

/// What a follower gets of each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Messages,
    /// Without payloads.
    Headers,
}

#[derive(Debug)]
pub struct Follow {
    nats: Nats,
    stream: String,
    /// When the stream was created: a recreated stream has new sequences.
    created: DateTime,
    filters: Vec<String>,
    what: What,
    next: u64,
    puller: Puller,
    /// How many messages the consumer has sent, if there is one: a gap means that some were lost.
    consumer: Option<u64>,
    /// Kept here while its payload is fetched, so that the caller may stop waiting.
    held: VecDeque<Box<async_nats::Message>>,
}

impl Follow {
    pub(in super::super) async fn next(&mut self) -> Result<Stored, Error> {
        loop {
            if let Some(message) = self.held.front() {
                let payload = match self.what {
                    What::Messages => self.nats.payload(message.headers.as_ref(), &message.payload).await?,
                    What::Headers => bytes::Bytes::new(),
                };
                let Some(message) = self.held.pop_front() else { continue };
                if let Some(stored) = self.parse(*message, payload) {
                    return Ok(stored);
                }
                continue;
            }
            if self.consumer.is_none() {
                self.puller.stand_by().await;
                if let Err(error) = self.attach().await {
                    self.puller.stand_back();
                    tracing::warn!(%error, stream = self.stream, "a log can't be followed; trying again");
                }
                continue;
            }
            match self.puller.next().await {
                Ok(Pulled::Message(message)) => self.take(message),
                Ok(Pulled::Gone | Pulled::Interrupted) => self.consumer = None,
                Err(error) => {
                    self.consumer = None;
                    self.puller.stand_back();
                    return Err(error);
                }
            }
        }
    }

    /// Nothing before this sequence comes any more, once `next` has returned all that has arrived.
    pub(super) fn at(&self) -> u64 {
        self.next
    }

    /// Creates a consumer at the next sequence. If the stream was recreated or reset, its old sequences
    /// have no meaning.
    async fn attach(&mut self) -> Result<(), Error> {
        let info = stream_info(&self.nats, &self.stream).await?;
        if info.created != self.created {
            tracing::warn!(
                stream = self.stream,
                "a followed stream was recreated; reading it from its start"
            );
            (self.next, self.created) = (1, info.created);
        } else if self.next > info.state.last_sequence + 1 {
            self.next = info.state.last_sequence + 1;
        }
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.next },
            ack_policy: AckPolicy::None,
            filter_subjects: self.filters.clone(),
            headers_only: self.what == What::Headers,
            inactive_threshold: FORGET_AFTER,
            memory_storage: true,
            num_replicas: 1,
            ..Default::default()
        };
        let created = self.nats.0.api.create_consumer_on_stream(config, &self.stream).await;
        let created = created.map_err(|error| failed(format!("following `{}`", self.stream), &error))?;
        self.puller.turn_to(&self.stream, &created.cached_info().name);
        self.consumer = Some(0);
        Ok(())
    }

    fn take(&mut self, message: Box<async_nats::Message>) {
        self.puller.want(1);
        let Some((sequence, count)) = place(&self.nats, &message) else { return };
        let expected = self.consumer.map(|sent| sent + 1);
        if expected != Some(count) {
            self.consumer = None;
            return;
        }
        self.consumer = expected;
        if sequence >= self.next {
            self.next = sequence + 1;
            self.held.push_back(message);
        }
    }

    fn parse(&self, message: async_nats::Message, payload: bytes::Bytes) -> Option<Stored> {
        let subject = match self.nats.namespace().parse(message.subject.as_str()) {
            Ok(subject) => subject,
            Err(error) => {
                tracing::warn!(%error, "a stored message can't be read; it is skipped");
                return None;
            }
        };
        let (headers, id) = (from_map(message.headers.as_ref()), id_of(message.headers.as_ref()));
        let with_info = message::Message { message, context: self.nats.0.api.clone() };
        let info = with_info.info().ok()?;
        Some(Stored {
            subject,
            id,
            headers,
            payload,
            sequence: info.stream_sequence,
            at: timestamp(info.published),
        })
    }
}

/// The sequence of a message in the stream, and its number among the consumer's messages.
fn place(nats: &Nats, message: &async_nats::Message) -> Option<(u64, u64)> {
    let with_info = message::Message { message: message.clone(), context: nats.0.api.clone() };
    let info = with_info.info().ok()?;
    Some((info.stream_sequence, info.consumer_sequence))
}

pub(super) async fn stream_info(nats: &Nats, stream: &str) -> Result<jetstream::stream::Info, Error> {
    let found = nats.0.api.get_stream(stream).await;
    let found =
        found.map_err(|error| failed(format!("reading the state of the stream `{stream}`"), &error))?;
    Ok(found.cached_info().clone())
}
