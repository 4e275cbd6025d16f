//! Checks the order of events in an event log, without other sources.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use domain::{ChildId, Limits, graph::Plan};
use trace::{Body, ContextAdmitted, Event, LoggedEvents, TokenHash};

use super::ensure;

#[derive(Debug, Default)]
struct Log {
    /// The limits of the settings, for a root without its own.
    limits: Arc<Limits>,
    plans: Vec<Arc<Plan>>,
    contexts: HashMap<ChildId, Seen>,
    /// The contexts whose undo began or was refused (G14).
    undone: HashSet<ChildId>,
}

/// The state of a context after the events so far.
#[derive(Debug, Default)]
struct Seen {
    parent: Option<ChildId>,
    graph: Option<(u32, u32)>,
    is_approval: bool,
    limits: Arc<Limits>,
    live_children: u32,
    /// The number of the last claim, and whether that attempt is running.
    attempt: u32,
    runs: bool,
    tokens: HashSet<TokenHash>,
    calls: HashSet<String>,
    settled: HashSet<String>,
    steps_ended: HashSet<u32>,
    told: HashSet<String>,
    rungs: u32,
    ended: bool,
    closed: bool,
    /// The number of the last decision of a check.
    checked: u32,
    undoing: bool,
}

pub(super) fn check(log: &[LoggedEvents]) -> Result<(), String> {
    let mut seen = Log::default();
    for logged in log {
        for event in &logged.events {
            seen.next(event).map_err(|what| format!("{what}, in {event:?}"))?;
        }
    }
    Ok(())
}

impl Log {
    fn next(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Opened { settings, .. } => self.limits = Arc::new(settings.limits.clone()),
            Event::PlanAdded { plan } => self.plans.push(plan.clone()),
            Event::Admitted(admitted) => self.admitted(admitted)?,
            Event::Claimed { child_id, attempt, token, .. } => {
                let seen = self.live(child_id)?;
                ensure(*attempt == seen.attempt + 1, || format!("t3: attempt after {}", seen.attempt))?;
                ensure(!seen.runs, || "t3: claimed while an attempt runs".into())?;
                ensure(seen.tokens.insert(token.clone()), || "t3: one token, two claims".into())?;
                (seen.attempt, seen.runs) = (*attempt, true);
            }
            Event::Ticked { child_id, .. } | Event::Progressed { child_id, .. } => {
                let seen = self.live(child_id)?;
                ensure(seen.runs, || "t5: an event of an attempt that does not run".into())?;
            }
            Event::Checked { child_id, number, .. } => {
                let seen = self.live(child_id)?;
                ensure(seen.runs, || "t5: an event of an attempt that does not run".into())?;
                ensure(*number > seen.checked, || "B16: one decision, two events".into())?;
                seen.checked = *number;
            }
            Event::Held { child_id, call_id, attempt, .. } => {
                ensure(!self.cut_off(child_id), || "t6: a hold after the end of an ancestor".into())?;
                let seen = self.live(child_id)?;
                ensure(seen.runs && *attempt == seen.attempt, || {
                    format!("t5: attempt {} runs: {}", seen.attempt, seen.runs)
                })?;
                ensure(seen.calls.insert(call_id.to_string()), || "one call held twice".into())?;
            }
            Event::Settled { child_id, call_id, .. } => {
                let seen = self.contexts.get_mut(child_id).ok_or("no such context")?;
                ensure(seen.settled.insert(call_id.to_string()), || "one cost booked twice".into())?;
                let held = seen.calls.contains(call_id.as_str());
                ensure(!(seen.closed && held), || "B20: a hold was open after the outcome".into())?;
            }
            Event::Corrected { child_id, call_id, .. } => {
                let seen = self.contexts.get_mut(child_id).ok_or("no such context")?;
                ensure(seen.settled.insert(call_id.to_string()), || "one cost booked twice".into())?;
            }
            Event::Estimated { child_id, call_id, .. } => {
                let seen = self.contexts.get_mut(child_id).ok_or("no such context")?;
                ensure(seen.calls.insert(call_id.to_string()), || "one call booked twice".into())?;
            }
            Event::Forfeited { child_id, .. } => {
                let seen = self.contexts.get(child_id).ok_or("no such context")?;
                ensure(!seen.closed, || "B20: a hold was open after the outcome".into())?;
            }
            Event::Closed { child_id } => {
                let seen = self.contexts.get_mut(child_id).ok_or("no such context")?;
                ensure(seen.ended, || "t2: an outcome before the end".into())?;
                ensure(!std::mem::replace(&mut seen.closed, true), || "t2: two outcomes".into())?;
            }
            Event::AttemptLost { child_id, attempt } => {
                let seen = self.live(child_id)?;
                ensure(seen.runs && *attempt == seen.attempt, || "t5: another attempt is lost".into())?;
                seen.runs = false;
            }
            Event::Waiting { child_id, .. } | Event::InputRequired { child_id, .. } => {
                let seen = self.live(child_id)?;
                let is_approval = seen.is_approval && seen.attempt == 0;
                ensure(seen.runs || is_approval, || "t5: an event of an attempt that does not run".into())?;
                seen.runs = false;
            }
            Event::Requeued { child_id, .. } | Event::Paused { child_id, .. } => {
                self.live(child_id)?.runs = false;
            }
            Event::Restored { child_id, .. } => drop(self.live(child_id)?),
            Event::Told { child_id, number, id, .. } => {
                let seen = self.live(child_id)?;
                ensure(*number as usize == seen.told.len() + 1, || "G13: a number is missing".into())?;
                ensure(seen.told.insert(id.to_string()), || "G13: one message twice".into())?;
            }
            Event::MessagesSeen { child_id, number } => {
                let seen = self.live(child_id)?;
                ensure(*number as usize <= seen.told.len(), || "G13: a seen message was never sent".into())?;
            }
            Event::RungReached { child_id, rung, .. } => {
                let seen = self.live(child_id)?;
                ensure(*rung == seen.rungs + 1, || "B21: a rung is missing, or was reached twice".into())?;
                seen.rungs = *rung;
            }
            Event::Amended { child_id, plan, .. } => {
                self.live(child_id)?;
                self.plans.push(plan.clone());
                // Steps have new indexes from here on, also in the groups of this graph.
                for seen in self.contexts.values_mut() {
                    (seen.graph, seen.steps_ended) = (None, Default::default());
                }
            }
            Event::StepEnded { child_id, step, .. } => {
                let seen = self.live(child_id)?;
                ensure(seen.steps_ended.insert(*step), || "t2: a step ended twice".into())?;
            }
            Event::Ended(ended) => self.ended(&ended.child_id)?,
            Event::UndoingBegun(ended) => {
                let seen = self.live(&ended.child_id)?;
                ensure(!std::mem::replace(&mut seen.undoing, true), || "G14: the undo ran twice".into())?;
                seen.runs = false;
            }
            Event::UndoRefused { undoes, .. } => self.undone(undoes)?,
            Event::AgentAdded { .. }
            | Event::Tombstoned { .. }
            | Event::WindowClamped { .. }
            | Event::Redispatched { .. }
            | Event::Reminded { .. }
            | Event::Answered { .. }
            | Event::Deleted { .. }
            | Event::Released { .. }
            | Event::HoldQueued { .. }
            | Event::PlaceLost { .. }
            | Event::Charged { .. }
            | Event::Disputed { .. }
            | Event::DisputeDecided { .. }
            | Event::Exhausted { .. }
            | Event::Replenished { .. }
            | Event::Raised { .. }
            | Event::ValueSet { .. }
            | Event::ValueDeleted { .. }
            | Event::StoreCleared
            | Event::ConditionAsked { .. }
            | Event::ItemsTaken { .. }
            | Event::ItemRefused { .. }
            | Event::RerunBegun { .. }
            | Event::ResultKept { .. }
            | Event::KeptTaken { .. }
            | Event::KeptDropped { .. }
            | Event::StepContinues { .. }
            | Event::StepsSkipped { .. }
            | Event::GatheringEnded { .. }
            | Event::SynthesisBegun { .. }
            | Event::Rebuilt { .. }
            | Event::Copied(_) => {}
        }
        Ok(())
    }

    fn admitted(&mut self, admitted: &ContextAdmitted) -> Result<(), String> {
        let id = admitted.spec.child_id.clone();
        let inherited = admitted.parent_id.as_ref().and_then(|parent| self.contexts.get(parent));
        let inherited = inherited.map_or(&self.limits, |parent| &parent.limits);
        let limits = admitted.limits.as_ref().unwrap_or(inherited).clone();
        ensure(admitted.depth <= limits.max_depth, || format!("t7: max_depth is {}", limits.max_depth))?;
        if let Some(undoes) = &admitted.undoes {
            self.undone(undoes)?;
        }
        // The context of an undo was reserved when its step began.
        let count = (self.contexts.len() - self.undone.len()) as u64 + u64::from(admitted.undoes.is_none());
        ensure(count <= u64::from(limits.max_contexts), || format!("t7: {count} contexts"))?;
        if let Some(parent) = &admitted.parent_id {
            let plans = self.plans.clone();
            let seen = self.live(parent)?;
            ensure(seen.undoing == admitted.undoes.is_some(), || {
                format!("G14: {parent} undoes: {}", seen.undoing)
            })?;
            seen.live_children += 1;
            ensure(seen.live_children <= seen.limits.max_children, || {
                format!("t7: {} children", seen.live_children)
            })?;
            if let (Some(of), Some((plan, group))) = (admitted.step, seen.graph) {
                let step = &plans[plan as usize].group(group).steps[of.step as usize];
                let early = step.waits_for.iter().find(|before| !seen.steps_ended.contains(before));
                ensure(early.is_none(), || format!("t4: step {early:?} has not ended"))?;
            }
        }
        let graph = match admitted.body {
            Body::Agent | Body::Approval => None,
            Body::Graph { plan, group } => Some((plan, group)),
        };
        let parent = admitted.parent_id.clone();
        let is_approval = admitted.body == Body::Approval;
        let seen = Seen { parent, graph, limits, is_approval, ..Seen::default() };
        ensure(self.contexts.insert(id, seen).is_none(), || "admitted twice".into())
    }

    /// G14: each run of a step is undone at most once, and only if it succeeded.
    fn undone(&mut self, of: &ChildId) -> Result<(), String> {
        let seen = self.contexts.get(of).ok_or("the undo refers to an unknown step")?;
        ensure(seen.ended, || format!("G14: {of} has not ended"))?;
        ensure(self.undone.insert(of.clone()), || format!("G14: {of} is undone twice"))
    }

    fn ended(&mut self, id: &ChildId) -> Result<(), String> {
        let seen = self.live(id)?;
        (seen.ended, seen.runs) = (true, false);
        if let Some(parent) = seen.parent.clone() {
            self.contexts.get_mut(&parent).ok_or("no parent")?.live_children -= 1;
        }
        Ok(())
    }

    /// t1: an ended context stays ended. Later events are only about money.
    fn live(&mut self, id: &ChildId) -> Result<&mut Seen, String> {
        let seen = self.contexts.get_mut(id).ok_or_else(|| format!("{id} was never admitted"))?;
        ensure(!seen.ended, || format!("t1: {id} had ended"))?;
        Ok(seen)
    }

    fn cut_off(&self, id: &ChildId) -> bool {
        let mut at = self.contexts.get(id);
        while let Some(seen) = at {
            if seen.ended {
                return true;
            }
            // Undo steps may pay even after their ancestors ended (G14).
            if seen.undoing {
                return false;
            }
            at = seen.parent.as_ref().and_then(|parent| self.contexts.get(parent));
        }
        false
    }
}
