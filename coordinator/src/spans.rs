//! Exports the spans of contexts that are over (X6). They come from a queue that all exporting coordinators share, and are
//! acknowledged when the collector has them: whoever dies in between, another exports the same spans under the same ids. A collector
//! that is away stops nothing but this loop; the server drops spans that are too old or too many.

use std::{sync::Arc, time::Duration};

use bus::{Consumer, Consumption, Delivery};
use domain::span::Span;
use telemetry::Outage;
use tokio_util::sync::CancellationToken;

use crate::loops::Handles;

/// Messages that are asked for before they are needed.
const PREFETCH: usize = 256;
/// Messages that are exported at once; fewer after a collector did not take them, because it may not take one of them, or not so
/// much.
const MAX_AT_ONCE: usize = 128;
/// The most bytes that are exported at once, unless one message is larger. Collectors take 4 MiB by default, or more.
const MAX_BYTES_AT_ONCE: usize = 1 << 20;
/// How long a message waits for others to be exported with it.
const GATHER: Duration = Duration::from_millis(20);
/// Between two tries while the collector is away; doubles up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(8);
/// How soon messages come again that could not be exported, for each time that they came.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const AGAIN_WITHIN: Duration = Duration::from_secs(30);

/// Runs until `stop`, and then until it has exported what waits, for a moment.
pub(crate) async fn run(handles: Arc<Handles>, stop: CancellationToken) {
    if !telemetry::is_on() {
        return;
    }
    let mut outage = Outage::new("the queue of spans");
    let mut queue = loop {
        match handles.bus.consume(&Consumer::Span).await {
            Ok(queue) => break queue,
            Err(error) => handles.bus.tell(&mut outage, &error),
        }
        if stop.run_until_cancelled(tokio::time::sleep(MAX_PAUSE)).await.is_none() {
            return;
        }
    };
    outage.ended();
    queue.want(PREFETCH);
    let (mut pause, mut at_once) = (FIRST_PAUSE, MAX_AT_ONCE);
    while let Some(first) = stop.run_until_cancelled(queue.next()).await {
        let batch = gather(&mut queue, first, at_once, GATHER).await;
        let exported = tokio::select! {
            biased;
            exported = export(batch) => exported,
            // What was not acknowledged comes again, to another coordinator.
            () = too_late(&stop) => return,
        };
        if exported {
            (pause, at_once) = (FIRST_PAUSE, (at_once * 2).min(MAX_AT_ONCE));
        } else {
            at_once = (at_once / 2).max(1);
            stop.run_until_cancelled(tokio::time::sleep(pause)).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }
    // What was decided last, if it comes at once.
    let last = async {
        while let Ok(first) = tokio::time::timeout(GATHER, queue.next()).await {
            let batch = gather(&mut queue, first, at_once, Duration::from_millis(1)).await;
            if !export(batch).await {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(telemetry::time_to_stop(), last).await;
}

/// When the time is over that telemetry may delay the end of the process.
async fn too_late(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(telemetry::time_to_stop()).await;
}

/// The message and those that come right behind it.
async fn gather(queue: &mut Consumption, first: Delivery, at_once: usize, within: Duration) -> Vec<Delivery> {
    let mut bytes = first.payload.len();
    let mut batch = vec![first];
    let more = async {
        while batch.len() < at_once && bytes < MAX_BYTES_AT_ONCE {
            let next = queue.next().await;
            bytes += next.payload.len();
            batch.push(next);
        }
    };
    let _ = tokio::time::timeout(within, more).await;
    queue.want(batch.len());
    batch
}

/// Whether the collector has them. What can't be read is given up: it would not get better.
async fn export(batch: Vec<Delivery>) -> bool {
    let mut spans: Vec<Span> = Vec::new();
    for delivery in &batch {
        if delivery.genuine().is_err() {
            tracing::warn!(subject = delivery.subject, "spans that no coordinator sent are dropped");
            continue;
        }
        match serde_json::from_slice::<Vec<Span>>(&delivery.payload) {
            Ok(more) => spans.extend(more),
            Err(_) => tracing::warn!(subject = delivery.subject, "spans can't be read; they are dropped"),
        }
    }
    let exported = spans.is_empty() || telemetry::export(spans).await.is_ok();
    for delivery in batch {
        if exported {
            delivery.ack().await;
        } else {
            let times = u32::try_from(delivery.delivered).unwrap_or(u32::MAX);
            let again_after = AGAIN_AFTER.saturating_mul(times).min(AGAIN_WITHIN);
            delivery.nak(again_after).await;
        }
    }
    exported
}
