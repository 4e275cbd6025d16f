//! A durable consumer: the unacknowledged deliveries, the time at which each is delivered again,
//! and the next message.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use domain::time::Timestamp;
use tokio::time::Instant;

use super::{entry::Entry, pattern::Pattern};
use crate::{fill::Backlog, topology::Consumer};

/// The log that holds the messages of a queue.
pub(crate) trait Messages {
    type Error;

    fn get(&self, sequence: u64) -> Result<Option<Entry>, Self::Error>;

    /// The first matching message at or after `from`. Moves `from` past it.
    fn next(&self, patterns: &[Pattern], from: &mut u64) -> Result<Option<Entry>, Self::Error>;

    /// The number of matching messages from a sequence on, and the time when the first of them was
    /// stored.
    fn waiting(&self, patterns: &[Pattern], from: u64) -> Result<(u64, Option<Timestamp>), Self::Error>;
}

/// The state that all readers of a consumer share.
#[derive(Debug)]
pub(crate) struct Queue {
    patterns: Vec<Pattern>,
    pub(crate) ack_wait: Duration,
    max_out: usize,
    /// The first sequence not delivered yet.
    next: u64,
    out: BTreeMap<u64, Out>,
    /// The time at which each unacknowledged message is delivered again.
    due: BTreeSet<(Instant, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Out {
    due: Instant,
    delivered: u64,
}

impl Queue {
    pub(crate) fn new(consumer: &Consumer, patterns: Vec<Pattern>) -> Self {
        Queue {
            patterns,
            ack_wait: consumer.ack_wait(),
            max_out: usize::try_from(consumer.max_ack_pending()).unwrap_or(usize::MAX),
            next: 1,
            out: BTreeMap::new(),
            due: BTreeSet::new(),
        }
    }

    /// The next message to deliver: redeliveries before new messages.
    pub(crate) fn take<M: Messages>(
        &mut self,
        log: &M,
        now: Instant,
    ) -> Result<Option<(Entry, u64)>, M::Error> {
        while let Some((due, sequence)) = self.due.first().copied()
            && due <= now
        {
            let Some(entry) = log.get(sequence)? else {
                self.settle(sequence);
                continue;
            };
            let delivered = self.out.get(&sequence).map_or(0, |out| out.delivered) + 1;
            self.set(sequence, Out { due: now + self.ack_wait, delivered });
            return Ok(Some((entry, delivered)));
        }
        if self.out.len() >= self.max_out {
            return Ok(None);
        }
        let Some(entry) = log.next(&self.patterns, &mut self.next)? else { return Ok(None) };
        self.set(entry.stored.sequence, Out { due: now + self.ack_wait, delivered: 1 });
        Ok(Some((entry, 1)))
    }

    fn set(&mut self, sequence: u64, out: Out) {
        self.settle(sequence);
        self.out.insert(sequence, out);
        self.due.insert((out.due, sequence));
    }

    pub(crate) fn settle(&mut self, sequence: u64) {
        if let Some(out) = self.out.remove(&sequence) {
            self.due.remove(&(out.due, sequence));
        }
    }

    pub(crate) fn backlog<M: Messages>(&self, log: &M) -> Result<Backlog, M::Error> {
        let (pending, oldest) = log.waiting(&self.patterns, self.next)?;
        Ok(Backlog { pending, unacknowledged: self.out.len() as u64, oldest })
    }

    /// The number of unacknowledged deliveries.
    pub(crate) fn out(&self) -> usize {
        self.out.len()
    }

    /// The time of the next redelivery.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Changes the time of a redelivery. An acknowledged message is not delivered again.
    pub(crate) fn put_off(&mut self, sequence: u64, due: Instant) {
        if let Some(out) = self.out.get(&sequence).copied() {
            self.set(sequence, Out { due, ..out });
        }
    }
}
