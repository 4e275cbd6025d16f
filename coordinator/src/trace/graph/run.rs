//! The state of a running graph: its steps, which of them may start, and what the end of a step does to the
//! others. Changed only when an event is applied.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use shared::{
    Json, Timestamp,
    graph::{Group, GroupIndex, Policy, StepIndex},
    wire::StepStatus,
};

use crate::trace::{ContextIndex, Ran};

/// The state of a running graph. Its plan never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphRun {
    pub plan: u32,
    pub group: GroupIndex,
    pub phase: RunPhase,
    pub steps: Vec<StepRun>,
    /// Steps whose predecessors have ended and that have more to start.
    pub ready: VecDeque<StepIndex>,
    /// Number of steps that have not ended.
    pub unfinished: u32,
    /// A required step failed and the policy is `fail`.
    pub failing: bool,
    /// The step that won a race.
    pub winner: Option<StepIndex>,
    /// When `aggregate` stops waiting.
    pub gather_by: Option<Timestamp>,
    /// `aggregate` has stopped waiting: steps that were not done are missing, which is no failure.
    pub gathered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    Steps,
    /// The steps are done and the graph's own agent works on their findings.
    Synthesis,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRun {
    pub status: StepStatus,
    /// Number of predecessors that have not ended.
    pub blockers: u32,
    /// What is started for it next, once it has begun: a round, or its fallback.
    pub next: Option<Ran>,
    /// The contexts started for it: itself, items, rounds, fallback.
    pub contexts: Vec<ContextIndex>,
    pub reason: Option<Box<str>>,
    pub partial: bool,
    pub items: Option<Box<Items>>,
}

/// The list that a `for_each` iterates over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Items {
    pub list: Json,
    pub total: u32,
    pub started: u32,
    pub ended: u32,
    pub succeeded: u32,
}

impl GraphRun {
    pub(in crate::trace) fn new(plan: u32, number: GroupIndex, group: &Group, now: Timestamp) -> Self {
        let fresh = |blockers: usize| StepRun {
            status: StepStatus::Pending,
            blockers: u32::try_from(blockers).expect("a step waits for its siblings at most"),
            next: None,
            contexts: Vec::new(),
            reason: None,
            partial: false,
            items: None,
        };
        let steps: Vec<StepRun> = group.steps.iter().map(|step| fresh(step.waits_for.len())).collect();
        let count = u32::try_from(steps.len()).expect("a graph has at most MAX_STEPS steps");
        GraphRun {
            plan,
            group: number,
            phase: RunPhase::Steps,
            ready: (0..count).filter(|step| steps[*step as usize].blockers == 0).collect(),
            unfinished: count,
            steps,
            failing: false,
            winner: None,
            gather_by: group.aggregate.as_ref().and_then(|a| a.timeout_ms).map(|ms| now.plus_millis(ms)),
            gathered: false,
        }
    }

    pub(in crate::trace) fn step(&self, step: StepIndex) -> &StepRun {
        &self.steps[step as usize]
    }

    /// A step has ended: its dependents have one blocker less.
    pub(in crate::trace) fn step_ended(&mut self, group: &Group, step: StepIndex, status: StepStatus) {
        let ended = &mut self.steps[step as usize];
        let more_items = ended.items.as_ref().is_some_and(|items| items.started < items.total);
        let more_to_start = more_items || ended.next.take().is_some();
        if std::mem::replace(&mut ended.status, status) == StepStatus::Pending || more_to_start {
            self.not_ready(step);
        }
        self.unfinished -= 1;
        let counts = group.steps[step as usize].required && failed(status);
        self.failing |= counts && group.policy == Policy::Fail && !group.race && !self.gathered;
        if group.race && status == StepStatus::Succeeded && self.winner.is_none() {
            self.winner = Some(step);
        }
        for dependent in &group.steps[step as usize].dependents {
            let waiting = &mut self.steps[*dependent as usize];
            waiting.blockers -= 1;
            if waiting.blockers == 0 && waiting.status == StepStatus::Pending {
                self.ready.push_back(*dependent);
            }
        }
    }

    /// Removes a step from the queue of ready ones. It is nearly always the first, so this does not slow
    /// down with the length of the queue.
    pub(in crate::trace) fn not_ready(&mut self, step: StepIndex) {
        if let Some(place) = self.ready.iter().position(|ready| *ready == step) {
            self.ready.remove(place);
        }
    }

    /// One more item of a `for_each` was started; after the last, the step is no longer ready.
    pub(in crate::trace) fn item_started(&mut self, step: StepIndex) {
        let Some(items) = &mut self.steps[step as usize].items else { return };
        items.started += 1;
        if items.started == items.total {
            self.not_ready(step);
        }
    }

    pub(in crate::trace) fn skip_pending(&mut self, reason: &str) {
        for step in &mut self.steps {
            if step.status == StepStatus::Pending {
                step.status = StepStatus::Skipped;
                step.reason = Some(reason.into());
                self.unfinished -= 1;
            }
        }
        self.ready.clear();
    }
}

/// Ended without success, and was not skipped.
pub(in crate::trace) fn failed(status: StepStatus) -> bool {
    match status {
        StepStatus::Failed | StepStatus::Cancelled | StepStatus::TimedOut | StepStatus::Aborted => true,
        StepStatus::Pending | StepStatus::Running | StepStatus::Succeeded | StepStatus::Skipped => false,
    }
}
