//! The follow-ups of events. An event may raise several follow-ups. Each one is decided on the
//! state at its turn, and its decision is again a list of events, until no follow-up is left.

use std::collections::{BTreeSet, VecDeque};

use domain::Timestamp;

use super::{
    Body, ContextIndex, Event, Phase, Requeue, RunPhase, Status, Trace,
    attempt::{children_ended, queue_again},
    checkpoint, context_store, end, graph, hold_queue, money, question, timer,
};

#[derive(Debug, Clone, Copy)]
pub(super) enum FollowUp {
    /// A cost was booked here: which budgets does it use up?
    Spent(ContextIndex),
    /// This budget is used up: which contexts beneath it can't go on?
    Exhausted(ContextIndex),
    /// This budget was raised: which contexts beneath it may go on?
    Raised(ContextIndex),
    /// Money was returned, or a place in the line became free: which contexts can continue?
    Returned,
    /// This context ended: what happens to its descendants?
    Beneath(ContextIndex),
    /// This context ended: what does it mean for its parent?
    Above(ContextIndex),
    /// A hold of this context ended, or the context did: is its outcome final now? Does an attempt
    /// end that only had to finish its call?
    Close(ContextIndex),
    /// Something changed for this graph: what starts next, or does it end?
    Graph(ContextIndex),
    /// An `approve` step has begun.
    Ask(ContextIndex),
    /// A question has its answer.
    Answered(ContextIndex),
    /// This context's timer is due.
    Due(ContextIndex),
}

#[derive(Debug, Default)]
pub(super) struct Agenda {
    follow_ups: VecDeque<FollowUp>,
}

impl Agenda {
    pub(super) fn next(&mut self) -> Option<FollowUp> {
        self.follow_ups.pop_front()
    }

    pub(super) fn extend_due(&mut self, due: Vec<ContextIndex>) {
        self.follow_ups.extend(due.into_iter().map(FollowUp::Due));
    }

    /// Adds the follow-ups of an event that has just been applied.
    pub(super) fn follow(&mut self, trace: &Trace, event: &Event) {
        let facts = event.facts();
        if facts.has_follow_up {
            self.add_follow_ups(trace, event);
        }
        if facts.frees_room && !trace.paused.is_empty() {
            self.add(FollowUp::Returned);
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the facts of an event say that something follows")]
    fn add_follow_ups(&mut self, trace: &Trace, event: &Event) {
        match event {
            Event::Settled { child_id, .. }
            | Event::Released { child_id, .. }
            | Event::Forfeited { child_id, .. }
            | Event::Estimated { child_id, .. }
            | Event::Corrected { child_id, .. }
            | Event::Charged { child_id, .. } => {
                let at = trace.expect(child_id);
                self.add(FollowUp::Spent(at));
                self.add(FollowUp::Close(at));
            }
            Event::DisputeDecided { child_id, .. } => self.add(FollowUp::Spent(trace.expect(child_id))),
            Event::Exhausted { child_id, .. } => self.add(FollowUp::Exhausted(trace.expect(child_id))),
            Event::Raised { child_id, .. } | Event::Replenished { child_id } => {
                let at = trace.expect(child_id);
                self.add(FollowUp::Raised(at));
                let graphs = trace.subtree(at).into_iter().filter(|index| trace.node(*index).graph.is_some());
                graphs.for_each(|graph| self.add(FollowUp::Graph(graph)));
            }
            Event::Ended(ended) => {
                let at = trace.expect(&ended.child_id);
                // The close comes first, so that it is in the same message as the end.
                self.add(FollowUp::Close(at));
                self.add(FollowUp::Beneath(at));
                self.add(FollowUp::Above(at));
                // A graph that undoes waits for all graphs in it that undo, at every depth.
                let waiting = trace.chain(at).skip(1).filter(|(_, node)| node.is_undoing());
                waiting.for_each(|(graph, _)| self.add(FollowUp::Graph(graph)));
            }
            Event::UndoingBegun(ended) => {
                let at = trace.expect(&ended.child_id);
                self.add(FollowUp::Beneath(at));
                self.add(FollowUp::Graph(at));
            }
            Event::UndoRefused { child_id, .. } => self.add(FollowUp::Graph(trace.expect(child_id))),
            Event::Admitted(admitted) => {
                let at = trace.expect(&admitted.spec.child_id);
                if admitted.body == Body::Approval {
                    self.add(FollowUp::Ask(at));
                }
                if trace.node(at).graph.is_some() {
                    self.add(FollowUp::Graph(at));
                }
                // One step was started, and more may start. A taken result has ended as well, and
                // its end is handled first.
                if let (Some(parent), Some(_), None) =
                    (trace.node(at).parent, trace.node(at).identity.step, &admitted.taken)
                {
                    self.add(FollowUp::Graph(parent));
                }
            }
            Event::StepEnded { child_id, .. }
            | Event::StepContinues { child_id, .. }
            | Event::ItemsTaken { child_id, .. }
            | Event::ItemRefused { child_id, .. }
            | Event::GatheringEnded { child_id } => self.add(FollowUp::Graph(trace.expect(child_id))),
            Event::Requeued { child_id, .. } => {
                let at = trace.expect(child_id);
                if trace.node(at).graph.is_some() {
                    self.add(FollowUp::Graph(at));
                }
            }
            Event::Amended { child_id, .. } => {
                // A paused graph is resumed first, if it need not wait any longer.
                self.add(FollowUp::Returned);
                trace
                    .open_runs(trace.expect(child_id))
                    .into_iter()
                    .for_each(|at| self.add(FollowUp::Graph(at)));
            }
            Event::Answered { child_id, .. } => self.add(FollowUp::Answered(trace.expect(child_id))),
            _ => debug_assert!(!event.facts().has_follow_up, "nothing follows from {event:?}"),
        }
    }

    fn add(&mut self, follow_up: FollowUp) {
        self.follow_ups.push_back(follow_up);
    }
}

pub(super) fn decide(trace: &Trace, follow_up: FollowUp, now: Timestamp) -> Vec<Event> {
    match follow_up {
        FollowUp::Spent(at) => money::newly_exhausted(trace, at),
        FollowUp::Exhausted(at) => cannot_go_on(trace, at, now),
        FollowUp::Raised(at) => may_go_on(trace, at, now),
        FollowUp::Returned => may_start_again(trace, now),
        FollowUp::Beneath(at) => beneath(trace, at),
        FollowUp::Above(at) => above(trace, at, now),
        FollowUp::Close(at) => call_ended(trace, at, now),
        FollowUp::Graph(at) => graph::advance(trace, at, now),
        FollowUp::Ask(at) => question::by_step(trace, at),
        // The context may have ended together with an ancestor, in the same wake.
        FollowUp::Answered(at) if !trace.node(at).is_live() => Vec::new(),
        FollowUp::Answered(at) => {
            let next = question::decided(trace, at);
            vec![next.unwrap_or_else(|| queue_again(trace, at, Requeue::Answered, now))]
        }
        FollowUp::Due(at) => timer::due(trace, at, now),
    }
}

/// B12: an exhausted budget at once ends or pauses the queued and parked contexts below it. A
/// running context finishes the call that it has paid for, and is halted at its next call. A
/// context that waits for children is decided when they have ended.
fn cannot_go_on(trace: &Trace, at: ContextIndex, now: Timestamp) -> Vec<Event> {
    let stuck = trace.subtree(at).into_iter().filter(|index| match &trace.node(*index).status {
        Status::Submitted { .. } | Status::Working(Phase::Queued { .. }) => true,
        Status::InputRequired { .. } | Status::Paused { .. } => trace.blocked_for_good(*index),
        Status::Working(Phase::Running { .. } | Phase::Waiting { .. } | Phase::Steps) | Status::Ended(_) => {
            false
        }
    });
    let decided = stuck.map(|index| (index, queue_again(trace, index, Requeue::Raised, now)));
    outermost_ends(trace, decided.collect())
}

/// Drops the events of contexts below one that ends in the same decision: they end with it. A graph
/// and a group in it therefore never begin to undo at the same time (G14).
fn outermost_ends(trace: &Trace, decided: Vec<(ContextIndex, Event)>) -> Vec<Event> {
    let ends = |event: &Event| matches!(event, Event::Ended(_) | Event::UndoingBegun(_));
    let ending: BTreeSet<_> = decided.iter().filter(|(_, event)| ends(event)).map(|(at, _)| *at).collect();
    let is_outermost = |at: ContextIndex| !trace.chain(at).skip(1).any(|(above, _)| ending.contains(&above));
    decided.into_iter().filter(|(at, _)| is_outermost(*at)).map(|(_, event)| event).collect()
}

fn may_go_on(trace: &Trace, at: ContextIndex, now: Timestamp) -> Vec<Event> {
    let parked = trace.subtree(at).into_iter().filter(|index| trace.paused.contains(index));
    let free = parked.filter(|index| trace.blocked(*index).is_none() && !waits_for_money(trace, *index, now));
    outermost_ends(
        trace,
        free.map(|index| (index, queue_again(trace, index, Requeue::Raised, now))).collect(),
    )
}

/// Resumes contexts that paused for lack of money: contexts in the line whose turn has come; graphs
/// that can start steps again, because an ended grant or a correction returned money; and agents
/// with more left than when they paused.
fn may_start_again(trace: &Trace, now: Timestamp) -> Vec<Event> {
    let mut events = hold_queue::called_up(trace, now);
    let more_is_left = |index: ContextIndex| {
        let node = trace.node(index);
        if runs_steps(trace, index) {
            return !waits_for_money(trace, index, now);
        }
        let left = trace.left_apart_from_calls(index);
        node.lifecycle.waiting.is_empty()
            && node.lifecycle.left_at_pause.is_some_and(|then| left.exceeds(then).is_some())
    };
    let free = trace.paused.iter().filter(|index| trace.blocked(**index).is_none() && more_is_left(**index));
    events.extend(free.map(|index| queue_again(trace, *index, Requeue::Room, now)));
    events
}

/// Returns true if a graph would pause again at once.
fn waits_for_money(trace: &Trace, at: ContextIndex, now: Timestamp) -> bool {
    let starved = || trace.starved(at).is_some() && !graph::goes_on_for_free(trace, at);
    runs_steps(trace, at) && (starved() || graph::next_is_busy(trace, at, now))
}

fn runs_steps(trace: &Trace, at: ContextIndex) -> bool {
    trace.node(at).graph.as_ref().is_some_and(|run| run.progress.phase == RunPhase::Steps)
}

fn call_ended(trace: &Trace, at: ContextIndex, now: Timestamp) -> Vec<Event> {
    let mut events = end::closable(trace, at);
    events.extend(checkpoint::fenced(trace, at, now));
    events
}

/// Ends the descendants of a context that ends, or that must undo steps first. The value that it
/// wrote to its output is withdrawn if it did not complete.
fn beneath(trace: &Trace, at: ContextIndex) -> Vec<Event> {
    let mut events = end::descendants(trace, at);
    if trace.node(at).is_live() {
        return events;
    }
    events.extend(context_store::withdrawn(trace, at));
    if trace.node(at).parent.is_none() {
        // A step that ends together with its run may have written half an output: that is deleted.
        let live = trace.subtree(at).into_iter().skip(1).filter(|below| trace.node(*below).is_live());
        events.extend(live.filter_map(|below| context_store::own_value_deleted(trace, below)));
        // The values are part of the outcome now, and no context can write any more.
        events.push(Event::StoreCleared);
    }
    events
}

fn above(trace: &Trace, at: ContextIndex, now: Timestamp) -> Vec<Event> {
    let Some(parent) = trace.node(at).parent else { return Vec::new() };
    match &trace.node(parent).status {
        Status::Working(Phase::Waiting { children, hand_over }) => {
            if children.iter().any(|child| trace.node(*child).is_live()) {
                return Vec::new();
            }
            children_ended(trace, parent, children, *hand_over, now)
        }
        Status::Working(Phase::Steps) | Status::Paused { .. } => {
            let events = graph::context_ended(trace, at);
            if events.is_empty() && trace.node(parent).graph.is_some() {
                // One of the parent's `max_children` is free again.
                return graph::advance(trace, parent, now);
            }
            events
        }
        Status::Submitted { .. }
        | Status::Working(Phase::Queued { .. } | Phase::Running { .. })
        | Status::InputRequired { .. }
        | Status::Ended(_) => Vec::new(),
    }
}
