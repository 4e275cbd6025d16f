//! Mends a fork of an event log: tells the story that counts once more, as a generation of its own, so that
//! every observer reads the same.

use shared::{Timestamp, TraceId};

use super::{Commit, Event, Logged, Replay, Story, Trace, logged};

impl Story {
    /// Tells what follows the fork once more, as the first commit of a new generation. Returns the trace and the
    /// messages of that commit. Its version passes `stored`, the one in the store. None if there is no fork, or the log
    /// does not reach back to its start.
    pub fn told_again(&self, id: TraceId, stored: u64, now: Timestamp) -> Option<(Trace, Vec<Logged>)> {
        let since = self.forked_at?;
        let replay = |messages: Vec<Logged>| Replay::all(Trace::new(id), messages).into_trace();
        let whole = replay(self.messages.clone());
        let (before, after): (Vec<Logged>, Vec<Logged>) =
            self.messages.iter().cloned().partition(|message| message.version < since);
        let mut trace = replay(before);
        if trace.version() + 1 != since {
            return None;
        }
        let counts = |message: &Logged| message.commit().last <= whole.version();
        let mut after: Vec<Logged> = after.into_iter().filter(counts).collect();
        // Generations of the later story are over.
        let is_told = |event: &Event| !matches!(event, Event::Rebuilt { .. });
        after.iter_mut().for_each(|message| message.events.retain(is_told));
        let again: u64 = after.iter().map(|message| message.events.len() as u64).sum();
        trace.generation = whole.generation;
        let begun = trace.begin_generation(stored.saturating_sub(again), now);
        let mut messages = logged(&trace, begun, now);
        for earlier in after.into_iter().filter(|message| !message.events.is_empty()) {
            let version = trace.version() + 1;
            earlier.events.iter().for_each(|event| trace.apply(event, earlier.at));
            messages.push(Logged { version, ..earlier });
        }
        let commit = Some(Commit { first: since, last: trace.version() });
        let generation = trace.generation();
        messages.iter_mut().for_each(|message| (message.commit, message.generation) = (commit, generation));
        Some((trace, messages))
    }
}
