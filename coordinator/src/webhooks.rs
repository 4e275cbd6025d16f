//! Tells webhooks of outcomes and questions (X9). What they are to be told of comes from a queue that all coordinators with webhooks share,
//! and is acknowledged when the webhook took it: whoever dies in between, another tells it, under the same id. A webhook that takes
//! nothing is tried by one message at a time, less and less often, and delays no other.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use serde_json::value::RawValue;
use shared::{
    ChildId, Timestamp, TraceId,
    bus::{self, Consumer, Consumption, Delivery},
    id::WebhookName,
    subject::{Filter, Subject},
    telemetry::{Outage, metrics},
    webhook::{Failed, Sender, Webhook},
    wire::{Outcome, Question, WebhookBody, WebhookNotice, WebhookOccasion},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::handles::Handles;

/// Messages that are asked for before they are needed.
const PREFETCH: usize = 64;
/// Requests under way at once: in all, and to one webhook.
const AT_ONCE: usize = 32;
const AT_ONCE_EACH: usize = 8;
/// Before a webhook is tried again that did not take a message; doubles up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_secs(600);
/// How soon a message comes again that has to wait for others.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long a webhook is tried for one message.
const GIVE_UP_AFTER: Duration = Duration::from_secs(24 * 3600);
/// How long something may be missing that another coordinator may know or still has to store: a webhook, an outcome.
const MISSING_FOR: Duration = Duration::from_secs(300);
/// How long what is under way may take when the coordinator stops.
const LAST: Duration = Duration::from_secs(3);
/// Between two tries to reach the queue.
const QUEUE_PAUSE: Duration = Duration::from_secs(5);

/// What becomes of a message.
enum Fate {
    Told,
    /// There is nothing to tell: it was deleted, or asked anew.
    Void,
    /// Something is missing that may still come.
    Missing,
    Failed(Failed),
}

/// How a webhook has answered lately.
#[derive(Debug, Default)]
struct Line {
    under_way: usize,
    failures: u32,
    not_before: Option<Instant>,
}

impl Line {
    /// Whether it may be tried now, or how soon.
    fn may_try(&self, now: Instant) -> Result<(), Duration> {
        let most = if self.failures == 0 { AT_ONCE_EACH } else { 1 };
        match self.not_before {
            Some(then) if then > now => Err(then - now),
            _ if self.under_way < most => Ok(()),
            _ => Err(AGAIN_AFTER),
        }
    }

    /// Notes that it did not take a message; returns how soon it is tried again.
    fn failed(&mut self, now: Instant) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(MAX_PAUSE);
        self.failures += 1;
        self.not_before = Some(now + pause);
        pause
    }
}

type Tried = (Delivery, WebhookName, Fate);

/// Runs until `stop`, and then until what is under way is told, for a moment. The rest is told by another coordinator, or after the next
/// start.
pub(crate) async fn run(handles: Arc<Handles>, stop: CancellationToken) {
    if handles.config.webhooks.are_off() {
        return;
    }
    tokio::select! {
        biased;
        () = handles.config.webhooks.follow() => {}
        () = tell(&handles, &stop) => {}
    }
}

async fn tell(handles: &Arc<Handles>, stop: &CancellationToken) {
    let sender = match Sender::new() {
        Ok(sender) => Arc::new(sender),
        Err(error) => {
            tracing::error!(%error, "no webhook will be told of anything: the HTTP client can't be made");
            return;
        }
    };
    let Some(mut queue) = stop.run_until_cancelled(queue(handles)).await else { return };
    queue.want(PREFETCH);
    let mut lines: HashMap<WebhookName, Line> = HashMap::new();
    let mut trying: FuturesUnordered<BoxFuture<'_, Tried>> = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(tried) = trying.next() => {
                settle(&mut lines, tried).await;
                queue.want(1);
            }
            delivery = queue.next(), if trying.len() < AT_ONCE => {
                match next(handles, &mut lines, &delivery) {
                    Next::Try(webhook, notice) => {
                        lines.entry(webhook.name.clone()).or_default().under_way += 1;
                        let sender = sender.clone();
                        trying.push(Box::pin(async move {
                            let fate = attempt(handles, &sender, &webhook, &notice).await;
                            (delivery, webhook.name, fate)
                        }));
                        continue;
                    }
                    Next::Later(delay) => delivery.nak(delay).await,
                    Next::Drop => delivery.ack().await,
                }
                queue.want(1);
            }
        }
    }
    let last = async {
        while let Some(tried) = trying.next().await {
            settle(&mut lines, tried).await;
        }
    };
    let _ = tokio::time::timeout(LAST, last).await;
}

async fn queue(handles: &Handles) -> Consumption {
    let mut outage = Outage::new("the queue of webhooks");
    loop {
        match handles.bus.consume(&Consumer::Webhook).await {
            Ok(queue) => {
                outage.ended();
                return queue;
            }
            Err(error) => handles.bus.tell(&mut outage, &error),
        }
        tokio::time::sleep(QUEUE_PAUSE).await;
    }
}

/// What to do with a message that came.
enum Next {
    Try(Webhook, Notice),
    Later(Duration),
    Drop,
}

struct Notice {
    trace_id: TraceId,
    child_id: ChildId,
    of: WebhookOccasion,
    /// Since when it waits.
    waited: Duration,
}

fn next(handles: &Handles, lines: &mut HashMap<WebhookName, Line>, delivery: &Delivery) -> Next {
    let Some((name, notice)) = read(handles, delivery) else {
        tracing::warn!(
            subject = delivery.subject,
            "what a webhook is to be told of can't be read; it is dropped"
        );
        return Next::Drop;
    };
    let Some(webhook) = handles.config.webhooks.now().iter().find(|webhook| webhook.name == name).cloned()
    else {
        return missing(&notice);
    };
    if notice.waited > GIVE_UP_AFTER {
        let (trace_id, child_id) = (notice.trace_id, notice.child_id);
        tracing::warn!(webhook = %name, %trace_id, %child_id, "a webhook did not take a message for a day; it is given up");
        metrics::webhook("given_up");
        return Next::Drop;
    }
    match lines.entry(name).or_default().may_try(Instant::now()) {
        Ok(()) => Next::Try(webhook, notice),
        // Not all at the same moment.
        Err(delay) => Next::Later(delay + Duration::from_millis(delivery.sequence % 1_000)),
    }
}

fn missing(notice: &Notice) -> Next {
    if notice.waited > MISSING_FOR { Next::Drop } else { Next::Later(AGAIN_AFTER * 5) }
}

fn read(handles: &Handles, delivery: &Delivery) -> Option<(WebhookName, Notice)> {
    delivery.genuine().ok()?;
    let Ok(Subject::Webhook(trace_id, child_id)) = handles.bus.namespace().parse(&delivery.subject) else {
        return None;
    };
    let WebhookNotice { webhook, of } = serde_json::from_slice(&delivery.payload).ok()?;
    let waited = Duration::from_millis(handles.clock.now().millis_since(delivery.at));
    Some((webhook, Notice { trace_id, child_id, of, waited }))
}

/// Tells a webhook once.
async fn attempt(handles: &Handles, sender: &Sender, webhook: &Webhook, notice: &Notice) -> Fate {
    let body = match body(handles, notice).await {
        Ok(Some(body)) => body,
        Ok(None) => return Fate::Void,
        Err(Unread::Missing) if notice.waited > MISSING_FOR => return Fate::Void,
        Err(Unread::Missing) => return Fate::Missing,
        Err(Unread::Bus(error)) => {
            tracing::debug!(%error, "what a webhook is to be told of can't be read yet");
            return Fate::Missing;
        }
    };
    let id = notice.of.id(notice.trace_id, &notice.child_id);
    match sender.send(webhook, &id, handles.clock.now(), body).await {
        Ok(()) => Fate::Told,
        Err(failed) => Fate::Failed(failed),
    }
}

enum Unread {
    Missing,
    Bus(bus::Error),
}

/// What the log has of it now; none if that is something else.
async fn body(handles: &Handles, notice: &Notice) -> Result<Option<Vec<u8>>, Unread> {
    let Notice { trace_id, child_id, of, .. } = notice;
    let subject = match of {
        WebhookOccasion::Outcome => Subject::Outcome(*trace_id, child_id.clone()),
        WebhookOccasion::Question { .. } => Subject::Question(*trace_id, child_id.clone()),
    };
    let stored = handles.bus.last(&Filter::One(subject)).await.map_err(Unread::Bus)?;
    let stored = stored.ok_or(Unread::Missing)?;
    let happened: Option<Timestamp> = match of {
        WebhookOccasion::Outcome => {
            serde_json::from_slice::<Outcome>(&stored.payload).ok().map(|outcome| outcome.context.ended_at)
        }
        WebhookOccasion::Question { number, reminder } => {
            let question = serde_json::from_slice::<Question>(&stored.payload).ok();
            match question.map(|question| (question.number, question.reminder).cmp(&(*number, *reminder))) {
                Some(std::cmp::Ordering::Less) => return Err(Unread::Missing),
                Some(std::cmp::Ordering::Equal) => Some(stored.at),
                Some(std::cmp::Ordering::Greater) | None => None,
            }
        }
    };
    let data = serde_json::from_slice::<&RawValue>(&stored.payload).ok();
    Ok(happened.zip(data).map(|(timestamp, data)| {
        let body = WebhookBody { r#type: of.kind(), timestamp, data };
        serde_json::to_vec(&body).expect("messages have string keys only")
    }))
}

async fn settle(lines: &mut HashMap<WebhookName, Line>, (delivery, name, fate): Tried) {
    let line = lines.entry(name.clone()).or_default();
    line.under_way -= 1;
    match fate {
        Fate::Told => {
            if line.failures > 0 {
                tracing::info!(webhook = %name, failures = line.failures, "a webhook takes messages again");
            }
            (line.failures, line.not_before) = (0, None);
            metrics::webhook("told");
            delivery.ack().await;
        }
        Fate::Void => delivery.ack().await,
        Fate::Missing => delivery.nak(AGAIN_AFTER).await,
        Fate::Failed(failed) => {
            metrics::webhook("failed");
            if line.failures == 0 {
                tracing::warn!(webhook = %name, %failed, "a webhook did not take a message; it is tried again for a day");
            } else {
                tracing::debug!(webhook = %name, %failed, failures = line.failures, "a webhook still takes nothing");
            }
            let pause = line.failed(Instant::now());
            delivery.nak(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn x9_a_webhook_that_takes_nothing_is_tried_one_at_a_time_and_less_and_less_often() {
        let mut line = Line { under_way: 3, ..Line::default() };
        assert!(line.may_try(Instant::now()).is_ok());
        line.under_way = AT_ONCE_EACH;
        assert!(line.may_try(Instant::now()).is_err(), "no more at once");
        line.under_way = 0;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let pause = line.failed(Instant::now());
            assert_eq!(line.may_try(Instant::now()), Err(pause));
            tokio::time::advance(pause).await;
            assert!(line.may_try(Instant::now()).is_ok());
            line.under_way = 1;
            assert!(line.may_try(Instant::now()).is_err(), "one at a time");
            line.under_way = 0;
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600]);
    }
}
