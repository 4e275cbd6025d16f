//! The state of a trace: its contexts (`context_node`), the graphs they run and the shared store.
//! Only `apply` changes it. Contexts are numbered in the order of their admission, and are never
//! moved or removed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use domain::{
    AgentId, AgentProfile, CallId, ChildId, ContextKey, Dimension, Json, Timestamp, TraceId, WorkerId,
    graph::Plan,
    limits::Settings,
    wire::{OnExhausted, Text},
};
use serde::{Deserialize, Serialize};

use super::{
    ContextIndex, ContextNode, KeptResult, KeyedRows, Rerun, RunOrigin, StepPlace, TokenHash,
    spenders::Spenders, undo_values::UndoValues, unsaved::UnsavedParts,
};

#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    pub(super) id: TraceId,
    /// The number of events so far.
    pub(super) version: u64,
    /// How many times the trace was rebuilt from its log.
    pub(super) generation: u32,
    /// The time of the last commit.
    pub(super) made: Timestamp,
    /// The time of the last copy of the trace in its log (`copy`).
    pub(super) copied_at: Option<Timestamp>,
    /// `None` until a submission opens the trace.
    pub(super) settings: Option<Arc<Settings>>,
    /// The origin of the run, if its spans are exported (X5).
    pub(super) traced: Option<Box<RunOrigin>>,
    pub(super) contexts: Vec<ContextNode>,
    pub(super) spent_by: Spenders,
    pub(super) agents: BTreeMap<AgentId, Arc<AgentProfile>>,
    /// The versions of those profiles that were applied.
    pub(super) agent_versions: BTreeMap<AgentId, u64>,
    pub(super) plans: Vec<Arc<Plan>>,
    /// The run whose results this one takes over, and the results not taken yet (G15).
    pub(super) rerun: Option<Rerun>,
    pub(super) kept: KeyedRows<StepPlace, KeptResult>,
    /// The values that runs which may be undone have read (G14).
    pub(super) undo_values: UndoValues,
    pub(super) store: BTreeMap<ContextKey, Entry>,
    pub(super) store_bytes: u64,
    /// The bytes kept outside the shared store (see `content`); derived, not stored.
    pub(super) content_bytes: u64,
    /// The shared store at the end of the root.
    pub(super) outputs: BTreeMap<ContextKey, Json>,
    /// Cancels that arrived before their context: by context, and for the whole trace.
    pub(super) tombstones: BTreeMap<ChildId, String>,
    pub(super) cancelled_before: Option<String>,
    pub(super) by_id: HashMap<ChildId, ContextIndex>,
    pub(super) timers: BTreeSet<(Timestamp, ContextIndex)>,
    /// The contexts that are paused.
    pub(super) paused: BTreeSet<ContextIndex>,
    /// The holds that wait for calls in flight, by their tickets.
    pub(super) line: BTreeSet<(u64, ContextIndex)>,
    /// The parts that changed since the trace was last stored.
    pub(super) unsaved: UnsavedParts,
}

/// A value of the shared store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub value: Json,
    /// `None` for an input of the submission.
    pub writer: Option<ChildId>,
    pub version: u32,
    pub size_bytes: u64,
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
    /// The id that the sender gave the message.
    pub id: CallId,
    pub text: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Text>,
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
            kept: KeyedRows::default(),
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
            unsaved: UnsavedParts::default(),
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

    /// The shared store. It is cleared at the root's end: `outputs` then has its values.
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

    /// The sum of `growths` of a context and its ancestors.
    pub(super) fn growths(&self, at: ContextIndex) -> u32 {
        self.chain(at).fold(0, |sum, (_, node)| sum.saturating_add(node.lifecycle.growths))
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

    /// The time at which a context is stopped: the earliest deadline of it and its ancestors (L).
    /// An undo is bounded neither by the graph that undoes nor by the ancestors of that graph
    /// (G14).
    pub fn deadline(&self, node: &ContextNode) -> Option<Timestamp> {
        let above = node.parent.into_iter().flat_map(|parent| self.chain(parent).map(|(_, node)| node));
        let bounding = std::iter::once(node).chain(above).take_while(|node| !node.is_undoing());
        bounding.filter_map(ContextNode::running_deadline).min()
    }

    /// A context and its ancestors. For a part of an undo, the chain stops below the graph that
    /// undoes: the undo spends the amount reserved for it, even if the budgets above have nothing
    /// left.
    pub(super) fn chain_of_undo(
        &self,
        from: ContextIndex,
    ) -> impl Iterator<Item = (ContextIndex, &ContextNode)> {
        self.chain(from).take_while(|(_, node)| !node.is_undoing())
    }

    /// Returns true if a context whose budget is too small may wait for more: it or an ancestor has
    /// `on_exhausted: pause`, and no exhausted budget aborts it.
    pub(super) fn may_pause(&self, at: ContextIndex) -> bool {
        self.chain_of_undo(at).any(|(_, node)| node.terms.on_exhausted == OnExhausted::Pause)
            && !self.blocked_for_good(at)
    }

    /// Returns true if an exhausted budget aborts the context: it may only finish its running call.
    pub(super) fn blocked_for_good(&self, at: ContextIndex) -> bool {
        self.blocked(at).is_some_and(|(context, _)| context.terms.on_exhausted == OnExhausted::Abort)
    }

    /// The context whose exhausted budget stops this one: itself or an ancestor. An abort takes
    /// precedence over a pause.
    pub(super) fn blocked(&self, at: ContextIndex) -> Option<(&ContextNode, Dimension)> {
        let mut found = None;
        for (_, node) in self.chain_of_undo(at) {
            if let Some(dimension) = node.lifecycle.exhausted {
                match node.terms.on_exhausted {
                    OnExhausted::Abort => return Some((node, dimension)),
                    OnExhausted::Pause => found = found.or(Some((node, dimension))),
                }
            }
        }
        found
    }
}
