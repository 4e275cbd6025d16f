//! The event log of a trace: what observers read, and what a lost trace is rebuilt from.
//!
//! A commit becomes several messages, and a fault may leave only some of them in the log. So every message
//! names its commit, and an unfinished commit is not applied: nobody was told of it, and whoever waits asks
//! again. A rebuild begins a new generation, whose events take the place of all later ones of the generations
//! before it; otherwise what was left of the unfinished commit would be read as events of the next.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shared::{ChildId, Timestamp, TraceId};

use super::{Event, Generation, Trace};

/// Events of a trace, on `agent.event.<trace>.<child>`: live, and from the start for late observers. Events
/// of one decision about one context come in one message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Logged {
    pub trace_id: TraceId,
    /// The context they are about; the root for events of the whole trace.
    pub child_id: ChildId,
    /// The number of the first of these events in the trace, from 1. Over all messages of a trace there are
    /// no gaps; a message may come twice.
    pub version: u64,
    /// The commit they belong to. Its events count once all of them are in the log. A message without it is
    /// a commit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
    #[serde(default, skip_serializing_if = "Generation::is_first")]
    pub generation: Generation,
    pub at: Timestamp,
    /// The events, in order.
    pub events: Vec<Event>,
}

/// The numbers of the first and the last event of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Commit {
    pub first: u64,
    pub last: u64,
}

impl Logged {
    /// Whether a later generation took its place.
    pub(super) fn is_replaced_by(&self, later: Generation) -> bool {
        self.generation.order() < later.order() && self.version >= later.since
    }

    /// Orders commits by when they were made. A story that is told again keeps its times; it was made when its
    /// generation began.
    pub(super) fn made(&self) -> ((Timestamp, u32), Timestamp) {
        let at = if self.begins_generation() { self.generation.begun } else { self.at };
        (self.generation.order(), at)
    }

    /// Whether it belongs to the first commit of its generation.
    pub(super) fn begins_generation(&self) -> bool {
        let (Commit { first, last }, since) = (self.commit(), self.generation.since);
        first <= since && since <= last
    }

    /// The number of the last event.
    pub fn last_version(&self) -> u64 {
        self.version + self.events.len() as u64 - 1
    }

    /// The commit they belong to.
    pub fn commit(&self) -> Commit {
        self.commit.unwrap_or(Commit { first: self.version, last: self.last_version() })
    }
}

/// Events of one commit that have just been applied to `trace`, as messages. Events of the whole trace are
/// published under its root; before it has a root, under the context they name.
pub fn logged(trace: &Trace, events: Vec<Event>, at: Timestamp) -> Vec<Logged> {
    let first = trace.version() + 1 - events.len() as u64;
    let commit = Some(Commit { first, last: trace.version() });
    let root = trace.root().map(|root| root.id.clone());
    let somebody = || events.iter().find_map(Event::child_id).cloned().unwrap_or_else(ChildId::whole_trace);
    let root = root.unwrap_or_else(somebody);
    let mut messages: Vec<Logged> = Vec::new();
    for (version, event) in (first..).zip(events) {
        let child_id = event.child_id().unwrap_or(&root).clone();
        match messages.last_mut() {
            Some(last) if last.child_id == child_id => last.events.push(event),
            Some(_) | None => {
                let (trace_id, generation) = (trace.id(), trace.generation);
                let events = vec![event];
                messages.push(Logged { trace_id, child_id, version, commit, generation, at, events });
            }
        }
    }
    messages
}

/// The messages that no later generation took the place of, by version; some may be there twice.
pub(super) fn latest_generations(mut log: Vec<Logged>) -> Vec<Logged> {
    let mut generations: Vec<Generation> = Vec::new();
    for message in log.iter().filter(|message| !message.generation.is_first()) {
        if !generations.contains(&message.generation) {
            generations.push(message.generation);
        }
    }
    generations.retain(|generation| has_begun(*generation, &log));
    let counts = |message: &Logged| {
        let begun = message.generation.is_first() || generations.contains(&message.generation);
        begun && !generations.iter().any(|later| message.is_replaced_by(*later))
    };
    log.retain(counts);
    log.sort_by_key(|message| message.version);
    log
}

/// Whether the log has all of the commit that begins a generation. Until then, nothing of it counts.
pub(super) fn has_begun<'a>(generation: Generation, log: impl IntoIterator<Item = &'a Logged>) -> bool {
    let begins = |message: &&Logged| message.generation == generation && message.begins_generation();
    let messages: BTreeMap<u64, &Logged> =
        log.into_iter().filter(begins).map(|message| (message.version, message)).collect();
    let had: u64 = messages.values().map(|message| message.events.len() as u64).sum();
    messages.values().next().is_some_and(|message| {
        let Commit { first, last } = message.commit();
        had > last - first
    })
}

impl Trace {
    /// How often it was rebuilt from its log.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// When it began, or was last rebuilt.
    pub fn began_at(&self) -> Option<Timestamp> {
        self.root().map(|root| root.started_at.max(self.generation.begun))
    }

    /// Begins a new generation of a trace that was rebuilt from its log. Its version passes `stored`, the one
    /// in the store, so that nobody takes the one for the other.
    pub fn begin_generation(&mut self, stored: u64, now: Timestamp) -> Vec<Event> {
        let begun = self.generation.next_begins(now);
        let event = Event::Rebuilt { generation: self.generation.number + 1, begun };
        let mut events = Vec::new();
        while events.is_empty() || self.version() <= stored {
            self.apply(&event, now);
            events.push(event.clone());
        }
        events
    }

    /// Applies the events of a message that are new.
    pub(super) fn replay(&mut self, logged: &Logged) {
        let known =
            usize::try_from((self.version() + 1).saturating_sub(logged.version)).unwrap_or(usize::MAX);
        for event in logged.events.iter().skip(known) {
            self.apply(event, logged.at);
        }
    }
}
