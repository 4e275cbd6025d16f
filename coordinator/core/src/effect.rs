//! The messages to send because of events. An effect only names a message. The message is built
//! from the state when it is sent, so that a later resend has the current content.

use domain::{ChildId, wire::EndStatus};
use serde::{Deserialize, Serialize};

use super::{Event, Phase, Status, Trace};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Work for the queue of workers.
    Execute {
        child_id: ChildId,
        attempt: u32,
    },
    /// A stop signal for the worker. If it is lost, the answer to the next tick stops the worker.
    Stop {
        child_id: ChildId,
    },
    /// A question for the root's caller.
    Question {
        child_id: ChildId,
    },
    Outcome {
        child_id: ChildId,
    },
    /// Removes its journal and objects.
    Remove {
        child_id: ChildId,
    },
}

/// The effects of events that have just been applied to `trace`, in order. Every event is also
/// published as it is.
pub fn effects(trace: &Trace, events: &[Event]) -> Vec<Effect> {
    events.iter().flat_map(|event| effects_of(trace, event)).collect()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the facts of an event say that it sends")]
fn effects_of(trace: &Trace, event: &Event) -> Vec<Effect> {
    if !event.facts().sends {
        return Vec::new();
    }
    match event {
        Event::Admitted(admitted) => execute(trace, &admitted.spec.child_id),
        Event::Requeued { child_id, .. } | Event::Redispatched { child_id } => execute(trace, child_id),
        Event::InputRequired { child_id, .. } | Event::Reminded { child_id, .. } => {
            vec![Effect::Question { child_id: child_id.clone() }]
        }
        Event::Ended(ended) => {
            let child_id = ended.child_id.clone();
            let ran = trace.context(&child_id).is_some_and(|node| node.attempt() > 0);
            // The worker that completed the context needs no stop message.
            let knows = ended.status == EndStatus::Completed;
            (ran && !knows).then_some(Effect::Stop { child_id }).into_iter().collect()
        }
        // The graph's own agent may be running.
        Event::UndoingBegun(ended) => {
            let child_id = ended.child_id.clone();
            let ran = trace.context(&child_id).is_some_and(|node| node.attempt() > 0);
            ran.then_some(Effect::Stop { child_id }).into_iter().collect()
        }
        Event::Closed { child_id } => vec![Effect::Outcome { child_id: child_id.clone() }],
        Event::Deleted { child_id, .. } => vec![Effect::Remove { child_id: child_id.clone() }],
        // The log may have dropped the open questions.
        Event::Copied(copied) if copied.is_last() => questions(trace),
        Event::Copied(_) => Vec::new(),
        _ => {
            debug_assert!(!event.facts().sends, "{event:?} sends nothing");
            Vec::new()
        }
    }
}

/// Returns an effect for each open question.
fn questions(trace: &Trace) -> Vec<Effect> {
    let contexts = trace.contexts().iter().filter(|node| node.asks());
    contexts.map(|node| Effect::Question { child_id: node.id.clone() }).collect()
}

/// Work is sent only for a context that is queued and may be claimed. A context in another status
/// needs no message. A delayed retry is sent by its timer.
fn execute(trace: &Trace, child_id: &ChildId) -> Vec<Effect> {
    let Some(node) = trace.context(child_id) else { return Vec::new() };
    let queued = match &node.status {
        Status::Submitted { .. } => true,
        Status::Working(Phase::Queued { sent_at, .. }) => sent_at.is_some(),
        Status::Working(Phase::Running { .. } | Phase::Waiting { .. } | Phase::Steps)
        | Status::InputRequired { .. }
        | Status::Paused { .. }
        | Status::Ended(_) => false,
    };
    let effect = queued.then(|| Effect::Execute { child_id: child_id.clone(), attempt: node.attempt() + 1 });
    effect.into_iter().collect()
}
