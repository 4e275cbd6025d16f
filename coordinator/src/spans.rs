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
/// Spans in one export. The number is halved after a failure, because the collector may reject one
/// span, or the size of all. A message with more spans is exported in parts.
const MAX_AT_ONCE: usize = 512;
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
        let batch = Batch::gather(&mut queue, first, at_once, GATHER).await;
        let exported = tokio::select! {
            biased;
            exported = batch.export(at_once) => exported,
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
            let batch = Batch::gather(&mut queue, first, at_once, Duration::from_millis(1)).await;
            if !batch.export(at_once).await {
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

/// Messages that are acknowledged together, and their spans.
#[derive(Default)]
struct Batch {
    messages: Vec<Delivery>,
    bytes: usize,
    spans: Vec<Span>,
}

impl Batch {
    /// The message, and the messages that follow it at once.
    async fn gather(queue: &mut Consumption, first: Delivery, at_once: usize, within: Duration) -> Self {
        let mut batch = Batch::default();
        batch.push(first);
        let more = async {
            while batch.spans.len() < at_once && batch.bytes < MAX_BYTES_AT_ONCE {
                batch.push(queue.next().await);
            }
        };
        let _ = tokio::time::timeout(within, more).await;
        queue.want(batch.messages.len());
        batch
    }

    /// An unreadable message adds no spans. It is acknowledged with the others, because a retry
    /// would not help.
    fn push(&mut self, message: Delivery) {
        if message.genuine().is_err() {
            tracing::warn!(subject = message.subject, "spans that no coordinator sent are dropped");
        } else if let Ok(spans) = serde_json::from_slice::<Vec<Span>>(&message.payload) {
            self.spans.extend(spans);
        } else {
            tracing::warn!(subject = message.subject, "spans can't be read; they are dropped");
        }
        self.bytes += message.payload.len();
        self.messages.push(message);
    }

    /// Returns true if the collector has accepted all spans.
    ///
    /// A batch of single spans is one message. Its other spans are exported even if the collector
    /// rejects one, for example because of its size. A second export after the redelivery is
    /// harmless: the spans have the same ids.
    async fn export(self, at_once: usize) -> bool {
        let (mut accepted, mut rejected) = (0, 0);
        for part in self.spans.chunks(at_once) {
            if telemetry::export(part.to_vec()).await.is_ok() {
                accepted += 1;
            } else {
                rejected += 1;
            }
            // After two failures and no success, the collector is probably unreachable.
            if rejected > 0 && (at_once > 1 || accepted == 0 && rejected > 1) {
                break;
            }
        }
        for message in self.messages {
            if rejected == 0 {
                message.ack().await;
            } else {
                let times = u32::try_from(message.delivered).unwrap_or(u32::MAX);
                message.nak(AGAIN_AFTER.saturating_mul(times).min(AGAIN_WITHIN)).await;
            }
        }
        rejected == 0
    }
}
