//! Admission (section P): whether a context may be created, and on what terms. The checks run in
//! the order of docs/rules.md: spawned_from, shape, parent live, depth, contexts and children,
//! cycle, tools, secrets, model, keys and sizes, budget, room. A refusal names the rule and changes
//! nothing.
//!
//! A second delivery is harmless: the same `child_id` with the same content is the same spawn and
//! gives no event; with other content it is a conflict.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use domain::{
    AgentId, AgentProfile, Amount, ChildId, ContextKey, Json, Limits, Problems, Secrets, Timestamp, Tokens,
    agent::AgentKind,
    graph::{self, Plan, Standing, Step, Undo},
    id::{ModelName, ToolName},
    json,
    ladder::{self, RungAction},
    limits::{
        Ceilings, DEFAULT_ROOT_BUDGET, MAX_CHECKS_BYTES, MAX_ORDER_BYTES, MAX_SHARED_MESSAGES_BYTES,
        MAX_VALUE_BYTES, Settings, check_ceilings,
    },
    problem::nearest,
    tool,
    wire::{EndStatus, ObjectReference, TakenFrom},
};
use text::set_limit::{Place as SetIn, SetLimit};

use super::{
    Body, ContextAdmitted, ContextEnded, ContextIndex, ContextNode, ContextSpec, Earlier, Event,
    NamedProfiles, Refusal, Spawn, StepOf, Submit, Trace, agents_of, agents_of_plan, content,
    context_store::{self, check_declared, lent_inputs},
    limit_text, pool, unreadable,
};

pub(super) fn submit(trace: &Trace, submit: Submit, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    if let Some(root) = trace.root() {
        // Two reruns are compared by their requests only: the earlier run may have expired before
        // the second delivery.
        let reruns = root.spec.rerun.as_ref().zip(submit.spec.rerun.as_ref());
        let same = reruns
            .map(|(has, asked)| has == asked)
            .unwrap_or_else(|| same_content(trace, root, &submit.spec, submit.plan.as_deref()));
        return if same { Ok(Vec::new()) } else { Err(Refusal::Conflict { child_id: root.id.clone() }) };
    }
    if let Some(refusal) = submit.unresolved {
        return Err(refusal);
    }
    let settings = submit.settings;
    let mut events = vec![Event::Opened { settings: Box::new(settings.clone()), traced: submit.traced }];
    let mut spared = BTreeSet::new();
    if let Some(Earlier { rerun, kept, spared: agents }) = submit.rerun.transpose()? {
        spared = agents;
        events.push(Event::RerunBegun { rerun: Box::new(rerun) });
        let kept = kept.into_iter();
        events.extend(kept.map(|(place, kept)| Event::ResultKept { place, kept: Box::new(kept) }));
    }
    let place = Place { trace, parent: None, limits: &settings.limits, settings: &settings };
    let child_id = submit.spec.child_id.clone();
    let (plan, agents) = (submit.plan, submit.agents);
    let request = Request { spec: submit.spec, plan, agents, spared, step: None, taken: None, undo: None };
    events.extend(place.admit(request, now)?);
    // The results that a rerun may take over are included.
    content::check_room(trace, &settings, content::added_by_all(&events))?;
    events.extend(cancelled_before(trace, &child_id, trace.cancelled_before.as_ref()));
    Ok(events)
}

pub(super) fn spawn(trace: &Trace, spawn: Spawn, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    if let Some(existing) = trace.context(&spawn.spec.child_id) {
        let parent = existing.parent.map(|parent| &trace.node(parent).id);
        // W3, G10: the spawn keeps the first snapshot of the parent's window and files. Both may
        // have grown since, and another attempt stores the files under other names.
        let (shared_messages, files) = (existing.spec.shared_messages.clone(), existing.spec.files.clone());
        let asked = ContextSpec { shared_messages, files, ..spawn.spec };
        let same = parent == Some(&spawn.lease.child_id)
            && same_content(trace, existing, &asked, spawn.plan.as_deref());
        let conflict = Refusal::Conflict { child_id: asked.child_id };
        return if same { Ok(Vec::new()) } else { Err(conflict) };
    }
    let child_id = spawn.spec.child_id.clone();
    if spawn.spec.branch_from.is_some() {
        return Err(Refusal::ChildBranches { child_id });
    }
    let parent = trace.running(&spawn.lease)?;
    let (plan, agents, spared) = (spawn.plan, spawn.agents, BTreeSet::new());
    pool::check_spawned(trace, trace.node(parent), agents_of(&spawn.spec, plan.as_deref()), &agents)?;
    let request = Request { spec: spawn.spec, plan, agents, spared, step: None, taken: None, undo: None };
    let mut events = Place::under(trace, parent).admit(request, now)?;
    events.extend(cancelled_before(trace, &child_id, None));
    Ok(events)
}

/// Admits a context for a step of a graph. The step was checked together with its graph.
pub(super) fn step(
    trace: &Trace,
    graph: ContextIndex,
    spec: ContextSpec,
    (body, undo): (Body, Option<&Undo>),
    step: StepOf,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let child_id = spec.child_id.clone();
    let (agents, spared) = (NamedProfiles::default(), BTreeSet::new());
    let request = Request { spec, plan: None, agents, spared, step: Some((step, body)), taken: None, undo };
    let mut events = Place::under(trace, graph).admit(request, now)?;
    events.extend(cancelled_before(trace, &child_id, None));
    Ok(events)
}

/// Admits a context for a step whose result is taken from an earlier run (G15): it runs nothing and
/// costs nothing.
pub(super) fn taken(
    trace: &Trace,
    graph: ContextIndex,
    spec: ContextSpec,
    body: Body,
    step: StepOf,
    from: TakenFrom,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let agents = NamedProfiles::default();
    // The agent may have been deleted, because nothing runs.
    let spared = spec.agent_id.iter().cloned().collect();
    let (step, taken) = (Some((step, body)), Some(from));
    // This run does not undo the steps of an earlier run (G14).
    let request = Request { spec, plan: None, agents, spared, step, taken, undo: None };
    Place::under(trace, graph).admit(request, now)
}

/// Admits the context that undoes another (G14). Its grant is the amount that was held for it, so
/// it always fits. Neither `max_contexts` nor the cycle check applies, because the undo was
/// promised when the step began.
pub(super) fn undo(
    trace: &Trace,
    graph: ContextIndex,
    spec: ContextSpec,
    (undoes, reserve): (ContextIndex, Amount),
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let place = Place::under(trace, graph);
    let node = trace.node(graph);
    let named = NamedProfiles::default();
    let agent = place.check_shape(&spec, None, (&named, &BTreeSet::new()), true)?;
    let mut adjusted = Vec::new();
    let limits = place.limits(&spec, agent, &mut adjusted);
    let tools = place.check_tools(&spec, agent)?;
    place.check_size(&spec, &[])?;
    let window_tokens = place.window(&spec, agent, &mut adjusted);
    let timeout = place.timeout(&spec, agent, false, now, &mut adjusted);
    place.narrowed(&spec, agent, &mut adjusted);
    let terms = place.of_reserve(reserve, agent);
    let child_id = spec.child_id.clone();
    let admitted = Event::Admitted(Box::new(ContextAdmitted {
        parent_id: Some(node.id.clone()),
        body: Body::Agent,
        step: None,
        taken: None,
        reserve: None,
        undoes: Some(trace.node(undoes).id.clone()),
        depth: node.identity.depth + 1,
        ceiling: terms.ceiling,
        granted: terms.granted,
        inherited: terms.inherited,
        thread_id: place.thread_id(&spec),
        closing_reserve_usd: terms.reserve_usd,
        limits: (*limits != *node.limits).then_some(limits),
        tools,
        window_tokens,
        deadline: timeout.deadline,
        timeout_ms: timeout.of_attempts_ms,
        on_exhausted: place.on_exhausted(&spec, agent),
        hitl: place.hitl(&spec, agent),
        scope: place.scope(&spec, None, Body::Agent),
        adjusted,
        spec: Arc::new(spec),
    }));
    Ok([admitted].into_iter().chain(cancelled_before(trace, &child_id, None)).collect())
}

/// Checks the plan of an amend like that of a submission, and adds the profiles of the agents that
/// it names (G13).
pub(super) fn amended(
    trace: &Trace,
    graph: ContextIndex,
    plan: &Plan,
    agents: &NamedProfiles,
) -> Result<Vec<Event>, Refusal> {
    let node = trace.node(graph);
    let above = node.parent.map(|parent| (parent, trace.node(parent)));
    let place = Place { trace, parent: above, limits: &node.limits, settings: trace.settings() };
    // Agents that the plan already names may be unknown: the graph may need them only for results
    // that a rerun takes over.
    let known = trace.run_of(node).map(|(run, _)| agents_of_plan(&trace.plans[run.plan as usize]));
    place.check_shape(&node.spec, Some(plan), (agents, &known.unwrap_or_default()), false)?;
    let fixed = trace.standings(graph);
    let steps = || plan.groups().iter().flat_map(|group| &group.steps);
    let begun = steps().filter(|step| fixed.contains_key(&step.path)).count();
    // The steps of an ended group already have their contexts, or never get one.
    let closed = |step: &&Step| matches!(fixed.get(&step.path), Some(Standing::Fixed(_)));
    let within = steps().filter(closed).map(|step| match step.body {
        graph::Body::Group(inner) => plan.steps_within(inner).len(),
        graph::Body::Agent { .. } | graph::Body::Approve(_) => 0,
    });
    let asked = plan.step_count().saturating_sub(index(begun + within.sum::<usize>()));
    let have = index(trace.contexts.len());
    if have.saturating_add(asked) > node.limits.max_contexts {
        let limit = Box::new(limit_text::of_settings(trace.settings(), "max_contexts"));
        return Err(Refusal::MaxContexts { asked, have, limit });
    }
    place.check_size(&node.spec, &agents.profiles)?;
    Ok(place.new_agents(&node.spec, Some(plan), agents))
}

/// G8: a cancel that arrived before its context still applies. The context is admitted and ends at
/// once, so that a caller that waits for it gets an outcome.
pub(super) fn cancelled_before(
    trace: &Trace,
    child_id: &ChildId,
    whole_trace: Option<&String>,
) -> Option<Event> {
    let reason = whole_trace.or_else(|| trace.tombstones.get(child_id))?.clone();
    let status = EndStatus::Cancelled;
    Some(Event::Ended(Box::new(ContextEnded {
        child_id: child_id.clone(),
        status,
        result: None,
        error: None,
        reason: Some(reason),
        without_undo: false,
    })))
}

fn same_content(trace: &Trace, node: &ContextNode, spec: &ContextSpec, plan: Option<&Plan>) -> bool {
    let has = node.graph.as_ref().map(|run| trace.plans[run.admitted as usize].as_ref());
    let same_plan = match (has, plan) {
        (Some(has), Some(plan)) => has.asks_the_same(plan),
        (has, plan) => has.is_none() && plan.is_none(),
    };
    *node.spec == *spec && same_plan
}

/// A context to admit.
struct Request<'a> {
    spec: ContextSpec,
    plan: Option<Arc<Plan>>,
    agents: NamedProfiles,
    /// Agents whose profiles may be missing.
    spared: BTreeSet<AgentId>,
    step: Option<(StepOf, Body)>,
    taken: Option<TakenFrom>,
    /// The undo of the step, if it has one.
    undo: Option<&'a Undo>,
}

/// The place where a context is admitted: under a parent, or as the root of a trace.
pub(super) struct Place<'a> {
    pub(super) trace: &'a Trace,
    pub(super) parent: Option<(ContextIndex, &'a ContextNode)>,
    pub(super) limits: &'a Limits,
    pub(super) settings: &'a Settings,
}

impl<'a> Place<'a> {
    fn under(trace: &'a Trace, parent: ContextIndex) -> Self {
        let node = trace.node(parent);
        Place { trace, parent: Some((parent, node)), limits: &node.limits, settings: trace.settings() }
    }

    fn admit(&self, request: Request<'_>, now: Timestamp) -> Result<Vec<Event>, Refusal> {
        let Request { spec, plan, agents, spared, step, taken, undo } = request;
        let profile = self.check_shape(&spec, plan.as_deref(), (&agents, &spared), step.is_some())?;
        self.check_parent()?;
        let is_graph = plan.is_some() || matches!(step, Some((_, Body::Graph { .. })));
        let is_approval = matches!(step, Some((_, Body::Approval)));
        // The profile of a graph's own agent applies to its synthesis only; the steps have their
        // own profiles.
        let agent = profile.filter(|_| !is_graph);
        let depth = self.check_depth(is_graph || is_approval)?;
        self.check_counts(plan.as_deref())?;
        let runs = taken.is_none();
        if !is_graph && runs {
            self.check_cycle(&spec)?;
        }
        let tools = self.check_tools(&spec, agent)?;
        self.check_secrets(&spec)?;
        if runs {
            self.check_model(spec.model.as_ref().or(profile.and_then(|a| a.model.as_ref())))?;
            self.check_ladder_models(&spec, profile)?;
        }
        if let (Some((_, parent)), None) = (self.parent, step) {
            check_declared(self.trace, parent, &spec, is_graph)?;
        }
        let mut adjusted = Vec::new();
        let limits = self.limits(&spec, agent, &mut adjusted);
        if is_graph && limits.max_children == 0 {
            let limit = Box::new(self.no_children(&spec));
            return Err(Refusal::MaxChildren { parent: spec.child_id, limit });
        }
        if is_graph {
            self.check_inputs(&spec)?;
        }
        self.check_files(&spec, &limits)?;
        self.check_size(&spec, &agents.profiles)?;
        self.check_checks(profile, step.is_some())?;
        let reserve = undo.map(|undo| self.check_undo(undo)).transpose()?;
        let terms = match (runs, is_approval) {
            (true, false) => self.check_budget(&spec, (agent, profile), reserve, &mut adjusted)?,
            (true, true) => self.whatever_is_left(),
            (false, _) => self.nothing_to_spend(),
        };
        if let Some(plan) = plan.as_deref().filter(|plan| plan.must_fit()) {
            self.check_worst_case(&spec, plan, &agents, &terms)?;
        }

        let mut events = self.new_agents(&spec, plan.as_deref(), &agents);
        let body = match (step, &plan) {
            (Some((_, body)), _) => body,
            (None, Some(_)) => Body::Graph { plan: index(self.trace.plans.len()), group: 0 },
            (None, None) => Body::Agent,
        };
        events.extend(plan.map(|plan| Event::PlanAdded { plan }));
        let window_tokens = self.window(&spec, agent, &mut adjusted);
        let timeout = self.timeout(&spec, agent, is_graph, now, &mut adjusted);
        self.narrowed(&spec, agent, &mut adjusted);
        let child_id = spec.child_id.clone();
        events.push(Event::Admitted(Box::new(ContextAdmitted {
            parent_id: self.parent.map(|(_, node)| node.id.clone()),
            body,
            step: step.map(|(step, _)| step),
            taken,
            reserve,
            undoes: None,
            depth,
            ceiling: terms.ceiling,
            granted: terms.granted,
            inherited: terms.inherited,
            thread_id: self.thread_id(&spec),
            closing_reserve_usd: terms.reserve_usd,
            limits: (*limits != *self.limits).then_some(limits),
            tools,
            window_tokens,
            deadline: timeout.deadline,
            timeout_ms: timeout.of_attempts_ms,
            on_exhausted: self.on_exhausted(&spec, agent),
            hitl: self.hitl(&spec, agent),
            scope: self.scope(&spec, step.map(|(of, _)| of), body),
            adjusted,
            spec: Arc::new(spec),
        })));
        self.check_room(&events, undo)?;
        if let (Some((_, parent)), Some(child_tokens)) = (self.parent, window_tokens)
            && let Some(parent_tokens) = parent.terms.window_tokens
            && child_tokens < parent_tokens
        {
            let parent_id = parent.id.clone();
            events.push(Event::WindowClamped { child_id, parent_id, parent_tokens, child_tokens });
        }
        Ok(events)
    }

    /// Returns the profile to run. A refusal lists all problems of the request at once.
    fn check_shape<'p>(
        &'p self,
        spec: &ContextSpec,
        plan: Option<&Plan>,
        (agents, spared): (&'p NamedProfiles, &BTreeSet<AgentId>),
        is_step: bool,
    ) -> Result<Option<&'p AgentProfile>, Refusal> {
        let mut problems = Problems::default();
        let find = |id: &AgentId| self.trace.agents.get(id).map(Arc::as_ref).or_else(|| agents.get(id));
        let unknown = |id: &AgentId, path: String, problems: &mut Problems| {
            if spared.contains(id) {
                return;
            }
            if let Some(version) = agents.unreadable.get(id) {
                let (message, hint) = unreadable(id, *version);
                return problems.add(path, message, Some(hint));
            }
            let known = self.trace.agents.keys().chain(agents.profiles.iter().map(|a| &a.agent_id));
            let similar = agents.similar.get(id).map(AgentId::as_str);
            let similar = similar.or_else(|| nearest(id.as_str(), known.map(AgentId::as_str)));
            let hint = match (agents.deleted.get(id), similar) {
                (Some(at), _) => {
                    format!("it was deleted at {at}; apply a profile again, with `trellis agents apply`")
                }
                (None, Some(meant)) => format!("did you mean `{meant}`?"),
                (None, None) => "apply its profile first, with `trellis agents apply`".into(),
            };
            problems.add(path, format!("there is no agent `{id}`"), Some(hint));
        };
        let agent = spec.agent_id.as_ref().and_then(find);
        if let (Some(id), None) = (&spec.agent_id, agent) {
            unknown(id, "agent_id".into(), &mut problems);
        }
        let named = plan.into_iter().flat_map(|plan| plan.agents().map(move |named| (plan, named)));
        for (plan, (id, naming)) in named {
            if find(id).is_none() {
                unknown(id, plan.path_of_agent(naming), &mut problems);
            }
        }
        if let (Some(_), Some(agent)) = (&spec.branch_from, agent)
            && agent.kind == AgentKind::Builtin
        {
            let message =
                format!("`{}` is built in: it has no journal and can't begin with one", agent.agent_id);
            let hint = "use an agent of the kind `llm` or `command`";
            problems.add("branch_from", message, Some(hint.into()));
        }
        if self.parent.is_some() && !spec.labels.is_empty() {
            let hint = "give the labels with the submission of the run";
            problems.add("labels", "only a run has labels, and this is a child", Some(hint.into()));
        }
        if !is_step {
            tool::check("tools", spec.tools.iter().flat_map(|tools| tools.iter()), &mut problems);
            let tools = plan.into_iter().flat_map(|plan| plan.tools().map(move |tools| (plan, tools)));
            for (plan, (place, tools)) in tools {
                tool::check(&format!("{}.tools", plan.path_of(place)), tools.iter(), &mut problems);
            }
        }
        plan.into_iter().for_each(|plan| check_undos(self.bounds_tokens(spec), plan, find, &mut problems));
        check_ceilings("", ceilings(spec), &mut problems);
        check_ladders(spec, agent, plan, find, &mut problems);
        match (plan, self.parent) {
            (Some(plan), Some(_)) => check_key_lengths(spec, plan, &mut problems),
            (Some(_), None) if !spec.input_from.is_empty() => {
                let hint = "give the values as `inputs`";
                problems.add("input_from", "a submitted graph has no caller to read from", Some(hint.into()));
            }
            (Some(_) | None, _) => {}
        }
        problems.or(agent).map_err(Refusal::Malformed)
    }

    fn check_parent(&self) -> Result<(), Refusal> {
        match self.parent.and_then(|(_, node)| Some((node, node.end()?))) {
            Some((node, end)) => Err(Refusal::Ended { child_id: node.id.clone(), status: end.status }),
            None => Ok(()),
        }
    }

    /// Depth is counted in agents: a graph, a group or an `approve` step has the depth of its
    /// parent.
    fn check_depth(&self, runs_no_agent: bool) -> Result<u32, Refusal> {
        let Some((at, parent)) = self.parent else { return Ok(0) };
        let depth = parent.identity.depth + u32::from(!runs_no_agent);
        if depth <= self.limits.max_depth {
            return Ok(depth);
        }
        let limit = Box::new(limit_text::of_context(self.trace, at, "max_depth"));
        Err(Refusal::Depth { depth, limit })
    }

    /// The limit that forbids a graph to have any step, with the place where it was set.
    fn no_children(&self, spec: &ContextSpec) -> SetLimit {
        let name = "max_children";
        match self.parent {
            Some((at, parent)) if parent.limits.max_children == 0 => {
                limit_text::of_context(self.trace, at, name)
            }
            Some(_) => SetLimit::new(name, 0, SetIn::Spawn(spec.child_id.clone())),
            None if self.settings.limits.max_children == 0 => limit_text::of_settings(self.settings, name),
            None => SetLimit::new(name, 0, SetIn::Submission),
        }
    }

    fn check_counts(&self, plan: Option<&Plan>) -> Result<(), Refusal> {
        let asked = 1 + plan.map_or(0, Plan::step_count);
        let have = index(self.trace.contexts.len());
        if have.saturating_add(asked) > self.limits.max_contexts {
            let limit = Box::new(limit_text::of_settings(self.settings, "max_contexts"));
            return Err(Refusal::MaxContexts { asked, have, limit });
        }
        match self.parent {
            Some((at, parent)) if parent.live_children >= self.limits.max_children => {
                let limit = Box::new(limit_text::of_context(self.trace, at, "max_children"));
                Err(Refusal::MaxChildren { parent: parent.id.clone(), limit })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// L: the inputs of a graph, or of an item that is a group, are written to the shared store,
    /// and its limits apply to them.
    fn check_inputs(&self, spec: &ContextSpec) -> Result<(), Refusal> {
        let mut total = self.trace.store_bytes;
        let lent = self.parent.into_iter().flat_map(|(_, caller)| lent_inputs(caller, spec));
        for size in spec.inputs.values().chain(lent.map(|(_, value)| value)).map(Json::size_bytes) {
            context_store::check_value(self.settings, size)?;
            total += size;
        }
        context_store::check_total(self.settings, "a shared store", total)
    }

    /// G10, L: files that are handed over must belong to the caller, and are limited like outputs
    /// of the child.
    fn check_files(&self, spec: &ContextSpec, limits: &Limits) -> Result<(), Refusal> {
        let mut problems = Problems::default();
        let own = self.parent.map(|(_, caller)| ObjectReference::prefix(self.trace.id(), &caller.id));
        for (i, file) in spec.files.iter().enumerate() {
            if !own.as_ref().is_some_and(|own| file.object.object.starts_with(own)) {
                problems.add(format!("files[{i}].object"), "it is not an object of the caller", None);
            }
        }
        let count = spec.files.len() as u64;
        let bytes = spec.files.iter().map(|file| file.object.size_bytes).fold(0, u64::saturating_add);
        for (has, what, max, limit) in [
            (count, "files", limits.max_output_files.into(), "max_output_files"),
            (bytes, "bytes", limits.max_output_size_bytes, "max_output_size_bytes"),
        ] {
            if has > max {
                let message = format!(
                    "{has} {what} in outputs/ are handed over, and the child may have {max} ({limit})"
                );
                let hint =
                    "remove what the other agent does not need, or use `spawn`, which hands over no files";
                problems.add("files", message, Some(hint.into()));
            }
        }
        problems.or(()).map_err(Refusal::Malformed)
    }

    /// L: the work sent to a worker must fit into a message (see `parts`).
    fn check_size(&self, spec: &ContextSpec, agents: &[AgentProfile]) -> Result<(), Refusal> {
        let at_most = |max: u64, size: u64, limit| {
            let too_large = || {
                let limit = Box::new(SetLimit::built_in(limit, max));
                Refusal::TooLarge { size, what: "a message", limit }
            };
            if size > max { Err(too_large()) } else { Ok(()) }
        };
        for agent in agents.iter().filter(|agent| !self.trace.agents.contains_key(&agent.agent_id)) {
            at_most(MAX_ORDER_BYTES, json::size_bytes(agent), "the largest agent profile")?;
        }
        let size = json::size_bytes(spec);
        if size <= MAX_ORDER_BYTES {
            return Ok(());
        }
        let mut inputs = 0;
        for input in spec.inputs.values().map(Json::size_bytes) {
            at_most(MAX_VALUE_BYTES, input, "the largest input")?;
            inputs += input;
        }
        let shared = json::size_bytes(&spec.shared_messages);
        at_most(MAX_SHARED_MESSAGES_BYTES, shared, "the most shared messages")?;
        at_most(MAX_ORDER_BYTES, size.saturating_sub(inputs + shared), "the largest order without inputs")
    }

    /// L: the trace must have room for the new events and for the data of their undo. An undo
    /// itself is not checked, because its room was reserved when its step began.
    fn check_room(&self, events: &[Event], undo: Option<&Undo>) -> Result<(), Refusal> {
        let of_undo = |event: &Event| {
            let (Event::Admitted(admitted), Some(undo), Some((_, graph))) = (event, undo, self.parent) else {
                return 0;
            };
            self.trace.undo_bytes_of(undo, &admitted.spec, graph, content::END_BYTES)
        };
        let asked = content::added_by_all(events) + events.last().map_or(0, of_undo);
        content::check_room(self.trace, self.settings, asked)
    }

    /// B16, L: the checks of the context and its ancestors are part of every message to its worker.
    fn check_checks(&self, agent: Option<&AgentProfile>, is_step: bool) -> Result<(), Refusal> {
        let Some(agent) = agent else { return Ok(()) };
        let checks = self.trace.checks_of(self.parent.map(|(at, _)| at), is_step, agent);
        let size = json::size_bytes(&checks);
        if size <= MAX_CHECKS_BYTES {
            return Ok(());
        }
        let limit = Box::new(SetLimit::built_in("the largest checks", MAX_CHECKS_BYTES));
        Err(Refusal::TooLarge { size, what: "its checks, with those of its ancestors,", limit })
    }

    /// Returns the amount to hold for the undo of a step that begins. The undo's agent is checked
    /// now, because it may be missing in a rerun.
    fn check_undo(&self, undo: &Undo) -> Result<Amount, Refusal> {
        let at = |path: &str, message: String, hint: String| {
            Refusal::Malformed(Problems::one(path, message, Some(hint)))
        };
        let agent = self.trace.agent(&undo.agent_id).ok_or_else(|| {
            let message = format!("there is no agent `{}`, and the step could not be undone", undo.agent_id);
            let hint = "apply its profile again, with `trellis agents apply`, and rerun";
            at("undo.agent_id", message, hint.into())
        })?;
        self.check_model(agent.model.as_ref())?;
        self.check_checks(Some(agent), true)?;
        reserve_of(undo, Some(agent))
            .ok_or_else(|| at("undo.max_cost_usd", NO_CEILING.into(), hint_of_ceiling(undo, "max_cost_usd")))
    }

    /// Returns true if the tokens of a graph are bounded, by the graph itself, by an ancestor or by
    /// the deployment. The default token budget of a root is too large to be a bound.
    fn bounds_tokens(&self, spec: &ContextSpec) -> bool {
        let bounds = |tokens: Tokens| tokens < DEFAULT_ROOT_BUDGET.tokens;
        let above = match self.parent {
            None => bounds(self.settings.root_budget.min(self.settings.maximum.ceiling()).tokens),
            Some((at, _)) => self.trace.chain(at).any(|(_, node)| {
                let budget = &node.budget;
                !budget.ceilings.inherited.tokens && bounds(budget.ceilings.limit.tokens)
            }),
        };
        spec.max_tokens.is_some() || above
    }

    fn check_cycle(&self, spec: &ContextSpec) -> Result<(), Refusal> {
        let (Some((parent, _)), Some(agent), Some(goal)) = (self.parent, &spec.agent_id, &spec.goal) else {
            return Ok(());
        };
        let same = |node: &ContextNode| {
            let asked = (node.spec.agent_id.as_ref(), node.spec.goal.as_ref());
            node.graph.is_none() && asked == (Some(agent), Some(goal))
        };
        match self.trace.chain(parent).find(|(_, node)| same(node)) {
            Some((_, node)) => Err(Refusal::Cycle { agent: agent.clone(), ancestor: node.id.clone() }),
            None => Ok(()),
        }
    }

    /// I5: the tools of a child are a subset of its parent's tools. Every tool that the spec names
    /// must be in that set; the list of a profile is narrowed to it.
    fn check_tools(
        &self,
        spec: &ContextSpec,
        agent: Option<&AgentProfile>,
    ) -> Result<Option<Arc<BTreeSet<ToolName>>>, Refusal> {
        let parent = self.parent.and_then(|(_, node)| Some((node, node.terms.tools.as_ref()?)));
        let profile = agent.and_then(|agent| agent.tools.as_ref());
        let Some(asked) = &spec.tools else {
            return Ok(match (profile, parent) {
                (Some(own), Some((_, allowed))) => {
                    Some(Arc::new(own.intersection(allowed).cloned().collect()))
                }
                (Some(own), None) => Some(Arc::new(own.clone())),
                (None, parent) => parent.map(|(_, allowed)| allowed.clone()),
            });
        };
        let allowed = |tool: &ToolName| {
            parent.is_none_or(|(_, tools)| tools.contains(tool))
                && profile.is_none_or(|tools| tools.contains(tool))
        };
        let outside: Vec<ToolName> = asked.iter().filter(|tool| !allowed(tool)).cloned().collect();
        if outside.is_empty() {
            return Ok(Some(asked.clone()));
        }
        let by = self.parent.map_or(&spec.child_id, |(_, node)| &node.id);
        Err(Refusal::Tools { parent: by.clone(), tools: outside })
    }

    /// S8: the secrets of a child are a subset of its parent's secrets. A root has the secrets that
    /// its submission names.
    fn check_secrets(&self, spec: &ContextSpec) -> Result<(), Refusal> {
        let (Some((_, parent)), Some(asked)) = (self.parent, &spec.secrets) else { return Ok(()) };
        let secrets = asked.outside(self.trace.secrets_of(parent));
        if secrets.is_empty() {
            return Ok(());
        }
        Err(Refusal::Secrets { parent: parent.id.clone(), secrets })
    }

    /// The allow-lists of the spawner and of all ancestors apply. A missing or empty list allows
    /// every model.
    fn check_model(&self, model: Option<&ModelName>) -> Result<(), Refusal> {
        let (Some((parent, _)), Some(model)) = (self.parent, model) else { return Ok(()) };
        match self.trace.model_forbidden_by(parent, model) {
            Some(by) => Err(Refusal::Model { model: model.clone(), by: by.clone() }),
            None => Ok(()),
        }
    }

    /// B21: the models of a ladder must be allowed like any other model. A fallback model that is
    /// not allowed is ignored.
    fn check_ladder_models(&self, spec: &ContextSpec, profile: Option<&AgentProfile>) -> Result<(), Refusal> {
        let is_allowed = |model: &&ModelName| self.check_model(Some(model)).is_ok();
        let fallback = profile.and_then(|profile| profile.fallback_model.as_ref()).filter(is_allowed);
        let of_profile = profile.map(|profile| profile.on_budget.as_slice());
        for rung in spec.on_budget.as_deref().or(of_profile).unwrap_or_default() {
            if let RungAction::Model(model) = rung.action(fallback) {
                self.check_model(Some(&model))?;
            }
        }
        Ok(())
    }

    /// Adds the named profiles that the trace does not have yet. A trace keeps the first copy of
    /// each profile.
    fn new_agents(&self, spec: &ContextSpec, plan: Option<&Plan>, agents: &NamedProfiles) -> Vec<Event> {
        let named = agents_of(spec, plan);
        let new = named.iter().filter(|id| !self.trace.agents.contains_key(*id));
        let added = |agent: &AgentProfile| Event::AgentAdded {
            agent: Box::new(agent.clone()),
            version: agents.versions.get(&agent.agent_id).copied(),
        };
        new.filter_map(|id| agents.get(id)).map(added).collect()
    }
}

/// The amount to hold for an undo: its ceilings, or those of its agent's profile. `None` if its
/// cost has no ceiling.
fn reserve_of(undo: &Undo, agent: Option<&AgentProfile>) -> Option<Amount> {
    let cost_usd = undo.max_cost_usd.into_iter().chain(agent.and_then(|agent| agent.max_cost_usd)).min()?;
    let tokens = undo.max_tokens.into_iter().chain(agent.and_then(|agent| agent.max_tokens)).min();
    Some(Amount::new(cost_usd, tokens.unwrap_or(Tokens::ZERO)))
}

const NO_CEILING: &str = "an undo needs a ceiling: that amount is held from the start of its step";

fn hint_of_ceiling(undo: &Undo, field: &str) -> String {
    format!("add `{field}` to the undo, or to the profile of `{}`", undo.agent_id)
}

/// G14: an undo needs a ceiling for its cost. It also needs one for its tokens if the tokens of its
/// graph, of a group around it, or of an ancestor are bounded. An amount without a ceiling can't be
/// held.
fn check_undos<'p>(
    bounds_tokens: bool,
    plan: &Plan,
    find: impl Fn(&AgentId) -> Option<&'p AgentProfile>,
    problems: &mut Problems,
) {
    for (place, undo) in plan.undos() {
        let mut add = |field: &str, message: &str| {
            let hint = hint_of_ceiling(undo, field);
            problems.add(format!("{}.undo.{field}", plan.path_of(place)), message, Some(hint));
        };
        let Some(agent) = find(&undo.agent_id) else { continue };
        match reserve_of(undo, Some(agent)) {
            None => add("max_cost_usd", NO_CEILING),
            Some(Amount { tokens: Tokens::ZERO, .. }) if bounds_tokens || plan.bounds_tokens(place.0) => {
                let message =
                    "its graph or an ancestor limits the tokens, but no tokens are held for the undo";
                add("max_tokens", message);
            }
            Some(_) => {}
        }
    }
}

fn ceilings(spec: &ContextSpec) -> Ceilings {
    Ceilings {
        max_cost_usd: spec.max_cost_usd,
        max_tokens: spec.max_tokens,
        closing_reserve_usd: spec.closing_reserve_usd,
        timeout_ms: spec.timeout_ms,
    }
}

/// B21: checks the ladders of a spec and of the steps of its plan. Their form was checked when the
/// plan was compiled.
fn check_ladders<'p>(
    spec: &ContextSpec,
    agent: Option<&AgentProfile>,
    plan: Option<&Plan>,
    find: impl Fn(&AgentId) -> Option<&'p AgentProfile>,
    problems: &mut Problems,
) {
    let has_no_cheaper = |agent: Option<&AgentProfile>| agent.is_some_and(|a| a.fallback_model.is_none());
    let own = spec.on_budget.as_deref().unwrap_or_default();
    ladder::check("on_budget", own, problems);
    if has_no_cheaper(agent) {
        ladder::check_cheaper("on_budget", own, problems);
    }
    let steps = plan.into_iter().flat_map(|plan| plan.places().map(move |step| (plan, step)));
    for (plan, (place, step)) in steps {
        let (Some(ladder), graph::Body::Agent { agent_id, .. }) = (&step.on_budget, &step.body) else {
            continue;
        };
        if has_no_cheaper(find(agent_id)) {
            ladder::check_cheaper(&format!("{}.on_budget", plan.path_of(place)), ladder, problems);
        }
    }
}

/// A graph run by an agent stores its keys under the agent's id. Checks that the keys are short
/// enough to carry that prefix.
fn check_key_lengths(spec: &ContextSpec, plan: &Plan, problems: &mut Problems) {
    let written =
        plan.groups().iter().flat_map(|group| &group.steps).filter_map(|step| step.output_to.as_ref());
    for key in written.chain(spec.inputs.keys()).chain(&spec.input_from) {
        if ContextKey::new(&format!("{}.{key}", spec.child_id)).is_err() {
            problems.add(
                "steps",
                format!("the key `{key}` is too long: it is stored with the prefix `{}.`", spec.child_id),
                None,
            );
        }
    }
}

impl Trace {
    /// The secrets that a context may use (S8). A step that names none uses those of its graph or
    /// group.
    pub(super) fn secrets_of<'a>(&'a self, node: &'a ContextNode) -> &'a Secrets {
        static NONE: LazyLock<Secrets> = LazyLock::new(Secrets::default);
        let mut node = node;
        loop {
            match (&node.spec.secrets, node.identity.step.and(node.parent)) {
                (Some(own), _) => return own,
                (None, Some(graph)) => node = self.node(graph),
                (None, None) => return &NONE,
            }
        }
    }

    /// The ancestor whose allow-list forbids `model` under `parent`.
    pub(super) fn model_forbidden_by(&self, parent: ContextIndex, model: &ModelName) -> Option<&ChildId> {
        let forbids = |node: &ContextNode| {
            let agent = node.spec.agent_id.as_ref().and_then(|id| self.agents.get(id));
            agent.is_some_and(|a| !a.allowed_models.is_empty() && !a.allowed_models.contains(model))
        };
        self.chain(parent).find(|(_, node)| forbids(node)).map(|(_, node)| &node.id)
    }
}

fn index(length: usize) -> u32 {
    u32::try_from(length).expect("max_contexts is a u32, and plans are fewer")
}
