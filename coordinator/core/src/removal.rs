//! Guarded delete (W6): a context that other contexts or runs use, or that has live descendants, is
//! deleted only by force. The refusal names its users. If its users are unknown, the delete is
//! refused.
//!
//! A second delivery finds everything deleted, and changes nothing.

use domain::wire::{Branch, Checkpoint, Delete, Referrers};

use super::{ContextIndex, Event, Phase, Refusal, Status, Trace, end};

impl Trace {
    /// The journal that it may still have to copy: it was submitted as a branch, and is live.
    pub fn branches_from(&self) -> Option<&Checkpoint> {
        self.root().filter(|root| root.is_live())?.spec.branch_from.as_ref()
    }
}

pub(super) fn delete(
    trace: &Trace,
    delete: &Delete,
    branches: Option<&[Branch]>,
) -> Result<Vec<Event>, Refusal> {
    let at = match &delete.child_id {
        Some(child_id) => trace.known(child_id)?,
        None if trace.root().is_some() => ContextIndex(0),
        None => return Err(Refusal::NoTrace),
    };
    let doomed = trace.subtree(at);
    if !delete.force {
        guard(trace, at, &doomed, delete, branches)?;
    }
    let mut events = Vec::new();
    // Descendants of an ended context have ended with it, except graphs that undo. After the delete
    // the data for their undos is missing.
    events.extend(end::without_undo(trace, at, "deleted by force"));
    let remaining = doomed.into_iter().filter(|index| !trace.node(*index).lifecycle.deleted);
    events.extend(remaining.map(|index| Event::Deleted { child_id: trace.node(index).id.clone(), by: None }));
    Ok(events)
}

fn guard(
    trace: &Trace,
    at: ContextIndex,
    doomed: &[ContextIndex],
    delete: &Delete,
    branches: Option<&[Branch]>,
) -> Result<(), Refusal> {
    let target = trace.node(at).id.to_string();
    let (outside, branches) = match (&delete.outside, branches) {
        (Referrers::Known(referrers), Some(branches)) => (referrers, branches),
        (Referrers::Unknown, _) | (_, None) => return Err(Refusal::GuardUnsure { target }),
    };
    let needed = |branch: &&Branch| doomed.iter().any(|index| trace.node(*index).id == branch.from);
    let copying = branches.iter().filter(needed);
    let copying = copying.map(|branch| {
        if branch.taken {
            return format!("run `{}`, which took over the result of `{}`", branch.trace_id, branch.from);
        }
        format!("run `{}`, which has not copied the journal of `{}` yet", branch.trace_id, branch.from)
    });
    let live = doomed.iter().filter(|index| trace.node(**index).is_live());
    let live = live.map(|index| format!("`{}`, which is live", trace.node(*index).id));
    let waiting = trace.node(at).parent.filter(|parent| reads_result(trace, *parent, at));
    let waiting =
        waiting.map(|parent| format!("`{}`, which has not read its result yet", trace.node(parent).id));
    let outside = outside.iter().map(|referrer| format!("`{referrer}`"));
    let referrers: Vec<String> = live.chain(waiting).chain(copying).chain(outside).collect();
    if referrers.is_empty() { Ok(()) } else { Err(Refusal::Guarded { target, referrers }) }
}

/// Returns true if a live parent may still get this child's result.
fn reads_result(trace: &Trace, parent: ContextIndex, child: ContextIndex) -> bool {
    match &trace.node(parent).status {
        Status::Working(Phase::Waiting { children, .. }) => children.contains(&child),
        Status::Ended(_) => false,
        Status::Submitted { .. }
        | Status::Working(_)
        | Status::InputRequired { .. }
        | Status::Paused { .. } => true,
    }
}
