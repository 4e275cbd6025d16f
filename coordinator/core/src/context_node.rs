//! The state of one context, made of the parts that are stored. A part has its own field in the
//! store, or shares one with parts that change at the same time (`stored`). A commit therefore
//! writes little more than it changes.

use std::{collections::BTreeSet, sync::Arc};

use domain::{
    Amount, CallId, ChildId, Dimension, Limits, ThreadId, Timestamp, Tokens, Usd,
    id::ToolName,
    wire::{
        Adjustment, CheckCounts, Dispute, EndStatus, Failure, GivenAnswer, Hitl, OnExhausted, Payload,
        Progress, RestorePoint, TakenFrom, Text,
    },
};
use serde::{Deserialize, Serialize};

use super::{
    Attempt, Budget, Calls, ContextIndex, ContextSpec, GraphRun, KeyedRows, Mark, Message, QuestionDetails,
    Ran, Rows, StepOf, UndoRun, WaitingHold, event::is_default,
};

#[derive(Debug, Clone, PartialEq)]
pub struct ContextNode {
    pub id: ChildId,
    pub spec: Arc<ContextSpec>,
    pub parent: Option<ContextIndex>,
    pub identity: Identity,
    pub terms: ContextTerms,
    /// Shared with the parent if both are equal.
    pub limits: Arc<Limits>,
    pub status: Status,
    pub lifecycle: Lifecycle,
    pub budget: Budget,
    /// The state of its graph, if it runs one.
    pub graph: Option<Box<GraphRun>>,
    /// The data for its undo, if its step has an `undo` (G14).
    pub undo: Option<Box<UndoRun>>,
    pub calls: Calls,
    /// External charges, by key.
    pub charges: KeyedRows<CallId, Amount>,
    /// Costs that had no hold and for which too little was left (B18).
    pub disputes: Rows<Dispute>,
    pub attempts: Rows<Attempt>,
    pub answers: Rows<GivenAnswer>,
    /// Messages to its agent, in order (G13).
    pub told: Rows<Message>,
    /// The steps of its journal that it was restored to, in order (W5).
    pub restores: Rows<RestorePoint>,
    pub notes: Rows<String>,
    /// Entries for its spans, if spans are exported (X4).
    pub marks: Rows<Mark>,
    /// The fields from here on are derived from other contexts, or are not stored.
    pub children: Vec<ContextIndex>,
    pub live_children: u32,
    /// The number of graphs in this context and its descendants that are undoing steps.
    pub undoing: u32,
    pub(super) timer: Option<Timestamp>,
    /// The time until which its lease was extended in memory (`lease`).
    pub(super) renewed: Option<Timestamp>,
}

/// The place of a context in its run. It never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    pub depth: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepOf>,
    /// The context of an earlier run whose result this one takes over (G15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<TakenFrom>,
    /// The context that it undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<ContextIndex>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ChildId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    pub started_at: Timestamp,
}

/// The terms on which a context was admitted, apart from its limits and its budget. The synthesis
/// of a graph lowers them (B17).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContextTerms {
    /// Limits and amounts that are lower than requested in the spec (B17).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adjusted: Vec<Adjustment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Arc<BTreeSet<ToolName>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<Tokens>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_exhausted: OnExhausted,
    #[serde(default, skip_serializing_if = "is_default")]
    pub hitl: Hitl,
    /// The timeout of the context, if it starts with the first attempt; that attempt sets the
    /// deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The counters and times of a context that change while it runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lifecycle {
    /// Holds of this context that wait for calls in flight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingHold>,
    /// The most that the context's own calls may cost, if that is less than its budget (B17).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_limit: Option<Amount>,
    /// The amount left in its budget when it paused, as if calls in flight were free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_at_pause: Option<Amount>,
    /// How many times the amount left grew: by a raise, a correction, or a grant that returned.
    #[serde(default, skip_serializing_if = "is_default")]
    pub growths: u32,
    /// The sum of `growths` of this context and its ancestors when its latest attempt began.
    #[serde(default, skip_serializing_if = "is_default")]
    pub growths_before: u32,
    /// The first dimension that was used up, if the budget is exhausted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exhausted: Option<Dimension>,
    /// The number of lost or failed attempts that were retried. Retries of calls within an attempt
    /// are in `progress`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retried: u32,
    /// The number of the last message included in a call of its agent; 0 if there was none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub seen: u32,
    /// The number of rungs of its ladder that it has reached (B21).
    #[serde(default, skip_serializing_if = "is_default")]
    pub rungs: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub progress: Progress,
    /// Counts the decisions of its checks, except passes (B16).
    #[serde(default, skip_serializing_if = "is_default")]
    pub checks: CheckCounts,
    #[serde(default, skip_serializing_if = "is_default")]
    pub checks_told: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// How many contexts, this one and its descendants, wait for a human. Meanwhile its deadline is
    /// suspended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub waiting_for_humans: u32,
    /// How many of `waiting_for_humans` have asked a question; the others wait for a raise.
    #[serde(default, skip_serializing_if = "is_default")]
    pub questions: u32,
    pub clock_stopped_at: Timestamp,
    #[serde(default, skip_serializing_if = "is_default")]
    pub deleted: bool,
    /// The context has ended, and its outcome waits until no hold of it is open (B20).
    #[serde(default, skip_serializing_if = "is_default")]
    pub outcome_due: bool,
}

/// The status of a context. The children that it waits for and the details of its end may be long,
/// so each is stored separately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// In the queue, not claimed yet.
    Submitted {
        sent_at: Timestamp,
    },
    InputRequired {
        question: Text,
        /// `None` if the question accepts any text, without a time limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked: Option<Box<QuestionDetails>>,
    },
    Paused {
        reason: String,
    },
    Ended(Box<End>),
    #[serde(untagged)]
    Working(Phase),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// In the queue again; it must not be claimed before `not_before`.
    Queued { not_before: Timestamp, sent_at: Option<Timestamp> },
    Running {
        until: Timestamp,
        /// The context was restored while a call of this attempt was in flight. The attempt may
        /// finish that call, and must not begin anything else.
        #[serde(default, skip_serializing_if = "is_default")]
        restored: bool,
    },
    /// Waits for children and occupies no worker.
    Waiting {
        #[serde(skip)]
        children: Vec<ContextIndex>,
        hand_over: bool,
    },
    /// A graph whose steps run.
    Steps,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    pub status: EndStatus,
    pub at: Timestamp,
    /// The steps that had succeeded were not undone (G14).
    #[serde(default, skip_serializing_if = "is_default")]
    pub without_undo: bool,
    #[serde(skip)]
    pub details: EndDetails,
}

/// The result of an ended context, or the reason why it has none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EndDetails {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Payload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl End {
    /// The message of its error, else its reason.
    pub fn why(&self) -> Option<&str> {
        let EndDetails { error, reason, .. } = &self.details;
        error.as_ref().map(|error| error.message.as_str()).or(reason.as_deref())
    }
}

impl Status {
    pub(super) fn end(&self) -> Option<&End> {
        match self {
            Status::Ended(end) => Some(end),
            Status::Submitted { .. }
            | Status::Working(_)
            | Status::InputRequired { .. }
            | Status::Paused { .. } => None,
        }
    }
}

impl ContextNode {
    /// A context with empty lists, an empty budget and no graph.
    pub(super) fn new(
        spec: Arc<ContextSpec>,
        parent: Option<ContextIndex>,
        identity: Identity,
        terms: ContextTerms,
        limits: Arc<Limits>,
        status: Status,
        lifecycle: Lifecycle,
    ) -> Self {
        ContextNode {
            id: spec.child_id.clone(),
            spec,
            parent,
            identity,
            terms,
            limits,
            status,
            lifecycle,
            budget: Budget::default(),
            graph: None,
            undo: None,
            calls: Calls::default(),
            charges: KeyedRows::default(),
            disputes: Rows::default(),
            attempts: Rows::default(),
            answers: Rows::default(),
            told: Rows::default(),
            restores: Rows::default(),
            notes: Rows::default(),
            marks: Rows::default(),
            children: Vec::new(),
            live_children: 0,
            undoing: 0,
            timer: None,
            renewed: None,
        }
    }

    pub fn end(&self) -> Option<&End> {
        self.status.end()
    }

    pub fn is_live(&self) -> bool {
        self.end().is_none()
    }

    /// True for a graph or an item that stores its keys under its own id.
    pub(super) fn has_own_keys(&self) -> bool {
        self.graph.is_some() && self.identity.scope.as_ref() == Some(&self.id)
    }

    /// True for an item of a group with `for_each`; it stores its keys under its own id.
    pub(super) fn is_group_item(&self) -> bool {
        self.graph.is_some() && self.identity.step.is_some_and(|of| matches!(of.ran, Ran::Item(_)))
    }

    /// The number of the latest attempt; 0 before the first.
    pub fn attempt(&self) -> u32 {
        u32::try_from(self.attempts.len()).unwrap_or(u32::MAX)
    }

    /// The retries used, including attempts lost with their worker (B15).
    pub fn retries(&self) -> u32 {
        self.retries_with(self.lifecycle.progress)
    }

    /// The retries used if the current attempt has made this progress.
    pub(super) fn retries_with(&self, progress: Progress) -> u32 {
        self.lifecycle.retried.saturating_add(progress.retries)
    }

    /// The hold on the parent, and the part of it that is grants.
    pub(super) fn parent_holds(&self) -> (Amount, Amount) {
        let live = self.is_live();
        (self.budget.parent_hold(live), self.budget.granted_parent_hold(live))
    }

    /// The growth of the hold on the parent if `need` more is held here.
    pub(super) fn parent_hold_growth(&self, need: Amount) -> Amount {
        let mut after = self.budget.clone();
        let Some(held) = after.held.checked_add(need) else { return need };
        after.held = held;
        after.parent_hold(self.is_live()).saturating_sub(self.budget.parent_hold(self.is_live()))
    }

    /// The amount left for the context's own calls (B17), with or without the calls in flight
    /// deducted.
    pub(super) fn own_left(&self, with_calls: bool) -> Amount {
        let Some(limit) = self.lifecycle.own_limit else { return Amount::new(Usd::MAX, Tokens::MAX) };
        let open = self.calls.open().filter(|_| with_calls).map(|(_, call)| call.held);
        let held = open.fold(Amount::ZERO, |sum, held| sum.checked_add(held).unwrap_or(limit));
        limit.saturating_sub(self.budget.own).saturating_sub(held)
    }

    /// Clears `exhausted` if the budget has something left again.
    pub(super) fn replenish(&mut self) {
        self.lifecycle.exhausted =
            self.lifecycle.exhausted.and(self.budget.spent.reaches(self.budget.ceilings.limit));
    }

    /// The time until which it may wait in the queue for a worker; `None` if it is not queued or
    /// has no such limit.
    pub fn queue_until(&self) -> Option<Timestamp> {
        let since = match &self.status {
            Status::Submitted { .. } => self.identity.started_at,
            Status::Working(Phase::Queued { not_before, .. }) => *not_before,
            Status::Working(Phase::Running { .. } | Phase::Waiting { .. } | Phase::Steps)
            | Status::InputRequired { .. }
            | Status::Paused { .. }
            | Status::Ended(_) => return None,
        };
        let max = Some(self.limits.max_queue_ms).filter(|max| *max > 0).into_iter();
        let max = max.chain(self.undo_queue_ms()).min();
        max.map(|max| since.plus_millis(max))
    }

    /// The longest wait of an undo for its first attempt. It equals the undo's timeout, because no
    /// deadline of an ancestor bounds an undo (G14).
    pub(super) fn undo_queue_ms(&self) -> Option<u64> {
        self.terms.timeout_ms.filter(|_| self.identity.undoes.is_some() && self.attempts.is_empty())
    }

    /// The deadline of this context; `None` while it waits for a human or undoes steps.
    pub fn running_deadline(&self) -> Option<Timestamp> {
        if self.lifecycle.waiting_for_humans == 0 && !self.is_undoing() {
            self.lifecycle.deadline
        } else {
            None
        }
    }
}
