//! Takes deliveries from a queue on disk, and acknowledges them.

use std::time::Duration;

use tokio::time::Instant;

use super::{look::Look, state::Disk};
use crate::{
    message::{Acknowledgement, ReceivedMessage},
    topology::{Consumer, Stream},
};

/// The pause after which a queue that could not be read is read again.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Consumption {
    bus: Disk,
    stream: Stream,
    name: String,
    credits: usize,
}

impl Disk {
    pub(in super::super) fn consume(&self, consumer: &Consumer) -> Consumption {
        let name = self.within.queue(consumer);
        Consumption { bus: self.clone(), stream: consumer.stream(), name, credits: 0 }
    }
}

impl Consumption {
    pub(in super::super) fn want(&mut self, more: usize) {
        self.credits = self.credits.saturating_add(more);
    }

    /// Nothing is taken before the last await, so dropping this future loses nothing.
    pub(in super::super) async fn next(&mut self) -> (ReceivedMessage, Acker) {
        if self.credits == 0 {
            std::future::pending::<()>().await;
        }
        let delivery = self.bus.within.when_there(self.stream, || self.take()).await;
        self.credits -= 1;
        delivery
    }

    /// A delivery, or the time at which to check again.
    fn take(&self) -> Result<(ReceivedMessage, Acker), Option<Instant>> {
        let log = self.bus.rows_of(self.stream);
        let mut state = self.bus.within.state();
        let Some(queue) = state.queues.get_mut(&self.name) else { return Err(None) };
        let now = Instant::now();
        let taken = self.bus.directory.read(|rows| queue.take(&Look::all(rows, &log), now));
        let (entry, delivered) = match taken {
            Ok(Some(taken)) => taken,
            Ok(None) => return Err(queue.next_due()),
            Err(error) => {
                tracing::warn!(%error, queue = self.name, "a queue can't be read");
                return Err(Some(now + AGAIN));
            }
        };
        let (bus, stream, queue) = (self.bus.clone(), self.stream, self.name.clone());
        let acker = Acker { bus, stream, queue, sequence: entry.stored.sequence };
        Ok((entry.received(delivered), acker))
    }
}

#[derive(Debug)]
pub(in super::super) struct Acker {
    bus: Disk,
    stream: Stream,
    queue: String,
    sequence: u64,
}

impl Acker {
    /// A late acknowledgement is accepted too. The removal of a message is written together with
    /// the next change, and no caller waits for it. If the process dies first, the message is
    /// delivered again.
    ///
    /// If the disk rejects the removal, the message stays in `Disk::left` and is removed with the
    /// next acknowledgement.
    pub(in super::super) async fn acknowledge(&self, acknowledgement: Acknowledgement) {
        let Acker { bus, stream, queue, sequence } = self;
        let stream = *stream;
        if bus.within.is_done(queue, *sequence, acknowledgement) {
            let mut gone = bus.left.take(stream);
            gone.insert(*sequence);
            let (log, left, removed) = (bus.rows_of(stream), bus.left.clone(), gone.clone());
            let remove = move |rows: &mut disk::Change<'_>| {
                removed.into_iter().try_for_each(|sequence| log.remove(rows, sequence))
            };
            let then = move |removed: &Result<(), disk::Error>| {
                if removed.is_err() {
                    left.put(stream, gone);
                }
            };
            bus.directory.submit(remove, then).await;
        }
        // Waiting readers may now have capacity, or an earlier deadline.
        bus.within.changed(stream).notify_waiters();
    }
}
