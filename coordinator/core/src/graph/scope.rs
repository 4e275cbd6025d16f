//! The values that a condition may read: outputs of its graph, the steps around it, and the budget
//! of its graph.

use domain::{
    ContextKey, Json,
    graph::{Input, Scope},
};
use serde_json::{Value, json};

use crate::{ContextIndex, ContextNode, Trace};

pub(super) struct StepScope<'a> {
    pub(super) trace: &'a Trace,
    pub(super) graph: ContextIndex,
    /// The sources of the values that a `when` reads. An `until` reads values by their names in the
    /// graph.
    pub(super) reads: &'a [Input],
    /// The round that has just ended: `until` may read the status of its steps.
    pub(super) round: Option<&'a ContextNode>,
    /// A value about to be written: `until` may read it.
    pub(super) fresh: Option<(&'a ContextKey, &'a Json)>,
}

impl<'a> StepScope<'a> {
    /// The scope for the `when` of a step with these inputs.
    pub(super) fn of(trace: &'a Trace, graph: ContextIndex, reads: &'a [Input]) -> Self {
        StepScope { trace, graph, reads, round: None, fresh: None }
    }
}

impl Scope for StepScope<'_> {
    fn output(&self, key: &str) -> Option<Value> {
        let key = ContextKey::new(key).ok()?;
        if let Some((fresh, value)) = self.fresh
            && *fresh == key
        {
            return Some(value.value().clone());
        }
        let entry = match self.reads.iter().find(|input| input.key == key) {
            Some(input) => self.trace.value_for_step(self.graph, input)?,
            None => self.trace.value_in(self.trace.node(self.graph), &key)?,
        };
        Some(entry.value.value().clone())
    }

    fn step(&self, id: &str) -> Option<Value> {
        // A used graph can't read the steps around it, and the steps around it can't read its
        // steps.
        let round = self.round.into_iter().filter(|round| !self.trace.is_used(round));
        let mut inside = true;
        let around = self.trace.chain(self.graph).map(|(_, node)| node);
        let around = around.take_while(|node| {
            let is_inside = inside;
            inside = is_inside && !self.trace.is_used(node);
            is_inside
        });
        let groups = round.chain(around).map_while(|node| self.trace.run_of(node));
        let (run, number) = groups
            .filter_map(|(run, group)| {
                Some((run, group.steps.iter().position(|step| step.id.as_str() == id)?))
            })
            .next()?;
        let step = &run.steps[number];
        let (spent, attempts) = self.trace.used_by(&step.contexts);
        Some(json!({
            "status": step.status,
            "cost_usd": spent.cost_usd,
            "tokens": spent.tokens,
            "attempts": attempts,
        }))
    }

    fn budget(&self) -> Value {
        let budget = &self.trace.node(self.graph).budget;
        let room = budget.room(true);
        json!({
            "limit_usd": budget.ceilings.limit.cost_usd,
            "spent_usd": budget.spent.cost_usd,
            "remaining_usd": room.cost_usd,
            "limit_tokens": budget.ceilings.limit.tokens,
            "spent_tokens": budget.spent.tokens,
            "remaining_tokens": room.tokens,
        })
    }
}
