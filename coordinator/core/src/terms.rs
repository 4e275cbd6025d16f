//! The terms on which a context is admitted: its ceiling and its funding by the parent (B6), and
//! the limits, deadline, window and other terms that it inherits (L, W1). In every dimension the
//! smallest value of order, profile, ancestors and the deployment's maximum applies, and lowered
//! values are noted (B17).

use std::sync::Arc;

use domain::{
    AgentProfile, Amount, ChildId, Limits, ThreadId, Timestamp, Tokens, Usd,
    id::ModelName,
    limits::{bound, no_bound},
    wire::{Adjustment, Funding, Hitl, LoweredBy, OnExhausted},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Body, ContextIndex, ContextNode, ContextSpec, Ran, Refusal, StepOf, admission::Place,
    budget::GrantedDimensions,
};

/// The ceiling of a context, and its funding by the parent.
pub(super) struct Terms {
    pub(super) ceiling: Amount,
    pub(super) granted: GrantedDimensions,
    pub(super) inherited: GrantedDimensions,
    pub(super) reserve_usd: Usd,
}

/// The bounds on the time of a context, besides its ancestors' deadlines.
#[derive(Debug, Default)]
pub(super) struct Timeout {
    /// For a graph or a submission: wall time from its admission.
    pub(super) deadline: Option<Timestamp>,
    /// For an agent: time from the start of its first attempt. The wait for a worker is not
    /// included.
    pub(super) of_attempts_ms: Option<u64>,
}

impl Place<'_> {
    /// `agent` is the profile that binds the context. For a graph, `profile` is the profile of its
    /// own agent: its closing reserve is withheld from the steps (B7), and the rest of it binds
    /// only the synthesis.
    pub(super) fn check_budget(
        &self,
        spec: &ContextSpec,
        (agent, profile): (Option<&AgentProfile>, Option<&AgentProfile>),
        reserve: Option<Amount>,
        adjusted: &mut Vec<Adjustment>,
    ) -> Result<Terms, Refusal> {
        let (profile_usd, profile_tokens) =
            (agent.and_then(|a| a.max_cost_usd), agent.and_then(|a| a.max_tokens));
        let asked_usd = smaller(spec.max_cost_usd, profile_usd);
        let asked_tokens = smaller(spec.max_tokens, profile_tokens);
        let asked_reserve = spec.closing_reserve_usd.or(profile.and_then(|a| a.closing_reserve_usd));
        let (left, most) = match self.parent {
            None => (self.settings.root_budget, self.settings.maximum.ceiling()),
            Some((at, parent)) => (self.left_under(at, parent)?, parent.budget.ceilings.limit),
        };
        let asked = Amount::new(asked_usd.unwrap_or(left.cost_usd), asked_tokens.unwrap_or(left.tokens));
        let ceiling = asked.min(most);
        adjusted.extend(self.lowered("max_cost_usd", spec.max_cost_usd, profile_usd, ceiling.cost_usd));
        adjusted.extend(self.lowered("max_tokens", spec.max_tokens, profile_tokens, ceiling.tokens));
        let granted = match (self.parent, spec.funding) {
            (Some(_), Funding::Granted) => GrantedDimensions {
                cost: asked_usd.is_some() || asked_tokens.is_none(),
                tokens: asked_tokens.is_some(),
            },
            (None, Funding::Granted) | (_, Funding::Shared) => GrantedDimensions::default(),
        };
        if let Some((at, _)) = self.parent {
            // A grant, and the amount held for its undo (G14), must fit in full: they are not
            // reduced to the amount left. If they would fit once calls in flight have ended, the
            // refusal is `Busy`, and the request can be retried.
            let grant = granted.of(asked);
            let grant = grant.checked_add(reserve.unwrap_or(Amount::ZERO)).ok_or(Refusal::BooksFull)?;
            let apart_from_calls = || self.trace.check_hold_apart_from_calls(at, grant, true);
            self.trace.check_hold(at, grant, true).map_err(|refusal| {
                match (refusal, apart_from_calls()) {
                    (Refusal::Denied(denied), Ok(())) => Refusal::Busy(denied),
                    (refusal, _) => refusal.of_grant(),
                }
            })?;
        }
        // A reserve can't exceed the ceiling.
        let reserve_usd = asked_reserve.unwrap_or_default().min(ceiling.cost_usd);
        let asked_reserve =
            asked_reserve.filter(|_| spec.closing_reserve_usd.is_some() || self.parent.is_none());
        let lowered = |asked| self.lowered("closing_reserve_usd", Some(asked), profile_usd, reserve_usd);
        adjusted.extend(asked_reserve.and_then(lowered));
        let inherited = GrantedDimensions {
            cost: asked_usd.is_none() && !granted.cost && self.parent.is_some(),
            tokens: asked_tokens.is_none() && !granted.tokens && self.parent.is_some(),
        };
        Ok(Terms { ceiling, granted, inherited, reserve_usd })
    }

    /// The terms of a context that makes no calls but may be charged (B11). A human is asked even
    /// if nothing is left.
    pub(super) fn whatever_is_left(&self) -> Terms {
        let ceiling = self.parent.map_or(Amount::ZERO, |(_, parent)| parent.budget.left_for_children());
        Terms {
            ceiling,
            inherited: GrantedDimensions { cost: true, tokens: true },
            ..self.nothing_to_spend()
        }
    }

    /// The terms of an undo: the amount that was held for it (G14).
    pub(super) fn of_reserve(&self, reserve: Amount, agent: Option<&AgentProfile>) -> Terms {
        let tokens = reserve.tokens > Tokens::ZERO;
        let above = self.parent.map_or(Tokens::ZERO, |(_, parent)| parent.budget.ceilings.limit.tokens);
        let ceiling = Amount::new(reserve.cost_usd, if tokens { reserve.tokens } else { above });
        let closing = agent.and_then(|agent| agent.closing_reserve_usd).unwrap_or_default();
        let granted = GrantedDimensions { cost: true, tokens };
        let inherited = GrantedDimensions { cost: false, tokens: !tokens };
        Terms { ceiling, granted, inherited, reserve_usd: closing.min(reserve.cost_usd) }
    }

    /// The terms of a context that makes no calls.
    pub(super) fn nothing_to_spend(&self) -> Terms {
        let (ceiling, granted) = (Amount::ZERO, GrantedDimensions::default());
        Terms { ceiling, granted, inherited: GrantedDimensions::default(), reserve_usd: Usd::default() }
    }

    /// The amount that the parent has left for a child; a refusal if nothing is left there or above
    /// (B4, B6).
    fn left_under(&self, at: ContextIndex, parent: &ContextNode) -> Result<Amount, Refusal> {
        if let Some((node, dimension)) = self.trace.nothing_left(at).next() {
            return Err(Refusal::NothingLeft { context: node.id.clone(), dimension });
        }
        Ok(parent.budget.left_for_children())
    }

    pub(super) fn limits(
        &self,
        spec: &ContextSpec,
        agent: Option<&AgentProfile>,
        adjusted: &mut Vec<Adjustment>,
    ) -> Arc<Limits> {
        let maximum = &self.settings.maximum.limits;
        let own = |base: &Limits| agent.map_or_else(|| base.clone(), |agent| agent.limits.lower(base));
        // For a root, the operator's profile replaces the deployment's defaults, within the
        // deployment's maximum. Under a parent, a profile can only lower limits.
        let mut limits = match (self.parent, agent) {
            (Some((_, parent)), _) => own(&parent.limits),
            (None, Some(agent)) => maximum.lower(&agent.limits.replace(&self.settings.limits)),
            (None, None) => maximum.lower(&self.settings.limits),
        };
        if let (None, Some(agent)) = (self.parent, agent) {
            let spec = spec.limits.as_deref();
            let asks = |what: &str| spec.is_some_and(|spec| spec.has(what));
            let above = agent.limits.above(&limits).into_iter().filter(|(what, _, _)| !asks(what));
            adjusted.extend(
                above.map(|(what, asked, got)| Adjustment::new(what, asked, got, LoweredBy::Deployment)),
            );
        }
        if let Some(asked) = &spec.limits {
            adjusted.extend(asked.above(&limits).into_iter().map(|(what, asked, got)| {
                let by_profile = agent.is_some_and(|agent| agent.limits.sets(what, got));
                Adjustment::new(what, asked, got, if by_profile { LoweredBy::Profile } else { self.above() })
            }));
            limits = asked.lower(&limits);
        }
        match self.parent {
            Some((_, parent)) if *parent.limits == limits => parent.limits.clone(),
            Some(_) | None => Arc::new(limits),
        }
    }

    /// The context's own timeout; its ancestors' deadlines apply too. Roots and graphs have no
    /// timeout unless they request one, or the deployment has a maximum.
    pub(super) fn timeout(
        &self,
        spec: &ContextSpec,
        agent: Option<&AgentProfile>,
        is_graph: bool,
        now: Timestamp,
        adjusted: &mut Vec<Adjustment>,
    ) -> Timeout {
        let asked = spec.timeout_ms.map(no_bound);
        let profile = agent.and_then(|agent| agent.timeout_ms).map(no_bound);
        let is_root = self.parent.is_none();
        let maximum = self.settings.maximum.timeout_ms.map(no_bound).filter(|_| is_root);
        let wall = if is_root || is_graph { smaller(asked, maximum) } else { None };
        let of_attempts = match (is_graph, is_root) {
            (true, _) => None,
            (false, true) => profile,
            (false, false) => smaller(asked, profile).or(Some(no_bound(self.limits.timeout_ms))),
        };
        // The remaining time of its ancestors bounds it as well.
        let left =
            self.parent.and_then(|(_, parent)| self.trace.deadline(parent)).map(|at| at.millis_since(now));
        let got = [wall, of_attempts, left].into_iter().flatten().min().unwrap_or(u64::MAX);
        let lowered = self.lowered("timeout_ms", asked, profile, got);
        let shown = asked.or(profile).map(bound);
        adjusted.extend(lowered.map(|lowered| Adjustment::new("timeout_ms", shown, got, lowered.by)));
        let bounded = |millis: Option<u64>| millis.map(bound).filter(|millis| *millis > 0);
        Timeout {
            deadline: bounded(wall).map(|millis| now.plus_millis(millis)),
            of_attempts_ms: bounded(of_attempts),
        }
    }

    /// B17: notes the entries in a child's profile that do not apply because its ancestors forbid
    /// them.
    pub(super) fn narrowed(
        &self,
        spec: &ContextSpec,
        agent: Option<&AgentProfile>,
        adjusted: &mut Vec<Adjustment>,
    ) {
        let (Some((at, parent)), Some(agent)) = (self.parent, agent) else { return };
        let mut note = |what: &str, asked: Value, got: Value| {
            adjusted.push(Adjustment::new(what, asked, got, LoweredBy::Parent));
        };
        if let (None, Some(own), Some(allowed)) = (&spec.tools, &agent.tools, &parent.terms.tools)
            && !own.is_subset(allowed)
        {
            note("tools", json!(own), json!(own.intersection(allowed).collect::<Vec<_>>()));
        }
        let is_allowed = |model: &&ModelName| self.trace.model_forbidden_by(at, model).is_none();
        if !agent.allowed_models.iter().all(|model| is_allowed(&model)) {
            let left: Vec<&ModelName> = agent.allowed_models.iter().filter(is_allowed).collect();
            note("allowed_models", json!(agent.allowed_models), json!(left));
        }
        if let Some(model) = agent.fallback_model.as_ref().filter(|model| !is_allowed(model)) {
            note("fallback_model", json!(model), Value::Null);
        }
    }

    /// B17: notes that a value is lower than the spec requests; for a root, also lower than in its
    /// profile.
    fn lowered<T: Copy + Ord + Serialize>(
        &self,
        what: &str,
        asked: Option<T>,
        profile: Option<T>,
        got: T,
    ) -> Option<Adjustment> {
        let asked = asked.or(profile.filter(|_| self.parent.is_none())).filter(|asked| got < *asked)?;
        let by = if profile == Some(got) { LoweredBy::Profile } else { self.above() };
        Some(Adjustment::new(what, asked, got, by))
    }

    /// The source of bounds other than its profile.
    fn above(&self) -> LoweredBy {
        if self.parent.is_some() { LoweredBy::Parent } else { LoweredBy::Deployment }
    }

    /// The requested value, or the parent's.
    pub(super) fn on_exhausted(&self, spec: &ContextSpec, agent: Option<&AgentProfile>) -> OnExhausted {
        let inherited = self.parent.map(|(_, parent)| parent.terms.on_exhausted);
        spec.on_exhausted.or(agent.and_then(|a| a.on_exhausted)).or(inherited).unwrap_or_default()
    }

    /// I6: the root's thread id, inherited unchanged.
    pub(super) fn thread_id(&self, spec: &ContextSpec) -> Option<ThreadId> {
        let inherited = self.parent.and_then(|(_, parent)| parent.identity.thread_id.clone());
        inherited.or_else(|| spec.thread_id.clone())
    }

    pub(super) fn hitl(&self, spec: &ContextSpec, agent: Option<&AgentProfile>) -> Hitl {
        let inherited = self.parent.map(|(_, parent)| parent.terms.hitl);
        spec.hitl.or(agent.and_then(|a| a.hitl)).or(inherited).unwrap_or_default()
    }

    /// W1: the smallest of its model's window, the requested clamp, and its parent's window.
    pub(super) fn window(
        &self,
        spec: &ContextSpec,
        agent: Option<&AgentProfile>,
        adjusted: &mut Vec<Adjustment>,
    ) -> Option<Tokens> {
        let parent = self.parent.and_then(|(_, node)| node.terms.window_tokens);
        let model = agent.and_then(|a| a.window_tokens);
        let window = [model, spec.window_tokens, parent].into_iter().flatten().min()?;
        adjusted.extend(self.lowered("window_tokens", spec.window_tokens, model, window));
        Some(window)
    }

    /// The graph whose keys the context reads and writes. A graph that an agent runs or a step
    /// uses, and an item, have their own keys.
    pub(super) fn scope(&self, spec: &ContextSpec, step: Option<StepOf>, body: Body) -> Option<ChildId> {
        let (_, parent) = self.parent?;
        let Body::Graph { plan, group } = body else { return parent.identity.scope.clone() };
        let is_used = || self.trace.plans[plan as usize].group(group).used.is_some();
        let has_own_keys = step.is_none_or(|of| matches!(of.ran, Ran::Item(_)) || is_used());
        if has_own_keys { Some(spec.child_id.clone()) } else { parent.identity.scope.clone() }
    }
}

/// The smaller of two bounds, either of which may be missing.
fn smaller<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    a.into_iter().chain(b).min()
}
