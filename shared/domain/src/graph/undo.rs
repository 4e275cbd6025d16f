//! `undo`: the agent that undoes a successful step if its graph does not succeed (G14).

use super::{
    definition::{StepDef, UndoDef},
    plan::Undo,
};
use crate::{
    limits::{Ceilings, MAX_TEXT_BYTES, check_ceilings},
    problem::Problems,
    terms::Text,
    wording,
};

/// The input of an undo with the result of the step that it undoes.
pub const UNDO_RESULT: &str = "result";

/// Reads `undo` of the step at `path`. Groups and `approve` steps can't have one; their own checks
/// report it.
pub(super) fn read(def: &StepDef, path: &str, problems: &mut Problems) -> Option<Undo> {
    let undo = def.undo.as_ref()?;
    if !def.steps.is_empty() || def.approve.is_some() {
        return None;
    }
    let (agent_id, task) = match undo {
        UndoDef::Agent(agent_id) => (agent_id, None),
        UndoDef::Task(task) => (&task.agent_id, Some(task)),
    };
    if def.input_from.iter().any(|key| key.as_str() == UNDO_RESULT) {
        let message = "the step reads `result`, and its undo gets the result of the step under that name";
        let hint = "write that value to another key";
        problems.add(format!("{path}.undo"), message, Some(hint.into()));
    }
    let ceilings = Ceilings {
        max_cost_usd: task.and_then(|task| task.max_cost_usd),
        max_tokens: task.and_then(|task| task.max_tokens),
        closing_reserve_usd: None,
        timeout_ms: task.and_then(|task| task.timeout_ms),
    };
    check_ceilings(&format!("{path}.undo"), ceilings, problems);
    let given = task.and_then(|task| task.task_description.clone());
    Some(Undo {
        agent_id: agent_id.clone(),
        goal: given.unwrap_or_else(|| goal(def)),
        max_cost_usd: ceilings.max_cost_usd,
        max_tokens: ceilings.max_tokens,
        timeout_ms: ceilings.timeout_ms,
        retries: task.and_then(|task| task.retries),
    })
}

/// Makes the task of an `undo` that names only an agent.
fn goal(def: &StepDef) -> Text {
    let done = def.task_description.as_ref().map_or("", Text::as_str);
    let goal = wording::cut(format!("Undo this task, which was done: {done}"), MAX_TEXT_BYTES - "…".len());
    Text::new(goal).expect("the goal is not empty, and not too long")
}
