//! The result of a graph for the agent that ran it (G5, G10): all steps, within a bounded size.

use serde::{Deserialize, Serialize};

use super::{GraphVerdict, ItemCounts, ObjectReference, StepFailure, StepReport, StepStatus};
use crate::{
    id::{ContextKey, StepId},
    json::Json,
    money::{Tokens, Usd, booked},
    wording,
};

/// The most steps in one answer. In a larger graph, successful steps are left out first.
const MAX_STEPS: usize = 1_000;
/// The longest reason in an answer. [`MAX_REASONS_BYTES`] bounds all of them together.
const MAX_REASON_BYTES: usize = 1_000;
const MAX_REASONS_BYTES: usize = 512 * 1024;

/// The result of a graph for the agent that ran it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GraphAnswer {
    pub verdict: GraphVerdict,
    /// The answer of the graph's own agent, or the result of the step that won.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_object: Option<ObjectReference>,
    /// The size of a result that is too large for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    pub steps: Vec<StepAnswer>,
    /// The number of steps that are not listed, because there are too many.
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub left_out: u32,
}

/// A step in the answer to an agent. Its fields are those of a step in an outcome.
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
    /// Makes the answer from the reports of all steps. If the graph's own agent combined the
    /// findings, its answer replaces their results.
    pub fn new(verdict: GraphVerdict, steps: Vec<StepReport>, combined: bool) -> Self {
        let mut reasons = Reasons { room: MAX_REASONS_BYTES, combined };
        let mut room = MAX_STEPS;
        let (steps, left_out) = answers(steps, &mut room, &mut reasons);
        GraphAnswer { verdict, result: None, result_object: None, result_bytes: None, steps, left_out }
    }
}

/// Makes the steps of an answer, with reasons until their room is used up.
struct Reasons {
    room: usize,
    /// True if the graph's own agent combined the findings.
    combined: bool,
}

/// Returns the steps in order until the room is used up, and the number of steps that are left out.
fn answers(steps: Vec<StepReport>, room: &mut usize, reasons: &mut Reasons) -> (Vec<StepAnswer>, u32) {
    let succeeded = |step: &StepReport| step.status == StepStatus::Succeeded && !step.partial;
    // Reserves room for later steps that did not succeed.
    let mut kept = steps.iter().filter(|step| !succeeded(step)).count();
    let (mut listed, mut left_out) = (Vec::new(), 0);
    for mut step in steps {
        kept -= usize::from(!succeeded(&step));
        if *room == 0 || (succeeded(&step) && *room <= kept) {
            left_out += count(&step);
            continue;
        }
        *room -= 1;
        let mut within = room.saturating_sub(kept);
        *room -= within;
        let (inner, more) = answers(std::mem::take(&mut step.steps), &mut within, reasons);
        *room += within;
        left_out += more;
        listed.push(reasons.answer(step, inner));
    }
    (listed, left_out)
}

/// Counts a step and its inner steps.
fn count(step: &StepReport) -> u32 {
    1 + step.steps.iter().map(count).sum::<u32>()
}

impl Reasons {
    fn short(&mut self, reason: Option<String>) -> Option<String> {
        let reason = wording::cut(reason?, MAX_REASON_BYTES);
        self.room = self.room.checked_sub(reason.len())?;
        Some(reason)
    }

    fn answer(&mut self, step: StepReport, steps: Vec<StepAnswer>) -> StepAnswer {
        let combined = self.combined;
        let mut shorter =
            |failure: StepFailure| StepFailure { reason: self.short(failure.reason), ..failure };
        let failures = step.failures.into_iter().map(&mut shorter).collect();
        StepAnswer {
            id: step.id,
            status: step.status,
            partial: step.partial,
            reason: self.short(step.reason),
            output_to: step.output_to,
            result: step.result.filter(|_| !combined),
            result_object: step.result_object.filter(|_| !combined),
            result_bytes: step.result_bytes.filter(|_| !combined),
            items: step.items,
            failures,
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
