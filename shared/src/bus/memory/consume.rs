//! Taking work from a queue, and acknowledging it.

use tokio::time::{Instant, sleep_until};

use super::{pattern::Pattern, queue::Queue, state::Memory};
use crate::bus::{
    message::{Acknowledgement, Received},
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
    pub(super) fn new(memory: Memory, consumer: &Consumer) -> Self {
        let filters = consumer.filters();
        let patterns =
            filters.iter().map(|filter| Pattern::new(&memory.namespace().filter(filter))).collect();
        let name = consumer.name();
        memory.state().queues.entry(name.clone()).or_insert_with(|| Queue::new(consumer, patterns));
        Consumption { memory, stream: consumer.stream(), name, credits: 0 }
    }

    pub(in super::super) fn want(&mut self, more: usize) {
        self.credits = self.credits.saturating_add(more);
    }

    /// Nothing is taken before the last await, so dropping this future loses nothing.
    pub(in super::super) async fn next(&mut self) -> (Received, Acker) {
        loop {
            if self.credits == 0 {
                std::future::pending::<()>().await;
            }
            // Registered before the check, so that a message stored in between wakes us.
            let mut changed = std::pin::pin!(self.memory.changed(self.stream).notified());
            changed.as_mut().enable();
            let due = match self.take() {
                Ok(delivery) => {
                    self.credits -= 1;
                    return delivery;
                }
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

    /// A delivery, or when to check again.
    fn take(&self) -> Result<(Received, Acker), Option<Instant>> {
        let mut state = self.memory.state();
        let bus = &mut *state;
        let (Some(queue), Some(log)) = (bus.queues.get_mut(&self.name), bus.logs.get(&self.stream)) else {
            return Err(None);
        };
        let Some((entry, delivered)) = queue.take(log, Instant::now()) else {
            return Err(queue.next_due());
        };
        let acker = Acker {
            memory: self.memory.clone(),
            stream: self.stream,
            queue: self.name.clone(),
            sequence: entry.stored.sequence,
        };
        let received = Received {
            subject: entry.subject,
            headers: entry.stored.headers,
            payload: entry.stored.payload,
            sequence: entry.stored.sequence,
            at: entry.stored.at,
            delivered,
        };
        Ok((received, acker))
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
    /// As on the server, a late acknowledgement counts too: it is about the message, not about the
    /// delivery.
    pub(in super::super) fn acknowledge(&self, acknowledgement: Acknowledgement) {
        let (stream, name, sequence) = (self.stream, self.queue.clone(), self.sequence);
        self.memory.across(&self.queue, move |memory| {
            memory.acknowledged(stream, &name, sequence, acknowledgement);
        });
    }
}

impl Memory {
    fn acknowledged(&self, stream: Stream, name: &str, sequence: u64, acknowledgement: Acknowledgement) {
        let mut state = self.state();
        let bus = &mut *state;
        let (Some(queue), Some(log)) = (bus.queues.get_mut(name), bus.logs.get_mut(&stream)) else {
            return;
        };
        match acknowledgement {
            Acknowledgement::Ack | Acknowledgement::Terminate => {
                queue.settle(sequence);
                log.remove(sequence);
            }
            Acknowledgement::Nak(delay) => queue.put_off(sequence, Instant::now() + delay),
            Acknowledgement::Progress => {
                let due = Instant::now() + queue.ack_wait;
                queue.put_off(sequence, due);
            }
        }
        drop(state);
        // Waiting readers may now have capacity, or an earlier deadline.
        self.changed(stream).notify_waiters();
    }
}
