//! The activities of each context over time: it ran, or waited for a worker, for room in the
//! budget, for a human, or for its children. The times of a context add up to the time from its
//! admission to its end.

use std::collections::HashMap;

use domain::{ChildId, Timestamp};
use serde::Serialize;

use super::log::ReadLog;
use crate::{Body, ContextNode, Event, Phase, RunPhase, Status};

/// The activity of a context, or the reason of its wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Queued,
    Running,
    /// A hold waits for calls in flight.
    InLine,
    Asking,
    Children,
    /// The budget is used up, and the context waits for a larger one.
    Paused,
    Ended,
}

/// The times of one context, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Wait {
    pub ran_ms: u64,
    pub worker_ms: u64,
    pub hold_ms: u64,
    pub human_ms: u64,
    pub children_ms: u64,
    pub budget_ms: u64,
    /// The time before the log begins.
    #[serde(skip_serializing_if = "is_zero")]
    pub unknown_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if takes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Wait {
    /// The sum of all times.
    pub fn total_ms(&self) -> u64 {
        let Wait { ran_ms, worker_ms, hold_ms, human_ms, children_ms, budget_ms, unknown_ms } = *self;
        ran_ms + worker_ms + hold_ms + human_ms + children_ms + budget_ms + unknown_ms
    }
}

#[derive(Debug, Clone)]
struct Clock {
    doing: Doing,
    /// The context is a graph whose own agent has not begun: it never waits for a worker.
    runs_steps: bool,
    since: Timestamp,
    wait: Wait,
}

impl Clock {
    /// Starts another activity; returns the duration of the last one.
    fn turn(&mut self, doing: Doing, at: Timestamp) -> u64 {
        let took = at.millis_since(self.since);
        let sum = match self.doing {
            Doing::Queued => &mut self.wait.worker_ms,
            Doing::Running => &mut self.wait.ran_ms,
            Doing::InLine => &mut self.wait.hold_ms,
            Doing::Asking => &mut self.wait.human_ms,
            Doing::Children => &mut self.wait.children_ms,
            Doing::Paused => &mut self.wait.budget_ms,
            Doing::Ended => return 0,
        };
        *sum += took;
        self.doing = doing;
        // A clock that went back subtracts nothing.
        self.since = self.since.max(at);
        took
    }
}

#[derive(Debug, Default)]
pub struct Waits {
    clocks: HashMap<ChildId, Clock>,
    last: Timestamp,
}

impl Waits {
    /// Starts with the contexts of a copy, if the log begins with one.
    pub(super) fn open(log: &ReadLog) -> Self {
        let opening = log.opening();
        let at = opening.made();
        let clock = |node: &ContextNode| {
            let until = node.end().map_or(at, |end| end.at);
            let wait = Wait { unknown_ms: until.millis_since(node.identity.started_at), ..Wait::default() };
            let runs_steps = node.graph.as_ref().is_some_and(|run| run.progress.phase == RunPhase::Steps);
            (node.id.clone(), Clock { doing: doing(node), runs_steps, since: at, wait })
        };
        Waits { clocks: opening.contexts().iter().map(clock).collect(), last: at }
    }

    /// Adds the next event. If it ends a wait, returns the duration of that wait.
    pub(super) fn add(&mut self, event: &Event, at: Timestamp) -> Option<u64> {
        self.last = self.last.max(at);
        if let Event::Admitted(admitted) = event {
            let doing = match admitted.body {
                Body::Agent => Doing::Queued,
                Body::Graph { .. } => Doing::Children,
                Body::Approval => Doing::Asking,
            };
            let runs_steps = doing == Doing::Children;
            let clock = Clock { doing, runs_steps, since: at, wait: Wait::default() };
            self.clocks.insert(admitted.spec.child_id.clone(), clock);
            return None;
        }
        let clock = self.clocks.get_mut(event.child_id()?)?;
        clock.runs_steps &= !matches!(event, Event::SynthesisBegun { .. });
        let next = next(clock.doing, clock.runs_steps, event)?;
        let waited = clock.doing != Doing::Running;
        let took = clock.turn(next, at);
        waited.then_some(took)
    }

    /// The times of a context, up to its end or to the last event.
    pub fn of(&self, child_id: &ChildId) -> Wait {
        let Some(clock) = self.clocks.get(child_id) else { return Wait::default() };
        let mut clock = clock.clone();
        clock.turn(Doing::Ended, self.last);
        clock.wait
    }
}

fn doing(node: &ContextNode) -> Doing {
    match &node.status {
        Status::Submitted { .. } | Status::Working(Phase::Queued { .. }) => Doing::Queued,
        Status::Working(Phase::Running { .. }) if !node.lifecycle.waiting.is_empty() => Doing::InLine,
        Status::Working(Phase::Running { .. }) => Doing::Running,
        Status::Working(Phase::Waiting { .. } | Phase::Steps) => Doing::Children,
        Status::InputRequired { .. } => Doing::Asking,
        Status::Paused { .. } => Doing::Paused,
        Status::Ended(_) => Doing::Ended,
    }
}

/// The next activity of a context after an event, if the event changes it.
fn next(now: Doing, runs_steps: bool, event: &Event) -> Option<Doing> {
    if matches!(event, Event::Ended(_)) {
        Some(Doing::Ended)
    } else if now == Doing::Ended {
        None
    } else if matches!(event, Event::Claimed { .. }) {
        Some(Doing::Running)
    } else if matches!(event, Event::HoldQueued { .. }) && now == Doing::Running {
        Some(Doing::InLine)
    } else if matches!(event, Event::Held { .. } | Event::PlaceLost { .. }) && now == Doing::InLine {
        Some(Doing::Running)
    } else if matches!(event, Event::Waiting { .. }) {
        Some(Doing::Children)
    } else if matches!(event, Event::InputRequired { .. }) {
        Some(Doing::Asking)
    } else if matches!(event, Event::Paused { .. }) {
        Some(Doing::Paused)
    } else if matches!(event, Event::Requeued { .. }) && runs_steps {
        Some(Doing::Children)
    } else if matches!(event, Event::Requeued { .. } | Event::AttemptLost { .. })
        || matches!(event, Event::SynthesisBegun { .. }) && now == Doing::Children
    {
        Some(Doing::Queued)
    } else {
        None
    }
}
