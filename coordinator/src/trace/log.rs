//! The event log of a trace: what observers read, and what a lost trace is rebuilt from.

use serde::{Deserialize, Serialize};
use shared::{ChildId, Timestamp, TraceId};

use super::{Event, Trace};

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
    pub at: Timestamp,
    /// The events, in order.
    pub events: Vec<Event>,
}

impl Logged {
    /// The number of the last event.
    pub fn last_version(&self) -> u64 {
        self.version + self.events.len() as u64 - 1
    }
}

/// Events that have just been applied to `trace`, as messages. Events of the whole trace are published
/// under its root; before it has a root, under the context they name.
pub fn logged(trace: &Trace, events: Vec<Event>, at: Timestamp) -> Vec<Logged> {
    let first = trace.version() + 1 - events.len() as u64;
    let root = trace.root().map(|root| root.id.clone());
    let somebody = || events.iter().find_map(Event::child_id).cloned().unwrap_or_else(ChildId::whole_trace);
    let root = root.unwrap_or_else(somebody);
    let mut messages: Vec<Logged> = Vec::new();
    for (version, event) in (first..).zip(events) {
        let child_id = event.child_id().unwrap_or(&root).clone();
        match messages.last_mut() {
            Some(last) if last.child_id == child_id => last.events.push(event),
            Some(_) | None => {
                messages.push(Logged { trace_id: trace.id(), child_id, version, at, events: vec![event] });
            }
        }
    }
    messages
}

impl Trace {
    /// Applies the events of a message that are new. False if events before it are missing.
    pub fn replay(&mut self, logged: &Logged) -> bool {
        if logged.version > self.version() + 1 {
            return false;
        }
        let known = usize::try_from(self.version() + 1 - logged.version).unwrap_or(usize::MAX);
        for event in logged.events.iter().skip(known) {
            self.apply(event, logged.at);
        }
        true
    }
}
