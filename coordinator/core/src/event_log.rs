//! The event log of a trace: observers read it, and a lost trace is rebuilt from it.
//!
//! A commit becomes several messages, and a fault may leave only some of them in the log. Every
//! message therefore names its commit, and an incomplete commit is not applied. This is safe
//! because its answers were not sent yet: a caller that waits sends its request again. Every commit
//! also names its predecessor. If the store loses commits, new ones are made in their place, and
//! the log contains both (`chain`).

use domain::{ChildId, Timestamp, TraceId};
use serde::{Deserialize, Serialize};

use super::{Event, Trace};

/// Events of a trace, on `agent.event.<trace>.<child>`: live, and from the start for late
/// observers. One message has the events of one decision about one context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LoggedEvents {
    pub trace_id: TraceId,
    /// The context of the events; the root for events of the whole trace.
    pub child_id: ChildId,
    /// The number of the first of these events in the trace, from 1. A message may arrive twice.
    pub version: u64,
    /// The commit of the events. The events are valid once the log has the whole commit.
    pub commit: Commit,
    pub at: Timestamp,
    /// The events, in order.
    pub events: Vec<Event>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Commit {
    /// The number of its first event.
    pub first: u64,
    /// The number of its last event.
    pub last: u64,
    /// The time of the commit: later than that of the previous one. Two commits with the same
    /// numbers differ in this time.
    pub made: Timestamp,
    /// The time of the previous commit; absent in the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Timestamp>,
}

impl LoggedEvents {
    /// The number of the last event.
    pub fn last_version(&self) -> u64 {
        (self.version + self.events.len() as u64).saturating_sub(1)
    }

    /// Returns true if a rebuild may begin with this message.
    pub fn begins(&self) -> bool {
        self.version == 1 || self.events.iter().any(|event| matches!(event, Event::Copied(_)))
    }

    /// The commit of the events. If its numbers contradict each other, the message is treated as a
    /// commit without a predecessor.
    pub fn commit(&self) -> Commit {
        if (1..=self.commit.last).contains(&self.commit.first) {
            return self.commit;
        }
        let first = self.version.max(1);
        Commit { first, last: self.last_version().max(first), made: self.at, after: None }
    }
}

/// Turns the events of one commit that were just applied to `trace` into messages. Events of the
/// whole trace are published under its root; before it has a root, under the context they name.
pub fn logged(trace: &mut Trace, events: Vec<Event>, at: Timestamp) -> Vec<LoggedEvents> {
    let commit = trace.commit(events.len() as u64, at);
    let root = trace.root().map(|root| root.id.clone());
    let somebody = || events.iter().find_map(Event::child_id).cloned().unwrap_or_else(ChildId::whole_trace);
    let root = root.unwrap_or_else(somebody);
    let first = trace.version() + 1 - events.len() as u64;
    let mut messages: Vec<LoggedEvents> = Vec::new();
    for (version, event) in (first..).zip(events) {
        let child_id = event.child_id().unwrap_or(&root).clone();
        match messages.last_mut() {
            // Each part of a copy is large, and so may a result be: each has its own message.
            Some(last)
                if last.child_id == child_id
                    && !matches!(event, Event::Copied(_) | Event::ResultKept { .. }) =>
            {
                last.events.push(event);
            }
            Some(_) | None => {
                let trace_id = trace.id();
                messages.push(LoggedEvents { trace_id, child_id, version, commit, at, events: vec![event] });
            }
        }
    }
    messages
}

impl Trace {
    /// The time of its last commit.
    pub fn made(&self) -> Timestamp {
        self.made
    }

    /// The number of times that it was rebuilt from its log.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Records that its last `events` events are one commit.
    fn commit(&mut self, events: u64, now: Timestamp) -> Commit {
        let first = self.version() + 1 - events;
        let after = (first > 1).then_some(self.made);
        let made = now.max(self.made.plus_millis(1));
        self.set_made(made);
        Commit { first, last: self.version(), made, after }
    }

    pub(super) fn set_made(&mut self, made: Timestamp) {
        self.unsaved.made = true;
        self.made = made;
    }

    /// Records that the trace was rebuilt from its log. Its version becomes greater than `stored`,
    /// the version in the store, so that the two states can't be confused.
    pub fn begin_generation(&mut self, stored: u64, now: Timestamp) -> Vec<Event> {
        let event = Event::Rebuilt { generation: self.generation + 1 };
        let mut events = Vec::new();
        while events.is_empty() || self.version() <= stored {
            self.apply(&event, now);
            events.push(event.clone());
        }
        events
    }
}

/// Returns true if a log that ends at `last_at` is too old to belong to a run that the store may
/// have lost. A live run is copied into its log again before half of the retention time has passed.
/// A run that ended earlier is not rebuilt from messages that an attacker kept and stores again
/// (S3).
pub fn outlived(last_at: Timestamp, keep_ms: u64, now: Timestamp) -> bool {
    last_at.plus_millis(keep_ms) <= now
}
