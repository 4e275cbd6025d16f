//! Notifies webhooks of outcomes and questions (X9). Each webhook has its own queue, shared by all
//! coordinators that have the webhook in their file. A message is acknowledged when the webhook
//! accepted it. If a coordinator dies in between, another one sends the message again, under the
//! same id.
//!
//! A webhook that fails gets one message at a time, at growing intervals. The rest of its queue
//! waits, and no other webhook is delayed.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bus::{Consumer, Consumption, Delivery};
use domain::{
    ChildId, Timestamp, TraceId,
    id::WebhookName,
    subject::{Filter, Subject},
    wire::{WebhookBody, WebhookOccasion},
};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use host::webhook::{Sender, Webhook, WebhookError};
use serde::Deserialize;
use serde_json::value::RawValue;
use telemetry::{Outage, metrics};
use tokio::time::{Instant, sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::loops::Handles;

/// Requests to one webhook at the same time.
const AT_ONCE: usize = 8;
/// Pause before a failed request is tried again; doubles up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_secs(600);
/// One message is retried for this time.
const GIVE_UP_AFTER: Duration = Duration::from_secs(24 * 3600);
/// The time and the number of deliveries for which a notice waits for its outcome or question,
/// which may be stored after it.
const MISSING_FOR: Duration = Duration::from_secs(300);
const MISSING_TIMES: u64 = 8;
/// Time limit for the requests in flight when the coordinator stops.
const LAST: Duration = Duration::from_secs(3);
/// Pause between two tries to reach a queue.
const QUEUE_PAUSE: Duration = Duration::from_secs(5);

/// Runs until `stop`, and then for a moment until the requests in flight are done. Other messages
/// are sent by another coordinator, or after the next start.
pub(crate) async fn run(handles: Arc<Handles>, stop: CancellationToken) {
    if handles.config.webhooks.are_off() {
        return;
    }
    let sender = match Sender::new() {
        Ok(sender) => Arc::new(sender),
        Err(error) => {
            tracing::error!(%error, "webhooks get no messages: the HTTP client can't be created");
            return;
        }
    };
    let tasks = TaskTracker::new();
    let follow = async {
        tokio::join!(handles.config.webhooks.follow(), keep(&handles, &sender, &tasks, &stop));
    };
    stop.run_until_cancelled(follow).await;
    tasks.close();
    tasks.wait().await;
}

/// Runs a task for each webhook of the file, for ever.
async fn keep(handles: &Arc<Handles>, sender: &Arc<Sender>, tasks: &TaskTracker, stop: &CancellationToken) {
    let mut all = handles.config.webhooks.watch();
    let mut kept: HashMap<WebhookName, CancellationToken> = HashMap::new();
    loop {
        let now = all.borrow_and_update().clone();
        kept.retain(|name, stop| {
            let stays = now.iter().any(|webhook| webhook.name == *name);
            if !stays {
                stop.cancel();
            }
            stays
        });
        for webhook in now.iter().filter(|webhook| !kept.contains_key(&webhook.name)).collect::<Vec<_>>() {
            let stop = kept.entry(webhook.name.clone()).or_insert_with(|| stop.child_token()).clone();
            let (name, handles, sender) = (webhook.name.clone(), handles.clone(), sender.clone());
            let teller = Teller { name, handles: handles.clone(), sender };
            handles.spawn(tasks, async move { teller.run(&stop).await });
        }
        if all.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// The recent failures of a webhook.
#[derive(Debug, Default)]
struct Line {
    failures: u32,
    not_before: Option<Instant>,
}

impl Line {
    /// How many requests may be in flight now.
    fn at_once(&self, now: Instant) -> usize {
        match self.not_before {
            Some(then) if then > now => 0,
            Some(_) => 1,
            None => AT_ONCE,
        }
    }

    /// Records a failure of the webhook. Requests that were in flight together are one failure.
    fn failed(&mut self, now: Instant) {
        if self.at_once(now) > 0 {
            self.not_before = Some(now + pause(self.failures));
            self.failures += 1;
        }
    }
}

/// The pause after so many earlier failures.
fn pause(before: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << before.min(16)).min(MAX_PAUSE)
}

/// The result of a message.
enum Fate {
    Told,
    /// The message is obsolete: a later question was asked in its place.
    Void,
    /// The outcome or question that it names is not stored, or can't be read.
    Missing,
    Failed(WebhookError),
    /// It was retried for a day.
    GivenUp,
}

struct Notice {
    trace_id: TraceId,
    child_id: ChildId,
    of: WebhookOccasion,
    /// The time since the notice was stored.
    waited: Duration,
    /// The number of its deliveries.
    times: u64,
}

/// Notifies one webhook.
struct Teller {
    name: WebhookName,
    handles: Arc<Handles>,
    sender: Arc<Sender>,
}

impl Teller {
    async fn run(&self, stop: &CancellationToken) {
        let Some(mut queue) = stop.run_until_cancelled(self.queue()).await else { return };
        let (mut line, mut asked_for) = (Line::default(), 0);
        let mut trying: FuturesUnordered<BoxFuture<'_, (Delivery, Fate)>> = FuturesUnordered::new();
        loop {
            let now = Instant::now();
            let may = line.at_once(now).saturating_sub(trying.len());
            if may > asked_for {
                queue.want(may - asked_for);
                asked_for = may;
            }
            let closed_for =
                line.not_before.map_or(Duration::ZERO, |then| then.saturating_duration_since(now));
            let opens = async {
                match closed_for {
                    Duration::ZERO => std::future::pending().await,
                    closed_for => sleep(closed_for).await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some((delivery, fate)) = trying.next() => self.settle(&mut line, &delivery, fate).await,
                delivery = queue.next() => {
                    asked_for = asked_for.saturating_sub(1);
                    if may == 0 {
                        // The message was requested before the webhook failed.
                        delivery.nak(closed_for.max(FIRST_PAUSE)).await;
                    } else {
                        trying.push(Box::pin(async move {
                            let fate = self.tell(&delivery).await;
                            (delivery, fate)
                        }));
                    }
                }
                () = opens => {}
            }
        }
        let last = async {
            while let Some((delivery, fate)) = trying.next().await {
                self.settle(&mut line, &delivery, fate).await;
            }
        };
        let _ = tokio::time::timeout(LAST, last).await;
    }

    async fn queue(&self) -> Consumption {
        let mut outage = Outage::new("the queue of a webhook");
        loop {
            match self.handles.bus.consume(&Consumer::Webhook(self.name.clone())).await {
                Ok(queue) => {
                    outage.ended();
                    return queue;
                }
                Err(error) => self.handles.bus.tell(&mut outage, &error),
            }
            sleep(QUEUE_PAUSE).await;
        }
    }

    /// Reads a message; none if it is invalid.
    fn read(&self, delivery: &Delivery) -> Option<Notice> {
        delivery.genuine().ok()?;
        let subject = self.handles.bus.namespace().parse(&delivery.subject);
        let Ok(Subject::Webhook(_, trace_id, child_id)) = subject else { return None };
        let of = serde_json::from_slice(&delivery.payload).ok()?;
        let waited = Duration::from_millis(self.handles.config.clock.now().millis_since(delivery.at));
        Some(Notice { trace_id, child_id, of, waited, times: delivery.delivered })
    }

    /// Sends the message once.
    async fn tell(&self, delivery: &Delivery) -> Fate {
        let Some(notice) = self.read(delivery) else { return Fate::Missing };
        // Clocks may differ: every message is tried at least once.
        if notice.waited > GIVE_UP_AFTER && notice.times > 1 {
            return Fate::GivenUp;
        }
        let webhook =
            self.handles.config.webhooks.now().iter().find(|webhook| webhook.name == self.name).cloned();
        // The webhook was removed from this file: another coordinator that still has it sends the
        // message.
        let Some(webhook) = webhook else { return Fate::Missing };
        match self.body(&notice).await {
            Ok(body) => self.send(&webhook, &notice, body).await,
            Err(fate) => fate,
        }
    }

    async fn send(&self, webhook: &Webhook, notice: &Notice, body: Vec<u8>) -> Fate {
        let id = notice.of.id(notice.trace_id, &notice.child_id);
        // The signature uses the time of day, because receivers compare it with their own.
        match self.sender.send(webhook, &id, self.handles.config.clock.now(), body).await {
            Ok(()) => Fate::Told,
            Err(failed) => Fate::Failed(failed),
        }
    }

    /// The body, from the outcome or question in the log now.
    async fn body(&self, notice: &Notice) -> Result<Vec<u8>, Fate> {
        #[derive(Deserialize)]
        struct Ended {
            ended_at: Timestamp,
        }
        #[derive(Deserialize)]
        struct Asked {
            number: u32,
            #[serde(default)]
            reminder: u32,
        }
        let (trace, child) = (notice.trace_id, notice.child_id.clone());
        let subject = match notice.of {
            WebhookOccasion::Outcome => Subject::Outcome(trace, child),
            WebhookOccasion::Question { .. } => Subject::Question(trace, child),
        };
        let stored = self.handles.bus.last(&Filter::One(subject)).await.map_err(|error| {
            tracing::debug!(%error, "the message for a webhook can't be read yet");
            Fate::Missing
        })?;
        let stored = stored.ok_or(Fate::Missing)?;
        let timestamp = match notice.of {
            WebhookOccasion::Outcome => {
                let ended: Ended = serde_json::from_slice(&stored.payload).map_err(|_| Fate::Missing)?;
                ended.ended_at
            }
            WebhookOccasion::Question { number, reminder } => {
                let asked: Asked = serde_json::from_slice(&stored.payload).map_err(|_| Fate::Missing)?;
                match (asked.number, asked.reminder).cmp(&(number, reminder)) {
                    std::cmp::Ordering::Less => return Err(Fate::Missing),
                    std::cmp::Ordering::Equal => stored.at,
                    std::cmp::Ordering::Greater => return Err(Fate::Void),
                }
            }
        };
        let data: &RawValue = serde_json::from_slice(&stored.payload).map_err(|_| Fate::Missing)?;
        let body = WebhookBody { r#type: notice.of.kind(), timestamp, data };
        Ok(serde_json::to_vec(&body).expect("messages have string keys only"))
    }

    async fn settle(&self, line: &mut Line, delivery: &Delivery, fate: Fate) {
        let webhook = &self.name;
        let again = || pause(u32::try_from(delivery.delivered).unwrap_or(u32::MAX));
        match fate {
            Fate::Told => {
                if line.failures > 0 {
                    tracing::info!(%webhook, failures = line.failures, "a webhook accepts messages again");
                }
                *line = Line::default();
                metrics::webhook("told");
                delivery.ack().await;
            }
            Fate::Void => delivery.ack().await,
            Fate::Missing => {
                let waited = self.read(delivery).map_or(Duration::MAX, |notice| notice.waited);
                if waited > MISSING_FOR && delivery.delivered > MISSING_TIMES {
                    self.give_up(delivery, "the message for a webhook is missing").await;
                } else {
                    delivery.nak(again().min(Duration::from_secs(60))).await;
                }
            }
            Fate::GivenUp => self.give_up(delivery, "a webhook did not accept the message for a day").await,
            Fate::Failed(failed) => {
                metrics::webhook("failed");
                if line.failures == 0 {
                    tracing::warn!(%webhook, %failed, "a webhook did not accept a message; retrying for a day");
                } else {
                    tracing::debug!(%webhook, %failed, failures = line.failures, "a webhook did not accept a message");
                }
                if failed.is_of_the_message() {
                    // The webhook responds, and accepts other messages.
                    *line = Line::default();
                } else {
                    line.failed(Instant::now());
                }
                delivery.nak(again()).await;
            }
        }
    }

    async fn give_up(&self, delivery: &Delivery, cause: &'static str) {
        tracing::warn!(webhook = %self.name, subject = delivery.subject, cause, "a message to a webhook is given up");
        metrics::webhook("given_up");
        delivery.ack().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn x9_a_webhook_that_takes_nothing_is_tried_one_at_a_time_and_less_and_less_often() {
        let mut line = Line::default();
        assert_eq!(line.at_once(Instant::now()), AT_ONCE);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let began = Instant::now();
            // Eight requests in flight together are one failure.
            (0..AT_ONCE).for_each(|_| line.failed(began));
            assert_eq!(line.at_once(began), 0);
            let opens = line.not_before.unwrap();
            tokio::time::advance(opens - began).await;
            assert_eq!(line.at_once(Instant::now()), 1, "one at a time");
            pauses.push((opens - began).as_secs());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600]);
    }
}
