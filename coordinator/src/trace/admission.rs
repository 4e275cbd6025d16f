//! Admission (section P): whether a context may be created, and on what terms. The checks run in the
//! order of docs/rules.md: shape, parent live, depth, contexts and children, cycle, tools, model, budget. A
//! refusal names the rule and changes nothing.
//!
//! A second delivery is harmless: the same `child_id` with the same content is the same spawn and gives no
//! event; with other content it is a conflict.

use std::{collections::BTreeSet, sync::Arc};

use shared::{
    AgentId, AgentProfile, ChildId, ContextKey, Json, Limits, Problems, Timestamp,
    agent::AgentKind,
    graph::{self, Plan},
    id::{ModelName, ToolName},
    json,
    ladder::{self, RungAction},
    limits::{
        Ceilings, MAX_CHECKS_BYTES, MAX_ORDER_BYTES, MAX_SHARED_MESSAGES_BYTES, MAX_VALUE_BYTES, Settings,
        check_ceilings,
    },
    problem::nearest,
    tool,
    wire::{EndStatus, ObjectReference, TakenFrom},
};

use super::{
    Admitted, Body, ContextIndex, ContextNode, Earlier, Ended, Event, Named, Order, Refusal, Spawn, StepOf,
    Submit, Trace, agents_of, agents_of_plan,
    context_store::{check_declared, lent_inputs},
    unreadable,
};

pub(super) fn submit(trace: &Trace, submit: Submit, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    if let Some(root) = trace.root() {
        // Of two reruns only what was asked can be compared: the earlier run may be gone when the second delivery comes.
        let reruns = root.order.rerun.as_ref().zip(submit.order.rerun.as_ref());
        let same = reruns
            .map(|(has, asked)| has == asked)
            .unwrap_or_else(|| same_content(trace, root, &submit.order, submit.plan.as_deref()));
        return if same { Ok(Vec::new()) } else { Err(Refusal::Conflict { child_id: root.id.clone() }) };
    }
    let settings = submit.settings;
    let mut events = vec![Event::Opened { settings: Box::new(settings.clone()) }];
    let mut spared = BTreeSet::new();
    if let Some(Earlier { rerun, kept, spared: agents }) = submit.rerun.transpose()? {
        spared = agents;
        events.push(Event::RerunBegun { rerun: Box::new(rerun) });
        let kept = kept.into_iter();
        events.extend(kept.map(|(place, kept)| Event::ResultKept { place, kept: Box::new(kept) }));
    }
    let place = Place { trace, parent: None, limits: &settings.limits, settings: &settings };
    let child_id = submit.order.child_id.clone();
    let (plan, agents) = (submit.plan, submit.agents);
    let request = Request { order: submit.order, plan, agents, spared, step: None, taken: None };
    events.extend(place.admit(request, now)?);
    events.extend(cancelled_before(trace, &child_id, trace.cancelled_before.as_ref()));
    Ok(events)
}

pub(super) fn spawn(trace: &Trace, spawn: Spawn, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    if let Some(existing) = trace.context(&spawn.order.child_id) {
        let parent = existing.parent.map(|parent| &trace.node(parent).id);
        // W3, G10: the snapshot of the parent's window and files is taken once; both may have grown since, and another
        // attempt stores the files under other names.
        let (shared_messages, files) = (existing.order.shared_messages.clone(), existing.order.files.clone());
        let asked = Order { shared_messages, files, ..spawn.order };
        let same = parent == Some(&spawn.lease.child_id)
            && same_content(trace, existing, &asked, spawn.plan.as_deref());
        let conflict = Refusal::Conflict { child_id: asked.child_id };
        return if same { Ok(Vec::new()) } else { Err(conflict) };
    }
    let child_id = spawn.order.child_id.clone();
    if spawn.order.branch_from.is_some() {
        return Err(Refusal::ChildBranches { child_id });
    }
    let parent = trace.running(&spawn.lease)?;
    let (plan, agents, spared) = (spawn.plan, spawn.agents, BTreeSet::new());
    let request = Request { order: spawn.order, plan, agents, spared, step: None, taken: None };
    let mut events = Place::under(trace, parent).admit(request, now)?;
    events.extend(cancelled_before(trace, &child_id, None));
    Ok(events)
}

/// Admits a context for a step of a graph. The step was checked together with its graph.
pub(super) fn step(
    trace: &Trace,
    graph: ContextIndex,
    order: Order,
    body: Body,
    step: StepOf,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let child_id = order.child_id.clone();
    let (agents, spared) = (Named::default(), BTreeSet::new());
    let request = Request { order, plan: None, agents, spared, step: Some((step, body)), taken: None };
    let mut events = Place::under(trace, graph).admit(request, now)?;
    events.extend(cancelled_before(trace, &child_id, None));
    Ok(events)
}

/// Admits a context for a step whose result is taken from an earlier run (G15): it runs nothing, and costs nothing.
pub(super) fn taken(
    trace: &Trace,
    graph: ContextIndex,
    order: Order,
    body: Body,
    step: StepOf,
    from: TakenFrom,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let agents = Named::default();
    // Nothing runs: its agent may have been deleted.
    let spared = order.agent_id.iter().cloned().collect();
    let request = Request { order, plan: None, agents, spared, step: Some((step, body)), taken: Some(from) };
    Place::under(trace, graph).admit(request, now)
}

/// Checks the plan of an amend as that of a submission, and adds the profiles of the agents that it names (G13).
pub(super) fn amended(
    trace: &Trace,
    graph: ContextIndex,
    plan: &Plan,
    agents: &Named,
) -> Result<Vec<Event>, Refusal> {
    let node = trace.node(graph);
    let above = node.parent.map(|parent| (parent, trace.node(parent)));
    let place = Place { trace, parent: above, limits: &node.limits, settings: trace.settings() };
    // What the graph names already need not be known again: it may be the agent of results that a rerun takes.
    let known = trace.run_of(node).map(|(run, _)| agents_of_plan(&trace.plans[run.plan as usize]));
    place.check_shape(&node.order, Some(plan), (agents, &known.unwrap_or_default()), false)?;
    let fixed = trace.standings(graph);
    let begun =
        plan.groups().iter().flat_map(|group| &group.steps).filter(|step| fixed.contains_key(&step.id));
    let asked = plan.step_count().saturating_sub(index(begun.count()));
    let (have, max) = (index(trace.contexts.len()), node.limits.max_contexts);
    if have.saturating_add(asked) > max {
        return Err(Refusal::MaxContexts { asked, have, max });
    }
    place.check_size(&node.order, &agents.profiles)?;
    Ok(place.new_agents(&node.order, Some(plan), agents))
}

/// G8: a cancel that came before its context still counts. The context is admitted and ends at once, so
/// that whoever waits for it gets an outcome.
fn cancelled_before(trace: &Trace, child_id: &ChildId, whole_trace: Option<&String>) -> Option<Event> {
    let reason = whole_trace.or_else(|| trace.tombstones.get(child_id))?.clone();
    let status = EndStatus::Cancelled;
    Some(Event::Ended(Box::new(Ended {
        child_id: child_id.clone(),
        status,
        result: None,
        error: None,
        reason: Some(reason),
    })))
}

fn same_content(trace: &Trace, node: &ContextNode, order: &Order, plan: Option<&Plan>) -> bool {
    let has = node.graph.as_ref().map(|run| trace.plans[run.admitted as usize].as_ref());
    *node.order == *order && has == plan
}

/// What is to be admitted.
struct Request {
    order: Order,
    plan: Option<Arc<Plan>>,
    agents: Named,
    /// Agents that need not be known.
    spared: BTreeSet<AgentId>,
    step: Option<(StepOf, Body)>,
    taken: Option<TakenFrom>,
}

/// Where it is to be admitted: under a parent, or as the root of a trace.
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

    fn admit(&self, request: Request, now: Timestamp) -> Result<Vec<Event>, Refusal> {
        let Request { order, plan, agents, spared, step, taken } = request;
        let profile = self.check_shape(&order, plan.as_deref(), (&agents, &spared), step.is_some())?;
        self.check_parent()?;
        let is_graph = plan.is_some() || matches!(step, Some((_, Body::Graph { .. })));
        let is_approval = matches!(step, Some((_, Body::Approval)));
        // The profile of a graph's own agent is used for its synthesis only; the steps have their own
        // profiles.
        let agent = profile.filter(|_| !is_graph);
        let depth = self.check_depth(is_graph || is_approval)?;
        self.check_counts(plan.as_deref())?;
        let runs = taken.is_none();
        if !is_graph && runs {
            self.check_cycle(&order)?;
        }
        let tools = self.check_tools(&order, agent)?;
        if runs {
            self.check_model(order.model.as_ref().or(profile.and_then(|a| a.model.as_ref())))?;
            self.check_ladder_models(&order, profile)?;
        }
        if let (Some((_, parent)), None) = (self.parent, step) {
            check_declared(self.trace, parent, &order, is_graph)?;
        }
        let mut adjusted = Vec::new();
        let limits = self.limits(&order, agent, &mut adjusted);
        if is_graph && limits.max_children == 0 {
            return Err(Refusal::MaxChildren { parent: order.child_id, max: 0 });
        }
        if is_graph {
            self.check_inputs(&order)?;
        }
        self.check_files(&order, &limits)?;
        self.check_size(&order, &agents.profiles)?;
        self.check_checks(profile, step.is_some())?;
        let terms = match runs {
            true => self.check_budget(&order, agent, profile, &mut adjusted)?,
            false => self.nothing_to_spend(),
        };
        if let Some(plan) = plan.as_deref().filter(|plan| plan.must_fit()) {
            self.check_worst_case(&order, plan, &agents, &terms)?;
        }

        let mut events = self.new_agents(&order, plan.as_deref(), &agents);
        let body = match (step, &plan) {
            (Some((_, body)), _) => body,
            (None, Some(_)) => Body::Graph { plan: index(self.trace.plans.len()), group: 0 },
            (None, None) => Body::Agent,
        };
        events.extend(plan.map(|plan| Event::PlanAdded { plan }));
        let window_tokens = self.window(&order, agent, &mut adjusted);
        let timeout = self.timeout(&order, agent, is_graph, now, &mut adjusted);
        self.narrowed(&order, agent, &mut adjusted);
        let child_id = order.child_id.clone();
        events.push(Event::Admitted(Box::new(Admitted {
            parent_id: self.parent.map(|(_, node)| node.id.clone()),
            body,
            step: step.map(|(step, _)| step),
            taken,
            depth,
            ceiling: terms.ceiling,
            granted: terms.granted,
            inherited: terms.inherited,
            thread_id: self.thread_id(&order),
            closing_reserve_usd: terms.reserve_usd,
            limits: (*limits != *self.limits).then_some(limits),
            tools,
            window_tokens,
            deadline: timeout.deadline,
            timeout_ms: timeout.of_attempts_ms,
            on_exhausted: self.on_exhausted(&order, agent),
            hitl: self.hitl(&order, agent),
            scope: self.scope(&order, step.map(|(of, _)| of), is_graph),
            adjusted,
            order: Arc::new(order),
        })));
        if let (Some((_, parent)), Some(child_tokens)) = (self.parent, window_tokens)
            && let Some(parent_tokens) = parent.window_tokens
            && child_tokens < parent_tokens
        {
            let parent_id = parent.id.clone();
            events.push(Event::WindowClamped { child_id, parent_id, parent_tokens, child_tokens });
        }
        Ok(events)
    }

    /// The profile to run; a refusal lists all problems of the order at once.
    fn check_shape<'p>(
        &'p self,
        order: &Order,
        plan: Option<&Plan>,
        (agents, spared): (&'p Named, &BTreeSet<AgentId>),
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
            let hint = match (agents.deleted.get(id), nearest(id.as_str(), known.map(AgentId::as_str))) {
                (Some(at), _) => {
                    format!("it was deleted at {at}; apply a profile again, with `trellis agents apply`")
                }
                (None, Some(meant)) => format!("did you mean `{meant}`?"),
                (None, None) => "apply its profile first, with `trellis agents apply`".into(),
            };
            problems.add(path, format!("there is no agent `{id}`"), Some(hint));
        };
        let agent = order.agent_id.as_ref().and_then(find);
        if let (Some(id), None) = (&order.agent_id, agent) {
            unknown(id, "agent_id".into(), &mut problems);
        }
        for (id, step) in plan.into_iter().flat_map(Plan::agents) {
            if find(id).is_none() {
                let path = step.map_or("agent_id".into(), |step| format!("steps[id={step}].agent_id"));
                unknown(id, path, &mut problems);
            }
        }
        if let (Some(_), Some(agent)) = (&order.branch_from, agent)
            && agent.kind == AgentKind::Builtin
        {
            let message =
                format!("`{}` is built in: it has no journal and can't begin with one", agent.agent_id);
            let hint = "use an agent of the kind `llm` or `command`";
            problems.add("branch_from", message, Some(hint.into()));
        }
        if self.parent.is_some() && !order.labels.is_empty() {
            let hint = "give the labels with the submission of the run";
            problems.add("labels", "only a run has labels, and this is a child", Some(hint.into()));
        }
        if !is_step {
            tool::check("tools", order.tools.iter().flat_map(|tools| tools.iter()), &mut problems);
            for (step, tools) in plan.into_iter().flat_map(Plan::tools) {
                tool::check(&format!("steps[id={step}].tools"), tools.iter(), &mut problems);
            }
        }
        check_ceilings("", ceilings(order), &mut problems);
        check_ladders(order, agent, plan, find, &mut problems);
        match (plan, self.parent) {
            (Some(plan), Some(_)) => check_key_lengths(order, plan, &mut problems),
            (Some(_), None) if !order.input_from.is_empty() => {
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

    /// Depth counts agents: a graph, a group or an `approve` step has the depth of whoever runs it.
    fn check_depth(&self, runs_no_agent: bool) -> Result<u32, Refusal> {
        let Some((_, parent)) = self.parent else { return Ok(0) };
        let depth = parent.depth + u32::from(!runs_no_agent);
        let max = self.limits.max_depth;
        if depth > max { Err(Refusal::Depth { depth, max }) } else { Ok(depth) }
    }

    fn check_counts(&self, plan: Option<&Plan>) -> Result<(), Refusal> {
        let asked = 1 + plan.map_or(0, Plan::step_count);
        let have = index(self.trace.contexts.len());
        let max = self.limits.max_contexts;
        if have.saturating_add(asked) > max {
            return Err(Refusal::MaxContexts { asked, have, max });
        }
        match self.parent {
            Some((_, parent)) if parent.live_children >= self.limits.max_children => {
                Err(Refusal::MaxChildren { parent: parent.id.clone(), max: self.limits.max_children })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// L: the inputs of a graph, or of an item that is a group, go into the shared store, and its limits apply to them.
    fn check_inputs(&self, order: &Order) -> Result<(), Refusal> {
        let mut total = self.trace.store_bytes;
        let lent = self.parent.into_iter().flat_map(|(_, caller)| lent_inputs(caller, order));
        for size in order.inputs.values().chain(lent.map(|(_, value)| value)).map(Json::size_bytes) {
            let max = self.limits.max_context_value_bytes.min(MAX_VALUE_BYTES);
            if size > max {
                let limit = "max_context_value_bytes";
                return Err(Refusal::TooLarge { size, max, limit });
            }
            total += size;
        }
        let (max, limit) = (self.limits.max_context_store_bytes, "max_context_store_bytes");
        if total > max { Err(Refusal::TooLarge { size: total, max, limit }) } else { Ok(()) }
    }

    /// G10, L: files that are handed over are the caller's own, and count as the child's outputs.
    fn check_files(&self, order: &Order, limits: &Limits) -> Result<(), Refusal> {
        let mut problems = Problems::default();
        let own = self.parent.map(|(_, caller)| ObjectReference::prefix(self.trace.id(), &caller.id));
        for (i, file) in order.files.iter().enumerate() {
            if !own.as_ref().is_some_and(|own| file.object.object.starts_with(own)) {
                problems.add(format!("files[{i}].object"), "it is no object of the caller", None);
            }
        }
        let count = order.files.len() as u64;
        let bytes = order.files.iter().map(|file| file.object.size_bytes).fold(0, u64::saturating_add);
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

    /// L: what a worker is sent must fit into a message (see `parts`).
    fn check_size(&self, order: &Order, agents: &[AgentProfile]) -> Result<(), Refusal> {
        let at_most = |max: u64, size: u64, limit| {
            if size > max { Err(Refusal::TooLarge { size, max, limit }) } else { Ok(()) }
        };
        for agent in agents.iter().filter(|agent| !self.trace.agents.contains_key(&agent.agent_id)) {
            at_most(MAX_ORDER_BYTES, json::size_bytes(agent), "the size of an agent profile")?;
        }
        let size = json::size_bytes(order);
        if size <= MAX_ORDER_BYTES {
            return Ok(());
        }
        let mut inputs = 0;
        for input in order.inputs.values().map(Json::size_bytes) {
            at_most(MAX_VALUE_BYTES, input, "the size of an input")?;
            inputs += input;
        }
        let shared = json::size_bytes(&order.shared_messages);
        at_most(MAX_SHARED_MESSAGES_BYTES, shared, "the size of shared messages")?;
        at_most(MAX_ORDER_BYTES, size.saturating_sub(inputs + shared), "the size of an order without inputs")
    }

    /// B16, L: the checks of its ancestors and its own go into every message to its worker.
    fn check_checks(&self, agent: Option<&AgentProfile>, is_step: bool) -> Result<(), Refusal> {
        let Some(agent) = agent else { return Ok(()) };
        let checks = self.trace.checks_of(self.parent.map(|(at, _)| at), is_step, agent);
        let (size, max, limit) = (json::size_bytes(&checks), MAX_CHECKS_BYTES, "the size of its checks");
        if size > max { Err(Refusal::TooLarge { size, max, limit }) } else { Ok(()) }
    }

    fn check_cycle(&self, order: &Order) -> Result<(), Refusal> {
        let (Some((parent, _)), Some(agent), Some(goal)) = (self.parent, &order.agent_id, &order.goal) else {
            return Ok(());
        };
        let same = |node: &ContextNode| {
            let asked = (node.order.agent_id.as_ref(), node.order.goal.as_ref());
            node.graph.is_none() && asked == (Some(agent), Some(goal))
        };
        match self.trace.chain(parent).find(|(_, node)| same(node)) {
            Some((_, node)) => Err(Refusal::Cycle { agent: agent.clone(), ancestor: node.id.clone() }),
            None => Ok(()),
        }
    }

    /// I5: a subset of the parent's tools. Tools that the order names must all be in it; a profile's list
    /// is narrowed to it.
    fn check_tools(
        &self,
        order: &Order,
        agent: Option<&AgentProfile>,
    ) -> Result<Option<Arc<BTreeSet<ToolName>>>, Refusal> {
        let parent = self.parent.and_then(|(_, node)| Some((node, node.tools.as_ref()?)));
        let profile = agent.and_then(|agent| agent.tools.as_ref());
        let Some(asked) = &order.tools else {
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
        let by = self.parent.map_or(&order.child_id, |(_, node)| &node.id);
        Err(Refusal::Tools { parent: by.clone(), tools: outside })
    }

    /// The allow-lists of the spawner and of every ancestor apply; an absent or empty list allows every
    /// model.
    fn check_model(&self, model: Option<&ModelName>) -> Result<(), Refusal> {
        let (Some((parent, _)), Some(model)) = (self.parent, model) else { return Ok(()) };
        match self.trace.model_forbidden_by(parent, model) {
            Some(by) => Err(Refusal::Model { model: model.clone(), by: by.clone() }),
            None => Ok(()),
        }
    }

    /// B21: a model of its ladder must be allowed like any other. A fallback model that is not allowed does not apply.
    fn check_ladder_models(&self, order: &Order, profile: Option<&AgentProfile>) -> Result<(), Refusal> {
        let is_allowed = |model: &&ModelName| self.check_model(Some(model)).is_ok();
        let fallback = profile.and_then(|profile| profile.fallback_model.as_ref()).filter(is_allowed);
        let of_profile = profile.map(|profile| profile.on_budget.as_slice());
        for rung in order.on_budget.as_deref().or(of_profile).unwrap_or_default() {
            if let RungAction::Model(model) = rung.action(fallback) {
                self.check_model(Some(&model))?;
            }
        }
        Ok(())
    }

    /// The profiles it names that the trace does not have yet; a trace keeps the first copy of each.
    fn new_agents(&self, order: &Order, plan: Option<&Plan>, agents: &Named) -> Vec<Event> {
        let named = agents_of(order, plan);
        let new = named.iter().filter(|id| !self.trace.agents.contains_key(*id));
        let added = |agent: &AgentProfile| Event::AgentAdded {
            agent: Box::new(agent.clone()),
            version: agents.versions.get(&agent.agent_id).copied(),
        };
        new.filter_map(|id| agents.get(id)).map(added).collect()
    }
}

fn ceilings(order: &Order) -> Ceilings {
    Ceilings {
        max_cost_usd: order.max_cost_usd,
        max_tokens: order.max_tokens,
        closing_reserve_usd: order.closing_reserve_usd,
        timeout_ms: order.timeout_ms,
    }
}

/// B21: the ladders of an order and of the steps of its plan, whose own shape was checked when it was compiled.
fn check_ladders<'p>(
    order: &Order,
    agent: Option<&AgentProfile>,
    plan: Option<&Plan>,
    find: impl Fn(&AgentId) -> Option<&'p AgentProfile>,
    problems: &mut Problems,
) {
    let has_no_cheaper = |agent: Option<&AgentProfile>| agent.is_some_and(|a| a.fallback_model.is_none());
    let own = order.on_budget.as_deref().unwrap_or_default();
    ladder::check("on_budget", own, problems);
    if has_no_cheaper(agent) {
        ladder::check_cheaper("on_budget", own, problems);
    }
    for step in plan.into_iter().flat_map(Plan::groups).flat_map(|group| &group.steps) {
        let (Some(ladder), graph::Body::Agent { agent_id, .. }) = (&step.on_budget, &step.body) else {
            continue;
        };
        if has_no_cheaper(find(agent_id)) {
            ladder::check_cheaper(&format!("steps[id={}].on_budget", step.id), ladder, problems);
        }
    }
}

/// An agent's own graph stores its keys behind the agent's id: with it they must not be too long.
fn check_key_lengths(order: &Order, plan: &Plan, problems: &mut Problems) {
    let written =
        plan.groups().iter().flat_map(|group| &group.steps).filter_map(|step| step.output_to.as_ref());
    for key in written.chain(order.inputs.keys()).chain(&order.input_from) {
        if ContextKey::new(&format!("{}.{key}", order.child_id)).is_err() {
            problems.add(
                "steps",
                format!("the key `{key}` is too long: it is stored as `{}.` and the key", order.child_id),
                None,
            );
        }
    }
}

impl Trace {
    /// The ancestor whose allow-list forbids a model under `parent`.
    pub(super) fn model_forbidden_by(&self, parent: ContextIndex, model: &ModelName) -> Option<&ChildId> {
        let forbids = |node: &ContextNode| {
            let agent = node.order.agent_id.as_ref().and_then(|id| self.agents.get(id));
            agent.is_some_and(|a| !a.allowed_models.is_empty() && !a.allowed_models.contains(model))
        };
        self.chain(parent).find(|(_, node)| forbids(node)).map(|(_, node)| &node.id)
    }
}

fn index(length: usize) -> u32 {
    u32::try_from(length).expect("max_contexts is a u32, and plans are fewer")
}
