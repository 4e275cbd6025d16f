//! The shared store of a trace (section C): which context may read and write which key. A context
//! reads its declared inputs (or everything, if its profile allows that) and writes its `output_to`
//! and the keys under its own id.
//!
//! The graph that an agent runs stores its keys under the agent's id, so that the keys of two
//! graphs never clash. Its steps still use the short names. The keys that the graph lists in
//! `input_from` mean the same in it as for the agent: the current value in the store, or the input
//! of the agent itself (G10).
//!
//! An item of `for_each` that is a group also stores the keys written in it under its own id,
//! together with `item` and `index`, until it ends. Every other key means the same to its steps as
//! to the graph around the item. A graph that a step uses stores all its keys under its own id.

use domain::{
    ChildId, ContextKey, Json,
    graph::{Input, Source, StepIndex},
    limits::{MAX_VALUE_BYTES, Settings},
    wire::{EndStatus, Lease, StepStatus},
};
use text::set_limit::SetLimit;

use super::{
    ContextIndex, ContextNode, ContextSpec, Entry, Event, GraphRun, Refusal, Trace, limit_text,
    parts::MAX_KEYS,
};

impl Trace {
    /// A value that `child_id` may read. A missing key is `None`; null is a value.
    pub fn read_value(&self, child_id: &ChildId, key: &ContextKey) -> Result<Option<&Entry>, Refusal> {
        let node = self.node(self.known(child_id)?);
        if !self.may_read(node, key) {
            return Err(Refusal::NotReadable { child_id: child_id.clone(), key: key.clone() });
        }
        if is_own_input(node, key) {
            return Ok(None);
        }
        Ok(self.value_in(node, key))
    }

    /// The keys with a value that `child_id` may read, by the names it uses for them, and the
    /// number of keys left out.
    pub fn readable_keys(&self, child_id: &ChildId) -> Result<(Vec<ContextKey>, u64), Refusal> {
        let node = self.node(self.known(child_id)?);
        let mut keys: Vec<ContextKey> = if self.reads_all(node) {
            self.store.keys().cloned().collect()
        } else {
            let declared = node.spec.input_from.iter().chain(&node.spec.output_to);
            let declared = declared.filter(|key| self.value_in(node, key).is_some()).cloned();
            declared.chain(self.store.keys().filter(|key| key.is_under(&node.id)).cloned()).collect()
        };
        keys.sort_unstable();
        keys.dedup();
        let left_out = keys.len().saturating_sub(MAX_KEYS) as u64;
        keys.truncate(MAX_KEYS);
        Ok((keys, left_out))
    }

    fn may_read(&self, node: &ContextNode, key: &ContextKey) -> bool {
        node.spec.input_from.contains(key) || may_write(node, key) || self.reads_all(node)
    }

    pub(super) fn reads_all(&self, node: &ContextNode) -> bool {
        let agent = node.spec.agent_id.as_ref().and_then(|id| self.agents.get(id));
        agent.is_some_and(|agent| agent.reads_all_context)
    }

    /// The value of a key, under the name that the context's graph uses.
    pub(super) fn value_in(&self, node: &ContextNode, key: &ContextKey) -> Option<&Entry> {
        if let Some(caller) = self.lender(node, key) {
            return self.value_in(caller, key);
        }
        let everywhere = || if self.reads_all(node) { self.store.get(key) } else { None };
        self.store.get(&full_key(self, node, key)).or_else(everywhere)
    }

    /// The agent whose key this is, if a graph that the agent runs reads the key for this context
    /// (G10). Inputs of the agent itself are left out: the graph has copies of them.
    pub(super) fn lender(&self, node: &ContextNode, key: &ContextKey) -> Option<&ContextNode> {
        let graph = self.key_owner(node, key)?;
        let reads = node.graph.is_some() || node.spec.input_from.contains(key);
        let caller = self.node(graph.parent.filter(|_| reads && graph.spec.input_from.contains(key))?);
        (!is_own_input(caller, key)).then_some(caller)
    }

    /// The graph or item under whose id the key is stored; `None` for keys of the root.
    fn key_owner(&self, node: &ContextNode, key: &ContextKey) -> Option<&ContextNode> {
        let mut owner = self.context(node.identity.scope.as_ref()?)?;
        while owner.is_group_item() && !self.is_used(owner) && !self.is_own_key(owner, key) {
            owner = self.context(self.node(owner.parent?).identity.scope.as_ref()?)?;
        }
        Some(owner)
    }

    /// Returns true if the context runs a graph that a step uses: keys from outside it mean nothing
    /// within it.
    pub(super) fn is_used(&self, node: &ContextNode) -> bool {
        self.run_of(node).is_some_and(|(_, group)| group.used.is_some())
    }

    fn is_own_key(&self, item: &ContextNode, key: &ContextKey) -> bool {
        let own = self.run_of(item).and_then(|(_, group)| group.own_keys.as_ref());
        // The keys that the item's own agent writes under its id must not clash with those of its
        // steps.
        own.is_some_and(|own| own.contains(key)) || key.is_under(&item.id)
    }

    /// The value that a step reads before it has a context: the list of `for_each`, or a value in
    /// `when`. The value of a sibling is read only if the sibling succeeded in this run, as for an
    /// input.
    pub(super) fn value_for_step(&self, graph: ContextIndex, input: &Input) -> Option<&Entry> {
        let (run, _) = self.run_of(self.node(graph))?;
        let failed = |step: StepIndex| run.step(step).status != StepStatus::Succeeded;
        match input.source {
            Source::Sibling(writer) | Source::UnderSibling(writer) if failed(writer) => None,
            Source::UnderSibling(writer) => self.store.get(&under_step(self, run, writer, &input.key)?),
            Source::Sibling(_) | Source::Outside | Source::PreviousRound => {
                self.value_in(self.node(graph), &input.key)
            }
        }
    }
}

/// The caller's own inputs that a graph reads. They never change, so the graph gets copies.
pub(super) fn lent_inputs<'a>(
    caller: &'a ContextNode,
    spec: &'a ContextSpec,
) -> impl Iterator<Item = (&'a ContextKey, &'a Json)> {
    let own = spec.input_from.iter().filter(|key| is_own_input(caller, key));
    own.filter_map(|key| caller.spec.inputs.get_key_value(key))
}

/// Returns true if the context itself was given an input of this name, such as `item`. Its worker
/// already has that input; a value of the same name in the store is a different one.
fn is_own_input(node: &ContextNode, key: &ContextKey) -> bool {
    let is_own = node.graph.is_none() && node.spec.inputs.contains_key(key);
    is_own && !node.spec.input_from.contains(key) && !may_write(node, key)
}

fn may_write(node: &ContextNode, key: &ContextKey) -> bool {
    node.spec.output_to.as_ref() == Some(key) || key.is_under(&node.id)
}

/// The full name of a key in the store. A graph other than the root stores all its keys under its
/// id. An agent in the graph does so too, except for keys under the agent's own id or an
/// ancestor's. None of this ever changes, so a key always refers to the same value.
pub(super) fn full_key(trace: &Trace, node: &ContextNode, key: &ContextKey) -> ContextKey {
    if let Some(key) = under_sibling(trace, node, key) {
        return key;
    }
    if node.identity.scope.is_none() {
        return key.clone();
    }
    let declared = node.spec.output_to.as_ref() == Some(key) || node.spec.input_from.contains(key);
    let of_the_graph = node.graph.is_some() || (node.identity.step.is_some() && declared);
    let above = node.parent.into_iter().flat_map(|parent| trace.chain(parent).map(|(_, node)| node));
    if !of_the_graph && std::iter::once(node).chain(above).any(|owner| key.is_under(&owner.id)) {
        return key.clone();
    }
    let Some(owner) = trace.key_owner(node, key) else { return key.clone() };
    ContextKey::new(&format!("{}.{key}", owner.id)).unwrap_or_else(|_| key.clone())
}

/// The full name of `<step>.<key>` for a step that reads it: the key under the id of the context
/// that completed `<step>`. The reader starts after that step, so the context is known and does not
/// change.
fn under_sibling(trace: &Trace, node: &ContextNode, key: &ContextKey) -> Option<ContextKey> {
    let (run, group) = trace.run_of(trace.node(node.parent?))?;
    let mut inputs = group.steps[run.place(node.identity.step?.step) as usize].inputs.iter();
    let source = inputs.find(|input| input.key == *key)?.source;
    let Source::UnderSibling(writer) = source else { return None };
    under_step(trace, run, writer, key)
}

/// The full name of `<step>.<key>`: the key under the id of the context that completed the step.
pub(super) fn under_step(
    trace: &Trace,
    run: &GraphRun,
    writer: StepIndex,
    key: &ContextKey,
) -> Option<ContextKey> {
    let completed = |context: &&ContextIndex| {
        trace.node(**context).end().is_some_and(|end| end.status == EndStatus::Completed)
    };
    let writer = run.step(writer).contexts.iter().rev().find(completed)?;
    let (_, rest) = key.as_str().split_once('.')?;
    ContextKey::new(&format!("{}.{rest}", trace.node(*writer).id)).ok()
}

/// Deletes the value that a context wrote to its output, if it ended without completing.
pub(super) fn withdrawn(trace: &Trace, at: ContextIndex) -> Option<Event> {
    let completed = trace.node(at).end().is_some_and(|end| end.status == EndStatus::Completed);
    if completed { None } else { own_value_deleted(trace, at) }
}

/// Deletes the value that a context wrote to its output itself, if there is one.
pub(super) fn own_value_deleted(trace: &Trace, at: ContextIndex) -> Option<Event> {
    let node = trace.node(at);
    let key = node.spec.output_to.as_ref()?;
    own_value(trace, at, key)?;
    Some(Event::ValueDeleted { key: full_key(trace, node, key) })
}

/// C, I5: a child may read or write only the keys that its parent may. The root may read and write
/// everything. A graph also reads its caller's own inputs.
pub(super) fn check_declared(
    trace: &Trace,
    parent: &ContextNode,
    spec: &ContextSpec,
    is_graph: bool,
) -> Result<(), Refusal> {
    if parent.parent.is_none() {
        return Ok(());
    }
    let child_id = parent.id.clone();
    let readable = |key: &ContextKey| trace.may_read(parent, key) || (is_graph && is_own_input(parent, key));
    if let Some(key) = spec.input_from.iter().find(|key| !readable(key)) {
        return Err(Refusal::NotReadable { child_id, key: key.clone() });
    }
    let writable = |key: &ContextKey| may_write(parent, key) || key.is_under(&spec.child_id);
    match spec.output_to.as_ref().filter(|key| !writable(key)) {
        Some(key) => Err(Refusal::NotWritable { child_id, key: key.clone() }),
        None => Ok(()),
    }
}

/// Setting the value that the same context has already set changes nothing, so a second delivery is
/// harmless.
pub(super) fn set(
    trace: &Trace,
    lease: &Lease,
    key: &ContextKey,
    value: &Json,
) -> Result<Vec<Event>, Refusal> {
    let at = trace.running(lease)?;
    let node = trace.node(at);
    if !may_write(node, key) || is_input(trace, node, key) {
        return Err(Refusal::NotWritable { child_id: node.id.clone(), key: key.clone() });
    }
    put(trace, at, key, value)
}

/// Returns true if the value is an input of the run. Inputs are never overwritten.
fn is_input(trace: &Trace, node: &ContextNode, key: &ContextKey) -> bool {
    trace.store.get(&full_key(trace, node, key)).is_some_and(|entry| entry.writer.is_none())
}

/// Writes the result of a context to its output key. A value that the context wrote there itself
/// stays: readers get that value, and the result remains unchanged.
pub(super) fn put_result(
    trace: &Trace,
    of: ContextIndex,
    key: &ContextKey,
    result: &Json,
) -> Result<Vec<Event>, Refusal> {
    match own_value(trace, of, key) {
        Some(_) => Ok(Vec::new()),
        None => put(trace, of, key, result),
    }
}

/// The value that a context itself has written to this key.
pub(super) fn own_value<'a>(trace: &'a Trace, of: ContextIndex, key: &ContextKey) -> Option<&'a Json> {
    let node = trace.node(of);
    let entry = trace.store.get(&full_key(trace, node, key))?;
    (entry.writer.as_ref() == Some(&node.id)).then_some(&entry.value)
}

/// Writes a value if the limits allow it. Permissions are not checked here.
pub(super) fn put(
    trace: &Trace,
    writer: ContextIndex,
    key: &ContextKey,
    value: &Json,
) -> Result<Vec<Event>, Refusal> {
    let node = trace.node(writer);
    let key = full_key(trace, node, key);
    let before = trace.store.get(&key);
    if before.is_some_and(|entry| entry.value == *value && entry.writer.as_ref() == Some(&node.id)) {
        return Ok(Vec::new());
    }
    let settings = trace.settings();
    let size = value.size_bytes();
    check_value(settings, size)?;
    let total = trace.store_bytes - before.map_or(0, |entry| entry.size_bytes) + size;
    check_total(settings, "a shared store", total)?;
    // The values that undos will read are kept even after another value is written to their key.
    let kept = trace.undo_values.bytes() + size;
    check_total(settings, "the copy of the values read by steps with an undo,", kept)?;
    Ok(vec![Event::ValueSet { key, value: value.clone(), writer: Some(node.id.clone()) }])
}

/// L: checks that a value is small enough for the shared store.
pub(super) fn check_value(settings: &Settings, size: u64) -> Result<(), Refusal> {
    let own = settings.limits.max_context_value_bytes;
    if size <= own.min(MAX_VALUE_BYTES) {
        return Ok(());
    }
    let name = "max_context_value_bytes";
    let limit = match own > MAX_VALUE_BYTES {
        true => SetLimit::built_in(name, MAX_VALUE_BYTES),
        false => limit_text::of_settings(settings, name),
    };
    Err(Refusal::TooLarge { size, what: "a value", limit: Box::new(limit) })
}

/// L: checks that the shared store has room for `size` bytes in total.
pub(super) fn check_total(settings: &Settings, what: &'static str, size: u64) -> Result<(), Refusal> {
    if size <= settings.limits.max_context_store_bytes {
        return Ok(());
    }
    let limit = Box::new(limit_text::of_settings(settings, "max_context_store_bytes"));
    Err(Refusal::TooLarge { size, what, limit })
}

pub(super) fn delete(trace: &Trace, lease: &Lease, key: &ContextKey) -> Result<Vec<Event>, Refusal> {
    let node = trace.node(trace.running(lease)?);
    if !may_write(node, key) || is_input(trace, node, key) {
        return Err(Refusal::NotWritable { child_id: node.id.clone(), key: key.clone() });
    }
    let key = full_key(trace, node, key);
    Ok(trace.store.contains_key(&key).then_some(Event::ValueDeleted { key }).into_iter().collect())
}
