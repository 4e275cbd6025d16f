//! A durable consumer: which messages are delivered and unacknowledged, until when, and which are delivered
//! again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    log::{Entry, Log},
    pattern::Pattern,
};
use crate::bus::{fill::Backlog, topology::Consumer};

/// The state all readers of a consumer share.
#[derive(Debug)]
pub(super) struct Queue {
    patterns: Vec<Pattern>,
    pub(super) ack_wait: Duration,
    max_out: usize,
    /// The first sequence not delivered yet.
    next: u64,
    out: BTreeMap<u64, Out>,
    /// When each unacknowledged message is delivered again.
    due: BTreeSet<(Instant, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Out {
    due: Instant,
    delivered: u64,
}

impl Queue {
    pub(super) fn new(consumer: &Consumer, patterns: Vec<Pattern>) -> Self {
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
    pub(super) fn take(&mut self, log: &Log, now: Instant) -> Option<(Entry, u64)> {
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

    pub(super) fn settle(&mut self, sequence: u64) {
        if let Some(out) = self.out.remove(&sequence) {
            self.due.remove(&(out.due, sequence));
        }
    }

    pub(super) fn backlog(&self, log: &Log) -> Backlog {
        let (mut from, mut pending, mut oldest) = (self.next, 0, None);
        while let Some(entry) = log.next_entry(&self.patterns, &mut from) {
            pending += 1;
            oldest.get_or_insert(entry.stored.at);
        }
        Backlog { pending, unacknowledged: self.out.len() as u64, oldest }
    }

    /// How many are delivered and not acknowledged.
    pub(super) fn out(&self) -> usize {
        self.out.len()
    }

    /// When the next redelivery is due, if any.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Changes the time of a redelivery; an acknowledged message is not delivered again.
    pub(super) fn put_off(&mut self, sequence: u64, due: Instant) {
        if let Some(out) = self.out.get(&sequence).copied() {
            self.set(sequence, Out { due, ..out });
        }
    }
}
