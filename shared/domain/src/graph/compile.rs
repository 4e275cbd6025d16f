//! Compiles a definition into a plan: each step by itself (`steps`), then the dependencies between
//! them (`link`). A plan is stored as its definition, and compiled again when it is read.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};

use super::{
    Plan, TaskGraph,
    definition::{FallbackDef, StepDef, UndoDef, WithDef},
    inputs, link,
    steps::{self, Reading},
};
use crate::{id::ContextKey, json::Json, problem::Problems, terms::Text};

/// The state of a definition's inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inputs {
    Given,
    /// The inputs come later and are not checked.
    Later,
}

impl Plan {
    /// Compiles a definition, or returns all its problems (G2).
    pub fn compile(definition: &TaskGraph) -> Result<Self, Problems> {
        Self::compile_with(definition, Inputs::Given)
    }

    /// Compiles a definition whose `inputs` come later, so they are not checked.
    pub fn compile_without_inputs(definition: &TaskGraph) -> Result<Self, Problems> {
        Self::compile_with(definition, Inputs::Later)
    }

    fn compile_with(definition: &TaskGraph, graph_inputs: Inputs) -> Result<Self, Problems> {
        let Reading { mut groups, drafts, given: mut all_given, mut problems } = steps::read(definition);
        let input_schema = steps::schema(definition.input_schema.as_ref(), "input_schema", &mut problems);
        // Only checked here: the context of the graph compiles the schema again for its own use.
        steps::schema(definition.output_schema.as_ref(), "output_schema", &mut problems);
        for (i, key) in definition.input_from.iter().enumerate() {
            if definition.inputs.contains_key(key) {
                let message = format!("`{key}` is one of the graph's own `inputs`");
                problems.add(format!("input_from[{i}]"), message, None);
            }
        }
        if let (Some(schema), Inputs::Given) = (&input_schema, graph_inputs) {
            inputs::check(schema, &definition.filled_inputs(), &definition.input_from, &mut problems);
        }
        let given = definition.inputs.keys().chain(&definition.input_from).cloned();
        all_given.insert(0, given.chain(definition.declared_inputs()).collect());
        link::link(&mut groups, &drafts, &all_given, &mut problems);
        let step_count =
            u32::try_from(groups.iter().map(|g| g.steps.len()).sum::<usize>()).unwrap_or(u32::MAX);
        let must_fit = definition.must_fit;
        let source = if must_fit {
            serde_json::to_string(&TaskGraph { must_fit: false, ..definition.clone() })
        } else {
            serde_json::to_string(definition)
        };
        let source = source.expect("a definition has string keys only");
        let name = definition.name.clone();
        problems.or(Plan { source: source.into(), groups, step_count, must_fit, input_schema, name })
    }

    /// Returns the problems of other inputs for this graph.
    pub fn check_inputs(&self, inputs: &BTreeMap<ContextKey, Json>) -> Problems {
        let mut problems = Problems::default();
        if let Some(schema) = &self.input_schema {
            inputs::check(schema, inputs, &self.definition().input_from, &mut problems);
        }
        problems
    }
}

impl Plan {
    /// Returns the plan without the texts and values that people wrote: tasks, and the values of
    /// inputs. It has the same steps.
    pub fn without_content(&self) -> Self {
        let mut definition = self.definition();
        forget_graph(&mut definition);
        // Steps do not depend on the text of a task. If compiling fails all the same, the content
        // stays.
        Plan::compile(&definition).unwrap_or_else(|_| self.clone())
    }
}

fn forget_graph(graph: &mut TaskGraph) {
    graph.task_description = graph.task_description.take().map(blank);
    // A schema may quote people's texts, and the emptied inputs would not match it. The keys that
    // it declares are added to the inputs, so they stay known.
    let inputs = graph.inputs.keys().cloned().chain(graph.declared_inputs());
    graph.inputs = inputs.map(|key| (key, Json::null())).collect();
    graph.input_schema = None;
    graph.output_schema = None;
    graph.steps.iter_mut().for_each(forget);
}

fn blank(_: Text) -> Text {
    Text::new("(deleted)").expect("a valid literal")
}

fn forget(step: &mut StepDef) {
    step.task_description = step.task_description.take().map(blank);
    if let Some(FallbackDef::Task(task)) = &mut step.fallback {
        task.task_description = task.task_description.take().map(blank);
    }
    if let Some(UndoDef::Task(task)) = &mut step.undo {
        task.task_description = task.task_description.take().map(blank);
    }
    if let Some(approve) = &mut step.approve {
        approve.who = blank(approve.who.clone());
        approve.question = None;
        approve.choices.clear();
    }
    for with in step.with.values_mut() {
        if let WithDef::Value(with) = with {
            with.value = Json::null();
        }
    }
    step.graph.iter_mut().for_each(|graph| forget_graph(graph));
    step.steps.iter_mut().for_each(forget);
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Plan::compile(&TaskGraph::deserialize(d)?).map_err(de::Error::custom)
    }
}
