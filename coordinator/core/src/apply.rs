//! Applies events to a trace. This never decides and never fails, because an event is a fact.
//! Replaying the events of a trace gives the identical trace (t9).

use std::{collections::BTreeMap, sync::Arc};

use domain::{
    ChildId, ContextKey, Timestamp,
    graph::Plan,
    json,
    wire::{Form, GivenAnswer, RestorePoint, Text},
};

use super::{
    Attempt, CallState, ContextIndex, ContextNode, Entry, Event, GraphRun, LoweredBounds, Message, Phase,
    QuestionDetails, RunPhase, Status, Trace, WaitingHold, checked, content, scrub,
};

impl Trace {
    /// Applies one event that happened at `now`.
    pub fn apply(&mut self, event: &Event, now: Timestamp) {
        self.version += 1;
        self.content_bytes += content::added_by(event);
        match event {
            Event::Opened { settings, traced } => {
                self.unsaved.head = true;
                self.traced.clone_from(traced);
                self.settings = Some(Arc::new((**settings).clone()));
            }
            Event::Rebuilt { generation } => {
                self.unsaved.head = true;
                self.generation = *generation;
            }
            Event::Copied(copied) => {
                if copied.is_last() {
                    self.unsaved.copied = true;
                    self.copied_at = Some(now);
                }
            }
            Event::AgentAdded { agent, version } => {
                self.unsaved.agents.insert(agent.agent_id.clone());
                self.agent_versions.extend(version.map(|version| (agent.agent_id.clone(), version)));
                let before = self.agents.insert(agent.agent_id.clone(), Arc::new((**agent).clone()));
                self.content_bytes -= before.map_or(0, |before| json::size_bytes(&*before));
            }
            Event::PlanAdded { plan } => {
                self.unsaved.plans.insert(u32::try_from(self.plans.len()).expect("max_contexts was checked"));
                self.plans.push(plan.clone());
            }
            Event::RerunBegun { rerun } => {
                self.unsaved.rerun = true;
                self.rerun = Some((**rerun).clone());
            }
            Event::ResultKept { place, kept } => {
                self.remove_kept(place);
                self.kept.insert(place.clone(), (**kept).clone());
            }
            Event::KeptTaken { place, .. } => self.remove_kept(place),
            Event::KeptDropped { place, .. } => self.drop_kept(|of| of.is_item_of(place)),
            Event::Amended { child_id, id, plan, .. } => {
                let graph = self.expect(child_id);
                self.drop_amended(graph, plan);
                self.apply_amend(graph, id, plan);
            }
            Event::Tombstoned { child_id, reason } => match child_id {
                Some(child_id) => {
                    self.unsaved.tombstones.insert(child_id.clone());
                    self.tombstones.insert(child_id.clone(), reason.clone());
                }
                None => {
                    self.unsaved.head = true;
                    self.cancelled_before = Some(reason.clone());
                }
            },
            Event::Admitted(admitted) => self.admitted(admitted, now),
            Event::WindowClamped { child_id, parent_id, parent_tokens, child_tokens } => {
                let note =
                    format!("window_clamped: `{child_id}` has {child_tokens} tokens of {parent_tokens}");
                self.content_bytes += note.len() as u64;
                self.change(parent_id, |node| node.notes.push(note));
            }
            Event::Claimed { child_id, token, worker_id, until, .. } => {
                let growths = self.growths(self.expect(child_id));
                self.change(child_id, |node| {
                    if let (0, Some(timeout)) = (node.attempts.len(), node.terms.timeout_ms) {
                        let own = now.plus_millis(timeout);
                        node.lifecycle.deadline =
                            Some(node.lifecycle.deadline.map_or(own, |deadline| deadline.min(own)));
                    }
                    node.attempts.push(Attempt { token: token.clone(), worker_id: worker_id.clone() });
                    node.status = Status::Working(Phase::Running { until: *until, restored: false });
                    node.renewed = None;
                    node.lifecycle.growths_before = growths;
                });
            }
            Event::Ticked { child_id, until, progress } => self.change(child_id, |node| {
                node.lifecycle.progress = *progress;
                if let Status::Working(Phase::Running { until: lease, .. }) = &mut node.status {
                    *lease = *until;
                }
            }),
            Event::Progressed { child_id, progress } => {
                self.change(child_id, |node| node.lifecycle.progress = *progress)
            }
            Event::Checked { child_id, number, decision, .. } => {
                self.change(child_id, |node| checked::count(node, *number, *decision));
            }
            Event::AttemptLost { child_id, .. } => self.change(child_id, |node| node.lifecycle.retried += 1),
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
            Event::InputRequired { child_id, question, form, .. } => {
                let asked =
                    |form: &Form| Box::new(QuestionDetails { form: form.clone(), at: now, reminders: 0 });
                let asked = form.as_deref().map(asked);
                self.parked(child_id, Status::InputRequired { question: question.clone(), asked }, now);
            }
            Event::Reminded { child_id, reminder, .. } => self.change(child_id, |node| {
                if let Status::InputRequired { asked: Some(asked), .. } = &mut node.status {
                    asked.reminders = *reminder;
                }
            }),
            Event::Paused { child_id, reason, in_line } => self.pause(child_id, reason, *in_line, now),
            Event::Answered { child_id, answer, by, default, .. } => {
                let (answer, by, default) = (answer.clone(), by.clone(), *default);
                self.question_ended(child_id, |question| GivenAnswer {
                    question,
                    answer,
                    by,
                    default,
                    withdrawn: false,
                });
            }
            Event::Told { child_id, id, text, by, .. } => self.change(child_id, |node| {
                node.told.push(Message { id: id.clone(), text: text.clone(), by: by.clone() });
            }),
            Event::MessagesSeen { child_id, number } => {
                self.change(child_id, |node| node.lifecycle.seen = *number)
            }
            Event::RungReached { child_id, rung, .. } => {
                self.change(child_id, |node| node.lifecycle.rungs = *rung)
            }
            Event::Ended(ended) => self.ended(ended, now),
            Event::UndoingBegun(ended) => self.begin_undoing(ended, now),
            Event::UndoRefused { child_id, undoes, reason } => {
                self.undo_refused(self.expect(child_id), self.expect(undoes), reason);
            }
            Event::Closed { child_id } => self.change(child_id, |node| node.lifecycle.outcome_due = false),
            Event::Deleted { child_id, .. } => {
                self.forget_undo(self.expect(child_id));
                self.recount_context(self.expect(child_id), scrub::context);
                self.retime(self.expect(child_id));
                self.unsaved.orders.insert(self.expect(child_id));
                if self.expect(child_id) == ContextIndex(0) {
                    self.forget_needs();
                    // The values that undos have written after the end of the root.
                    self.clear_store();
                    self.unsaved.tombstones.extend(self.tombstones.keys().cloned());
                    self.tombstones.values_mut().chain(&mut self.cancelled_before).for_each(String::clear);
                    self.unsaved.head = true;
                    self.unsaved.outputs = true;
                    self.outputs.clear();
                    self.unsaved.plans.extend(0..u32::try_from(self.plans.len()).unwrap_or(u32::MAX));
                    let plans: Vec<_> = self.plans.iter().map(scrub::plan).collect();
                    let size = |plans: &[Arc<Plan>]| plans.iter().map(json::size_bytes).sum::<u64>();
                    self.content_bytes = self.content_bytes + size(&plans) - size(&self.plans);
                    self.plans = plans;
                }
            }
            Event::Restored { child_id, number, to, .. } => {
                self.question_ended(child_id, |question| {
                    let answer = question.clone();
                    GivenAnswer { question, answer, by: None, default: false, withdrawn: true }
                });
                self.change(child_id, |node| {
                    if let Status::Working(Phase::Running { restored, .. }) = &mut node.status {
                        *restored = true;
                    }
                    let answers = u32::try_from(node.answers.len()).unwrap_or(u32::MAX);
                    node.restores.push(RestorePoint { number: *number, to: *to, answers });
                });
            }
            Event::Held { child_id, call_id, attempt, amount } => {
                self.open_call(child_id, call_id, *attempt, *amount);
            }
            Event::HoldQueued { child_id, call_id, attempt, amount, closing } => {
                let hold = WaitingHold {
                    ticket: self.version,
                    call_id: call_id.clone(),
                    attempt: *attempt,
                    amount: *amount,
                    closing: *closing,
                    kept_until: None,
                };
                self.queue_hold(self.expect(child_id), hold);
            }
            Event::PlaceLost { child_id, call_id } => {
                let at = self.expect(child_id);
                self.leave_line(at, |hold| hold.call_id == *call_id);
                self.retime(at);
            }
            Event::Settled { child_id, call_id, amount, model }
            | Event::Corrected { child_id, call_id, amount, model } => {
                self.close_call(child_id, call_id, CallState::Settled(*amount), model.as_ref());
            }
            Event::Released { child_id, call_id } => {
                self.close_call(child_id, call_id, CallState::Released, None);
            }
            Event::Forfeited { child_id, call_id } => {
                self.close_call(child_id, call_id, CallState::Forfeited, None);
            }
            Event::Estimated { child_id, call_id, attempt, amount } => {
                self.open_call(child_id, call_id, *attempt, *amount);
                self.close_call(child_id, call_id, CallState::Forfeited, None);
            }
            Event::Charged { child_id, key, amount, .. } => self.book_charge(child_id, key, *amount),
            Event::Disputed { child_id, amount, of, sent_by } => {
                let dispute = self.node(self.expect(child_id)).new_dispute(*amount, of, sent_by, now);
                self.keep_dispute(child_id, dispute);
            }
            Event::DisputeDecided { child_id, number, decision, .. } => {
                self.end_dispute(child_id, *number, *decision);
            }
            Event::Exhausted { child_id, dimension } => {
                self.change(child_id, |node| node.lifecycle.exhausted = Some(*dimension));
            }
            Event::Raised { child_id, limit, .. } => {
                let at = self.expect(child_id);
                let more = limit.saturating_sub(self.node(at).budget.ceilings.limit);
                let node = self.node_mut(at);
                node.lifecycle.own_limit = node.lifecycle.own_limit.and_then(|own| own.checked_add(more));
                self.raise(at, *limit);
            }
            Event::Replenished { child_id } => self.change(child_id, ContextNode::replenish),
            Event::ValueSet { key, value, writer } => {
                let before = self.store.get(key);
                let entry = Entry {
                    value: value.clone(),
                    writer: writer.clone(),
                    version: before.map_or(1, |entry| entry.version + 1),
                    size_bytes: value.size_bytes(),
                };
                self.put_value(key.clone(), entry);
            }
            Event::ValueDeleted { key } => self.remove_value(key),
            Event::StoreCleared => {
                self.drop_kept(|_| true);
                let values = self.clear_store();
                self.unsaved.outputs = true;
                if !self.contexts[0].lifecycle.deleted {
                    self.outputs = values.into_iter().map(|(key, entry)| (key, entry.value)).collect();
                }
            }
            Event::ConditionAsked { .. } => {}
            Event::ItemsTaken { child_id, step, items } => {
                let mut before = None;
                self.change_run(child_id, |run, _| before = run.items_taken(*step, items.clone()));
                self.content_bytes -= before.map_or(0, |list| list.size_bytes());
            }
            Event::ItemRefused { child_id, step, reason, .. } => self.change_run(child_id, |run, _| {
                run.item_started(*step);
                let step = run.steps.row_mut(*step);
                if let Some(items) = &mut step.items {
                    items.ended += 1;
                }
                // The first refusal is the step's reason when it ends.
                step.reason.get_or_insert_with(|| reason.as_str().into());
            }),
            Event::StepContinues { child_id, step, next } => {
                let version = self.version;
                self.change_run(child_id, |run, _| {
                    run.steps.row_mut(*step).next = Some(*next);
                    run.is_ready(*step, version);
                });
            }
            Event::StepEnded { child_id, step, status, reason, partial } => {
                let version = self.version;
                self.change_run(child_id, |run, group| {
                    let step_run = run.steps.row_mut(*step);
                    step_run.reason = reason.as_deref().map(Into::into);
                    step_run.partial = *partial;
                    run.step_ended(group, *step, *status, version);
                })
            }
            Event::StepsSkipped { child_id, reason } => {
                self.change_run(child_id, |run, _| run.skip_pending(reason));
            }
            Event::GatheringEnded { child_id } => self.change_run(child_id, |run, _| {
                run.progress.gathered = true;
                run.progress.gather_by = None;
            }),
            Event::SynthesisBegun { child_id, lowered } => {
                self.change_run(child_id, |run, _| {
                    run.progress.phase = RunPhase::Synthesis;
                    run.progress.gather_by = None;
                });
                if let Some(lowered) = lowered {
                    self.lowered(child_id, lowered);
                }
            }
        }
        self.mark(event, now);
    }

    /// The open question of a context, if it has one, is answered or withdrawn.
    fn question_ended(&mut self, child_id: &ChildId, given: impl FnOnce(Text) -> GivenAnswer) {
        let at = self.expect(child_id);
        if let Status::InputRequired { question, .. } = &self.node(at).status {
            let given = given(question.clone());
            self.content_bytes += content::answer_bytes(&given);
            self.node_mut(at).answers.push(given);
        }
        self.retime(at);
    }

    /// B17: the profile of a graph's own agent applies from here on.
    fn lowered(&mut self, child_id: &ChildId, lowered: &LoweredBounds) {
        let at = self.expect(child_id);
        let node = self.node_mut(at);
        node.lifecycle.own_limit = Some(lowered.own);
        node.limits = lowered.limits.clone();
        node.terms.timeout_ms = lowered.timeout_ms;
        node.terms.window_tokens = lowered.window_tokens;
        // Children that shared the graph's limits keep them.
        let children = node.children.clone();
        self.unsaved.definitions.extend(children.into_iter().chain([at]));
        self.retime(at);
    }

    pub(super) fn put_value(&mut self, key: ContextKey, entry: Entry) {
        self.unsaved.values.insert(key.clone());
        self.store_bytes += entry.size_bytes;
        let before = self.store.insert(key, entry);
        self.store_bytes -= before.map_or(0, |entry| entry.size_bytes);
    }

    /// Empties the shared store; returns what was in it.
    fn clear_store(&mut self) -> BTreeMap<ContextKey, Entry> {
        let values = std::mem::take(&mut self.store);
        self.unsaved.values.extend(values.keys().cloned());
        self.store_bytes = 0;
        values
    }

    pub(super) fn remove_value(&mut self, key: &ContextKey) {
        if let Some(entry) = self.store.remove(key) {
            self.unsaved.values.insert(key.clone());
            self.store_bytes -= entry.size_bytes;
        }
    }

    pub(super) fn change(&mut self, child_id: &ChildId, change: impl FnOnce(&mut ContextNode)) {
        let at = self.expect(child_id);
        change(self.node_mut(at));
        self.retime(at);
    }

    fn change_run(&mut self, child_id: &ChildId, change: impl FnOnce(&mut GraphRun, &domain::graph::Group)) {
        let at = self.expect(child_id);
        let plan = self.node(at).graph.as_ref().map(|run| self.plans[run.plan as usize].clone());
        if let (Some(plan), Some(run)) = (plan, &mut self.node_mut(at).graph) {
            let group = plan.group(run.group);
            change(run, group);
        }
        self.retime(at);
    }
}
