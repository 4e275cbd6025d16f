//! Sends messages that are too large for the server. Each is stored as an object first, which may
//! take up to a minute, so it is sent in parallel to the turns. Only later messages of the same
//! trace wait for it, so that a trace's messages keep their order.

use std::collections::HashMap;

use bus::{Bus, Outgoing};
use domain::TraceId;
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::{
    batch::{Batch, Part, RemovedContext},
    reply::Reply,
};

/// With more uploads, turns wait until one is sent: each upload has its payload in memory.
pub(super) const MAX_UPLOADS: usize = 64;

#[derive(Default)]
pub(super) struct Uploads {
    sending: FuturesUnordered<BoxFuture<'static, Batch>>,
    /// For each trace that has uploads, a channel that completes when its last upload has been
    /// sent.
    last: HashMap<TraceId, oneshot::Receiver<()>>,
}

impl Uploads {
    pub(super) fn len(&self) -> usize {
        self.sending.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sending.is_empty()
    }

    /// Returns true if messages of a trace have to wait for earlier uploads.
    pub(super) fn has(&mut self, id: TraceId) -> bool {
        let open = self.last.get_mut(&id).map(|last| last.try_recv() == Err(TryRecvError::Empty));
        if open == Some(false) {
            self.last.remove(&id);
        }
        open == Some(true)
    }

    /// The next upload that is stored.
    pub(super) async fn next(&mut self) -> Option<Batch> {
        self.sending.next().await
    }

    /// Sends the messages of one trace, after its earlier uploads.
    pub(super) fn send(
        &mut self,
        bus: Bus,
        part: Part,
        messages: Vec<Outgoing>,
        removed: Vec<RemovedContext>,
    ) {
        let (done, last) = oneshot::channel();
        let before = self.last.insert(part.trace_id, last);
        let upload = async move {
            if let Some(before) = before {
                before.await.ok();
            }
            let sent = bus.send(messages).await;
            done.send(()).ok();
            Batch { parts: vec![part], results: sent.stored().await, removed }
        };
        self.sending.push(upload.boxed());
    }

    /// Sends a large answer, and acknowledges its message.
    pub(super) fn finish(&mut self, bus: Bus, reply: Reply) {
        let answering = async move {
            reply.finish(&bus).await;
            Batch::default()
        };
        self.sending.push(answering.boxed());
    }

    /// Sends a large answer before the messages are stored.
    pub(super) fn answer(&mut self, bus: Bus, to: String, answer: bytes::Bytes) {
        let answering = async move {
            if let Err(error) = bus.reply(&to, answer).await {
                tracing::debug!(%error, "an answer could not be sent");
            }
            Batch::default()
        };
        self.sending.push(answering.boxed());
    }
}

#[cfg(test)]
mod tests {
    use bus::Memory;
    use domain::{
        span::Headers,
        subject::{Filter, Subject},
    };

    use super::*;

    #[tokio::test]
    async fn messages_of_a_trace_wait_for_its_earlier_upload() {
        let bus = Bus::Memory(Memory::new(Default::default()));
        let id = TraceId::from_u128(1).unwrap();
        let (done, last) = oneshot::channel();
        let mut uploads = Uploads::default();
        uploads.last.insert(id, last);
        assert!(uploads.has(id));
        let subject = Subject::Event(id, "root".parse().unwrap());
        let (headers, payload) = (Headers::new(), bytes::Bytes::new());
        let message = Outgoing { subject, id: None, headers, payload, expect_last: None };
        let part =
            Part { trace_id: id, version: 0, outboxes: Vec::new(), messages: 0..1, replies: Vec::new() };
        uploads.send(bus.clone(), part, vec![message], Vec::new());
        assert!(uploads.next().now_or_never().is_none());
        assert!(bus.read(&Filter::EventsOf(id)).await.unwrap().is_empty());
        done.send(()).unwrap();
        let batch = uploads.next().await.unwrap();
        assert!(batch.results.len() == 1 && !uploads.has(id));
        assert_eq!(bus.read(&Filter::EventsOf(id)).await.unwrap().len(), 1);
    }
}
