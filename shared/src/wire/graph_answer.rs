//! What an agent gets of a graph that it ran (G5, G10): every step, within a bounded size.

use serde::{Deserialize, Serialize};

use super::{GraphVerdict, ItemCounts, ObjectReference, StepFailure, StepReport, StepStatus};
use crate::{
    id::{ContextKey, StepId},
    json::Json,
    money::{Tokens, Usd, booked},
    text,
};

/// The most steps in one answer. If a graph has more, those that succeeded are left out first.
const MAX_STEPS: usize = 1_000;
/// The longest reason in an answer.
const MAX_REASON_BYTES: usize = 1_000;

/// The result of a graph for the agent that ran it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GraphAnswer {
    pub verdict: GraphVerdict,
    /// The answer of its own agent, or the result of the step that won.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_object: Option<ObjectReference>,
    pub steps: Vec<StepAnswer>,
    /// How many steps are not listed: there are too many.
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub left_out: u32,
}

/// A step in the answer to an agent; the fields are those of a step in an outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StepAnswer {
    pub id: StepId,
    pub status: StepStatus,
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_to: Option<ContextKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_object: Option<ObjectReference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<ItemCounts>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<StepFailure>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepAnswer>,
    #[serde(deserialize_with = "booked::usd")]
    pub cost_usd: Usd,
    #[serde(deserialize_with = "booked::tokens")]
    pub tokens: Tokens,
    pub attempts: u32,
}

impl GraphAnswer {
    /// From the reports of all steps. If the graph's own agent combined the findings, its answer stands for them.
    pub fn new(
        verdict: GraphVerdict,
        (result, result_object): (Option<Json>, Option<ObjectReference>),
        steps: Vec<StepReport>,
        combined: bool,
    ) -> Self {
        let mut room = MAX_STEPS;
        let (steps, left_out) = answers(steps, &mut room, combined);
        GraphAnswer { verdict, result, result_object, steps, left_out }
    }
}

/// As many steps as there is room for, in order, and how many are left out.
fn answers(steps: Vec<StepReport>, room: &mut usize, combined: bool) -> (Vec<StepAnswer>, u32) {
    let succeeded = |step: &StepReport| step.status == StepStatus::Succeeded;
    let others = steps.iter().filter(|step| !succeeded(step)).count();
    let mut good = room.saturating_sub(others);
    let (mut listed, mut left_out) = (Vec::new(), 0);
    for mut step in steps {
        let fits = *room > 0 && (!succeeded(&step) || good > 0);
        if !fits {
            left_out += 1;
            continue;
        }
        *room -= 1;
        good -= usize::from(succeeded(&step));
        let (inner, more) = answers(std::mem::take(&mut step.steps), room, combined);
        left_out += more;
        listed.push(StepAnswer::new(step, inner, combined));
    }
    (listed, left_out)
}

impl StepAnswer {
    fn new(step: StepReport, steps: Vec<StepAnswer>, combined: bool) -> Self {
        let short = |reason: Option<String>| reason.map(|reason| text::cut(reason, MAX_REASON_BYTES));
        let shorter = |failure: StepFailure| StepFailure { reason: short(failure.reason), ..failure };
        StepAnswer {
            id: step.id,
            status: step.status,
            partial: step.partial,
            reason: short(step.reason),
            output_to: step.output_to,
            result: step.result.filter(|_| !combined),
            result_object: step.result_object.filter(|_| !combined),
            result_bytes: step.result_bytes.filter(|_| !combined),
            items: step.items,
            failures: step.failures.into_iter().map(shorter).collect(),
            steps,
            cost_usd: step.cost_usd,
            tokens: step.tokens,
            attempts: step.attempts,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(truth: &bool) -> bool {
    !truth
}
