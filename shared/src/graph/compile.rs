//! Compiles a definition into a plan: each step by itself (`steps`), then the dependencies between them
//! (`link`). A plan is stored as its definition, and compiled again when it is read.

use serde::{Deserialize, Deserializer, de};

use super::{
    Plan, TaskGraph, link,
    steps::{self, Reading},
};
use crate::problem::Problems;

impl Plan {
    /// Compiles a definition, or returns all its problems (G2).
    pub fn compile(definition: &TaskGraph) -> Result<Self, Problems> {
        let Reading { mut groups, drafts, mut problems } = steps::read(definition);
        link::link(&mut groups, &drafts, &definition.inputs, &mut problems);
        let step_count =
            u32::try_from(groups.iter().map(|g| g.steps.len()).sum::<usize>()).unwrap_or(u32::MAX);
        let source = serde_json::to_string(definition).expect("a definition has string keys only");
        problems.or(Plan { source: source.into(), groups, step_count })
    }
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Plan::compile(&TaskGraph::deserialize(d)?).map_err(de::Error::custom)
    }
}
