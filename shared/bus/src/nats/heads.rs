//! Reads the messages of a log without their payloads, through a temporary consumer, which only
//! coordinators may create. If messages may have been missed, the consumer is replaced by a new one
//! at the next sequence.

use std::{collections::VecDeque, time::Duration};

use async_nats::{
    datetime::DateTime,
    jetstream::{
        consumer::{AckPolicy, DeliverPolicy, pull},
        message,
    },
};
use domain::subject::Filter;
use telemetry::Outage;

use super::{
    super::{message::Head, topology::stream_of_all},
    Error, Nats, failed, id_of,
    pull::{PullOutcome, Puller},
    read::stream_info,
};

/// The most messages in flight to a reader at once.
const PREFETCH: usize = 500;
/// The server removes the consumer of a lost reader after this time.
const FORGET_AFTER: Duration = Duration::from_secs(60);

impl Nats {
    pub(super) async fn heads(&self, filter: &Filter, from: u64) -> Result<Heads, Error> {
        let stream = self.stream(stream_of_all(std::slice::from_ref(filter))?);
        let filter = self.namespace().filter(filter);
        let info = stream_info(self, &stream).await?;
        let puller = Puller::new(self, &stream, "").await?;
        let mut heads = Heads {
            nats: self.clone(),
            stream,
            created: info.created,
            filter,
            next: from.max(1),
            puller,
            consumer: None,
            held: VecDeque::new(),
            outage: Outage::new("a log"),
        };
        heads.puller.want(PREFETCH);
        heads.attach().await?;
        Ok(heads)
    }
}

#[derive(Debug)]
pub(super) struct Heads {
    nats: Nats,
    stream: String,
    /// The creation time of the stream. A recreated stream has new sequences.
    created: DateTime,
    filter: String,
    next: u64,
    puller: Puller,
    /// The number of messages that the consumer has sent; none without a consumer. A gap in its
    /// numbers means that messages were lost.
    consumer: Option<u64>,
    held: VecDeque<Box<async_nats::Message>>,
    outage: Outage,
}

impl Heads {
    pub(super) async fn next(&mut self) -> Result<Head, Error> {
        loop {
            if let Some(message) = self.held.pop_front() {
                if let Some(head) = self.parse(*message) {
                    return Ok(head);
                }
                continue;
            }
            if self.consumer.is_none() {
                self.puller.stand_by().await;
                if let Err(error) = self.attach().await {
                    self.puller.stand_back();
                    tracing::debug!(%error, stream = self.stream, "a log can't be followed; trying again");
                    self.nats.failed(&mut self.outage, &error);
                } else {
                    self.outage.ended();
                }
                continue;
            }
            match self.puller.next().await {
                Ok(PullOutcome::Message(message)) => self.take(message),
                Ok(PullOutcome::Gone | PullOutcome::Interrupted) => self.consumer = None,
                Err(error) => {
                    self.consumer = None;
                    self.puller.stand_back();
                    return Err(error);
                }
            }
        }
    }

    /// The next sequence. Once `next` has returned all that has arrived, no message before it
    /// follows.
    pub(super) fn at(&self) -> u64 {
        self.next
    }

    /// Creates a consumer at the next sequence. In a recreated or reset stream the old sequences
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
            // With a name and one filter, the subject of the request contains both, so that
            // permissions can match them.
            name: Some(format!("heads_{}", uuid::Uuid::now_v7().simple())),
            filter_subject: self.filter.clone(),
            headers_only: true,
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

    fn parse(&self, message: async_nats::Message) -> Option<Head> {
        let subject = match self.nats.namespace().parse(message.subject.as_str()) {
            Ok(subject) => subject,
            Err(error) => {
                tracing::warn!(%error, "skipped a stored message with an unknown subject");
                return None;
            }
        };
        let id = id_of(message.headers.as_ref());
        let (sequence, _) = place(&self.nats, &message)?;
        Some(Head { subject, sequence, id })
    }
}

/// The sequence of a message in the stream, and its number among the consumer's messages.
fn place(nats: &Nats, message: &async_nats::Message) -> Option<(u64, u64)> {
    let with_info = message::Message { message: message.clone(), context: nats.0.api.clone() };
    let info = with_info.info().ok()?;
    Some((info.stream_sequence, info.consumer_sequence))
}
