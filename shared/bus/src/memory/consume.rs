//! Takes deliveries from a queue, and acknowledges them.

use tokio::time::{Instant, sleep_until};

use super::{queue::Queue, state::Memory};
use crate::{
    message::{Acknowledgement, ReceivedMessage},
    topology::{Consumer, Stream},
};

impl Memory {
    pub(in super::super) fn consume(&self, consumer: &Consumer) -> Consumption {
        Consumption::new(self.clone(), consumer)
    }
}

#[derive(Debug)]
pub struct Consumption {
    memory: Memory,
    stream: Stream,
    name: String,
    credits: usize,
}

impl Consumption {
    fn new(memory: Memory, consumer: &Consumer) -> Self {
        let name = memory.queue(consumer);
        Consumption { memory, stream: consumer.stream(), name, credits: 0 }
    }

    pub(in super::super) fn want(&mut self, more: usize) {
        self.credits = self.credits.saturating_add(more);
    }

    /// Nothing is taken before the last await, so dropping this future loses nothing.
    pub(in super::super) async fn next(&mut self) -> (ReceivedMessage, Acker) {
        if self.credits == 0 {
            std::future::pending::<()>().await;
        }
        let delivery = self.memory.when_there(self.stream, || self.take()).await;
        self.credits -= 1;
        delivery
    }

    /// A delivery, or the time at which to check again.
    fn take(&self) -> Result<(ReceivedMessage, Acker), Option<Instant>> {
        let mut state = self.memory.state();
        let bus = &mut *state;
        let (Some(queue), Some(log)) = (bus.queues.get_mut(&self.name), bus.logs.get(&self.stream)) else {
            return Err(None);
        };
        let Ok(taken) = queue.take(log, Instant::now());
        let Some((entry, delivered)) = taken else { return Err(queue.next_due()) };
        let acker = Acker {
            memory: self.memory.clone(),
            stream: self.stream,
            queue: self.name.clone(),
            sequence: entry.stored.sequence,
        };
        Ok((entry.received(delivered), acker))
    }
}

#[derive(Debug)]
pub(in super::super) struct Acker {
    memory: Memory,
    stream: Stream,
    queue: String,
    sequence: u64,
}

impl Acker {
    /// As on a server, a late acknowledgement is accepted too: it belongs to the message, and not
    /// to one delivery of it.
    pub(in super::super) fn acknowledge(&self, acknowledgement: Acknowledgement) {
        let (stream, name, sequence) = (self.stream, self.queue.clone(), self.sequence);
        self.memory.across(&self.queue, move |memory| {
            memory.acknowledged(stream, &name, sequence, acknowledgement);
        });
    }
}

impl Memory {
    fn acknowledged(&self, stream: Stream, name: &str, sequence: u64, acknowledgement: Acknowledgement) {
        if self.is_done(name, sequence, acknowledgement) {
            self.state().log(stream).remove(sequence);
        }
        // Waiting readers may now have capacity, or an earlier deadline.
        self.changed(stream).notify_waiters();
    }

    /// Notes how a delivery was handled. Returns true if its message can be removed.
    pub(crate) fn is_done(&self, name: &str, sequence: u64, acknowledgement: Acknowledgement) -> bool {
        let mut state = self.state();
        let Some(queue) = state.queues.get_mut(name) else { return false };
        match acknowledgement {
            Acknowledgement::Ack | Acknowledgement::Terminate => {
                queue.settle(sequence);
                return true;
            }
            Acknowledgement::Nak(delay) => queue.put_off(sequence, Instant::now() + delay),
            Acknowledgement::Progress => {
                let due = Instant::now() + queue.ack_wait;
                queue.put_off(sequence, due);
            }
        }
        false
    }

    /// The name of a consumer's queue, which is created if it is missing.
    pub(crate) fn queue(&self, consumer: &Consumer) -> String {
        let (name, patterns) = (consumer.name(), self.patterns(&consumer.filters()));
        self.state().queues.entry(name.clone()).or_insert_with(|| Queue::new(consumer, patterns));
        name
    }

    /// Waits until `take` returns a value from a stream. On failure `take` returns the latest time
    /// to try again, or none to wait for a change of the stream.
    pub(crate) async fn when_there<T>(
        &self,
        stream: Stream,
        mut take: impl FnMut() -> Result<T, Option<Instant>>,
    ) -> T {
        loop {
            // Registered before the check, so that a message stored in between wakes this task.
            let mut changed = std::pin::pin!(self.changed(stream).notified());
            changed.as_mut().enable();
            let due = match take() {
                Ok(taken) => return taken,
                Err(due) => due,
            };
            match due {
                Some(due) => {
                    tokio::select! { biased; () = changed => {}, () = sleep_until(due) => {} }
                }
                None => changed.await,
            }
        }
    }
}
