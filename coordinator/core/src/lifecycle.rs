//! Creates, queues, parks and ends contexts: the part of applying events that changes the status of
//! a context and the counters of its ancestors.

use std::sync::Arc;

use domain::{ChildId, Limits, Timestamp, graph::StepIndex, wire::StepStatus};

use super::{
    Body, ContextAdmitted, ContextEnded, ContextIndex, ContextNode, ContextTerms, End, EndDetails, Entry,
    GraphRun, Identity, Lifecycle, Phase, Ran, Requeue, RunPhase, Status, StepOf, StepRun, Trace,
    budget::Budget,
    context_store::{full_key, lent_inputs},
    graph::status_of,
    scrub,
};

impl Trace {
    pub(super) fn admitted(&mut self, admitted: &ContextAdmitted, now: Timestamp) {
        let at = ContextIndex(u32::try_from(self.contexts.len()).expect("max_contexts was checked"));
        let node = self.new_context(admitted, now);
        let has_own_keys = node.graph.is_some() && (node.identity.step.is_none() || node.has_own_keys());
        let parent = node.parent;
        self.by_id.insert(node.id.clone(), at);
        self.unsaved.contexts.insert(at);
        self.unsaved.orders.insert(at);
        self.unsaved.definitions.insert(at);
        self.contexts.push(node);
        if let Some(parent) = parent {
            self.child_admitted(parent, at, admitted.step);
        }
        if let Some(reserve) = admitted.reserve {
            self.keep_reserve(at, reserve);
        }
        if let Some(undoes) = &admitted.undoes {
            self.undo_begun(self.expect(undoes), at);
        }
        self.hold_on_parent_for_new(at);
        if has_own_keys {
            self.give_inputs(at);
        }
        self.retime(at);
    }

    fn admitted_limits(&self, admitted: &ContextAdmitted) -> Arc<Limits> {
        match (&admitted.limits, &admitted.parent_id) {
            (Some(limits), _) => limits.clone(),
            (None, Some(parent)) => self.node(self.expect(parent)).limits.clone(),
            (None, None) => Arc::new(self.settings().limits.clone()),
        }
    }

    /// A context in its state at admission.
    fn new_context(&self, admitted: &ContextAdmitted, now: Timestamp) -> ContextNode {
        let graph = match admitted.body {
            Body::Agent | Body::Approval => None,
            Body::Graph { plan, group } => {
                let run =
                    GraphRun::new(plan, group, self.plans[plan as usize].group(group), now, self.version);
                Some(Box::new(run))
            }
        };
        let status = match graph {
            Some(_) => Status::Working(Phase::Steps),
            None => Status::Submitted { sent_at: now },
        };
        let identity = Identity {
            depth: admitted.depth,
            step: admitted.step,
            taken: admitted.taken.clone(),
            undoes: None,
            scope: admitted.scope.clone(),
            thread_id: admitted.thread_id.clone(),
            started_at: now,
        };
        let terms = ContextTerms {
            adjusted: admitted.adjusted.clone(),
            tools: admitted.tools.clone(),
            window_tokens: admitted.window_tokens,
            on_exhausted: admitted.on_exhausted,
            hitl: admitted.hitl,
            timeout_ms: admitted.timeout_ms,
        };
        let lifecycle =
            Lifecycle { deadline: admitted.deadline, clock_stopped_at: now, ..Lifecycle::default() };
        let parent = admitted.parent_id.as_ref().map(|parent| self.expect(parent));
        let (spec, limits) = (admitted.spec.clone(), self.admitted_limits(admitted));
        let mut node = ContextNode::new(spec, parent, identity, terms, limits, status, lifecycle);
        node.budget =
            Budget::new(admitted.ceiling, admitted.closing_reserve_usd, admitted.granted, admitted.inherited);
        node.graph = graph;
        node
    }

    /// Counts a new child under `parent`, and marks the step it runs as running.
    fn child_admitted(&mut self, parent: ContextIndex, child: ContextIndex, step: Option<StepOf>) {
        let node = self.node_mut(parent);
        node.children.push(child);
        node.live_children += 1;
        if let (Some(of), Some(run)) = (step, &mut node.graph) {
            let place = run.place(of.step);
            let step = run.steps.row_mut(place);
            step.status = StepStatus::Running;
            step.next = None;
            step.contexts.push(child);
            match of.ran {
                Ran::Item(_) => run.item_started(place),
                Ran::Itself | Ran::Round(_) | Ran::Fallback => run.not_ready(place),
            }
        }
    }

    /// Writes the inputs of a graph to the shared store before its first step, together with the
    /// caller's own inputs that it reads.
    fn give_inputs(&mut self, graph: ContextIndex) {
        let node = self.node(graph);
        let mut inputs = node.spec.inputs.clone();
        if let (Some(caller), None) = (node.parent, node.identity.step) {
            let lent = lent_inputs(self.node(caller), &node.spec);
            inputs.extend(lent.map(|(key, value)| (key.clone(), value.clone())));
        }
        for (key, value) in inputs {
            let key = full_key(self, self.node(graph), &key);
            let size_bytes = value.size_bytes();
            self.put_value(key, Entry { value, writer: None, version: 1, size_bytes });
        }
    }

    pub(super) fn requeued(
        &mut self,
        child_id: &ChildId,
        why: Requeue,
        not_before: Timestamp,
        now: Timestamp,
    ) {
        let at = self.expect(child_id);
        self.unparked(at, now);
        if why == Requeue::Room {
            self.keep_place(at, now.plus_millis(self.settings().lease_ms));
        } else {
            self.leave_line(at, |_| true);
        }
        self.recount_said(at, |node| {
            node.lifecycle.left_at_pause = None;
            let runs_steps = node.graph.as_ref().is_some_and(|run| run.progress.phase != RunPhase::Synthesis);
            node.lifecycle.retried += u32::from(why == Requeue::Retry);
            let sent_at = (not_before <= now).then_some(now);
            let queued = Phase::Queued { not_before, sent_at };
            node.status = Status::Working(if runs_steps { Phase::Steps } else { queued });
        });
        self.retime(at);
    }

    /// The context waits for money: either for calls in flight, within its deadline, or for a human
    /// to raise its budget.
    pub(super) fn pause(&mut self, child_id: &ChildId, reason: &str, in_line: bool, now: Timestamp) {
        let at = self.expect(child_id);
        let left = self.left_apart_from_calls(at);
        self.node_mut(at).lifecycle.left_at_pause = Some(left);
        let status = Status::Paused { reason: reason.to_owned() };
        if in_line {
            self.put_status(at, status);
            self.retime(at);
        } else {
            // The order matters: a context that is parked in the line does not wait for a human
            // yet. If it left the line first, `parked` would count it as already waiting for one.
            self.parked(child_id, status, now);
            self.leave_line(at, |_| true);
        }
    }

    /// The context waits for a human: its deadline and those of its ancestors stop.
    pub(super) fn parked(&mut self, child_id: &ChildId, status: Status, now: Timestamp) {
        let at = self.expect(child_id);
        let (was_parked, asked) = (is_parked(self.node(at)), self.node(at).asks());
        self.put_status(at, status);
        let asks = self.node(at).asks();
        if !was_parked || asked != asks {
            self.on_chain(at, |node| {
                node.lifecycle.questions = node.lifecycle.questions + u32::from(asks) - u32::from(asked);
                node.lifecycle.waiting_for_humans += u32::from(!was_parked);
                if !was_parked && node.lifecycle.waiting_for_humans == 1 {
                    node.lifecycle.clock_stopped_at = now;
                }
            });
        }
        self.retime(at);
    }

    /// The wait is over: deadlines are moved ahead by its duration.
    pub(super) fn unparked(&mut self, at: ContextIndex, now: Timestamp) {
        if is_parked(self.node(at)) {
            let asked = self.node(at).asks();
            self.on_chain(at, |node| {
                node.lifecycle.questions -= u32::from(asked);
                node.lifecycle.waiting_for_humans -= 1;
                if node.lifecycle.waiting_for_humans == 0 {
                    let stood = now.millis_since(node.lifecycle.clock_stopped_at);
                    node.lifecycle.deadline =
                        node.lifecycle.deadline.map(|deadline| deadline.plus_millis(stood));
                    if let Some(run) = &mut node.graph {
                        run.progress.gather_by = run.progress.gather_by.map(|by| by.plus_millis(stood));
                    }
                }
            });
        }
    }

    fn on_chain(&mut self, from: ContextIndex, change: impl Fn(&mut ContextNode)) {
        let mut next = Some(from);
        while let Some(at) = next {
            change(self.node_mut(at));
            self.retime(at);
            next = self.node(at).parent;
        }
    }

    pub(super) fn ended(&mut self, ended: &ContextEnded, now: Timestamp) {
        let at = self.expect(&ended.child_id);
        self.unparked(at, now);
        let end = End {
            status: ended.status,
            at: now,
            without_undo: ended.without_undo,
            details: EndDetails {
                result: ended.result.clone(),
                error: ended.error.clone(),
                reason: self.kept_reason(at, ended),
            },
        };
        let was_undoing = self.node(at).is_undoing();
        let said = self.node(at).said_bytes();
        // The end returns the unspent part of a grant: the hold on the parent shrinks to the calls
        // that are still open.
        self.change_budget(at, |node| {
            node.status = Status::Ended(Box::new(end));
            node.lifecycle.outcome_due = true;
        });
        self.content_bytes = self.content_bytes + self.node(at).said_bytes() - said;
        self.retime(at);
        self.end_steps(at);
        self.pass_reserves(at, was_undoing, ended);
        self.run_ended(at, ended.status);
        if was_undoing {
            self.count_undoing(at, false);
        }
        if let Some(run) = &mut self.node_mut(at).graph {
            run.ending = None;
            run.undos.clear();
        }
        self.forget_item(at);
        let (parent, step) = (self.node(at).parent, self.node(at).identity.step);
        let Some(parent) = parent else { return };
        let node = self.node_mut(parent);
        node.live_children -= 1;
        if let (Some(of), Some(run)) = (step, &mut node.graph) {
            let step = run.steps.row_mut(run.place(of.step));
            let status = status_of(ended.status);
            if let (Ran::Item(_), Some(items)) = (of.ran, &mut step.items) {
                items.ended += 1;
                items.succeeded += u32::from(status == StepStatus::Succeeded);
            }
        }
        self.step_stopped(at, ended);
    }

    /// The reason of an end, without the parts that a delete removes (W6).
    fn kept_reason(&self, at: ContextIndex, ended: &ContextEnded) -> Option<String> {
        let reason = ended.reason.clone();
        if self.node(at).lifecycle.deleted { scrub::reason(ended.status, reason) } else { reason }
    }

    /// Ends the step that a context runs together with the context, if its graph has ended or
    /// undoes: no later event ends the step.
    pub(super) fn step_stopped(&mut self, at: ContextIndex, ended: &ContextEnded) {
        let (Some(of), Some(parent)) = (self.node(at).identity.step, self.node(at).parent) else { return };
        if self.node(parent).goes_on() {
            return;
        }
        let reason = self.kept_reason(at, ended);
        let Some(run) = &mut self.node_mut(parent).graph else { return };
        let step = run.steps.row_mut(run.place(of.step));
        if step.status == StepStatus::Running {
            step.status = status_of(ended.status);
            step.reason = reason.map(Into::into);
            run.progress.unfinished -= 1;
        }
    }

    /// Deletes the values of an item that is a group, and of a graph that a step uses, because no
    /// context can read them any more and there may be thousands of items. A used graph whose steps
    /// a rerun may take one by one (G15) keeps its values, as a group does.
    fn forget_item(&mut self, at: ContextIndex) {
        let node = self.node(at);
        if node.identity.step.is_none() || !node.has_own_keys() || self.takes_steps_in(at) {
            return;
        }
        let keys = self.run_of(node).and_then(|(_, group)| group.own_keys.as_ref());
        let keys: Vec<_> = keys.into_iter().flatten().map(|key| full_key(self, node, key)).collect();
        keys.iter().for_each(|key| self.remove_value(key));
    }

    /// Ends all steps of an ended graph: steps that have not begun are skipped; steps with items
    /// left and none running are cancelled; groups that undo have ended as steps. Running contexts
    /// end through their own events.
    pub(super) fn end_steps(&mut self, graph: ContextIndex) {
        let Some(mut run) = self.node_mut(graph).graph.take() else { return };
        run.skip_pending("its graph has ended");
        let goes_on = |context: &ContextIndex| self.node(*context).goes_on();
        let idle = |step: &StepRun| step.status == StepStatus::Running && !step.contexts.iter().any(goes_on);
        let idle = (0..).zip(run.steps.iter()).filter(|(_, step)| idle(step)).map(|(number, _)| number);
        for number in idle.collect::<Vec<StepIndex>>() {
            let step = run.steps.row_mut(number);
            step.next = None;
            let ending = step.contexts.iter().filter(|_| step.items.is_none()).find_map(|at| {
                let ending = self.node(*at).graph.as_ref()?.ending.as_ref()?;
                Some((status_of(ending.status), self.kept_reason(*at, ending)))
            });
            let cancelled = || (StepStatus::Cancelled, Some("its graph has ended".to_owned()));
            let (status, reason) = ending.unwrap_or_else(cancelled);
            step.status = status;
            step.reason = reason.map(Into::into);
            run.progress.unfinished -= 1;
        }
        self.node_mut(graph).graph = Some(run);
    }
}

/// Returns true if the context waits for a human to answer, or to raise its budget.
fn is_parked(node: &ContextNode) -> bool {
    match &node.status {
        Status::InputRequired { .. } => true,
        Status::Paused { .. } => node.lifecycle.waiting.is_empty(),
        Status::Submitted { .. } | Status::Working(_) | Status::Ended(_) => false,
    }
}
