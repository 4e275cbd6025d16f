//! The values that conditions read when they skipped a step. They are in the events of a run, but
//! not in its state.

use std::collections::HashMap;

use domain::{
    ChildId, Json,
    graph::{Condition, StepIndex},
};
use serde_json::Value;
use trace::{Event, LoggedEvents};

/// The key is the graph, the index of the step, and the question. After an amend another step may
/// have the same index.
#[derive(Debug, Clone, Default)]
pub(crate) struct Saw(HashMap<(ChildId, StepIndex, String), Json>);

impl Saw {
    /// Records the values that a false or failed `when` read. A second delivery records the same
    /// again.
    pub(crate) fn note(&mut self, logged: &LoggedEvents) {
        for event in &logged.events {
            if let Event::ConditionAsked { child_id, step, question, answer, saw } = event
                && question.starts_with("when: ")
                && *answer != Ok(true)
            {
                self.0.insert((child_id.clone(), *step, question.clone()), saw.clone());
            }
        }
    }

    /// The values that the `when` of a step read, as text, limited to the names that it mentions.
    /// None if they are unknown, as in a log without content.
    pub(crate) fn words(&self, graph: &ChildId, step: StepIndex, when: &Condition) -> Option<String> {
        let saw = self.0.get(&(graph.clone(), step, format!("when: {}", when.source())))?.value();
        if saw.is_null() {
            return None;
        }
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

#[cfg(test)]
mod tests {
    use domain::{Timestamp, TraceId};
    use serde_json::json;

    use super::*;

    #[test]
    fn only_values_that_a_condition_names_are_shown() {
        let when = Condition::compile("outputs.desk == \"a\" && steps.read.cost_usd > 1.0", "when").unwrap();
        let graph = ChildId::new("g").unwrap();
        let asked = |answer, saw| LoggedEvents {
            trace_id: TraceId::from_u128(1).unwrap(),
            child_id: graph.clone(),
            version: 1,
            commit: trace::Commit { first: 1, last: 1, made: Timestamp::default(), after: None },
            at: Timestamp::default(),
            events: vec![Event::ConditionAsked {
                child_id: graph.clone(),
                step: 2,
                question: format!("when: {}", when.source()),
                answer: Ok(answer),
                saw: Json::from(saw),
            }],
        };
        let seen = json!({"outputs": {"desk": "b"}, "steps": {"read": {"status": "succeeded", "cost_usd": 0.5}}, "budget": {"limit_usd": 1}});
        let mut saw = Saw::default();
        saw.note(&asked(true, seen.clone()));
        assert_eq!(saw.words(&graph, 2, &when), None, "a step that was not skipped has no reason");
        saw.note(&asked(false, seen));
        assert_eq!(saw.words(&graph, 2, &when).as_deref(), Some("desk = \"b\", read.cost_usd = 0.5"));
        assert_eq!(saw.words(&graph, 1, &when), None);
        saw.note(&asked(false, Value::Null));
        assert_eq!(saw.words(&graph, 2, &when), None);
    }
}
