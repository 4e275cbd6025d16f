//! Exports the spans of ended contexts (X6). They come from a queue that all exporting coordinators
//! share, and are acknowledged when the collector has accepted them. If a coordinator dies in
//! between, another one exports the same spans under the same ids. An unreachable collector stops
//! only this loop; the server drops spans that are too old or too many.

use std::{sync::Arc, time::Duration};

use bus::{Consumer, Consumption, Delivery};
use domain::span::Span;
use telemetry::Outage;
use tokio_util::sync::CancellationToken;

use crate::loops::Handles;

/// Messages requested in advance.
const PREFETCH: usize = 256;
/// Messages in one export. The number is halved after a failure, because the collector may reject
/// one message, or the size.
const MAX_AT_ONCE: usize = 128;
/// The most bytes in one export, unless one message is larger. Collectors accept 4 MiB by default,
/// or more.
const MAX_BYTES_AT_ONCE: usize = 1 << 20;
/// The time for which a message waits for others of the same export.
const GATHER: Duration = Duration::from_millis(20);
/// Pause between two tries while the collector is unreachable; doubles up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(8);
/// Redelivery delay of messages that could not be exported, for each delivery so far.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const AGAIN_WITHIN: Duration = Duration::from_secs(30);

/// Runs until `stop`, and then for a moment until it has exported the waiting messages.
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
            // Unacknowledged messages are delivered again, to another coordinator.
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
    // The last contexts' spans, if they arrive at once.
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

/// Waits until telemetry may not delay the end of the process any more.
async fn too_late(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(telemetry::time_to_stop()).await;
}

/// The message, and the messages that follow it at once.
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

/// Returns true if the collector has accepted the spans. Unreadable messages are acknowledged too:
/// a retry would not help.
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
