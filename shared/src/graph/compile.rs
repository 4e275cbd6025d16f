//! Compiles a definition into a plan: each step by itself (`steps`), then the dependencies between them
//! (`link`). A plan is stored as its definition, and compiled again when it is read.

use serde::{Deserialize, Deserializer, de};

use super::{
    Plan, TaskGraph,
    definition::{FallbackDef, StepDef},
    link,
    steps::{self, Reading},
};
use crate::{json::Json, problem::Problems, terms::Text};

impl Plan {
    /// Compiles a definition, or returns all its problems (G2).
    pub fn compile(definition: &TaskGraph) -> Result<Self, Problems> {
        let Reading { mut groups, drafts, mut problems } = steps::read(definition);
        for (i, key) in definition.input_from.iter().enumerate() {
            if definition.inputs.contains_key(key) {
                let message = format!("`{key}` is one of the graph's own `inputs`");
                problems.add(format!("input_from[{i}]"), message, None);
            }
        }
        let given = definition.inputs.keys().chain(&definition.input_from).cloned().collect();
        link::link(&mut groups, &drafts, &given, &mut problems);
        let step_count =
            u32::try_from(groups.iter().map(|g| g.steps.len()).sum::<usize>()).unwrap_or(u32::MAX);
        let must_fit = definition.must_fit;
        let source = if must_fit {
            serde_json::to_string(&TaskGraph { must_fit: false, ..definition.clone() })
        } else {
            serde_json::to_string(definition)
        };
        let source = source.expect("a definition has string keys only");
        problems.or(Plan { source: source.into(), groups, step_count, must_fit })
    }
}

impl Plan {
    /// The plan without what people wrote in it: tasks, and the values of inputs. It has the same steps.
    pub fn without_content(&self) -> Self {
        let mut definition = self.definition();
        definition.task_description = definition.task_description.map(blank);
        definition.inputs.values_mut().for_each(|value| *value = Json::null());
        definition.steps.iter_mut().for_each(forget);
        // No step depends on the words of a task; if one did, it would keep them.
        Plan::compile(&definition).unwrap_or_else(|_| self.clone())
    }
}

fn blank(_: Text) -> Text {
    Text::new("(deleted)").expect("a valid literal")
}

fn forget(step: &mut StepDef) {
    step.task_description = step.task_description.take().map(blank);
    if let Some(FallbackDef::Task(task)) = &mut step.fallback {
        task.task_description = task.task_description.take().map(blank);
    }
    if let Some(approve) = &mut step.approve {
        approve.who = blank(approve.who.clone());
        approve.question = None;
        approve.choices.clear();
    }
    step.steps.iter_mut().for_each(forget);
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Plan::compile(&TaskGraph::deserialize(d)?).map_err(de::Error::custom)
    }
}
