//! The state of a trace: its contexts, their budgets and statuses, the graphs they run and the shared
//! store. Changed by `apply` alone. Contexts are numbered in the order of their admission, and are never
//! moved or removed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use domain::{
    AgentId, AgentProfile, Amount, CallId, ChildId, ContextKey, Dimension, Json, Limits, ThreadId, Timestamp,
    Tokens, TraceId, Usd, WorkerId,
    graph::Plan,
    id::ToolName,
    limits::Settings,
    wire::{
        Adjusted, CheckCounts, Dispute, EndStatus, Failure, GivenAnswer, Hitl, OnExhausted, Payload,
        Progress, RestorePoint, TakenFrom, Text,
    },
};
use serde::{Deserialize, Serialize};

use super::{
    Asked, Calls, ContextIndex, ContextSpec, GraphRun, Kept, Keyed, Mark, Ran, Rerun, Rows, StepOf,
    StepPlace, TokenHash, Traced, UndoRun, WaitingHold, budget::Budget, spenders::Spenders,
    undo_values::UndoValues, unsaved::Unsaved,
};

#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    pub(super) id: TraceId,
    /// The number of events so far.
    pub(super) version: u64,
    /// How often it was rebuilt from its log.
    pub(super) generation: u32,
    /// When its last commit was made.
    pub(super) made: Timestamp,
    /// When the log last got a copy of it (`copy`).
    pub(super) copied_at: Option<Timestamp>,
    /// None until it is opened by a submission.
    pub(super) settings: Option<Arc<Settings>>,
    /// Where it came from, if its spans are exported (X5).
    pub(super) traced: Option<Box<Traced>>,
    pub(super) contexts: Vec<ContextNode>,
    pub(super) spent_by: Spenders,
    pub(super) agents: BTreeMap<AgentId, Arc<AgentProfile>>,
    /// The versions of those profiles that were applied.
    pub(super) agent_versions: BTreeMap<AgentId, u64>,
    pub(super) plans: Vec<Arc<Plan>>,
    /// The run that it takes results from, and those that are not taken yet (G15).
    pub(super) rerun: Option<Rerun>,
    pub(super) kept: Keyed<StepPlace, Kept>,
    /// What runs that may be undone have read (G14).
    pub(super) undo_values: UndoValues,
    pub(super) store: BTreeMap<ContextKey, Entry>,
    pub(super) store_bytes: u64,
    /// The bytes of what it keeps besides (`content`); not stored.
    pub(super) content_bytes: u64,
    /// The shared store as it was when the root ended.
    pub(super) outputs: BTreeMap<ContextKey, Json>,
    /// Cancels that came before their context: by context, and of the whole trace.
    pub(super) tombstones: BTreeMap<ChildId, String>,
    pub(super) cancelled_before: Option<String>,
    pub(super) by_id: HashMap<ChildId, ContextIndex>,
    pub(super) timers: BTreeSet<(Timestamp, ContextIndex)>,
    /// The contexts that are paused.
    pub(super) paused: BTreeSet<ContextIndex>,
    /// The holds that wait for calls in flight, by their tickets.
    pub(super) line: BTreeSet<(u64, ContextIndex)>,
    /// What has changed since it was last stored.
    pub(super) unsaved: Unsaved,
}

/// A value of the shared store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub value: Json,
    /// None for an input of the request.
    pub writer: Option<ChildId>,
    pub version: u32,
    pub size_bytes: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ContextNode {
    pub id: ChildId,
    pub parent: Option<ContextIndex>,
    pub children: Vec<ContextIndex>,
    pub live_children: u32,
    pub depth: u32,
    pub spec: Arc<ContextSpec>,
    /// The state of its graph, if it runs one.
    pub graph: Option<Box<GraphRun>>,
    pub step: Option<StepOf>,
    /// The context of an earlier run whose result it has (G15).
    pub taken: Option<TakenFrom>,
    /// What is kept to undo it, if its step has an `undo` (G14).
    pub undo: Option<Box<UndoRun>>,
    /// The context that it undoes.
    pub undoes: Option<ContextIndex>,
    /// How many graphs here and beneath undo.
    pub undoing: u32,
    pub scope: Option<ChildId>,
    pub thread_id: Option<ThreadId>,
    pub status: Status,
    pub budget: Budget,
    /// The most that its own calls may cost, if that is less than its budget (B17).
    pub own_limit: Option<Amount>,
    pub calls: Calls,
    /// Its holds that wait for calls in flight.
    pub waiting: Vec<WaitingHold>,
    /// What was left to it, calls in flight apart, when it paused.
    pub left_at_pause: Option<Amount>,
    /// How often more was left of its budget than before: by a raise, a correction, or a grant that returned.
    pub growths: u32,
    /// The growths of it and all above it when its latest attempt began.
    pub growths_before: u32,
    /// External charges, by key.
    pub charges: Keyed<CallId, Amount>,
    /// Costs that nobody held and for which nothing was left (B18).
    pub disputes: Rows<Dispute>,
    /// Its budget is used up; the first dimension in which it was.
    pub exhausted: Option<Dimension>,
    pub limits: Arc<Limits>,
    /// What is lower than was asked for it (B17).
    pub adjusted: Vec<Adjusted>,
    pub tools: Option<Arc<BTreeSet<ToolName>>>,
    pub window_tokens: Option<Tokens>,
    pub on_exhausted: OnExhausted,
    pub hitl: Hitl,
    pub attempts: Rows<Attempt>,
    /// Attempts that were lost or failed and were retried; retries of calls within attempts are in
    /// `progress`.
    pub retried: u32,
    pub progress: Progress,
    /// How often its checks decided other than to pass, and the number of the last such decision (B16).
    pub checks: CheckCounts,
    pub checks_told: u32,
    pub answers: Rows<GivenAnswer>,
    /// Messages to its agent, in order (G13).
    pub told: Rows<Message>,
    /// The last message that a call of its agent was made with; 0: none.
    pub seen: u32,
    /// How many rungs of its ladder it has reached (B21).
    pub rungs: u32,
    /// The steps of its journal that it was restored to, in order (W5).
    pub restores: Rows<RestorePoint>,
    pub notes: Rows<String>,
    /// What its spans tell, if they are exported (X4).
    pub marks: Rows<Mark>,
    pub deadline: Option<Timestamp>,
    /// Its own timeout, if it counts from when its first attempt begins; the deadline is set then.
    pub timeout_ms: Option<u64>,
    /// How many contexts here and beneath wait for a human; its deadline stands still meanwhile.
    pub waiting_for_humans: u32,
    /// How many of them have asked a question: the others wait for a raise.
    pub questions: u32,
    pub clock_stopped_at: Timestamp,
    pub started_at: Timestamp,
    pub deleted: bool,
    /// It has ended, and its outcome waits until nothing of it is held (B20).
    pub outcome_due: bool,
    pub(super) timer: Option<Timestamp>,
    /// Until when its lease was renewed in memory; not stored (`lease`).
    pub(super) renewed: Option<Timestamp>,
}

/// One attempt to run a context; its number is its place in the list, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub token: TokenHash,
    pub worker_id: WorkerId,
}

/// A message to an agent; its number is its place in the list, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The sender's own name for it.
    pub id: CallId,
    pub text: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Status {
    /// In the queue, not claimed yet.
    Submitted {
        sent_at: Timestamp,
    },
    Working(Phase),
    InputRequired {
        question: Text,
        /// None if any text answers it, whenever it comes.
        asked: Option<Box<Asked>>,
    },
    Paused {
        reason: String,
    },
    Ended(Box<End>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Phase {
    /// In the queue again; not to be claimed before this time.
    Queued { not_before: Timestamp, sent_at: Option<Timestamp> },
    Running {
        until: Timestamp,
        /// The context was restored while a call of this attempt was in flight: it may finish that, and begins nothing.
        restored: bool,
    },
    /// Waits for children and occupies no worker.
    Waiting { children: Vec<ContextIndex>, hand_over: bool },
    /// A graph whose steps run.
    Steps,
}

#[derive(Debug, Clone, PartialEq)]
pub struct End {
    pub status: EndStatus,
    pub result: Option<Payload>,
    pub error: Option<Failure>,
    pub reason: Option<String>,
    pub at: Timestamp,
    /// What had succeeded in it was not undone (G14).
    pub without_undo: bool,
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
    pub fn end(&self) -> Option<&End> {
        self.status.end()
    }

    pub fn is_live(&self) -> bool {
        self.end().is_none()
    }

    /// Whether it is a graph or an item that has keys of its own, under its id.
    pub(super) fn has_own_keys(&self) -> bool {
        self.graph.is_some() && self.scope.as_ref() == Some(&self.id)
    }

    /// Whether it is an item of a group with `for_each`: it has keys of its own.
    pub(super) fn is_group_item(&self) -> bool {
        self.graph.is_some() && self.step.is_some_and(|of| matches!(of.ran, Ran::Item(_)))
    }

    /// The number of the latest attempt; 0 before the first.
    pub fn attempt(&self) -> u32 {
        u32::try_from(self.attempts.len()).unwrap_or(u32::MAX)
    }

    /// Retries used, attempts lost with a worker included (B15).
    pub fn retries(&self) -> u32 {
        self.retries_with(self.progress)
    }

    /// Retries used, if its attempt has made this progress.
    pub(super) fn retries_with(&self, progress: Progress) -> u32 {
        self.retried.saturating_add(progress.retries)
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

    /// What is left to its own calls (B17), with those in flight counted or not.
    pub(super) fn own_left(&self, with_calls: bool) -> Amount {
        let Some(limit) = self.own_limit else { return Amount::new(Usd::MAX, Tokens::MAX) };
        let open = self.calls.open().filter(|_| with_calls).map(|(_, call)| call.held);
        let held = open.fold(Amount::ZERO, |sum, held| sum.checked_add(held).unwrap_or(limit));
        limit.saturating_sub(self.budget.own).saturating_sub(held)
    }

    /// Clears `exhausted` if the budget has something left again.
    pub(super) fn replenish(&mut self) {
        self.exhausted = self.exhausted.and(self.budget.spent.reaches(self.budget.limit));
    }

    /// Until when it may wait in the queue for a worker; none if it does not wait, or without such a bound.
    pub fn queue_until(&self) -> Option<Timestamp> {
        let since = match &self.status {
            Status::Submitted { .. } => self.started_at,
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

    /// How long an undo may wait for its first attempt: as long as it may run, because no deadline above bounds it (G14).
    pub(super) fn undo_queue_ms(&self) -> Option<u64> {
        self.timeout_ms.filter(|_| self.undoes.is_some() && self.attempts.is_empty())
    }

    /// Its own deadline; none while a human is waited for, or while it undoes.
    pub fn running_deadline(&self) -> Option<Timestamp> {
        if self.waiting_for_humans == 0 && !self.is_undoing() { self.deadline } else { None }
    }
}

impl Trace {
    /// A trace without any event.
    pub fn new(id: TraceId) -> Self {
        Trace {
            id,
            version: 0,
            generation: 0,
            made: Timestamp::default(),
            copied_at: None,
            spent_by: Spenders::default(),
            settings: None,
            traced: None,
            contexts: Vec::new(),
            agents: BTreeMap::new(),
            agent_versions: BTreeMap::new(),
            plans: Vec::new(),
            rerun: None,
            kept: Keyed::default(),
            undo_values: UndoValues::default(),
            store: BTreeMap::new(),
            store_bytes: 0,
            content_bytes: 0,
            outputs: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            cancelled_before: None,
            by_id: HashMap::new(),
            timers: BTreeSet::new(),
            paused: BTreeSet::new(),
            line: BTreeSet::new(),
            unsaved: Unsaved::default(),
        }
    }

    pub fn id(&self) -> TraceId {
        self.id
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// Every context in the order of admission; the root is the first.
    pub fn contexts(&self) -> &[ContextNode] {
        &self.contexts
    }

    pub fn root(&self) -> Option<&ContextNode> {
        self.contexts.first()
    }

    pub fn context(&self, id: &ChildId) -> Option<&ContextNode> {
        self.find(id).map(|index| self.node(index))
    }

    pub fn agent(&self, id: &AgentId) -> Option<&AgentProfile> {
        self.agents.get(id).map(Arc::as_ref)
    }

    /// The shared store; after the root's end, as it was then.
    pub fn values(&self) -> &BTreeMap<ContextKey, Entry> {
        &self.store
    }

    pub fn outputs(&self) -> &BTreeMap<ContextKey, Json> {
        &self.outputs
    }

    pub fn node(&self, index: ContextIndex) -> &ContextNode {
        &self.contexts[index.0 as usize]
    }

    pub(super) fn node_mut(&mut self, index: ContextIndex) -> &mut ContextNode {
        self.unsaved.contexts.insert(index);
        &mut self.contexts[index.0 as usize]
    }

    pub(super) fn find(&self, id: &ChildId) -> Option<ContextIndex> {
        self.by_id.get(id).copied()
    }

    pub(super) fn expect(&self, id: &ChildId) -> ContextIndex {
        self.find(id).expect("events name contexts that were admitted")
    }

    pub(super) fn settings(&self) -> &Settings {
        self.settings.as_ref().expect("a trace with contexts has been opened")
    }

    /// A context and its ancestors, up to the root.
    pub(super) fn chain(&self, from: ContextIndex) -> impl Iterator<Item = (ContextIndex, &ContextNode)> {
        let at = move |index| (index, self.node(index));
        std::iter::successors(Some(at(from)), move |(_, node)| node.parent.map(at))
    }

    /// How often more was left to a context, on it or above it.
    pub(super) fn growths(&self, at: ContextIndex) -> u32 {
        self.chain(at).fold(0, |sum, (_, node)| sum.saturating_add(node.growths))
    }

    /// The ids from the root down to a context.
    pub(super) fn path(&self, to: ContextIndex) -> Vec<ChildId> {
        let mut path: Vec<_> = self.chain(to).map(|(_, node)| node.id.clone()).collect();
        path.reverse();
        path
    }

    /// A context and its descendants, parents before children.
    pub(super) fn subtree(&self, top: ContextIndex) -> Vec<ContextIndex> {
        let mut found = vec![top];
        let mut next = 0;
        while next < found.len() {
            found.extend(&self.node(found[next]).children);
            next += 1;
        }
        found
    }

    /// When a context is stopped: the earliest deadline of it and its ancestors (L). Those of a graph that undoes, and above
    /// it, do not bound its undos (G14).
    pub fn deadline(&self, node: &ContextNode) -> Option<Timestamp> {
        let above = node.parent.into_iter().flat_map(|parent| self.chain(parent).map(|(_, node)| node));
        let bounding = std::iter::once(node).chain(above).take_while(|node| !node.is_undoing());
        bounding.filter_map(ContextNode::running_deadline).min()
    }

    /// A context and its ancestors, up to the graph that undoes, if it is part of an undo: that has what was held for it,
    /// whatever became of the budgets above.
    pub(super) fn chain_of_undo(
        &self,
        from: ContextIndex,
    ) -> impl Iterator<Item = (ContextIndex, &ContextNode)> {
        self.chain(from).take_while(|(_, node)| !node.is_undoing())
    }

    /// Whether a context whose budget is too small may wait for more: it or an ancestor has `on_exhausted:
    /// pause`, and no exhausted budget aborts it.
    pub(super) fn may_pause(&self, at: ContextIndex) -> bool {
        self.chain_of_undo(at).any(|(_, node)| node.on_exhausted == OnExhausted::Pause)
            && !self.blocked_for_good(at)
    }

    /// Whether an exhausted budget aborts it: it may only finish its running call.
    pub(super) fn blocked_for_good(&self, at: ContextIndex) -> bool {
        self.blocked(at).is_some_and(|(context, _)| context.on_exhausted == OnExhausted::Abort)
    }

    /// The context whose exhausted budget stops this one: itself or an ancestor. An abort takes precedence
    /// over a pause.
    pub(super) fn blocked(&self, at: ContextIndex) -> Option<(&ContextNode, Dimension)> {
        let mut found = None;
        for (_, node) in self.chain_of_undo(at) {
            if let Some(dimension) = node.exhausted {
                match node.on_exhausted {
                    OnExhausted::Abort => return Some((node, dimension)),
                    OnExhausted::Pause => found = found.or(Some((node, dimension))),
                }
            }
        }
        found
    }
}
