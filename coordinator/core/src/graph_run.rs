//! The state of a running graph: its steps, the steps that may start, and the effect of a step's
//! end on the others. It changes only when an event is applied.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    Amount, CallId, ContextKey, Json, Timestamp,
    graph::{Group, GroupIndex, Policy, StepIndex},
    wire::StepStatus,
};
use serde::{Deserialize, Serialize};

use super::{ContextEnded, ContextIndex, KeyedRows, Ran, Rows, event::is_default};

/// The state of a running graph. Its plan changes only by an amend (G13).
#[derive(Debug, Clone, PartialEq)]
pub struct GraphRun {
    pub plan: u32,
    pub group: GroupIndex,
    /// The plan with which it was admitted.
    pub admitted: u32,
    /// The numbers of its steps, by which contexts and lists refer to them. Empty while each number
    /// is the place of the step in the plan. An amend moves steps, but keeps their numbers.
    pub(super) numbers: Vec<StepIndex>,
    /// The amends of the whole graph, by the ids of their senders, each with its plan; empty for a
    /// group.
    pub amends: Vec<(CallId, u32)>,
    /// The version of the trace when it began.
    pub begun: u64,
    pub progress: GraphProgress,
    pub steps: Rows<StepRun>,
    /// Steps whose predecessors have ended and that can start a context, ordered by the time when
    /// they became ready.
    ready: BTreeSet<(u64, StepIndex)>,
    /// The lists that `for_each` steps iterate over.
    pub(super) lists: KeyedRows<StepIndex, Json>,
    /// The end of the graph, which applies when everything is undone (G14).
    pub ending: Option<Box<ContextEnded>>,
    /// The contexts that are still to be undone; the last one is the next.
    pub(super) undos: Vec<ContextIndex>,
}

/// The progress of a graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphProgress {
    pub phase: RunPhase,
    /// Number of steps that have not ended.
    pub unfinished: u32,
    /// A required step failed and the policy is `fail`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failing: bool,
    /// The step that won a race.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub winner: Option<StepIndex>,
    /// The time when `aggregate` stops waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gather_by: Option<Timestamp>,
    /// `aggregate` has stopped waiting: the steps that were not done are missing, which is not a
    /// failure.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gathered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    Steps,
    /// The steps are done and the graph's own agent works on their findings.
    Synthesis,
    /// The graph does not succeed, and its succeeded steps are being undone (G14).
    Undoing,
}

/// A step of a graph. A step that never changed is not stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRun {
    pub status: StepStatus,
    /// Number of predecessors that have not ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub blockers: u32,
    /// The version of the trace at which it became ready; `None` if it is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<u64>,
    /// The next context of a step that has begun: a round, or its fallback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Ran>,
    /// The contexts started for it: itself, items, rounds, fallback.
    #[serde(skip)]
    pub contexts: Vec<ContextIndex>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub partial: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Items>,
}

impl StepRun {
    /// A step that has not begun.
    pub(super) fn pending() -> Self {
        StepRun {
            status: StepStatus::Pending,
            blockers: 0,
            ready: None,
            next: None,
            contexts: Vec::new(),
            reason: None,
            partial: false,
            items: None,
        }
    }
}

/// The data kept to undo a run of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UndoRun {
    /// The most that the undo may cost.
    pub reserve: Amount,
    /// The version of the trace when the run succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded_at: Option<u64>,
    /// The values that it read from the shared store. By the time of the undo another round may
    /// have overwritten them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<ContextKey, Json>,
    /// The digests of long values, which are stored once for the whole trace (`undo_values`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) long_inputs: BTreeMap<ContextKey, String>,
    /// The bytes reserved for the spec of its undo (see `content`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) bytes: u64,
    /// The reason why its undo could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Box<str>>,
    /// The context that undoes it, or has undone it. Not stored, because that context names this
    /// one.
    #[serde(skip)]
    pub by: Option<ContextIndex>,
}

impl UndoRun {
    /// Returns true if the run succeeded and its undo has not begun.
    pub(super) fn is_open(&self) -> bool {
        self.succeeded_at.is_some() && self.by.is_none() && self.refused.is_none()
    }
}

/// The progress of a `for_each`, stored as its four numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "[u32; 4]", into = "[u32; 4]")]
pub struct Items {
    pub total: u32,
    pub started: u32,
    pub ended: u32,
    pub succeeded: u32,
}

impl From<[u32; 4]> for Items {
    fn from([total, started, ended, succeeded]: [u32; 4]) -> Self {
        Items { total, started, ended, succeeded }
    }
}

impl From<Items> for [u32; 4] {
    fn from(items: Items) -> Self {
        [items.total, items.started, items.ended, items.succeeded]
    }
}

impl GraphRun {
    /// A graph in which no step has begun.
    pub(super) fn new(plan: u32, number: GroupIndex, group: &Group, now: Timestamp, begun: u64) -> Self {
        let fresh = |blockers: usize| StepRun {
            blockers: u32::try_from(blockers).expect("a step waits for its siblings at most"),
            ready: (blockers == 0).then_some(begun),
            ..StepRun::pending()
        };
        let steps: Vec<StepRun> = group.steps.iter().map(|step| fresh(step.waits_for.len())).collect();
        let count = u32::try_from(steps.len()).expect("a graph has at most MAX_STEPS steps");
        GraphRun {
            plan,
            group: number,
            admitted: plan,
            numbers: Vec::new(),
            amends: Vec::new(),
            begun,
            progress: GraphProgress {
                phase: RunPhase::Steps,
                unfinished: count,
                failing: false,
                winner: None,
                gather_by: group.aggregate.as_ref().and_then(|a| a.timeout_ms).map(|ms| now.plus_millis(ms)),
                gathered: false,
            },
            ready: (0..count).filter_map(|step| Some((steps[step as usize].ready?, step))).collect(),
            lists: KeyedRows::default(),
            steps: Rows::stored(steps),
            ending: None,
            undos: Vec::new(),
        }
    }

    pub(super) fn step(&self, step: StepIndex) -> &StepRun {
        &self.steps[step as usize]
    }

    /// The number of a step, by its place in the plan.
    pub(super) fn number(&self, place: StepIndex) -> StepIndex {
        self.numbers.get(place as usize).copied().unwrap_or(place)
    }

    /// The place of a step in the plan, by its number.
    pub fn place(&self, number: StepIndex) -> StepIndex {
        let found = (0..).zip(&self.numbers).find(|(_, of)| **of == number);
        found.map_or(number, |(place, _)| place)
    }

    /// Replaces the rows with those for another plan.
    pub(super) fn put_rows(&mut self, rows: Vec<StepRun>, numbers: Vec<StepIndex>) {
        let open = |row: &&StepRun| matches!(row.status, StepStatus::Pending | StepStatus::Running);
        self.progress.unfinished = u32::try_from(rows.iter().filter(open).count()).unwrap_or(u32::MAX);
        self.ready = (0..).zip(&rows).filter_map(|(place, row)| Some((row.ready?, place))).collect();
        let moved = (0..).zip(&numbers).any(|(place, number)| place != *number);
        self.numbers = if moved { numbers } else { Vec::new() };
        self.steps.replace(rows);
    }

    /// The steps that may start, the longest ready first.
    pub fn ready(&self) -> impl Iterator<Item = StepIndex> {
        self.ready.iter().map(|(_, step)| *step)
    }

    /// A step has ended: each dependent has one blocker less.
    pub(super) fn step_ended(&mut self, group: &Group, step: StepIndex, status: StepStatus, version: u64) {
        let ended = self.steps.row_mut(step);
        ended.next = None;
        ended.status = status;
        self.not_ready(step);
        self.progress.unfinished -= 1;
        let counts = group.steps[step as usize].required && failed(status);
        self.progress.failing |=
            counts && group.policy == Policy::Fail && !group.race && !self.progress.gathered;
        if group.race && status == StepStatus::Succeeded && self.progress.winner.is_none() {
            self.progress.winner = Some(step);
        }
        for dependent in &group.steps[step as usize].dependents {
            let waiting = self.steps.row_mut(*dependent);
            waiting.blockers -= 1;
            if waiting.blockers == 0 && waiting.status == StepStatus::Pending {
                self.is_ready(*dependent, version);
            }
        }
    }

    /// Marks a step as ready to start, or to continue.
    pub(super) fn is_ready(&mut self, step: StepIndex, version: u64) {
        self.steps.row_mut(step).ready = Some(version);
        self.ready.insert((version, step));
    }

    pub(super) fn not_ready(&mut self, step: StepIndex) {
        if let Some(since) = self.steps[step as usize].ready {
            self.ready.remove(&(since, step));
            self.steps.row_mut(step).ready = None;
        }
    }

    /// The items of a `for_each` are known. Returns the list that was there before.
    pub(super) fn items_taken(&mut self, step: StepIndex, list: Json) -> Option<Json> {
        let total = list.elements().map_or(0, <[_]>::len);
        let total = u32::try_from(total).expect("max_contexts was checked");
        let row = self.steps.row_mut(step);
        row.status = StepStatus::Running;
        row.items = Some(Items { total, started: 0, ended: 0, succeeded: 0 });
        let before = self.lists.remove(&self.number(step));
        self.lists.insert(self.number(step), list);
        if total == 0 {
            self.not_ready(step);
        }
        before
    }

    /// One more item of a `for_each` was started; after the last, the step is no longer ready.
    pub(super) fn item_started(&mut self, step: StepIndex) {
        let Some(items) = &mut self.steps.row_mut(step).items else { return };
        items.started += 1;
        if items.started == items.total {
            self.not_ready(step);
        }
    }

    /// Puts a step as it was stored.
    pub(super) fn put_stored(&mut self, number: StepIndex, step: StepRun) {
        let Some(fresh) = self.steps.get(number as usize) else { return };
        fresh.ready.map(|since| self.ready.remove(&(since, number)));
        step.ready.map(|since| self.ready.insert((since, number)));
        *self.steps.unstored_mut(number) = step;
    }

    pub(super) fn skip_pending(&mut self, reason: &str) {
        let waits = |step: &StepRun| step.status == StepStatus::Pending || step.ready.is_some();
        let waiting = (0..).zip(self.steps.iter()).filter(|(_, step)| waits(step));
        for number in waiting.map(|(number, _)| number).collect::<Vec<StepIndex>>() {
            let step = self.steps.row_mut(number);
            step.ready = None;
            if step.status == StepStatus::Pending {
                step.status = StepStatus::Skipped;
                step.reason = Some(reason.into());
                self.progress.unfinished -= 1;
            }
        }
        self.ready.clear();
    }
}

/// True for a step that ended without success and was not skipped.
pub(super) fn failed(status: StepStatus) -> bool {
    match status {
        StepStatus::Failed | StepStatus::Cancelled | StepStatus::TimedOut | StepStatus::Aborted => true,
        StepStatus::Pending | StepStatus::Running | StepStatus::Succeeded | StepStatus::Skipped => false,
    }
}
