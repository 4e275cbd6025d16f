//! Collects the results of an ended run that a rerun may take over, and builds the spec of the
//! rerun.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use domain::{
    AgentId, ChildId, ContextKey, Json, Problems, StepPath,
    graph::{Body, Group, Input, Plan, Source, Step, StepIndex},
    problem::nearest,
    wire::{self, EndStatus, Payload, StepStatus, TakenFrom},
};
use text::set_limit::SetLimit;

use super::{
    again::Again,
    kept::{Earlier, KeptResult, KeptStep, Rerun, RerunOrder, StepPlace, digest_of},
};
use crate::{
    ContextIndex, ContextNode, ContextSpec, GraphRun, Ran, Refusal, StepRun, Trace, agents_of_plan,
    context_store::{full_key, under_step},
    graph_run::failed,
};

/// The most bytes of results and values that one run takes over, because they go into one commit.
const MAX_TAKEN_BYTES: u64 = 64 * 1024 * 1024;

impl Trace {
    /// Returns the spec and the plan of a rerun of this run, and the results that it may take over.
    /// `objects`: the objects that the run stored outside its state still exist.
    pub fn rerun(
        &self,
        asked: &wire::Rerun,
        child_id: ChildId,
        request: RerunOrder,
        objects: bool,
    ) -> Result<(ContextSpec, Arc<Plan>, Earlier), Refusal> {
        let at = |path: &str, message: String, hint: &str| {
            Refusal::Malformed(Problems::one(path, message, Some(hint.into())))
        };
        let id = asked.rerun.trace_id;
        let Some(root) = self.root() else { return Err(not_there(id)) };
        let Some((run, group)) = self.run_of(root) else {
            let hint =
                "begin with the journal of its agent, with `branch_from` (`trellis submit --branch-from`)";
            return Err(at("rerun.trace_id", format!("run {id} has one agent and no graph"), hint));
        };
        if root.lifecycle.deleted {
            let hint = "submit the graph again, without `rerun`";
            return Err(at("rerun.trace_id", format!("run {id} was deleted, with its results"), hint));
        }
        if root.is_live() {
            let hint = "wait for its end, or cancel it";
            return Err(at("rerun.trace_id", format!("run {id} has not ended"), hint));
        }
        if root.undoing > 0 {
            // The steps that succeeded in it may be undone at any moment.
            let hint = "wait for the end of the undo, or stop it with `trellis runs cancel --without-undo`";
            return Err(at(
                "rerun.trace_id",
                format!("run {id} has ended, but a graph in it is still undoing its steps"),
                hint,
            ));
        }
        let plan = self.plans[run.plan as usize].clone();
        let mut problems = Problems::default();
        let mut again = Again::named(&plan, &asked.rerun.from, &mut problems);
        again.undone(&plan, &self.undone_steps());
        let declared = plan.definition().declared_inputs();
        let is_known = |key: &ContextKey| root.spec.inputs.contains_key(key) || declared.contains(key);
        for key in asked.inputs.keys().filter(|key| !is_known(key)) {
            let known = root.spec.inputs.keys().chain(&declared).map(ContextKey::as_str);
            let hint = nearest(key.as_str(), known).map(|meant| format!("did you mean `{meant}`?"));
            problems.add(format!("inputs.{key}"), "the graph of the earlier run has no such input", hint);
        }
        let mut inputs = root.spec.inputs.clone();
        inputs.extend(asked.inputs.clone());
        // The inputs of the earlier run were checked when it was submitted.
        for problem in plan.check_inputs(&inputs).iter().filter(|_| !asked.inputs.is_empty()) {
            problems.add(&problem.path, &problem.message, problem.hint.clone());
        }
        problems.or(()).map_err(Refusal::Malformed)?;
        let completed = root.end().is_some_and(|end| end.status == EndStatus::Completed);
        let succeeded = completed && !self.has_failed_steps();
        let new = |(key, value): (&ContextKey, &Json)| root.spec.inputs.get(key) != Some(value);
        if succeeded && asked.rerun.from.is_empty() && !asked.inputs.iter().any(new) {
            let hint = "name a step in `from` (`--from STEP`): that step and all later ones are run again";
            return Err(at("rerun", format!("run {id} succeeded: no step needs to run again"), hint));
        }

        let mut found = EarlierResults::new(self, &again, objects);
        found.collect(ContextIndex(0), run, group);
        let EarlierResults { kept, mut needs, done, .. } = found;
        let size = kept.iter().map(|(_, kept)| kept.size_bytes()).sum();
        if size > MAX_TAKEN_BYTES {
            let limit = SetLimit::built_in("the most that a rerun can take over", MAX_TAKEN_BYTES);
            let what = "the data to take over (name more steps in `from` to reduce it)";
            return Err(Refusal::TooLarge { size, what, limit: Box::new(limit) });
        }
        // The results that the earlier run took over itself may refer to objects of further runs.
        // Taken groups have no contexts below them, so their references are found only here.
        needs.extend(self.rerun.iter().flat_map(|rerun| rerun.needs.iter().cloned()));
        let mut spec = ContextSpec { child_id, rerun: Some(request), inputs, ..(*root.spec).clone() };
        spec.max_cost_usd = asked.max_cost_usd.or(spec.max_cost_usd);
        spec.max_tokens = asked.max_tokens.or(spec.max_tokens);
        let rerun = Rerun { trace_id: id, needs: needs.into_iter().collect() };
        let spared = spared(&plan, &done);
        Ok((spec, plan, Earlier { rerun, kept, spared }))
    }
}

impl Trace {
    /// The steps whose undo began or was refused (G14): their effects may no longer be valid.
    fn undone_steps(&self) -> BTreeSet<StepPath> {
        let begun = |node: &&ContextNode| {
            node.undo.as_ref().is_some_and(|undo| undo.by.is_some() || undo.refused.is_some())
        };
        let undone = self.contexts().iter().filter(begun);
        let step = |node: &ContextNode| {
            let (run, group) = self.run_of(self.node(node.parent?))?;
            Some(group.steps[run.place(node.identity.step?.step) as usize].path.clone())
        };
        undone.filter_map(step).collect()
    }

    /// Returns true if a step of any graph in the run failed, even partly. Steps of a race are left
    /// out, because all but its winner may fail.
    fn has_failed_steps(&self) -> bool {
        let mut runs = self.contexts().iter().filter_map(|node| self.run_of(node));
        let missed = |step: &StepRun| failed(step.status) || step.partial;
        runs.any(|(run, group)| !group.race && run.steps.iter().any(missed))
    }
}

/// The agents that only the `done` steps name, including the groups among them.
fn spared(plan: &Plan, done: &HashSet<StepPath>) -> BTreeSet<AgentId> {
    let is_done = |step: &Step| done.contains(&step.path);
    let mut needed = BTreeSet::new();
    for group in plan.groups() {
        let owner = group.owner.map(|(outer, step)| &plan.group(outer).steps[step as usize]);
        if !owner.is_some_and(is_done) {
            needed.extend(group.aggregate.iter().map(|aggregate| &aggregate.agent_id));
        }
        for step in group.steps.iter().filter(|step| !is_done(step)) {
            needed.extend(step.undo.iter().map(|undo| &undo.agent_id));
            needed.extend(step.fallback.iter().map(|fallback| &fallback.agent_id));
            needed.extend(match &step.body {
                Body::Agent { agent_id, .. } => Some(agent_id),
                Body::Group(_) | Body::Approve(_) => None,
            });
        }
    }
    agents_of_plan(plan).into_iter().filter(|agent| !needed.contains(agent)).collect()
}

/// The refusal of a rerun of an unknown run.
pub(super) fn not_there(id: domain::TraceId) -> Refusal {
    let message = format!("there is no run {id}: nothing was submitted under this id, or it has expired");
    Refusal::Malformed(Problems::one("rerun.trace_id", message, Some("`trellis runs list` shows all".into())))
}

impl Earlier {
    /// The refusal of a rerun of an unknown run.
    pub fn unknown(id: domain::TraceId) -> Refusal {
        not_there(id)
    }
}

impl KeptResult {
    fn size_bytes(&self) -> u64 {
        let result = match &self.result {
            Some(Payload::Inline(value)) => value.size_bytes(),
            Some(Payload::Reference(_)) | None => 0,
        };
        result + self.own.values().chain(self.values.values()).map(Json::size_bytes).sum::<u64>()
    }
}

struct EarlierResults<'a> {
    trace: &'a Trace,
    again: &'a Again,
    objects: bool,
    /// The outputs stored under the id of a context, by that id.
    under: HashMap<&'a str, Vec<(&'a ContextKey, &'a Json)>>,
    /// Digests of outputs, because many steps may read the same value.
    digests: HashMap<ContextKey, String>,
    kept: Vec<(StepPlace, KeptResult)>,
    needs: BTreeSet<TakenFrom>,
    /// Steps whose results are kept completely.
    done: HashSet<StepPath>,
}

impl<'a> EarlierResults<'a> {
    fn new(trace: &'a Trace, again: &'a Again, objects: bool) -> Self {
        let mut under: HashMap<&str, Vec<_>> = HashMap::new();
        for (key, value) in trace.outputs() {
            if let Some((id, _)) = key.as_str().split_once('.') {
                under.entry(id).or_default().push((key, value));
            }
        }
        let (digests, kept, needs, done) = (HashMap::new(), Vec::new(), BTreeSet::new(), HashSet::new());
        EarlierResults { trace, again, objects, under, digests, kept, needs, done }
    }

    /// Collects the results of a graph or group.
    fn collect(&mut self, graph: ContextIndex, run: &GraphRun, group: &Group) {
        // An amend gives the graph a new plan; a group that had ended before it still has the old
        // one.
        let plan = &self.trace.plans[run.plan as usize];
        for (ran, step) in run.steps.iter().zip(&group.steps) {
            if self.again.has_whole(&step.path) {
                continue;
            }
            let whole = !self.again.has(&step.path);
            let read = self.read(graph, plan, step);
            let mut all = ran.status == StepStatus::Succeeded && !ran.partial && !ran.contexts.is_empty();
            for context in &ran.contexts {
                let node = self.trace.node(*context);
                let Some(of) = node.identity.step else { continue };
                let is_last = ran.contexts.last() == Some(context);
                let (item, counts) = match of.ran {
                    Ran::Item(item) => (Some(item), true),
                    Ran::Itself | Ran::Round(_) | Ran::Fallback => {
                        (None, is_last && ran.status == StepStatus::Succeeded)
                    }
                };
                if whole && counts && may_stand(plan, step) && self.may_keep(*context) {
                    let kept = self.keep(*context, plan, step, read.clone());
                    self.kept.push((StepPlace::of(&step.path, item), kept));
                    continue;
                }
                all &= !counts;
                if let (Ran::Itself, Some((run, group))) = (of.ran, self.trace.run_of(node)) {
                    // The values written within an item disappear with the item, so an item is
                    // taken as a whole or not at all.
                    self.collect(*context, run, group);
                }
            }
            if all {
                self.done.insert(step.path.clone());
                let inner =
                    if let Body::Group(inner) = step.body { plan.steps_within(inner) } else { Vec::new() };
                self.done.extend(inner.into_iter().map(|step| step.path.clone()));
            }
        }
    }

    /// Returns true if the context completed fully and everything in it can be taken over.
    fn may_keep(&self, at: ContextIndex) -> bool {
        let node = self.trace.node(at);
        let completed = node.end().is_some_and(|end| end.status == EndStatus::Completed);
        let subtree = self.trace.subtree(at);
        let stands = |at: &ContextIndex| self.stands(self.trace.node(*at));
        completed && !self.trace.ended_partial(node) && subtree.iter().all(stands)
    }

    /// Returns true if the work of one context is valid in another run too.
    fn stands(&self, node: &ContextNode) -> bool {
        let is_there = !node.lifecycle.deleted && (self.objects || reference(node).is_none());
        // An approval is valid only in its own run: a human is asked again. For an agent that may
        // read everything, the values that it read are unknown.
        is_there && !node.is_approval() && !self.trace.reads_all(node)
    }

    fn keep(
        &mut self,
        at: ContextIndex,
        plan: &Plan,
        step: &Step,
        read: BTreeMap<ContextKey, String>,
    ) -> KeptResult {
        let node = self.trace.node(at);
        let of = |node: &ContextNode| {
            let own = || TakenFrom { trace_id: self.trace.id(), child_id: node.id.clone() };
            node.identity.taken.clone().unwrap_or_else(own)
        };
        let subtree = self.trace.subtree(at);
        let nodes = || subtree.iter().map(|at| self.trace.node(*at));
        let needs: Vec<TakenFrom> = nodes().filter(|node| reference(node).is_some()).map(of).collect();
        let rest = |key: &ContextKey| key.as_str().split_once('.').map(|(_, rest)| rest.to_owned());
        let item = node.spec.inputs.iter().find(|(key, _)| key.as_str() == "item").map(|(_, item)| item);
        let mut kept = KeptResult {
            from: of(node),
            fallback: node.identity.step.is_some_and(|of| of.ran == Ran::Fallback),
            result: node.end().and_then(|end| end.details.result.clone()),
            read,
            item: item.filter(|_| step.for_each.is_some()).map(digest_of),
            own: BTreeMap::new(),
            values: BTreeMap::new(),
            steps: Vec::new(),
        };
        let under = |id: &ChildId| self.under.get(id.as_str()).into_iter().flatten();
        kept.own.extend(under(&node.id).filter_map(|(key, value)| Some((rest(key)?, (*value).clone()))));
        if node.graph.is_some() && node.identity.scope.is_none() {
            let inner = nodes().skip(1).flat_map(|node| under(&node.id));
            kept.values.extend(inner.map(|(key, value)| ((*key).clone(), (*value).clone())));
        }
        // The values written within an item are stored under the item's own id.
        let inner =
            if let (Body::Group(inner), None) = (&step.body, &step.for_each) { Some(*inner) } else { None };
        let within = inner.into_iter().flat_map(|inner| plan.steps_with_keys_of(inner));
        let written = within.filter_map(|step| step.output_to.as_ref()).chain(&node.spec.output_to);
        let outer = node.parent.map(|parent| self.trace.node(parent));
        let value = |key: &ContextKey| {
            let full = full_key(self.trace, outer?, key);
            Some((key.clone(), self.trace.outputs().get(&full)?.clone()))
        };
        kept.values.extend(written.filter_map(value));
        if let Some((run, group)) = self.trace.run_of(node) {
            let ended = |(ran, step): (&StepRun, &Step)| KeptStep {
                id: step.id.clone(),
                status: ran.status,
                reason: ran.reason.as_deref().map(str::to_owned),
            };
            kept.steps = run.steps.iter().zip(&group.steps).map(ended).collect();
        }
        self.needs.extend(needs);
        kept
    }

    /// Digests of the values that a step read.
    fn read(&mut self, graph: ContextIndex, plan: &Plan, step: &Step) -> BTreeMap<ContextKey, String> {
        let trace = self.trace;
        let here = |key: &ContextKey| full_key(trace, trace.node(graph), key);
        let full = |input: &Input| {
            let (run, _) = trace.run_of(trace.node(graph))?;
            let succeeded = |step: StepIndex| run.step(step).status == StepStatus::Succeeded;
            match input.source {
                Source::Sibling(writer) if succeeded(writer) => Some(here(&input.key)),
                Source::UnderSibling(writer) if succeeded(writer) => {
                    under_step(trace, run, writer, &input.key)
                }
                Source::Outside => Some(here(&input.key)),
                Source::Sibling(_) | Source::UnderSibling(_) | Source::PreviousRound => None,
            }
        };
        let own = own_reads(step).filter_map(|input| Some((input.key.clone(), full(input)?)));
        let outside = outside_reads(plan, step).into_iter().map(|key| (key.clone(), here(&key)));
        let mut read = BTreeMap::new();
        for (key, full) in own.chain(outside).collect::<Vec<_>>() {
            let Some(value) = trace.outputs().get(&full) else { continue };
            let digest = self.digests.entry(full).or_insert_with(|| digest_of(value));
            read.insert(key, digest.clone());
        }
        read
    }
}

/// The result, if it is stored as an object.
fn reference(node: &ContextNode) -> Option<&Payload> {
    node.end()?.details.result.as_ref().filter(|result| matches!(result, Payload::Reference(_)))
}

/// The inputs of a step that decide whether its result is taken. A loop's inputs from its own
/// previous round are left out, and so is a list whose elements decide one by one.
pub(super) fn own_reads(step: &Step) -> impl Iterator<Item = &Input> {
    let list = step.for_each.as_ref().filter(|each| !each.shows_list).map(|each| &each.key);
    let decides = move |input: &&Input| input.source != Source::PreviousRound && Some(&input.key) != list;
    step.inputs.iter().filter(decides)
}

/// Returns true if a step may be taken as a whole. Excluded are an approval, even if its fallback
/// ran, and a group in which a condition reads the status of steps outside it.
fn may_stand(plan: &Plan, step: &Step) -> bool {
    match step.body {
        Body::Approve(_) => false,
        Body::Agent { .. } => true,
        Body::Group(inner) => {
            let within = plan.steps_within(inner);
            let inside: BTreeSet<&str> = within.iter().map(|step| step.id.as_str()).collect();
            let asks = |step: &&Step| {
                step.when
                    .iter()
                    .chain(step.repeat.iter().filter_map(|repeat| repeat.until.as_ref()))
                    .any(|condition| condition.steps().any(|named| !inside.contains(named)))
            };
            !within.iter().any(asks)
        }
    }
}

/// The keys that the steps of a group read from outside it, and the keys that the end condition of
/// a loop reads.
pub(super) fn outside_reads(plan: &Plan, step: &Step) -> BTreeSet<ContextKey> {
    let within = if let Body::Group(inner) = step.body { plan.steps_with_keys_of(inner) } else { Vec::new() };
    let written: BTreeSet<&ContextKey> =
        within.iter().copied().chain([step]).filter_map(|step| step.output_to.as_ref()).collect();
    let inputs = within.iter().flat_map(|step| step.inputs.iter().chain(&step.when_reads));
    let inputs = inputs.filter(|input| input.source == Source::Outside).map(|input| input.key.clone());
    let loops = within.iter().copied().chain([step]).filter_map(|step| step.repeat.as_ref()?.until.as_ref());
    let until = loops.flat_map(|until| until.outputs()).filter_map(|key| ContextKey::new(key).ok());
    inputs.chain(until).filter(|key| !written.contains(key)).collect()
}
