//! `approve`: a step at which a human decides if the graph continues (G7). It runs no agent.

use super::{
    definition::{ApproveDef, Otherwise, StepDef},
    form::{APPROVE, DENY, Form},
    plan::{Approve, Body},
};
use crate::{
    problem::Problems,
    terms::{Funding, Text},
};

/// The longest question. Each item and each round that asks has its own copy of it.
const MAX_QUESTION_BYTES: usize = 8 * 1024;

/// Reads `approve` of the step at `path`.
pub(super) fn body(def: &StepDef, approve: &ApproveDef, path: &str, problems: &mut Problems) -> Body {
    for (field, given) in [
        ("agent_id", def.agent_id.is_some()),
        ("task_description", def.task_description.is_some()),
        ("tools", def.tools.is_some()),
        ("secrets", def.secrets.is_some()),
        ("model", def.model.is_some()),
        ("on_budget", def.on_budget.is_some()),
        ("retries", def.retries.is_some()),
        ("max_cost_usd", def.max_cost_usd.is_some()),
        ("max_tokens", def.max_tokens.is_some()),
        ("funding", def.funding != Funding::default()),
        ("output_schema", def.output_schema.is_some()),
        ("undo", def.undo.is_some()),
        ("mode", def.mode.is_some()),
        ("on_partial_success", def.on_partial_success.is_some()),
        ("race", def.race),
        ("aggregate", def.aggregate.is_some()),
    ] {
        if given {
            let message = format!("a step with `approve` can't have `{field}`");
            problems.add(
                format!("{path}.{field}"),
                message,
                Some("it runs no agent and costs nothing".into()),
            );
        }
    }
    if def.timeout_ms.is_some() {
        let message = "a step with `approve` can't have `timeout_ms`";
        let hint = "set the longest wait for an answer in `approve`: `approve: {timeout_ms: …}`";
        problems.add(format!("{path}.timeout_ms"), message, Some(hint.into()));
    }
    if def.hitl.is_some() {
        let message = "a step with `approve` can't have `hitl`";
        problems.add(format!("{path}.hitl"), message, Some("asking a human is all that it does".into()));
    }
    let at = format!("{path}.approve");
    if approve.question.as_ref().is_some_and(|question| question.as_str().len() > MAX_QUESTION_BYTES) {
        let hint = "put the rest into an input, which is shown below the question";
        let message = format!("a question has at most {MAX_QUESTION_BYTES} bytes");
        problems.add(format!("{at}.question"), message, Some(hint.into()));
    }
    if approve.otherwise.is_some() && approve.timeout_ms.is_none() {
        let hint = "set the time with `timeout_ms`";
        problems.add(format!("{at}.otherwise"), "without `timeout_ms` it never applies", Some(hint.into()));
    }
    let word = |word: &str| Text::new(word).expect("a valid literal");
    let default = match approve.otherwise {
        Some(Otherwise::Approve) => Some(approve.choices.first().cloned().unwrap_or_else(|| word(APPROVE))),
        Some(Otherwise::Deny) => Some(word(DENY)),
        Some(Otherwise::Fail) | None => None,
    };
    let form = Form {
        who: Some(approve.who.clone()),
        choices: approve.choices.clone(),
        schema: None,
        timeout_ms: approve.timeout_ms,
        default: default.filter(|_| approve.timeout_ms.is_some()),
        remind_every_ms: approve.remind_every_ms,
        approval: true,
    };
    form.check(&at, problems);
    Body::Approve(Box::new(Approve { question: approve.question.clone(), form }))
}
