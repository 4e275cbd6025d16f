//! Amends of a running graph (G13). An amend has the whole new definition. Steps that have begun,
//! ended or been skipped are unchanged in it; the others may be replaced, added or removed. The
//! graph, and each of its running groups, continues with the new plan; a run that has ended keeps
//! its plan. Later rounds run the new steps.
//!
//! A second delivery is harmless: an amend is known by the id that its sender gave it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use domain::{
    CallId, ChildId, StepId, StepPath,
    graph::{self, Body, Group, Plan, Standing},
    wire::StepStatus,
};

use crate::{
    Amend, ContextIndex, ContextNode, Event, GraphRun, Ran, Refusal, RunPhase, StepRun, Trace, admission,
    content,
};

/// The most amends of one graph.
const MAX_AMENDS: usize = 100;
/// The longest name of a sender.
const MAX_SENDER_BYTES: usize = 256;

pub(crate) fn amend(trace: &Trace, amend: &Amend) -> Result<Vec<Event>, Refusal> {
    let at = match &amend.child_id {
        Some(child_id) => trace.known(child_id)?,
        None => trace.known(&trace.root().ok_or(Refusal::NoTrace)?.id)?,
    };
    let graph = trace.whole_graph(at).ok_or_else(|| Refusal::RunsNoGraph(trace.node(at).id.clone()))?;
    let (node, child_id) = (trace.node(graph), trace.node(graph).id.clone());
    let (run, _) = trace.expect_run(graph);
    if let Some((_, plan)) = run.amends.iter().find(|(id, _)| *id == amend.id) {
        let same = trace.plans[*plan as usize].asks_the_same(&amend.plan);
        return if same { Ok(Vec::new()) } else { Err(Refusal::AmendConflict(amend.id.clone())) };
    }
    if let Some(refusal) = &amend.unresolved {
        return Err(refusal.clone());
    }
    trace.known_live(&node.id)?;
    if run.progress.phase == RunPhase::Synthesis {
        return Err(Refusal::SynthesisBegun(child_id));
    }
    if run.progress.phase == RunPhase::Undoing {
        return Err(Refusal::Undoing(child_id));
    }
    if amend.revision != run.revision() {
        return Err(Refusal::GraphMoved { child_id, made_for: amend.revision, revision: run.revision() });
    }
    if run.amends.len() >= MAX_AMENDS {
        return Err(Refusal::TooManyAmends { child_id, max: MAX_AMENDS });
    }
    let mut problems =
        graph::check_amend(&trace.plans[run.plan as usize], &amend.plan, &trace.standings(graph));
    problems.extend(trace.plans[run.plan as usize].missing(&amend.unverified));
    if amend.by.as_ref().is_some_and(|by| by.as_str().len() > MAX_SENDER_BYTES) {
        problems.add("by", format!("a sender's name has at most {MAX_SENDER_BYTES} bytes"), None);
    }
    let mut events = match (problems.is_empty(), admission::amended(trace, graph, &amend.plan, &amend.agents))
    {
        (true, admitted) => admitted?,
        (false, Err(Refusal::Malformed(more))) => {
            problems.extend(more);
            return Err(Refusal::Malformed(problems));
        }
        (false, Ok(_) | Err(_)) => return Err(Refusal::Malformed(problems)),
    };
    events.push(Event::Amended {
        child_id,
        id: amend.id.clone(),
        by: amend.by.clone(),
        plan: amend.plan.clone(),
    });
    content::check_room(trace, trace.settings(), content::added_by_all(&events))?;
    Ok(events)
}

impl Trace {
    /// The context of the whole graph to which this graph or group belongs.
    fn whole_graph(&self, at: ContextIndex) -> Option<ContextIndex> {
        let mut graphs = self.chain(at).take_while(|(_, node)| node.graph.is_some());
        graphs.find(|(_, node)| node.identity.step.is_none()).map(|(index, _)| index)
    }

    /// The definition of the graph to which a context belongs, with the id of every step; with it
    /// the graph's context, and the number of its amends.
    pub fn definition_of(&self, child_id: &ChildId) -> Option<(&ContextNode, u32, graph::TaskGraph)> {
        let node = self.node(self.whole_graph(self.find(child_id)?)?);
        let run = node.graph.as_deref()?;
        Some((node, run.revision(), self.plans[run.plan as usize].named_definition()))
    }

    /// The graph and the revision of an amend that was made now or earlier.
    pub fn amended(&self, amend: &Amend) -> Option<(&ContextNode, u32)> {
        let at = match &amend.child_id {
            Some(child_id) => self.find(child_id)?,
            None => self.find(&self.root()?.id)?,
        };
        let node = self.node(self.whole_graph(at)?);
        let place = node.graph.as_deref()?.amends.iter().position(|(id, _)| *id == amend.id)?;
        Some((node, u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1)))
    }

    /// The standings of the steps of a graph that an amend can't freely change. The steps in an
    /// ended group are left out: the group stands for them.
    pub(crate) fn standings(&self, graph: ContextIndex) -> BTreeMap<StepPath, Standing> {
        let mut standings = BTreeMap::new();
        for at in self.open_runs(graph) {
            let (run, group) = self.expect_run(at);
            for (ran, step) in run.steps.iter().zip(&group.steps) {
                if let Some(standing) = self.standing(run, ran, &step.body) {
                    standings.insert(step.path.clone(), standing);
                }
            }
        }
        standings
    }

    fn standing(&self, run: &GraphRun, step: &StepRun, body: &Body) -> Option<Standing> {
        let word = match step.status {
            StepStatus::Pending => return None,
            StepStatus::Running => graph::BEGUN,
            StepStatus::Skipped => "was skipped",
            StepStatus::Succeeded
            | StepStatus::Failed
            | StepStatus::Cancelled
            | StepStatus::TimedOut
            | StepStatus::Aborted => "has ended",
        };
        let next_round = matches!((body, step.next), (Body::Group(_), Some(Ran::Round(_))));
        let is_open = next_round || self.open_run_of(run, step).is_some();
        Some(if is_open && word == graph::BEGUN { Standing::Open } else { Standing::Fixed(word) })
    }

    /// The group that runs for a step, if it takes amends. The items of a `for_each` all run the
    /// same steps as the first one, so they take none.
    fn open_run_of(&self, run: &GraphRun, step: &StepRun) -> Option<ContextIndex> {
        let last = *step.contexts.last().filter(|_| step.items.is_none())?;
        let inner = self.node(last).graph.as_deref()?;
        let takes =
            inner.plan == run.plan && inner.progress.phase == RunPhase::Steps && self.node(last).is_live();
        takes.then_some(last)
    }

    /// The graph and its running groups that take amends.
    pub(crate) fn open_runs(&self, graph: ContextIndex) -> Vec<ContextIndex> {
        let mut found = vec![graph];
        let mut next = 0;
        while let Some(at) = found.get(next).copied() {
            let (run, _) = self.expect_run(at);
            found.extend(run.steps.iter().filter_map(|step| self.open_run_of(run, step)));
            next += 1;
        }
        found
    }

    pub(crate) fn apply_amend(&mut self, graph: ContextIndex, id: &CallId, plan: &Arc<Plan>) {
        let runs = self.open_runs(graph);
        let (run, _) = self.expect_run(graph);
        let before = self.plans[run.plan as usize].clone();
        let number = u32::try_from(self.plans.len()).expect("max_contexts was checked");
        self.unsaved.plans.insert(number);
        self.plans.push(plan.clone());
        let version = self.version;
        for at in runs {
            if let Some(run) = &mut self.node_mut(at).graph {
                run.take_plan(number, &before, plan, version);
            }
            self.unsaved.definitions.insert(at);
        }
        if let Some(run) = &mut self.node_mut(graph).graph {
            run.amends.push((id.clone(), number));
        }
    }
}

impl GraphRun {
    /// The number of amends.
    pub fn revision(&self) -> u32 {
        u32::try_from(self.amends.len()).unwrap_or(u32::MAX)
    }

    /// Continues with another plan. A step with the same id is the same step: if it has begun, it
    /// keeps its row and its number.
    fn take_plan(&mut self, number: u32, before: &Plan, after: &Plan, version: u64) {
        let old = before.group(self.group);
        let group = old
            .owner
            .and_then(|(outer, step)| after.place_of(&before.group(outer).steps[step as usize].path));
        let group = group.and_then(|(outer, step)| match after.group(outer).steps[step as usize].body {
            Body::Group(inner) => Some(inner),
            Body::Agent { .. } | Body::Approve(_) => None,
        });
        let group = group.unwrap_or(0);
        let new = after.group(group);
        let was: BTreeMap<&StepId, u32> =
            (0u32..).zip(&old.steps).map(|(place, step)| (&step.id, place)).collect();
        let kept: Vec<Option<u32>> = new.steps.iter().map(|step| was.get(&step.id).copied()).collect();
        let mut rows: Vec<StepRun> = kept.iter().map(|place| self.kept_row(*place)).collect();
        block(&mut rows, new, version);
        let numbers = self.kept_numbers(&kept);
        self.progress.winner = self
            .progress
            .winner
            .and_then(|won| (0u32..).zip(&kept).find(|(_, place)| **place == Some(won)).map(|(now, _)| now));
        (self.plan, self.group) = (number, group);
        self.put_rows(rows, numbers);
    }

    /// The row of a step; a step that has not begun keeps only the time at which it became ready.
    fn kept_row(&self, place: Option<u32>) -> StepRun {
        let row = place.map(|place| self.step(place));
        match row {
            Some(row) if row.status != StepStatus::Pending => row.clone(),
            Some(row) => StepRun { ready: row.ready, ..StepRun::pending() },
            None => StepRun::pending(),
        }
    }

    /// The numbers of the steps: kept steps keep theirs, and the others get the lowest free ones.
    fn kept_numbers(&self, kept: &[Option<u32>]) -> Vec<u32> {
        let stays: Vec<Option<u32>> =
            kept.iter().map(|place| place.map(|place| self.number(place))).collect();
        let taken: BTreeSet<u32> = stays.iter().flatten().copied().collect();
        let mut free = (0u32..).filter(|number| !taken.contains(number));
        stays.into_iter().map(|number| number.or_else(|| free.next()).expect("numbers do not end")).collect()
    }
}

/// Counts the blockers of each step. A step that has not begun and has no blockers is ready.
fn block(rows: &mut [StepRun], group: &Group, version: u64) {
    let unfinished: Vec<bool> =
        rows.iter().map(|row| matches!(row.status, StepStatus::Pending | StepStatus::Running)).collect();
    for (row, step) in rows.iter_mut().zip(&group.steps) {
        let blockers = step.waits_for.iter().filter(|before| unfinished[**before as usize]).count();
        row.blockers = u32::try_from(blockers).expect("a step waits for its siblings at most");
        if row.status == StepStatus::Pending {
            row.ready = (blockers == 0).then(|| row.ready.unwrap_or(version));
        }
    }
}
