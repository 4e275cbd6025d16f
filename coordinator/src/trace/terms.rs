//! The terms on which a context is admitted: its ceiling and how its parent funds it (B6), and what it
//! inherits of limits, deadline, window and the rest (L, W1). A spawn may only lower what its parent has.

use std::sync::Arc;

use shared::{
    AgentProfile, Amount, ChildId, Limits, ThreadId, Timestamp, Tokens, Usd,
    wire::{Funding, Hitl, OnExhausted},
};

use super::{ContextIndex, ContextNode, Order, Refusal, admission::Place, budget::Granted};

/// What a context may spend, and how its parent funds it.
pub(super) struct Terms {
    pub(super) ceiling: Amount,
    pub(super) granted: Granted,
    pub(super) inherited: Granted,
    pub(super) reserve_usd: Usd,
}

/// What limits the time of a context, besides its ancestors' deadlines.
pub(super) enum Timeout {
    None,
    /// Of a graph or a submission: wall time from its admission.
    At(Timestamp),
    /// Of an agent: from when its first attempt begins. The wait for a worker does not count.
    OfAttempts(u64),
}

impl Timeout {
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        match self {
            Timeout::At(deadline) => Some(*deadline),
            Timeout::None | Timeout::OfAttempts(_) => None,
        }
    }

    pub(super) fn of_attempts(&self) -> Option<u64> {
        match self {
            Timeout::OfAttempts(timeout) => Some(*timeout),
            Timeout::None | Timeout::At(_) => None,
        }
    }
}

impl Place<'_> {
    pub(super) fn check_budget(&self, order: &Order, agent: Option<&AgentProfile>) -> Result<Terms, Refusal> {
        let asked_usd = order.max_cost_usd.or(agent.and_then(|a| a.max_cost_usd));
        let asked_tokens = order.max_tokens.or(agent.and_then(|a| a.max_tokens));
        let asked_reserve = order.closing_reserve_usd.or(agent.and_then(|a| a.closing_reserve_usd));
        let (left, most) = match self.parent {
            None => (self.root_budget, Amount::new(Usd::MAX, Tokens::MAX)),
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
            // A grant must fit in full: it is not reduced to what is left. It may come again when calls in flight have
            // ended.
            let grant = granted.of(asked);
            let apart_from_calls = || self.trace.check_hold_apart_from_calls(at, grant, true);
            self.trace.check_hold(at, grant, true).map_err(|refusal| {
                match (refusal, apart_from_calls()) {
                    (Refusal::Denied(denied), Ok(())) => Refusal::Busy(denied),
                    (refusal, _) => refusal,
                }
            })?;
        }
        // A reserve inherited from a profile can't exceed the ceiling.
        let reserve_usd = asked_reserve.unwrap_or_default().min(ceiling.cost_usd);
        let inherited = Granted {
            cost: asked_usd.is_none() && !granted.cost && self.parent.is_some(),
            tokens: asked_tokens.is_none() && !granted.tokens && self.parent.is_some(),
        };
        Ok(Terms { ceiling, granted, inherited, reserve_usd })
    }

    /// What the parent has left for a child; a refusal if nothing is left there or above (B4, B6).
    fn left_under(&self, at: ContextIndex, parent: &ContextNode) -> Result<Amount, Refusal> {
        if let Some((node, dimension)) = self.trace.nothing_left(at).next() {
            return Err(Refusal::NothingLeft { context: node.id.clone(), dimension });
        }
        Ok(parent.budget.left_for_children())
    }

    pub(super) fn limits(&self, order: &Order, agent: Option<&AgentProfile>) -> Arc<Limits> {
        let mut limits = self.limits.clone();
        if let Some(agent) = agent {
            // For a root the operator's profile decides; under a parent it can only lower limits.
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

    /// Its own timeout; its ancestors' deadlines apply too. Roots and graphs have none unless they ask for one.
    pub(super) fn timeout(
        &self,
        order: &Order,
        agent: Option<&AgentProfile>,
        is_graph: bool,
        now: Timestamp,
    ) -> Timeout {
        let default = if is_graph || self.parent.is_none() { 0 } else { self.limits.timeout_ms };
        let timeout = order.timeout_ms.or(agent.and_then(|a| a.timeout_ms)).unwrap_or(default);
        let is_requests = self.parent.is_none() && order.timeout_ms.is_some();
        match timeout {
            0 => Timeout::None,
            _ if is_graph || is_requests => Timeout::At(now.plus_millis(timeout)),
            _ => Timeout::OfAttempts(timeout),
        }
    }

    /// As asked for, else as its parent.
    pub(super) fn on_exhausted(&self, order: &Order, agent: Option<&AgentProfile>) -> OnExhausted {
        let inherited = self.parent.map(|(_, parent)| parent.on_exhausted);
        order.on_exhausted.or(agent.and_then(|a| a.on_exhausted)).or(inherited).unwrap_or_default()
    }

    /// I6: the root's, inherited unchanged.
    pub(super) fn thread_id(&self, order: &Order) -> Option<ThreadId> {
        let inherited = self.parent.and_then(|(_, parent)| parent.thread_id.clone());
        inherited.or_else(|| order.thread_id.clone())
    }

    pub(super) fn hitl(&self, order: &Order, agent: Option<&AgentProfile>) -> Hitl {
        let inherited = self.parent.map(|(_, parent)| parent.hitl);
        order.hitl.or(agent.and_then(|a| a.hitl)).or(inherited).unwrap_or_default()
    }

    /// W1: the smallest of its model's window, the requested clamp, and its parent's window.
    pub(super) fn window(&self, order: &Order, agent: Option<&AgentProfile>) -> Option<Tokens> {
        let parent = self.parent.and_then(|(_, node)| node.window_tokens);
        [agent.and_then(|a| a.window_tokens), order.window_tokens, parent].into_iter().flatten().min()
    }

    /// The graph whose keys it reads and writes.
    pub(super) fn scope(&self, order: &Order, is_step: bool, is_graph: bool) -> Option<ChildId> {
        let (_, parent) = self.parent?;
        if is_graph && !is_step { Some(order.child_id.clone()) } else { parent.scope.clone() }
    }
}
