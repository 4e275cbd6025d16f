//! The parts of a context's work that may be large: results of children, inputs and answers. A
//! message to a worker contains as many of them as fit into a fixed size, so that it does not grow
//! with the history of the run. The worker asks for the rest.

use std::collections::BTreeMap;

use domain::{
    ContextKey, Json,
    graph::Source,
    json,
    limits::MAX_TEXT_BYTES,
    wire::{ChildResult, GivenAnswer, Lease, LeftOut, Part, PartName, Payload, StepStatus},
    wording,
};

use super::{ContextNode, Refusal, Trace};

/// The most bytes of each kind of part in one message. With the largest order, profile and shared
/// messages this stays below `MAX_MESSAGE_BYTES`.
const MAX_CHILDREN_BYTES: u64 = 256 * 1024;
const MAX_INPUTS_BYTES: u64 = 512 * 1024;
const MAX_ANSWERS_BYTES: u64 = 512 * 1024;
/// The most results of children in one message, because a context may have had thousands of
/// children.
const MAX_CHILDREN: usize = 256;
/// The most open holds that are sent to the next attempt. The rest are booked in full (B10).
pub(super) const MAX_OPEN_HOLDS: usize = 2_000;
/// The most keys of the shared store in one answer.
pub(super) const MAX_KEYS: usize = 10_000;

/// The parts of one message, and a list of the parts left out.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) children: Vec<ChildResult>,
    pub(super) inputs: BTreeMap<ContextKey, Json>,
    pub(super) answers: Vec<GivenAnswer>,
    pub(super) left_out: LeftOut,
}

impl Trace {
    pub(super) fn parts(&self, node: &ContextNode) -> Parts {
        let mut parts = Parts::default();
        self.add_children(node, &mut parts);
        self.add_inputs(node, &mut parts);
        add_answers(node, &mut parts);
        parts
    }

    /// A part that the running attempt of a lease asks for.
    pub fn part(&self, lease: &Lease, part: &PartName) -> Result<Part, Refusal> {
        let node = self.node(self.running(lease)?);
        match part {
            PartName::Child(child_id) => {
                let own = |child: &&ContextNode| {
                    child.identity.step.is_none()
                        && child.parent.is_some_and(|parent| self.node(parent).id == node.id)
                };
                Ok(Part::Child(self.context(child_id).filter(own).and_then(|child| self.child_result(child))))
            }
            PartName::Input(key) => {
                let given = has_inputs(self, node) && node.spec.inputs.contains_key(key);
                if !given && !node.spec.input_from.contains(key) {
                    return Err(Refusal::NotReadable { child_id: node.id.clone(), key: key.clone() });
                }
                Ok(Part::Input(self.input(node, key).map_or_else(Json::null, |(value, _)| value.clone())))
            }
            PartName::Answer(number) => {
                let place = (*number as usize).checked_sub(1);
                let given = place.and_then(|place| node.answers.get(place));
                let none = || Refusal::NoQuestion { child_id: node.id.clone(), question: *number };
                Ok(Part::Answer(given.ok_or_else(none)?.clone()))
            }
        }
    }

    /// Adds the newest children: the agent has journaled the results of the earlier children for
    /// which it waited.
    fn add_children(&self, node: &ContextNode, parts: &mut Parts) {
        let spawned = node.children.iter().rev().map(|child| self.node(*child));
        let mut room = MAX_CHILDREN_BYTES;
        for result in
            spawned.filter(|child| child.identity.step.is_none()).filter_map(|child| self.child_result(child))
        {
            let rest = room.checked_sub(json::size_bytes(&result));
            match rest.filter(|_| parts.children.len() < MAX_CHILDREN) {
                Some(rest) => {
                    room = rest;
                    parts.children.push(result);
                }
                None => {
                    parts.left_out.children = true;
                    break;
                }
            }
        }
        parts.children.reverse();
    }

    /// Everything that a parent gets from its child (I2) once the child has ended: its result; for
    /// a graph, also all its steps.
    fn child_result(&self, child: &ContextNode) -> Option<ChildResult> {
        let end = child.end()?;
        let report = self.graph_answer(child).map(|answer| {
            let answer = serde_json::to_value(answer).expect("a message has string keys only");
            Payload::Inline(Json::from(answer))
        });
        Some(ChildResult {
            child_id: child.id.clone(),
            status: end.status,
            result: report.or_else(|| end.details.result.clone()),
            error: end.why().map(|why| wording::cut(why.to_owned(), MAX_TEXT_BYTES)),
        })
    }

    /// Adds the declared inputs: those of the order, the others from the store, and null for
    /// missing keys.
    fn add_inputs(&self, node: &ContextNode, parts: &mut Parts) {
        let own = node.spec.inputs.keys().filter(|_| has_inputs(self, node));
        let mut room = MAX_INPUTS_BYTES;
        for key in own.chain(&node.spec.input_from) {
            let (value, size) = match self.input(node, key) {
                Some((value, size)) => (value.clone(), size),
                None => (Json::null(), 0),
            };
            match room.checked_sub(size) {
                Some(rest) => {
                    room = rest;
                    parts.inputs.insert(key.clone(), value);
                }
                None => {
                    parts.inputs.remove(key);
                    parts.left_out.inputs.insert(key.clone());
                }
            }
        }
    }

    /// An input and its size. A declared input is read from the store, even if the spec has one of
    /// that name.
    pub(super) fn input<'a>(&'a self, node: &'a ContextNode, key: &ContextKey) -> Option<(&'a Json, u64)> {
        if !node.spec.input_from.contains(key) {
            return node.spec.inputs.get(key).map(|value| (value, value.size_bytes()));
        }
        let entry = self.value_in(node, key).filter(|_| !self.writer_failed(node, key))?;
        Some((&entry.value, entry.size_bytes))
    }

    /// Returns true if the sibling step that writes a key did not succeed in this run: the value in
    /// the store is old.
    fn writer_failed(&self, node: &ContextNode, key: &ContextKey) -> bool {
        if let Some(caller) = self.lender(node, key) {
            return self.writer_failed(caller, key);
        }
        let (Some(parent), Some(of)) = (node.parent, node.identity.step) else { return false };
        let Some((run, group)) = self.run_of(self.node(parent)) else { return false };
        let input = group.steps[run.place(of.step) as usize].inputs.iter().find(|input| input.key == *key);
        match input.map(|input| input.source) {
            Some(Source::Sibling(writer) | Source::UnderSibling(writer)) => {
                run.steps[writer as usize].status != StepStatus::Succeeded
            }
            Some(Source::Outside | Source::PreviousRound) | None => false,
        }
    }
}

/// Returns true if the inputs of the order are for the context's agent. The inputs of a graph are
/// for its steps; those of an item are for both.
fn has_inputs(trace: &Trace, node: &ContextNode) -> bool {
    node.graph.is_none() || (node.is_group_item() && !trace.is_used(node))
}

/// Adds the newest answers. The agent never repeats a question that is in its journal.
fn add_answers(node: &ContextNode, parts: &mut Parts) {
    let mut room = MAX_ANSWERS_BYTES;
    let fits = |given: &&GivenAnswer| {
        let rest = room.checked_sub(json::size_bytes(given));
        room = rest.unwrap_or_default();
        rest.is_some()
    };
    let count = node.answers.iter().rev().take_while(fits).count();
    let first = node.answers.len() - count;
    parts.answers = node.answers[first..].to_vec();
    parts.left_out.answers = u32::try_from(first).unwrap_or(u32::MAX);
}
