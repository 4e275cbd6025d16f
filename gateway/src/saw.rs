//! What conditions saw because of which steps were skipped. It is in the events of a run, and not in its state.

use std::collections::HashMap;

use coordinator::trace::{Event, Logged};
use serde_json::Value;
use shared::{
    ChildId, Json,
    graph::{Condition, StepIndex},
};

/// By the graph, the place of the step, and what was asked: after an amend another step may stand there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Saw(HashMap<(ChildId, StepIndex, String), Json>);

impl Saw {
    /// Remembers what a `when` saw that was not true. A second delivery says the same again.
    pub(crate) fn note(&mut self, logged: &Logged) {
        for event in &logged.events {
            if let Event::ConditionAsked { child_id, step, question, answer, saw } = event
                && question.starts_with("when: ")
                && *answer != Ok(true)
            {
                self.0.insert((child_id.clone(), *step, question.clone()), saw.clone());
            }
        }
    }

    /// What the `when` of a step saw, in words: only what it names.
    pub(crate) fn words(&self, graph: &ChildId, step: StepIndex, when: &Condition) -> Option<String> {
        let saw = self.0.get(&(graph.clone(), step, format!("when: {}", when.source())))?.value();
        let outputs = fields(&saw["outputs"]).map(|(key, value)| format!("{key} = {value}"));
        let is_named = |(name, _): &(&String, &Value)| when.source().contains(name.as_str());
        let steps = fields(&saw["steps"]).flat_map(|(id, step)| {
            fields(step).filter(is_named).map(move |(name, value)| format!("{id}.{name} = {value}"))
        });
        let budget = fields(&saw["budget"]).filter(is_named);
        let budget = budget.map(|(name, value)| format!("budget.{name} = {value}"));
        let words: Vec<String> = outputs.chain(steps).chain(budget).collect();
        Some(if words.is_empty() { "nothing".to_owned() } else { words.join(", ") })
    }
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}
