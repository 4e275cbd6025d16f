//! The event log of a trace, as observers read it and as a lost trace is rebuilt from it.

use serde::{Deserialize, Serialize};
use shared::{ChildId, Timestamp, TraceId};

use super::{Event, Trace};

/// Events of a trace, on `agent.event.<trace>.<child>`: live, and from the start for whoever joins
/// late. Those that were decided together and are about one context come together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Logged {
    pub trace_id: TraceId,
    /// The context they are about; the root for what concerns the trace as a whole.
    pub child_id: ChildId,
    /// The place of the first of them in the trace, from 1. Over all messages of a trace there are no
    /// gaps; a message may come twice.
    pub version: u64,
    pub at: Timestamp,
    /// What happened, in order.
    pub events: Vec<Event>,
}

impl Logged {
    /// The place of the last of them.
    pub fn last_version(&self) -> u64 {
        self.version + self.events.len() as u64 - 1
    }
}

/// Events that have just been applied to `trace`, as messages. Those about the trace as a whole go
/// under its root, or under the context that was named if it has no root yet.
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
    /// Applies what of a message is new. False if something before it is missing.
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
