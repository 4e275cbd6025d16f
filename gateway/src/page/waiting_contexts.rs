//! The contexts of a run that wait for people: for an answer, or for a larger budget.

use std::{
    collections::{VecDeque, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

use trace::{ContextNode, Status, Trace};

/// The most contexts that are listed.
const MOST: usize = 20;

pub(super) fn is_paused(node: &ContextNode) -> bool {
    matches!(node.status, Status::Paused { .. })
}

/// The contexts of a run that wait for people, parents before their children.
pub(super) fn all(trace: &Trace) -> Vec<&ContextNode> {
    let waits = |node: &&ContextNode| node.lifecycle.waiting_for_humans > 0;
    let mut beneath: VecDeque<&ContextNode> = trace.root().into_iter().filter(waits).collect();
    let mut waiting = Vec::new();
    while let Some(node) = beneath.pop_front().filter(|_| waiting.len() < MOST) {
        if node.asks() || is_paused(node) {
            waiting.push(node);
        }
        beneath.extend(node.children.iter().map(|child| trace.node(*child)).filter(waits));
    }
    waiting
}

/// A hash of the open requests; none without any. The script loads the cards again when it changes.
pub(super) fn print<'a>(nodes: impl IntoIterator<Item = &'a ContextNode>) -> Option<String> {
    let mut hasher = DefaultHasher::new();
    let mut count = 0;
    for node in nodes.into_iter().filter(|node| node.asks() || is_paused(node)) {
        (node.id.as_str(), is_paused(node), node.answers.len(), node.budget.ceilings.limit.cost_usd.nanos())
            .hash(&mut hasher);
        count += 1;
    }
    (count > 0).then(|| format!("{:x}", hasher.finish()))
}
