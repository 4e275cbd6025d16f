//! Admission (section P): whether a context may come to be, and on what terms. The checks run in the
//! specification's order: shape, parent live, depth, contexts and children, cycle, tools, model,
//! budget. A refusal names the rule and leaves no trace in state.
//!
//! A second delivery is harmless: the same `child_id` with the same content is the same spawn and
//! gives no event; with other content it is a conflict.

use std::{collections::BTreeSet, sync::Arc};

use shared::{
    AgentId, AgentProfile, Amount, ChildId, ContextKey, Limits, Problems, Timestamp, Usd,
    graph::Plan,
    id::{ModelName, ToolName},
    limits::MAX_TIMEOUT_MS,
    problem::nearest,
    wire::{EndStatus, Funding},
};

use super::{
    Admitted, Body, ContextIndex, ContextNode, Ended, Event, Order, Refusal, Spawn, StepOf, Submit, Trace,
    budget::{Granted, is_used_up},
};

pub(super) fn submit(trace: &Trace, submit: Submit, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    if let Some(root) = trace.root() {
        let same = same_content(trace, root, &submit.order, submit.plan.as_deref());
        return if same { Ok(Vec::new()) } else { Err(Refusal::Conflict { child_id: root.id.clone() }) };
    }
    let mut events = vec![Event::Opened { settings: Box::new(submit.settings.clone()) }];
    let settings = Arc::new(submit.settings);
    let ground = Ground { trace, parent: None, limits: &settings.limits, root_budget: settings.root_budget };
    let child_id = submit.order.child_id.clone();
    let request = Request { order: submit.order, plan: submit.plan, agents: submit.agents, step: None };
    events.extend(ground.admit(request, now)?);
    events.extend(cancelled_before(trace, &child_id, trace.cancelled_before.as_ref()));
    Ok(events)
}

pub(super) fn spawn(trace: &Trace, spawn: Spawn, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    if let Some(existing) = trace.context(&spawn.order.child_id) {
        let parent = existing.parent.map(|parent| &trace.node(parent).id);
        let same = parent == Some(&spawn.lease.child_id)
            && same_content(trace, existing, &spawn.order, spawn.plan.as_deref());
        let conflict = Refusal::Conflict { child_id: spawn.order.child_id };
        return if same { Ok(Vec::new()) } else { Err(conflict) };
    }
    let parent = trace.running(&spawn.lease)?;
    let child_id = spawn.order.child_id.clone();
    let request = Request { order: spawn.order, plan: spawn.plan, agents: spawn.agents, step: None };
    let mut events = Ground::under(trace, parent).admit(request, now)?;
    events.extend(cancelled_before(trace, &child_id, None));
    Ok(events)
}

/// A context for a step of a graph. Its parts were checked when the graph was.
pub(super) fn step(
    trace: &Trace,
    graph: ContextIndex,
    order: Order,
    body: Body,
    step: StepOf,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let child_id = order.child_id.clone();
    let request = Request { order, plan: None, agents: Vec::new(), step: Some((step, body)) };
    let mut events = Ground::under(trace, graph).admit(request, now)?;
    events.extend(cancelled_before(trace, &child_id, None));
    Ok(events)
}

/// G8: a cancel that came first still holds. The context is admitted and ends at once, so that
/// whoever waits for it gets an outcome.
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
    let has = node.graph.as_ref().map(|run| trace.plans[run.plan as usize].as_ref());
    *node.order == *order && has == plan
}

/// What is asked for.
struct Request {
    order: Order,
    plan: Option<Arc<Plan>>,
    agents: Vec<AgentProfile>,
    step: Option<(StepOf, Body)>,
}

/// Where it is asked for: under a parent, or as the root of a trace.
struct Ground<'a> {
    trace: &'a Trace,
    parent: Option<(ContextIndex, &'a ContextNode)>,
    limits: &'a Limits,
    root_budget: Amount,
}

/// What a context may spend, and how that hangs on its parent.
struct Terms {
    ceiling: Amount,
    granted: Granted,
    reserve_usd: Usd,
}

impl<'a> Ground<'a> {
    fn under(trace: &'a Trace, parent: ContextIndex) -> Self {
        let node = trace.node(parent);
        let root_budget = trace.settings().root_budget;
        Ground { trace, parent: Some((parent, node)), limits: &node.limits, root_budget }
    }

    fn admit(&self, request: Request, now: Timestamp) -> Result<Vec<Event>, Refusal> {
        let Request { order, plan, agents, step } = request;
        let agent = self.check_shape(&order, plan.as_deref(), &agents)?;
        self.check_parent()?;
        let is_graph = plan.is_some() || matches!(step, Some((_, Body::Graph { .. })));
        let depth = self.check_depth(is_graph)?;
        self.check_counts(plan.as_deref())?;
        self.check_cycle(&order)?;
        let tools = self.check_tools(&order, agent)?;
        self.check_model(order.model.as_ref().or(agent.and_then(|a| a.model.as_ref())))?;
        let terms = self.check_budget(&order, agent)?;

        let mut events = self.new_agents(&order, plan.as_deref(), &agents);
        let body = match (step, &plan) {
            (Some((_, body)), _) => body,
            (None, Some(_)) => Body::Graph { plan: index(self.trace.plans.len()), group: 0 },
            (None, None) => Body::Agent,
        };
        events.extend(plan.map(|plan| Event::PlanAdded { plan }));
        let window_tokens = self.window(&order, agent);
        let child_id = order.child_id.clone();
        events.push(Event::Admitted(Box::new(Admitted {
            parent_id: self.parent.map(|(_, node)| node.id.clone()),
            body,
            step: step.map(|(step, _)| step),
            depth,
            ceiling: terms.ceiling,
            granted: terms.granted,
            closing_reserve_usd: terms.reserve_usd,
            limits: self.limits(&order, agent),
            tools,
            window_tokens,
            deadline: self.deadline(&order, agent, is_graph, now),
            on_exhausted: order.on_exhausted.or(agent.and_then(|a| a.on_exhausted)).unwrap_or_default(),
            hitl: self.hitl(&order, agent),
            scope: self.scope(&order, step.is_some(), is_graph),
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

    /// The profile to run, once everything that makes no sense has been named at once.
    fn check_shape<'p>(
        &'p self,
        order: &Order,
        plan: Option<&Plan>,
        agents: &'p [AgentProfile],
    ) -> Result<Option<&'p AgentProfile>, Refusal> {
        let mut problems = Problems::default();
        let find = |id: &AgentId| {
            let given = agents.iter().find(|agent| agent.agent_id == *id);
            self.trace.agents.get(id).map(Arc::as_ref).or(given)
        };
        let unknown = |id: &AgentId, path: String, problems: &mut Problems| {
            let known = self.trace.agents.keys().chain(agents.iter().map(|a| &a.agent_id));
            let hint = match nearest(id.as_str(), known.map(AgentId::as_str)) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "apply its profile first".into(),
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
        check_amounts(order, &mut problems);
        if let (Some(plan), Some(_)) = (plan, self.parent) {
            check_key_lengths(order, plan, &mut problems);
        }
        if order.timeout_ms.is_some_and(|timeout| timeout > MAX_TIMEOUT_MS) {
            problems.add("timeout_ms", format!("a timeout is at most a year ({MAX_TIMEOUT_MS} ms)"), None);
        }
        problems.or(agent).map_err(Refusal::Malformed)
    }

    fn check_parent(&self) -> Result<(), Refusal> {
        match self.parent.and_then(|(_, node)| Some((node, node.end()?))) {
            Some((node, end)) => Err(Refusal::Ended { child_id: node.id.clone(), status: end.status }),
            None => Ok(()),
        }
    }

    /// Depth counts agents: a graph or group stands at the depth of whoever runs it.
    fn check_depth(&self, is_graph: bool) -> Result<u32, Refusal> {
        let Some((_, parent)) = self.parent else { return Ok(0) };
        let depth = parent.depth + u32::from(!is_graph);
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

    fn check_cycle(&self, order: &Order) -> Result<(), Refusal> {
        let (Some((parent, _)), Some(agent), Some(goal)) = (self.parent, &order.agent_id, &order.goal) else {
            return Ok(());
        };
        let same = |node: &ContextNode| {
            node.order.agent_id.as_ref() == Some(agent) && node.order.goal.as_ref() == Some(goal)
        };
        match self.trace.chain(parent).find(|(_, node)| same(node)) {
            Some((_, node)) => Err(Refusal::Cycle { agent: agent.clone(), ancestor: node.id.clone() }),
            None => Ok(()),
        }
    }

    /// I5: a subset of the parent's. What is asked for by name must be there; what a profile lists
    /// is narrowed.
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

    /// The allow-lists of the spawner and of every ancestor apply; none or empty allows all.
    fn check_model(&self, model: Option<&ModelName>) -> Result<(), Refusal> {
        let (Some((parent, _)), Some(model)) = (self.parent, model) else { return Ok(()) };
        match self.trace.model_forbidden_by(parent, model) {
            Some(by) => Err(Refusal::Model { model: model.clone(), by: by.clone() }),
            None => Ok(()),
        }
    }

    fn check_budget(&self, order: &Order, agent: Option<&AgentProfile>) -> Result<Terms, Refusal> {
        let asked_usd = order.max_cost_usd.or(agent.and_then(|a| a.max_cost_usd));
        let asked_tokens = order.max_tokens.or(agent.and_then(|a| a.max_tokens));
        let asked_reserve = order.closing_reserve_usd.or(agent.and_then(|a| a.closing_reserve_usd));
        let (left, most) = match self.parent {
            None => (self.root_budget, Amount::new(Usd::MAX, shared::Tokens::MAX)),
            Some((at, parent)) => (self.left_under(at, parent)?, parent.budget.limit),
        };
        let asked = Amount::new(asked_usd.unwrap_or(left.cost_usd), asked_tokens.unwrap_or(left.tokens));
        let ceiling = asked.min(most);
        let granted = match (self.parent, order.funding) {
            (Some(_), Funding::Granted) => Granted {
                cost: asked_usd.is_some() || asked_tokens.is_none(),
                tokens: asked_tokens.is_some(),
            },
            (None, Funding::Granted) | (_, Funding::Shared) => Granted::default(),
        };
        if let Some((at, _)) = self.parent {
            // A grant must be there in full: it is not shrunk to what is left.
            self.trace.check_hold(at, granted.of(asked), true)?;
        }
        // A reserve inherited from a profile can't be more than there is.
        let reserve_usd = asked_reserve.unwrap_or_default().min(ceiling.cost_usd);
        Ok(Terms { ceiling, granted, reserve_usd })
    }

    /// What the parent has left for a child; a refusal if that is nothing, there or above (B4, B6).
    fn left_under(&self, at: ContextIndex, parent: &ContextNode) -> Result<Amount, Refusal> {
        for (_, node) in self.trace.chain(at) {
            let left = node.budget.left_for_children();
            if node.exhausted.is_some() || is_used_up(left) {
                let used_up = if left.cost_usd == Usd::ZERO {
                    shared::Dimension::Cost
                } else {
                    shared::Dimension::Tokens
                };
                let dimension = node.exhausted.unwrap_or(used_up);
                return Err(Refusal::NothingLeft { context: node.id.clone(), dimension });
            }
        }
        Ok(parent.budget.left_for_children())
    }

    /// The profiles it names that the trace has not seen yet; it keeps the first copy of each.
    fn new_agents(&self, order: &Order, plan: Option<&Plan>, agents: &[AgentProfile]) -> Vec<Event> {
        let planned = plan.into_iter().flat_map(Plan::agents).map(|(agent, _)| agent);
        let named: BTreeSet<&AgentId> = order.agent_id.iter().chain(planned).collect();
        let new = named.into_iter().filter(|id| !self.trace.agents.contains_key(*id));
        new.filter_map(|id| agents.iter().find(|agent| agent.agent_id == *id))
            .map(|agent| Event::AgentAdded { agent: Box::new(agent.clone()) })
            .collect()
    }

    fn limits(&self, order: &Order, agent: Option<&AgentProfile>) -> Arc<Limits> {
        let mut limits = self.limits.clone();
        if let Some(agent) = agent {
            // An operator's profile decides for a root; under a parent it can only narrow.
            limits = if self.parent.is_some() {
                agent.limits.lower(&limits)
            } else {
                agent.limits.replace(&limits)
            };
        }
        if let Some(asked) = &order.limits {
            limits = asked.lower(&limits);
        }
        match self.parent {
            Some((_, parent)) if *parent.limits == limits => parent.limits.clone(),
            Some(_) | None => Arc::new(limits),
        }
    }

    /// The earlier of its own and its parent's. Roots and graphs have none unless they ask.
    fn deadline(
        &self,
        order: &Order,
        agent: Option<&AgentProfile>,
        is_graph: bool,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let default = if is_graph || self.parent.is_none() { 0 } else { self.limits.timeout_ms };
        let timeout = order.timeout_ms.or(agent.and_then(|a| a.timeout_ms)).unwrap_or(default);
        let own = (timeout > 0).then(|| now.plus_millis(timeout));
        let above = self.parent.and_then(|(_, parent)| {
            let stood =
                if parent.waiting_for_humans > 0 { now.millis_since(parent.clock_stopped_at) } else { 0 };
            Some(parent.deadline?.plus_millis(stood))
        });
        [own, above].into_iter().flatten().min()
    }

    fn hitl(&self, order: &Order, agent: Option<&AgentProfile>) -> shared::wire::Hitl {
        let inherited = self.parent.map(|(_, parent)| parent.hitl);
        order.hitl.or(agent.and_then(|a| a.hitl)).or(inherited).unwrap_or_default()
    }

    /// W1: the smallest of its model's window, the clamp asked for, and its parent's.
    fn window(&self, order: &Order, agent: Option<&AgentProfile>) -> Option<shared::Tokens> {
        let parent = self.parent.and_then(|(_, node)| node.window_tokens);
        [agent.and_then(|a| a.window_tokens), order.window_tokens, parent].into_iter().flatten().min()
    }

    /// Whose keys it reads and writes: those of the graph it belongs to.
    fn scope(&self, order: &Order, is_step: bool, is_graph: bool) -> Option<ChildId> {
        let (_, parent) = self.parent?;
        if is_graph && !is_step { Some(order.child_id.clone()) } else { parent.scope.clone() }
    }
}

/// The keys of an agent's own graph stand under its id in the store, and must fit there.
fn check_key_lengths(order: &Order, plan: &Plan, problems: &mut Problems) {
    let written =
        plan.groups().iter().flat_map(|group| &group.steps).filter_map(|step| step.output_to.as_ref());
    for key in written.chain(order.inputs.keys()) {
        if ContextKey::new(&format!("{}.{key}", order.child_id)).is_err() {
            problems.add("steps", format!("the key `{key}` is too long behind `{}.`", order.child_id), None);
        }
    }
}

fn check_amounts(order: &Order, problems: &mut Problems) {
    let nothing = [
        ("max_cost_usd", order.max_cost_usd == Some(Usd::ZERO)),
        ("max_tokens", order.max_tokens == Some(shared::Tokens::ZERO)),
    ];
    for (field, _) in nothing.into_iter().filter(|(_, zero)| *zero) {
        let hint =
            "a budget of nothing is used up before it begins; any positive ceiling lets free models run";
        problems.add(field, "a ceiling must be more than zero", Some(hint.into()));
    }
    if let (Some(reserve), Some(limit)) = (order.closing_reserve_usd, order.max_cost_usd)
        && reserve >= limit
    {
        let hint = "the reserve is a part of the ceiling: make it smaller, or raise `max_cost_usd`";
        problems.add(
            "closing_reserve_usd",
            format!("{reserve} leaves nothing of {limit}"),
            Some(hint.into()),
        );
    }
}

impl Trace {
    /// The context whose allow-list keeps a model from what runs under `parent`.
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
