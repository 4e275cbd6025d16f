//! The stored form of a context. What rarely changes, what often changes, and every list are apart, so that a
//! commit writes little more than what it changes. What follows from other fields is not stored.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use domain::{
    Amount, CallId, ChildId, ContextKey, Dimension, Json, Limits, ThreadId, Timestamp, Tokens, Usd,
    graph::{GroupIndex, StepIndex},
    id::ToolName,
    money::booked,
    wire::{
        Adjusted, CheckCounts, EndStatus, Failure, Form, Hitl, OnExhausted, Payload, Progress, StepStatus,
        TakenFrom, Text,
    },
};
use serde::{Deserialize, Serialize};

use super::super::{
    Asked, Budget, ContextIndex, ContextNode, End, Ended, Granted, GraphRun, Items, Phase, Ran, RunPhase,
    Status, StepOf, StepRun, UndoRun, WaitingHold, event::is_default,
};

/// What a context was admitted with.
#[derive(Serialize, Deserialize)]
pub(super) struct Definition {
    pub(super) id: ChildId,
    pub(super) parent: Option<ContextIndex>,
    pub(super) depth: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) graph: Option<OfGraph>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) step: Option<StepOf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) taken: Option<TakenFrom>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) undoes: Option<ContextIndex>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) scope: Option<ChildId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) thread_id: Option<ThreadId>,
    /// None: its parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) limits: Option<Arc<Limits>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) adjusted: Vec<Adjusted>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<Arc<BTreeSet<ToolName>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) window_tokens: Option<Tokens>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) on_exhausted: OnExhausted,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) hitl: Hitl,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) timeout_ms: Option<u64>,
    pub(super) started_at: Timestamp,
}

/// The graph that a context runs.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct OfGraph {
    pub(super) plan: u32,
    pub(super) group: GroupIndex,
    /// The version of the trace when it began.
    pub(super) begun: u64,
}

/// What amends changed of a graph (G13).
#[derive(Serialize, Deserialize)]
pub(super) struct Amended {
    pub(super) admitted: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) numbers: Vec<StepIndex>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) amends: Vec<(CallId, u32)>,
}

impl Amended {
    /// None if there was no amend.
    pub(super) fn of(run: &GraphRun) -> Option<Self> {
        let GraphRun { admitted, numbers, amends, plan, .. } = run;
        (plan != admitted).then(|| Amended {
            admitted: *admitted,
            numbers: numbers.clone(),
            amends: amends.clone(),
        })
    }
}

impl Definition {
    pub(super) fn of(node: &ContextNode, parent: Option<&ContextNode>) -> Self {
        let graph = |run: &GraphRun| OfGraph { plan: run.plan, group: run.group, begun: run.begun };
        let inherits = parent.is_some_and(|parent| parent.limits == node.limits);
        Definition {
            id: node.id.clone(),
            parent: node.parent,
            depth: node.depth,
            graph: node.graph.as_deref().map(graph),
            step: node.step,
            taken: node.taken.clone(),
            undoes: node.undoes,
            scope: node.scope.clone(),
            thread_id: node.thread_id.clone(),
            limits: (!inherits).then(|| node.limits.clone()),
            adjusted: node.adjusted.clone(),
            tools: node.tools.clone(),
            window_tokens: node.window_tokens,
            on_exhausted: node.on_exhausted,
            hitl: node.hitl,
            timeout_ms: node.timeout_ms,
            started_at: node.started_at,
        }
    }
}

/// What changes while a context runs, apart from its lists and its budget.
#[derive(Serialize, Deserialize)]
pub(super) struct Running {
    pub(super) status: StoredStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) graph: Option<RunningGraph>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) waiting: Vec<WaitingHold>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) own_limit: Option<Amount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) left_at_pause: Option<Amount>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) growths: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) growths_before: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exhausted: Option<Dimension>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) retried: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) seen: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) rungs: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) progress: Progress,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) checks: CheckCounts,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) checks_told: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deadline: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) waiting_for_humans: u32,
    /// Of the root it is part of a summary; it follows from the statuses.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) questions: u32,
    pub(super) clock_stopped_at: Timestamp,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) deleted: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) outcome_due: bool,
}

/// A status without what may be long: the children it waits for, and its result.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoredStatus {
    Submitted {
        sent_at: Timestamp,
    },
    Queued {
        not_before: Timestamp,
        sent_at: Option<Timestamp>,
    },
    Running {
        until: Timestamp,
        #[serde(default, skip_serializing_if = "is_default")]
        restored: bool,
    },
    Waiting {
        hand_over: bool,
    },
    Steps,
    InputRequired {
        question: Text,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked: Option<Box<StoredAsked>>,
    },
    Paused {
        reason: String,
    },
    Ended {
        status: EndStatus,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "is_default")]
        without_undo: bool,
    },
}

/// What is known of an open question that is more than its text.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredAsked {
    form: Form,
    at: Timestamp,
    #[serde(default, skip_serializing_if = "is_default")]
    reminders: u32,
}

/// What an ended context left.
#[derive(Serialize, Deserialize)]
pub(super) struct Left {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Payload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Failure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RunningGraph {
    pub(super) phase: RunPhase,
    pub(super) unfinished: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) failing: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) winner: Option<StepIndex>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) gather_by: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) gathered: bool,
}

impl Running {
    pub(super) fn of(node: &ContextNode) -> Self {
        let graph = |run: &GraphRun| RunningGraph {
            phase: run.phase,
            unfinished: run.unfinished,
            failing: run.failing,
            winner: run.winner,
            gather_by: run.gather_by,
            gathered: run.gathered,
        };
        Running {
            status: StoredStatus::of(&node.status),
            graph: node.graph.as_deref().map(graph),
            waiting: node.waiting.clone(),
            own_limit: node.own_limit,
            left_at_pause: node.left_at_pause,
            growths: node.growths,
            growths_before: node.growths_before,
            exhausted: node.exhausted,
            retried: node.retried,
            seen: node.seen,
            rungs: node.rungs,
            progress: node.progress,
            checks: node.checks,
            checks_told: node.checks_told,
            deadline: node.deadline,
            waiting_for_humans: node.waiting_for_humans,
            questions: node.questions,
            clock_stopped_at: node.clock_stopped_at,
            deleted: node.deleted,
            outcome_due: node.outcome_due,
        }
    }
}

impl StoredStatus {
    fn of(status: &Status) -> Self {
        match status {
            Status::Submitted { sent_at } => StoredStatus::Submitted { sent_at: *sent_at },
            Status::Working(Phase::Queued { not_before, sent_at }) => {
                StoredStatus::Queued { not_before: *not_before, sent_at: *sent_at }
            }
            Status::Working(Phase::Running { until, restored }) => {
                StoredStatus::Running { until: *until, restored: *restored }
            }
            Status::Working(Phase::Waiting { hand_over, .. }) => {
                StoredStatus::Waiting { hand_over: *hand_over }
            }
            Status::Working(Phase::Steps) => StoredStatus::Steps,
            Status::InputRequired { question, asked } => StoredStatus::InputRequired {
                question: question.clone(),
                asked: asked.as_deref().map(|asked| {
                    let Asked { form, at, reminders } = asked.clone();
                    Box::new(StoredAsked { form, at, reminders })
                }),
            },
            Status::Paused { reason } => StoredStatus::Paused { reason: reason.clone() },
            Status::Ended(end) => {
                StoredStatus::Ended { status: end.status, at: end.at, without_undo: end.without_undo }
            }
        }
    }

    pub(super) fn with(self, children: Vec<ContextIndex>, left: Option<Left>) -> Status {
        match self {
            StoredStatus::Submitted { sent_at } => Status::Submitted { sent_at },
            StoredStatus::Queued { not_before, sent_at } => {
                Status::Working(Phase::Queued { not_before, sent_at })
            }
            StoredStatus::Running { until, restored } => Status::Working(Phase::Running { until, restored }),
            StoredStatus::Waiting { hand_over } => Status::Working(Phase::Waiting { children, hand_over }),
            StoredStatus::Steps => Status::Working(Phase::Steps),
            StoredStatus::InputRequired { question, asked } => Status::InputRequired {
                question,
                asked: asked.map(|asked| {
                    let StoredAsked { form, at, reminders } = *asked;
                    Box::new(Asked { form, at, reminders })
                }),
            },
            StoredStatus::Paused { reason } => Status::Paused { reason },
            StoredStatus::Ended { status, at, without_undo } => {
                let Left { result, error, reason } =
                    left.unwrap_or(Left { result: None, error: None, reason: None });
                Status::Ended(Box::new(End { status, result, error, reason, at, without_undo }))
            }
        }
    }
}

/// The ceilings of a budget.
#[derive(Serialize, Deserialize)]
pub(super) struct Ceilings {
    limit: Amount,
    #[serde(default, skip_serializing_if = "is_default")]
    reserve_usd: Usd,
    #[serde(default, skip_serializing_if = "is_default")]
    granted: Granted,
    #[serde(default, skip_serializing_if = "is_default")]
    inherited: Granted,
}

/// The sums of a budget: every booking changes them, on all ancestors too.
#[derive(Serialize, Deserialize)]
pub(super) struct Sums {
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    spent: Amount,
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    own: Amount,
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    held: Amount,
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    carved: Amount,
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    reserved: Amount,
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    uncovered: Amount,
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    estimated: Amount,
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    disputed: Amount,
}

impl Ceilings {
    pub(super) fn of(budget: &Budget) -> Self {
        let Budget { limit, reserve_usd, granted, inherited, .. } = *budget;
        Ceilings { limit, reserve_usd, granted, inherited }
    }

    pub(super) fn with(self, sums: Sums) -> Budget {
        let Ceilings { limit, reserve_usd, granted, inherited } = self;
        let Sums { spent, own, held, carved, reserved, uncovered, estimated, disputed } = sums;
        Budget {
            limit,
            spent,
            own,
            held,
            carved,
            reserved,
            uncovered,
            estimated,
            disputed,
            reserve_usd,
            granted,
            inherited,
        }
    }
}

impl Sums {
    pub(super) fn of(budget: &Budget) -> Self {
        let Budget { spent, own, held, carved, reserved, uncovered, estimated, disputed, .. } = *budget;
        Sums { spent, own, held, carved, reserved, uncovered, estimated, disputed }
    }
}

/// What is kept to undo a context, or how a graph ends when it has undone (G14).
#[derive(Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredUndo {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reserve: Option<Amount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    succeeded_at: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    inputs: BTreeMap<ContextKey, Json>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    long_inputs: BTreeMap<ContextKey, String>,
    #[serde(default, skip_serializing_if = "is_default")]
    bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ending: Option<Box<Ended>>,
}

impl StoredUndo {
    /// None if there is nothing of this.
    pub(super) fn of(node: &ContextNode) -> Option<Self> {
        let ending = node.graph.as_ref().and_then(|run| run.ending.clone());
        let stored = match node.undo.as_deref() {
            Some(UndoRun { reserve, succeeded_at, inputs, long_inputs, bytes, refused, by: _ }) => {
                StoredUndo {
                    reserve: Some(*reserve),
                    succeeded_at: *succeeded_at,
                    inputs: inputs.clone(),
                    long_inputs: long_inputs.clone(),
                    bytes: *bytes,
                    refused: refused.clone(),
                    ending,
                }
            }
            None => StoredUndo { ending, ..StoredUndo::default() },
        };
        (stored != StoredUndo::default()).then_some(stored)
    }

    /// Without the context that undoes it, which names it.
    pub(super) fn run(self) -> Option<Box<UndoRun>> {
        let StoredUndo { reserve, succeeded_at, inputs, long_inputs, bytes, refused, ending: _ } = self;
        let reserve = reserve?;
        Some(Box::new(UndoRun { reserve, succeeded_at, inputs, long_inputs, bytes, refused, by: None }))
    }
}

/// A step of a graph. A step that was never touched is not stored.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredStep {
    status: StepStatus,
    #[serde(default, skip_serializing_if = "is_default")]
    blockers: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ready: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Ran>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "is_default")]
    partial: bool,
    /// Of its items: how many there are, were started, have ended, and succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    items: Option<[u32; 4]>,
}

impl StoredStep {
    pub(super) fn of(step: &StepRun) -> Self {
        let items = |items: &Items| [items.total, items.started, items.ended, items.succeeded];
        StoredStep {
            status: step.status,
            blockers: step.blockers,
            ready: step.ready,
            next: step.next,
            reason: step.reason.clone(),
            partial: step.partial,
            items: step.items.as_ref().map(items),
        }
    }

    pub(super) fn into_step(self) -> StepRun {
        let StoredStep { status, blockers, ready, next, reason, partial, items } = self;
        let items =
            items.map(|[total, started, ended, succeeded]| Items { total, started, ended, succeeded });
        StepRun { status, blockers, ready, next, contexts: Vec::new(), reason, partial, items }
    }
}
