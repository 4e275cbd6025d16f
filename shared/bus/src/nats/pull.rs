//! Pulls messages from a consumer with exact counts: messages wanted and not requested yet, and
//! messages requested and not received yet. The server answers a pull with messages and, if it has
//! too few, with a status that contains the missing number. The missing messages are requested
//! again.
//!
//! async-nats's own batches are not used: each creates a subscription of its own, and a missed
//! heartbeat can leave a reader waiting for ever.

use std::time::Duration;

use async_nats::{Message, StatusCode, Subscriber};
use futures_util::StreamExt;
use telemetry::Outage;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{Error, Nats, backoff, failed};

/// The time that a pull stays open. An idle queue costs one message in this time, and that message
/// shows that the server answers.
const EXPIRES: Duration = Duration::from_secs(20);
/// The time after its expiry at which a pull without any answer is treated as lost.
const GRACE: Duration = Duration::from_secs(2);
/// The most messages that one pull requests.
const MAX_BATCH: usize = 1000;
/// The most pulls whose answers arrive at one inbox. If the stream is in another account than the
/// reader, the server remembers every pull until its inbox is dropped.
const PULLS_AT_ONE_INBOX: usize = 256;

#[derive(Debug)]
pub(super) struct Puller {
    nats: Nats,
    subject: String,
    inbox: String,
    subscriber: Subscriber,
    /// The number of pulls whose answers arrive at the inbox.
    pulls: usize,
    /// The previous inbox, and the time until which pulls with answers there may be open.
    before: Option<(Subscriber, Instant)>,
    generation: watch::Receiver<u64>,
    wanted: usize,
    outstanding: usize,
    /// When the server last answered.
    heard: Instant,
    /// When messages were first wanted.
    waiting: Instant,
    /// When the first of the open pulls was sent, as far as known.
    pulled: Instant,
    /// Failures in a row, and the time before which no pull is sent because of them.
    failures: usize,
    not_before: Instant,
    refused: Outage,
    /// Earlier requests are lost. They are made again before the next pull.
    lost: bool,
}

#[derive(Debug)]
pub(super) enum PullOutcome {
    Message(Box<Message>),
    /// The consumer does not exist.
    Gone,
    /// Messages may have been lost in transit; they are requested again.
    Interrupted,
}

impl Puller {
    pub(super) async fn new(nats: &Nats, stream: &str, consumer: &str) -> Result<Self, Error> {
        let (inbox, subscriber) = subscribe(nats).await?;
        let mut generation = nats.0.generation.clone();
        generation.mark_unchanged();
        Ok(Puller {
            nats: nats.clone(),
            subject: next_subject(nats, stream, consumer),
            inbox,
            subscriber,
            pulls: 0,
            before: None,
            generation,
            wanted: 0,
            outstanding: 0,
            heard: Instant::now(),
            waiting: Instant::now(),
            pulled: Instant::now(),
            failures: 0,
            not_before: Instant::now(),
            refused: Outage::new("a consumer"),
            lost: false,
        })
    }

    pub(super) fn want(&mut self, more: usize) {
        if self.wanted == 0 && self.outstanding == 0 {
            self.waiting = Instant::now();
        }
        self.wanted = self.wanted.saturating_add(more);
    }

    /// Zero if no messages are wanted: then silence is normal.
    pub(super) fn silent_for(&self) -> Duration {
        if self.wanted == 0 && self.outstanding == 0 {
            return Duration::ZERO;
        }
        self.heard.max(self.waiting).elapsed()
    }

    /// Switches to another consumer. Requests to the old one are lost.
    pub(super) fn turn_to(&mut self, stream: &str, consumer: &str) {
        self.subject = next_subject(&self.nats, stream, consumer);
        self.lost = true;
    }

    /// Delays the next attempt, longer after each failure.
    pub(super) fn stand_back(&mut self) {
        self.not_before = Instant::now() + backoff(self.failures);
        self.failures += 1;
    }

    pub(super) async fn stand_by(&self) {
        sleep_until(self.not_before).await;
    }

    /// The next event. Cancel-safe: every await can be cancelled and repeated, because counts
    /// change only after the event that they describe.
    pub(super) async fn next(&mut self) -> Result<PullOutcome, Error> {
        loop {
            if self.lost {
                // A new inbox, so that a late answer to an old pull is not counted for a new one.
                // That would deliver more messages than wanted.
                (self.inbox, self.subscriber) = subscribe(&self.nats).await?;
                (self.pulls, self.before) = (0, None);
                self.wanted += std::mem::take(&mut self.outstanding);
                self.lost = false;
            }
            if self.before.as_ref().is_some_and(|(_, until)| *until <= Instant::now()) {
                self.before = None;
            }
            if self.pulls >= PULLS_AT_ONE_INBOX && self.before.is_none() {
                let (inbox, subscriber) = subscribe(&self.nats).await?;
                let earlier = std::mem::replace(&mut self.subscriber, subscriber);
                self.before = Some((earlier, Instant::now() + EXPIRES + GRACE));
                (self.inbox, self.pulls) = (inbox, 0);
            }
            let held_back = Instant::now() < self.not_before;
            while !held_back && self.should_pull() {
                self.pull().await?;
            }
            let lost_at = self.heard.max(self.pulled) + EXPIRES + GRACE;
            tokio::select! {
                biased;
                Some(message) = next_of(&mut self.before) => {
                    if let Some(pulled) = self.take(message) {
                        return Ok(pulled);
                    }
                }
                message = self.subscriber.next() => match message {
                    Some(message) => {
                        if let Some(pulled) = self.take(message) {
                            return Ok(pulled);
                        }
                    }
                    None => {
                        // Only when the connection is closed for good.
                        self.lost = true;
                        return Err(failed("pulling messages", &"the connection is closed"));
                    }
                },
                changed = self.generation.changed() => {
                    if changed.is_err() {
                        return Err(failed("pulling messages", &"the connection is closed"));
                    }
                    self.lost = true;
                    return Ok(PullOutcome::Interrupted);
                }
                () = sleep_until(lost_at), if self.outstanding > 0 => {
                    tracing::debug!(pull = self.subject, "a pull was lost; pulling again");
                    self.lost = true;
                    return Ok(PullOutcome::Interrupted);
                }
                () = sleep_until(self.not_before), if held_back && self.wanted > 0 => {}
            }
        }
    }

    /// True if no messages are outstanding, or at least as many are wanted as are outstanding. So a
    /// pull is not sent for every single message.
    fn should_pull(&self) -> bool {
        self.wanted > 0 && (self.outstanding == 0 || self.wanted >= self.outstanding)
    }

    async fn pull(&mut self) -> Result<(), Error> {
        let batch = self.wanted.min(MAX_BATCH);
        let request = format!("{{\"batch\":{batch},\"expires\":{}}}", EXPIRES.as_nanos());
        let client = &self.nats.0.client;
        let sent = client.publish_with_reply(self.subject.clone(), self.inbox.clone(), request.into()).await;
        sent.map_err(|error| failed("pulling messages", &error))?;
        if self.outstanding == 0 {
            self.pulled = Instant::now();
        }
        self.wanted -= batch;
        self.outstanding += batch;
        self.pulls += 1;
        Ok(())
    }

    /// Counts a received message. Returns a status only if the reader has to act on it.
    fn take(&mut self, message: Message) -> Option<PullOutcome> {
        let Some(status) = message.status else {
            self.heard = Instant::now();
            self.failures = 0;
            self.refused.ended();
            self.outstanding = self.outstanding.saturating_sub(1);
            return Some(PullOutcome::Message(Box::new(message)));
        };
        if status == StatusCode::IDLE_HEARTBEAT {
            return None;
        }
        let description = message.description.as_deref().unwrap_or_default().to_ascii_lowercase();
        let gone = status == StatusCode::NO_RESPONDERS || description.contains("consumer deleted");
        let ended = description.contains("leadership") || description.contains("shutdown");
        if gone || ended {
            self.lost = true;
            self.stand_back();
            return Some(if gone { PullOutcome::Gone } else { PullOutcome::Interrupted });
        }
        self.heard = Instant::now();
        let missing = message.headers.as_ref().and_then(|headers| headers.get("Nats-Pending-Messages"));
        let missing = missing.and_then(|count| count.as_str().parse().ok()).unwrap_or(self.outstanding);
        let missing = self.outstanding.min(missing);
        self.outstanding -= missing;
        self.wanted += missing;
        if status == StatusCode::TIMEOUT || status == StatusCode::NOT_FOUND {
            self.failures = 0;
            self.refused.ended();
        } else {
            self.refused.failed(&format!("{}: {status} {description}", self.subject));
            self.stand_back();
        }
        None
    }
}

fn next_subject(nats: &Nats, stream: &str, consumer: &str) -> String {
    nats.call(&format!("CONSUMER.MSG.NEXT.{stream}.{consumer}"))
}

/// The next answer at the previous inbox; waits for ever if there is none.
async fn next_of(before: &mut Option<(Subscriber, Instant)>) -> Option<Message> {
    match before {
        Some((subscriber, _)) => subscriber.next().await,
        None => std::future::pending().await,
    }
}

async fn subscribe(nats: &Nats) -> Result<(String, Subscriber), Error> {
    let inbox = nats.0.client.new_inbox();
    let subscribed = nats.0.client.subscribe(inbox.clone()).await;
    Ok((inbox, subscribed.map_err(|error| failed("subscribing to an inbox", &error))?))
}
