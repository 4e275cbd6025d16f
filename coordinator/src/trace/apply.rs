//! How an event changes a trace. Never decides and never fails: an event is a fact. Replaying the
//! events of a trace gives the identical trace (t9).

use shared::{
    Amount, ChildId, Timestamp,
    wire::{GivenAnswer, Payload, StepStatus},
};

use super::{
    Admitted, Attempt, Body, CallState, ContextIndex, ContextNode, End, Ended, Entry, Event, GraphRun, Phase,
    Ran, RunPhase, Status, Trace,
    budget::{Budget, Call, Move, Posting},
    event::Requeue,
    graph::{Items, status_of},
};

impl Trace {
    /// Applies one event that happened at `now`.
    pub fn apply(&mut self, event: &Event, now: Timestamp) {
        self.version += 1;
        match event {
            Event::Opened { settings } => self.settings = Some(std::sync::Arc::new((**settings).clone())),
            Event::AgentAdded { agent } => {
                self.agents.insert(agent.agent_id.clone(), std::sync::Arc::new((**agent).clone()));
            }
            Event::PlanAdded { plan } => self.plans.push(plan.clone()),
            Event::Tombstoned { child_id, reason } => match child_id {
                Some(child_id) => drop(self.tombstones.insert(child_id.clone(), reason.clone())),
                None => self.cancelled_before = Some(reason.clone()),
            },
            Event::Admitted(admitted) => self.admitted(admitted, now),
            Event::WindowClamped { child_id, parent_id, parent_tokens, child_tokens } => {
                let note =
                    format!("window_clamped: `{child_id}` has {child_tokens} tokens of {parent_tokens}");
                self.change(parent_id, |node| node.notes.push(note));
            }
            Event::Claimed { child_id, token, worker_id, until, .. } => self.change(child_id, |node| {
                node.attempts.push(Attempt { token: token.clone(), worker_id: worker_id.clone() });
                node.status = Status::Working(Phase::Running { until: *until });
            }),
            Event::Ticked { child_id, until, progress } => self.change(child_id, |node| {
                node.progress = *progress;
                node.status = Status::Working(Phase::Running { until: *until });
            }),
            Event::Progressed { child_id, progress } => {
                self.change(child_id, |node| node.progress = *progress)
            }
            Event::AttemptLost { child_id, .. } => self.change(child_id, |node| node.retried += 1),
            Event::Requeued { child_id, why, not_before } => self.requeued(child_id, *why, *not_before, now),
            Event::Redispatched { child_id } => self.change(child_id, |node| match &mut node.status {
                Status::Submitted { sent_at } => *sent_at = now,
                Status::Working(Phase::Queued { sent_at, .. }) => *sent_at = Some(now),
                Status::Working(_)
                | Status::InputRequired { .. }
                | Status::Paused { .. }
                | Status::Ended(_) => {}
            }),
            Event::Waiting { child_id, children, hand_over } => {
                let children = children.iter().map(|child| self.expect(child)).collect();
                let phase = Phase::Waiting { children, hand_over: *hand_over };
                self.change(child_id, |node| node.status = Status::Working(phase));
            }
            Event::InputRequired { child_id, question, .. } => {
                self.parked(child_id, Status::InputRequired { question: question.clone() }, now);
            }
            Event::Paused { child_id, reason } => {
                self.parked(child_id, Status::Paused { reason: reason.clone() }, now);
            }
            Event::Answered { child_id, answer, .. } => self.change(child_id, |node| {
                if let Status::InputRequired { question } = &node.status {
                    let given = GivenAnswer { question: question.clone(), answer: answer.clone() };
                    node.answers.push(given);
                }
            }),
            Event::Ended(ended) => self.ended(ended, now),
            Event::Deleted { child_id } => {
                self.change(child_id, scrub);
                if self.contexts[0].deleted {
                    self.outputs.clear();
                }
            }
            Event::Held { child_id, call_id, attempt, amount } => {
                let at = self.expect(child_id);
                let call = Call { attempt: *attempt, held: *amount, state: CallState::Held };
                let node = self.node_mut(at);
                node.calls.insert(call_id.clone(), call);
                node.open_calls += 1;
                self.post(at, Posting { held: Move::more(*amount), ..Posting::default() });
            }
            Event::Settled { child_id, call_id, amount } => {
                self.close_call(child_id, call_id, CallState::Settled(*amount));
            }
            Event::Released { child_id, call_id } => self.close_call(child_id, call_id, CallState::Released),
            Event::Forfeited { child_id, call_id } => {
                self.close_call(child_id, call_id, CallState::Forfeited)
            }
            Event::Charged { child_id, key, amount } => {
                self.close_call(child_id, key, CallState::Charged(*amount));
            }
            Event::Exhausted { child_id, dimension } => {
                self.change(child_id, |node| node.exhausted = Some(*dimension));
            }
            Event::Raised { child_id, limit } => {
                let at = self.expect(child_id);
                self.reclaim(at, |node| node.budget.limit = *limit);
                let node = self.node_mut(at);
                if node.budget.spent.reaches(node.budget.limit).is_none() {
                    node.exhausted = None;
                }
            }
            Event::ValueSet { key, value, writer } => {
                let before = self.store.get(key);
                let entry = Entry {
                    value: value.clone(),
                    writer: writer.clone(),
                    version: before.map_or(1, |entry| entry.version + 1),
                    size_bytes: value.size_bytes(),
                };
                self.store_bytes += entry.size_bytes;
                let before = self.store.insert(key.clone(), entry);
                self.store_bytes -= before.map_or(0, |entry| entry.size_bytes);
            }
            Event::ValueDeleted { key } => {
                self.store_bytes -= self.store.remove(key).map_or(0, |entry| entry.size_bytes);
            }
            Event::StoreCleared => {
                let values = std::mem::take(&mut self.store);
                self.store_bytes = 0;
                if !self.contexts[0].deleted {
                    self.outputs = values.into_iter().map(|(key, entry)| (key, entry.value)).collect();
                }
            }
            Event::ConditionAsked { .. } => {}
            Event::ItemsTaken { child_id, step, items } => self.change_run(child_id, |run, _| {
                let total = items.elements().map_or(0, <[_]>::len);
                let total = u32::try_from(total).expect("max_contexts was checked");
                let list = items.clone();
                let step_run = &mut run.steps[*step as usize];
                step_run.status = StepStatus::Running;
                step_run.items = Some(Box::new(Items { list, total, started: 0, ended: 0, succeeded: 0 }));
            }),
            Event::ItemRefused { child_id, step, .. } => self.change_run(child_id, |run, _| {
                item_started(run, *step);
                if let Some(items) = &mut run.steps[*step as usize].items {
                    items.ended += 1;
                }
            }),
            Event::StepEnded { child_id, step, status, reason, partial } => {
                self.change_run(child_id, |run, group| {
                    let step_run = &mut run.steps[*step as usize];
                    step_run.reason = reason.as_deref().map(Into::into);
                    step_run.partial = *partial;
                    run.step_ended(group, *step, *status);
                })
            }
            Event::StepsSkipped { child_id, reason } => {
                self.change_run(child_id, |run, _| run.skip_pending(reason));
            }
            Event::GatheringEnded { child_id } => self.change_run(child_id, |run, _| {
                run.gathered = true;
                run.gather_by = None;
            }),
            Event::SynthesisBegun { child_id } => self.change_run(child_id, |run, _| {
                run.phase = RunPhase::Synthesis;
                run.gather_by = None;
            }),
        }
    }

    fn change(&mut self, child_id: &ChildId, change: impl FnOnce(&mut ContextNode)) {
        let at = self.expect(child_id);
        change(self.node_mut(at));
        self.retime(at);
    }

    fn change_run(&mut self, child_id: &ChildId, change: impl FnOnce(&mut GraphRun, &shared::graph::Group)) {
        let at = self.expect(child_id);
        let plan = self.node(at).graph.as_ref().map(|run| self.plans[run.plan as usize].clone());
        if let (Some(plan), Some(run)) = (plan, &mut self.node_mut(at).graph) {
            let group = plan.group(run.group);
            change(run, group);
        }
        self.retime(at);
    }

    fn admitted(&mut self, admitted: &Admitted, now: Timestamp) {
        let at = ContextIndex(u32::try_from(self.contexts.len()).expect("max_contexts was checked"));
        let parent = admitted.parent_id.as_ref().map(|parent| self.expect(parent));
        let order = admitted.order.clone();
        let graph = match admitted.body {
            Body::Agent => None,
            Body::Graph { plan, group } => {
                let run = GraphRun::new(plan, group, self.plans[plan as usize].group(group), now);
                Some(Box::new(run))
            }
        };
        let status = match graph {
            Some(_) => Status::Working(Phase::Steps),
            None => Status::Submitted { sent_at: now },
        };
        let is_graph_of_its_own = graph.is_some() && admitted.step.is_none();
        self.by_id.insert(order.child_id.clone(), at);
        self.contexts.push(ContextNode {
            id: order.child_id.clone(),
            parent,
            children: Vec::new(),
            live_children: 0,
            depth: admitted.depth,
            graph,
            step: admitted.step,
            scope: admitted.scope.clone(),
            status,
            budget: Budget::new(admitted.ceiling, admitted.closing_reserve_usd, admitted.granted),
            calls: Default::default(),
            open_calls: 0,
            exhausted: None,
            limits: admitted.limits.clone(),
            tools: admitted.tools.clone(),
            window_tokens: admitted.window_tokens,
            on_exhausted: admitted.on_exhausted,
            hitl: admitted.hitl,
            attempts: Vec::new(),
            retried: 0,
            progress: Default::default(),
            answers: Vec::new(),
            notes: Vec::new(),
            deadline: admitted.deadline,
            waiting_for_humans: 0,
            clock_stopped_at: now,
            started_at: now,
            deleted: false,
            order,
            timer: None,
        });
        if let Some(parent) = parent {
            let node = self.node_mut(parent);
            node.children.push(at);
            node.live_children += 1;
            if let (Some(of), Some(run)) = (admitted.step, &mut node.graph) {
                let step = &mut run.steps[of.step as usize];
                let was = std::mem::replace(&mut step.status, StepStatus::Running);
                step.contexts.push(at);
                match of.ran {
                    Ran::Item(_) => item_started(run, of.step),
                    // A later round, or the fallback, of what has started long since.
                    Ran::Itself | Ran::Round(_) | Ran::Fallback if was != StepStatus::Pending => {}
                    Ran::Itself | Ran::Round(_) | Ran::Fallback => run.not_ready(of.step),
                }
            }
        }
        self.claim_for_new(at);
        if is_graph_of_its_own {
            self.give_inputs(at);
        }
        self.retime(at);
    }

    /// The inputs of a graph are values of the shared store before its first step.
    fn give_inputs(&mut self, graph: ContextIndex) {
        let inputs = self.node(graph).order.inputs.clone();
        for (key, value) in inputs {
            let key = super::context_store::full_key(self.node(graph), &key);
            let size_bytes = value.size_bytes();
            self.store_bytes += size_bytes;
            let entry = Entry { value, writer: None, version: 1, size_bytes };
            let before = self.store.insert(key, entry);
            self.store_bytes -= before.map_or(0, |entry| entry.size_bytes);
        }
    }

    fn requeued(&mut self, child_id: &ChildId, why: Requeue, not_before: Timestamp, now: Timestamp) {
        let at = self.expect(child_id);
        self.unparked(at, now);
        self.change(child_id, |node| {
            let runs_steps = node.graph.as_ref().is_some_and(|run| run.phase == RunPhase::Steps);
            node.retried += u32::from(why == Requeue::Retry);
            let sent_at = (not_before <= now).then_some(now);
            let queued = Phase::Queued { not_before, sent_at };
            node.status = Status::Working(if runs_steps { Phase::Steps } else { queued });
        });
    }

    /// A human is waited for: the clocks of the context and of all above it stand.
    fn parked(&mut self, child_id: &ChildId, status: Status, now: Timestamp) {
        let at = self.expect(child_id);
        let was_parked = is_parked(self.node(at));
        self.node_mut(at).status = status;
        if !was_parked {
            self.on_chain(at, |node| {
                node.waiting_for_humans += 1;
                if node.waiting_for_humans == 1 {
                    node.clock_stopped_at = now;
                }
            });
        }
        self.retime(at);
    }

    /// No longer: they go on with the time they had left.
    fn unparked(&mut self, at: ContextIndex, now: Timestamp) {
        if is_parked(self.node(at)) {
            self.on_chain(at, |node| {
                node.waiting_for_humans -= 1;
                if node.waiting_for_humans == 0 {
                    let stood = now.millis_since(node.clock_stopped_at);
                    node.deadline = node.deadline.map(|deadline| deadline.plus_millis(stood));
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

    fn ended(&mut self, ended: &Ended, now: Timestamp) {
        let at = self.expect(&ended.child_id);
        self.unparked(at, now);
        let end = End {
            status: ended.status,
            result: ended.result.clone(),
            error: ended.error.clone(),
            reason: ended.reason.clone(),
            at: now,
        };
        // Ending returns what is left of a grant: the claim shrinks to the calls still open.
        self.reclaim(at, |node| node.status = Status::Ended(Box::new(end)));
        self.retime(at);
        self.end_steps(at);
        let (parent, step) = (self.node(at).parent, self.node(at).step);
        let Some(parent) = parent else { return };
        let parent_is_live = self.node(parent).is_live();
        let node = self.node_mut(parent);
        node.live_children -= 1;
        if let (Some(of), Some(run)) = (step, &mut node.graph) {
            let step = &mut run.steps[of.step as usize];
            let status = status_of(ended.status);
            if let (Ran::Item(_), Some(items)) = (of.ran, &mut step.items) {
                items.ended += 1;
                items.succeeded += u32::from(status == StepStatus::Succeeded);
            }
            // With its graph gone, nobody else will say how the step ended.
            if !parent_is_live && step.status == StepStatus::Running {
                step.status = status;
                step.reason = ended.reason.as_deref().map(Into::into);
                run.unfinished -= 1;
            }
        }
    }

    /// With its graph, every step ends: what has not begun is skipped, and what has items left but
    /// none running is cut off. What still runs is about to be told.
    fn end_steps(&mut self, graph: ContextIndex) {
        let Some(mut run) = self.node_mut(graph).graph.take() else { return };
        run.skip_pending("its graph has ended");
        for step in &mut run.steps {
            let runs = step.contexts.iter().any(|context| self.node(*context).is_live());
            if step.status == StepStatus::Running && !runs {
                step.status = StepStatus::Cancelled;
                step.reason = Some("its graph has ended".into());
                run.unfinished -= 1;
            }
        }
        self.node_mut(graph).graph = Some(run);
    }

    /// Ends a hold, or books a cost that had none, and moves the books by the difference.
    fn close_call(&mut self, child_id: &ChildId, call_id: &shared::CallId, state: CallState) {
        let at = self.expect(child_id);
        let node = self.node_mut(at);
        let unheld = Call { attempt: 0, held: Amount::ZERO, state: CallState::Released };
        let call = node.calls.entry(call_id.clone()).or_insert(unheld);
        let (was, held) = (call.state, call.held);
        call.state = state;
        if was == CallState::Held {
            node.open_calls -= 1;
        }
        let booked = |state: CallState| match state {
            CallState::Settled(amount) | CallState::Charged(amount) => amount,
            CallState::Forfeited => held,
            CallState::Held | CallState::Released => Amount::ZERO,
        };
        let estimated = |state: CallState| if state == CallState::Forfeited { held } else { Amount::ZERO };
        // What the hold had covered is covered; a released hold covers nothing any more.
        let covered = match was {
            CallState::Held | CallState::Forfeited => held,
            CallState::Settled(_) | CallState::Released | CallState::Charged(_) => Amount::ZERO,
        };
        let posting = Posting {
            held: if was == CallState::Held { Move::less(held) } else { Move::default() },
            spent: Move { more: booked(state), less: booked(was) },
            estimated: Move { more: estimated(state), less: estimated(was) },
            uncovered: booked(state).saturating_sub(covered),
            ..Posting::default()
        };
        self.post(at, posting);
        self.retime(at);
    }
}

fn is_parked(node: &ContextNode) -> bool {
    matches!(node.status, Status::InputRequired { .. } | Status::Paused { .. })
}

/// One more item of a `for_each` is on its way; with the last, the step has started all it starts.
fn item_started(run: &mut GraphRun, step: u32) {
    let Some(items) = &mut run.steps[step as usize].items else { return };
    items.started += 1;
    if items.started == items.total {
        run.not_ready(step);
    }
}

/// W6: what a context said and was told is gone; its place in the tree and its money stay.
fn scrub(node: &mut ContextNode) {
    node.deleted = true;
    let mut order = (*node.order).clone();
    order.goal = None;
    order.inputs.clear();
    order.shared_messages.clear();
    node.order = std::sync::Arc::new(order);
    node.answers.clear();
    node.notes.clear();
    if let Status::Ended(end) = &mut node.status {
        end.result = None::<Payload>;
        end.error = None;
    }
}
