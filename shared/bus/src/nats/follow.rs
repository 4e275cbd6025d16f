//! Follows a log: reads the stream from the follower's position, and again when a message is
//! published under its filters.
//!
//! A live message only signals that there is something new; content and order come from the stream.
//!
//! No consumer is created on the server: a role that may create one can have stored messages sent
//! to any subject. All filters are read by one request. Several requests may be answered by
//! replicas at different positions, and their answers could not be put in order.

use std::{collections::VecDeque, time::Duration};

use async_nats::{Subscriber, datetime::DateTime, jetstream::message::StreamMessage};
use domain::subject::{Filter, Subject};
use futures_util::{FutureExt, StreamExt, stream::SelectAll};
use telemetry::Outage;
use tokio::sync::watch;

use super::{
    super::topology::stream_of_all, Error, From, Nats, StoredMessage, backoff, failed, read::stream_info,
};

/// The most messages of one read.
const BATCH: usize = 500;
/// The first interval between reads of the stream while no live message arrives: a live message may
/// have been lost, or the stream recreated. The interval doubles each time, up to eight times as
/// long.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const IDLE_DOUBLINGS: u32 = 3;
/// The first pause after a live message, and the number of growing pauses. A live message may
/// arrive before it is stored, so the stream is read again soon.
const SOON: Duration = Duration::from_millis(2);
const LOOKS: u32 = 8;
/// The pause with which the series continues after messages were found: of several live messages,
/// one may still be missing.
const FOUND: u32 = 5;

impl Nats {
    pub(in super::super) async fn follow(&self, filters: &[Filter], from: From) -> Result<Follow, Error> {
        let stream = self.stream(stream_of_all(filters)?);
        let mut news = SelectAll::new();
        let filters: Vec<String> = filters.iter().map(|filter| self.namespace().filter(filter)).collect();
        // Subscribed before the stream's state is read, so that no message between the two is
        // missed.
        for subject in &filters {
            let heard = self.0.client.subscribe(subject.clone()).await;
            news.push(heard.map_err(|error| failed(format!("following `{subject}`"), &error))?);
        }
        let info = stream_info(self, &stream).await?;
        let next = match from {
            From::Start => 1,
            From::Sequence(sequence) => sequence.max(1),
            From::Now => info.state.last_sequence + 1,
        };
        let mut generation = self.0.generation.clone();
        generation.mark_unchanged();
        Ok(Follow {
            nats: self.clone(),
            stream,
            created: info.created,
            covering: covering(&filters),
            filters,
            next,
            news,
            generation,
            found: VecDeque::new(),
            looks: 0,
            in_doubt: false,
            failures: 0,
            outage: Outage::new("a log"),
        })
    }
}

#[derive(Debug)]
pub(in super::super) struct Follow {
    nats: Nats,
    stream: String,
    /// The creation time of the stream. A recreated stream has new sequences.
    created: DateTime,
    filters: Vec<String>,
    /// The filter of the reads: one that covers all `filters`.
    covering: String,
    /// The sequence that is read next.
    next: u64,
    news: SelectAll<Subscriber>,
    generation: watch::Receiver<u64>,
    /// Messages that were read and not returned yet. The first stays here while its payload is
    /// fetched, so that a dropped `next` loses none.
    found: VecDeque<StreamMessage>,
    /// The number of reads without a result since the last live message.
    looks: u32,
    /// True if the stream may have been recreated since the last check.
    in_doubt: bool,
    /// Failures in a row.
    failures: usize,
    outage: Outage,
}

impl Follow {
    pub(in super::super) async fn next(&mut self) -> Result<StoredMessage, Error> {
        loop {
            if let Some(message) = self.found.front() {
                let stored = self.nats.stored(message.clone()).await?;
                self.found.pop_front();
                if let Some(stored) = stored {
                    return Ok(stored);
                }
                continue;
            }
            match self.look().await {
                Ok(true) => {
                    (self.failures, self.looks) = (0, FOUND);
                    self.outage.ended();
                }
                Ok(false) => {
                    self.failures = 0;
                    self.outage.ended();
                    self.wait().await;
                }
                Err(denied @ Error::Denied(_)) => return Err(denied),
                Err(error) => {
                    tracing::debug!(%error, stream = self.stream, "a log can't be followed; trying again");
                    self.nats.failed(&mut self.outage, &error);
                    tokio::time::sleep(backoff(self.failures)).await;
                    self.failures += 1;
                    self.in_doubt = true;
                }
            }
        }
    }

    /// The sequence of the first message on a subject after the given sequence.
    pub(in super::super) async fn next_behind(
        &self,
        subject: &Subject,
        sequence: u64,
    ) -> Result<Option<u64>, Error> {
        self.nats.next_behind(subject, sequence).await
    }

    /// Waits for a live message, a reconnect, or the time of the next read.
    async fn wait(&mut self) {
        let pause = match self.looks.checked_sub(LOOKS) {
            None => SOON * 2_u32.pow(self.looks),
            Some(idle) => LOOK_EVERY * 2_u32.pow(idle.min(IDLE_DOUBLINGS)),
        };
        tokio::select! {
            biased;
            heard = self.news.next(), if !self.news.is_empty() => {
                if heard.is_some() {
                    while self.news.next().now_or_never().flatten().is_some() {}
                    self.looks = 0;
                }
            }
            _ = self.generation.changed() => (self.looks, self.in_doubt) = (0, true),
            () = tokio::time::sleep(pause) => {
                self.in_doubt |= self.looks >= LOOKS;
                self.looks = self.looks.saturating_add(1);
            }
        }
    }

    /// Reads new messages in the order of the stream. Returns true if there were any. No await
    /// separates the new position from storing the messages, so a dropped call loses none.
    async fn look(&mut self) -> Result<bool, Error> {
        if self.in_doubt {
            let info = stream_info(&self.nats, &self.stream).await?;
            if info.created != self.created {
                tracing::warn!(
                    stream = self.stream,
                    "a followed stream was recreated; reading it from its start"
                );
                (self.created, self.next) = (info.created, 1);
            }
            // A stream that was reset continues from its current end.
            self.next = self.next.min(info.state.last_sequence + 1);
            self.in_doubt = false;
        }
        let batch = self.nats.batch_of(&self.stream, &self.covering, self.next, BATCH).await?;
        let found = !batch.is_empty();
        for message in batch {
            self.next = self.next.max(message.sequence + 1);
            if self.filters.iter().any(|filter| covers(filter, message.subject.as_str())) {
                self.found.push_back(message);
            }
        }
        Ok(found)
    }
}

/// One filter that covers all of these, and few other subjects: tokens that differ become `*`.
fn covering(filters: &[String]) -> String {
    let Some((first, others)) = filters.split_first() else { return String::new() };
    let mut all: Vec<&str> = first.split('.').collect();
    for other in others {
        let tokens: Vec<&str> = other.split('.').collect();
        let open = all.last() == Some(&">") || tokens.len() != all.len();
        let same = all.iter().zip(&tokens).map(|(one, two)| if one == two { one } else { "*" });
        all = same.collect();
        if open {
            all.pop();
            all.push(">");
        }
    }
    all.join(".")
}

/// Returns true if a filter covers a subject. `*` is one token; `>` is not supported.
fn covers(filter: &str, subject: &str) -> bool {
    let (mut of, mut tokens) = (filter.split('.'), subject.split('.'));
    loop {
        match (of.next(), tokens.next()) {
            (None, None) => return true,
            (Some(wanted), Some(token)) if wanted == "*" || wanted == token => {}
            (Some(_) | None, Some(_) | None) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_filter_covers_all() {
        let of =
            |filters: &[&str]| covering(&filters.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["agent.event.t.*"]), "agent.event.t.*");
        assert_eq!(of(&["agent.event.t.*", "agent.outcome.t.*"]), "agent.*.t.*");
        assert_eq!(of(&["agent.event.*.*", "agent.outcome.t.*", "agent.question.t.c"]), "agent.*.*.*");
        assert_eq!(of(&["agent.spawn", "agent.admin.raise", "agent.graph"]), "agent.>");
    }
}
