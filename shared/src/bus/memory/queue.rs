//! A durable consumer and who takes from it: what is out, until when, and what comes again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::{
    super::{self as bus, Delivery, Said},
    Consumer, Memory, Pattern, Stream,
    log::{Entry, Log},
};

/// The state all readers of a consumer share.
#[derive(Debug)]
pub(super) struct Queue {
    patterns: Vec<Pattern>,
    ack_wait: Duration,
    max_out: usize,
    /// The first sequence not looked at yet.
    next: u64,
    out: BTreeMap<u64, Out>,
    /// When which message comes again.
    due: BTreeSet<(Instant, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Out {
    due: Instant,
    delivered: u64,
}

impl Queue {
    fn new(consumer: &Consumer, patterns: Vec<Pattern>) -> Self {
        Queue {
            patterns,
            ack_wait: consumer.ack_wait(),
            max_out: usize::try_from(consumer.max_ack_pending()).unwrap_or(usize::MAX),
            next: 1,
            out: BTreeMap::new(),
            due: BTreeSet::new(),
        }
    }

    /// What is to be delivered now: what comes again before what is new.
    fn take(&mut self, log: &Log, now: Instant) -> Option<(Entry, u64)> {
        while let Some((due, sequence)) = self.due.first().copied()
            && due <= now
        {
            let Some(entry) = log.get(sequence) else {
                self.settle(sequence);
                continue;
            };
            let delivered = self.out.get(&sequence).map_or(0, |out| out.delivered) + 1;
            self.set(sequence, Out { due: now + self.ack_wait, delivered });
            return Some((entry.clone(), delivered));
        }
        if self.out.len() >= self.max_out {
            return None;
        }
        let entry = log.next_entry(&self.patterns, &mut self.next)?.clone();
        self.set(entry.stored.sequence, Out { due: now + self.ack_wait, delivered: 1 });
        Some((entry, 1))
    }

    fn set(&mut self, sequence: u64, out: Out) {
        self.settle(sequence);
        self.out.insert(sequence, out);
        self.due.insert((out.due, sequence));
    }

    fn settle(&mut self, sequence: u64) {
        if let Some(out) = self.out.remove(&sequence) {
            self.due.remove(&(out.due, sequence));
        }
    }

    /// Moves the moment a message comes again; one that is done with stays so.
    fn put_off(&mut self, sequence: u64, due: Instant) {
        if let Some(out) = self.out.get(&sequence).copied() {
            self.set(sequence, Out { due, ..out });
        }
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

    /// Nothing is taken before the last await, so dropping this loses nothing.
    pub(in super::super) async fn next(&mut self) -> Delivery {
        loop {
            if self.credits == 0 {
                std::future::pending::<()>().await;
            }
            // Registered before the look, so that what is stored in between wakes us.
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
                    tokio::select! { () = changed => {}, () = sleep_until(due) => {} }
                }
                None => changed.await,
            }
        }
    }

    /// A delivery, or when to look again.
    fn take(&self) -> Result<Delivery, Option<Instant>> {
        let mut state = self.memory.state();
        let bus = &mut *state;
        let (Some(queue), Some(log)) = (bus.queues.get_mut(&self.name), bus.logs.get(&self.stream)) else {
            return Err(None);
        };
        let Some((entry, delivered)) = queue.take(log, Instant::now()) else {
            return Err(queue.due.first().map(|(due, _)| *due));
        };
        let acker = Acker {
            memory: self.memory.clone(),
            stream: self.stream,
            queue: self.name.clone(),
            sequence: entry.stored.sequence,
        };
        Ok(Delivery {
            subject: entry.subject,
            headers: entry.stored.headers,
            payload: entry.stored.payload,
            sequence: entry.stored.sequence,
            at: entry.stored.at,
            delivered,
            acker: bus::Acker::Memory(acker),
        })
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
    /// As on the server, a late word counts too: it is about the message, not about the delivery.
    pub(in super::super) fn say(&self, said: Said) {
        let mut state = self.memory.state();
        let bus = &mut *state;
        let (Some(queue), Some(log)) = (bus.queues.get_mut(&self.queue), bus.logs.get_mut(&self.stream))
        else {
            return;
        };
        match said {
            Said::Ack | Said::Terminate => {
                queue.settle(self.sequence);
                log.remove(self.sequence);
            }
            Said::Nak(delay) => queue.put_off(self.sequence, Instant::now() + delay),
            Said::Progress => {
                let due = Instant::now() + queue.ack_wait;
                queue.put_off(self.sequence, due);
            }
        }
        drop(state);
        // Whoever waits may now have room, or less time.
        self.memory.changed(self.stream).notify_waiters();
    }
}
