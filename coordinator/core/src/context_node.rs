//! The state of one context, made of the parts that are stored: each has a field of the store, or shares one with
//! others that change at the same time (`stored`). So a commit writes little more than what it changes.

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
    /// Shared with its parent if they are equal.
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
    /// Costs without a hold for which nothing was left (B18).
    pub disputes: Rows<Dispute>,
    pub attempts: Rows<Attempt>,
    pub answers: Rows<GivenAnswer>,
    /// Messages to its agent, in order (G13).
    pub told: Rows<Message>,
    /// The steps of its journal that it was restored to, in order (W5).
    pub restores: Rows<RestorePoint>,
    pub notes: Rows<String>,
    /// Entries for its spans, if they are exported (X4).
    pub marks: Rows<Mark>,
    /// The fields from here on follow from other contexts, or are not stored.
    pub children: Vec<ContextIndex>,
    pub live_children: u32,
    /// How many graphs here and beneath undo.
    pub undoing: u32,
    pub(super) timer: Option<Timestamp>,
    /// Until when its lease was renewed in memory (`lease`).
    pub(super) renewed: Option<Timestamp>,
}

/// The place of a context in its run. It never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    pub depth: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepOf>,
    /// The context of an earlier run whose result it has (G15).
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

/// The terms on which a context was admitted, besides its limits and its budget. The synthesis of a graph lowers
/// them (B17).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContextTerms {
    /// Limits and amounts that are lower than its spec asks for (B17).
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
    /// Its own timeout, if it counts from when its first attempt begins; the deadline is set then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The counters and times of a context that change while it runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lifecycle {
    /// Its holds that wait for calls in flight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingHold>,
    /// The most that its own calls may cost, if that is less than its budget (B17).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_limit: Option<Amount>,
    /// The rest of its budget when it paused, with calls in flight counted as free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_at_pause: Option<Amount>,
    /// The number of times that its rest grew: by a raise, a correction, or a grant that returned.
    #[serde(default, skip_serializing_if = "is_default")]
    pub growths: u32,
    /// The growths of it and all above it when its latest attempt began.
    #[serde(default, skip_serializing_if = "is_default")]
    pub growths_before: u32,
    /// Its budget is used up; the first dimension in which it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exhausted: Option<Dimension>,
    /// Attempts that were lost or failed and were retried; retries of calls within attempts are in
    /// `progress`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retried: u32,
    /// The last message that a call of its agent was made with; 0: none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub seen: u32,
    /// How many rungs of its ladder it has reached (B21).
    #[serde(default, skip_serializing_if = "is_default")]
    pub rungs: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub progress: Progress,
    /// The decisions of its checks other than to pass (B16).
    #[serde(default, skip_serializing_if = "is_default")]
    pub checks: CheckCounts,
    #[serde(default, skip_serializing_if = "is_default")]
    pub checks_told: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// How many contexts here and beneath wait for a human; its deadline stands still meanwhile.
    #[serde(default, skip_serializing_if = "is_default")]
    pub waiting_for_humans: u32,
    /// How many of them have asked a question: the others wait for a raise.
    #[serde(default, skip_serializing_if = "is_default")]
    pub questions: u32,
    pub clock_stopped_at: Timestamp,
    #[serde(default, skip_serializing_if = "is_default")]
    pub deleted: bool,
    /// It has ended, and its outcome waits until nothing of it is held (B20).
    #[serde(default, skip_serializing_if = "is_default")]
    pub outcome_due: bool,
}

/// The status of a context. The children that it waits for and the details of its end, which may be long, are
/// stored by themselves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// In the queue, not claimed yet.
    Submitted {
        sent_at: Timestamp,
    },
    InputRequired {
        question: Text,
        /// None if any text answers it, whenever it comes.
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
    /// In the queue again; not to be claimed before this time.
    Queued { not_before: Timestamp, sent_at: Option<Timestamp> },
    Running {
        until: Timestamp,
        /// The context was restored while a call of this attempt was in flight: it may finish that, and begins
        /// nothing.
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
    /// Its steps that had succeeded were not undone (G14).
    #[serde(default, skip_serializing_if = "is_default")]
    pub without_undo: bool,
    #[serde(skip)]
    pub details: EndDetails,
}

/// The result of an ended context, or why it has none.
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
    /// A context without a budget, a graph, or anything in its lists.
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

    /// A graph or an item with keys of its own, under its id.
    pub(super) fn has_own_keys(&self) -> bool {
        self.graph.is_some() && self.identity.scope.as_ref() == Some(&self.id)
    }

    /// An item of a group with `for_each`; it has keys of its own.
    pub(super) fn is_group_item(&self) -> bool {
        self.graph.is_some() && self.identity.step.is_some_and(|of| matches!(of.ran, Ran::Item(_)))
    }

    /// The number of the latest attempt; 0 before the first.
    pub fn attempt(&self) -> u32 {
        u32::try_from(self.attempts.len()).unwrap_or(u32::MAX)
    }

    /// Retries used, attempts lost with a worker included (B15).
    pub fn retries(&self) -> u32 {
        self.retries_with(self.lifecycle.progress)
    }

    /// Retries used, if its attempt has made this progress.
    pub(super) fn retries_with(&self, progress: Progress) -> u32 {
        self.lifecycle.retried.saturating_add(progress.retries)
    }

    /// Its hold on the parent, and the part of it that is grants.
    pub(super) fn parent_holds(&self) -> (Amount, Amount) {
        let live = self.is_live();
        (self.budget.parent_hold(live), self.budget.granted_parent_hold(live))
    }

    /// By how much its hold on the parent grows if `need` more is held here.
    pub(super) fn parent_hold_growth(&self, need: Amount) -> Amount {
        let mut after = self.budget.clone();
        let Some(held) = after.held.checked_add(need) else { return need };
        after.held = held;
        after.parent_hold(self.is_live()).saturating_sub(self.budget.parent_hold(self.is_live()))
    }

    /// The rest for its own calls (B17), with those in flight counted or not.
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

    /// Until when it may wait in the queue for a worker; none if it does not wait, or without such a bound.
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

    /// The longest wait of an undo for its first attempt: as long as it may run, because no deadline above bounds
    /// it (G14).
    pub(super) fn undo_queue_ms(&self) -> Option<u64> {
        self.terms.timeout_ms.filter(|_| self.identity.undoes.is_some() && self.attempts.is_empty())
    }

    /// Its own deadline; none while a human is waited for, or while it undoes.
    pub fn running_deadline(&self) -> Option<Timestamp> {
        if self.lifecycle.waiting_for_humans == 0 && !self.is_undoing() {
            self.lifecycle.deadline
        } else {
            None
        }
    }
}
