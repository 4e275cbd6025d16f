//! The messages that the coordinator publishes: acceptances, questions, snapshots and outcomes. An
//! outcome is decided and committed; only an outcome is final.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::{Adjustment, Dispute, Failure, Form, Funding, ObjectReference, TakenFrom, Text};
use crate::{
    id::{AgentId, ChildId, ContextKey, StepId, ThreadId, TraceId},
    json::Json,
    labels::Labels,
    ladder::Rung,
    limits::Limits,
    money::{Amount, Tokens, Usd, booked},
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Acceptance {
    pub trace_id: TraceId,
    pub child_id: ChildId,
    /// The terms that are lower than requested (B17).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adjusted: Vec<Adjustment>,
}

/// The end of a context. The first committed end is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndStatus {
    Completed,
    Failed,
    Cancelled,
    TimedOut,
    Aborted,
    Rejected,
}

impl EndStatus {
    /// Returns the name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            EndStatus::Completed => "completed",
            EndStatus::Failed => "failed",
            EndStatus::Cancelled => "cancelled",
            EndStatus::TimedOut => "timed_out",
            EndStatus::Aborted => "aborted",
            EndStatus::Rejected => "rejected",
        }
    }
}

impl fmt::Display for EndStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A question of an agent in the tree or of an `approve` step, for the root's caller. A reminder
/// repeats the same question with the reminder's number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Question {
    pub trace_id: TraceId,
    pub child_id: ChildId,
    /// The number of the question within its context, from 1. The answer refers to it.
    pub number: u32,
    pub question: Text,
    /// The contexts from the root down to the one that asks.
    pub path: Vec<ChildId>,
    /// The valid answers, and the result without an answer.
    #[serde(flatten)]
    pub form: Form,
    /// The time at which `timeout_ms` ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_by: Option<Timestamp>,
    /// The number of reminders so far.
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub reminder: u32,
}

/// The budget of one context (B14).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BudgetSnapshot {
    pub limit: Amount,
    /// Spent by the context and its descendants.
    #[serde(deserialize_with = "booked::amount")]
    pub spent: Amount,
    #[serde(deserialize_with = "booked::amount")]
    pub held: Amount,
    #[serde(deserialize_with = "booked::amount")]
    pub remaining: Amount,
    /// Spent by the context alone.
    #[serde(deserialize_with = "booked::amount")]
    pub own: Amount,
    /// The part of `spent` for calls whose end is unknown (B10).
    #[serde(deserialize_with = "booked::amount")]
    pub estimated: Amount,
    /// Costs of the context and its descendants without a hold that exceed the rest of the budget.
    /// They are not part of `spent` unless an administrator accepts them (B18).
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub disputed: Amount,
    /// The amount above the limit, because a provider charged more than its hold or disputes were
    /// accepted (B11).
    #[serde(deserialize_with = "booked::amount")]
    pub overspent: Amount,
    pub closing_reserve_usd: Usd,
    pub funding: Funding,
}

/// The status of a context. It maps one to one to A2A task states. A context that waits for
/// contexts which have asked a human is `input_required` too (G7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContextStatus {
    Submitted,
    Working,
    InputRequired,
    Paused,
    #[serde(untagged)]
    Ended(EndStatus),
}

impl ContextStatus {
    /// Returns the name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            ContextStatus::Submitted => "submitted",
            ContextStatus::Working => "working",
            ContextStatus::InputRequired => "input_required",
            ContextStatus::Paused => "paused",
            ContextStatus::Ended(end) => end.name(),
        }
    }
}

/// A snapshot of one context (B14).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ContextSnapshot {
    pub trace_id: TraceId,
    pub child_id: ChildId,
    pub parent_id: Option<ChildId>,
    pub agent_id: Option<AgentId>,
    /// The version of its agent's profile. A built-in agent has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_version: Option<u64>,
    pub thread_id: Option<ThreadId>,
    /// Only for a root: the labels of the run (G17).
    #[serde(default, skip_serializing_if = "crate::labels::is_none")]
    pub labels: Labels,
    pub depth: u32,
    pub status: ContextStatus,
    /// The context of an earlier run whose result it took over at no cost (G15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_from: Option<TakenFrom>,
    /// The context that it undoes (G14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<ChildId>,
    /// True for a graph that did not succeed and now undoes its successful steps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undoing: bool,
    /// The children that it waits for.
    pub waiting_for: Vec<ChildId>,
    /// The reason why it waits for its budget: it needs a raise, or calls in flight may return
    /// unused money.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The contexts from this one down to the first that has asked a human, if there is one (G7).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by: Vec<ChildId>,
    pub budget: BudgetSnapshot,
    pub limits: Limits,
    /// The terms that are lower than requested for it (B17).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adjusted: Vec<Adjustment>,
    /// `None` if it has no deadline, while it waits for a human, and before its first attempt
    /// begins.
    pub deadline: Option<Timestamp>,
    /// Its own timeout, if it runs from the start of the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The end of its wait for a worker, if `max_queue_ms` or the `timeout_ms` of an undo bounds
    /// that wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_until: Option<Timestamp>,
    pub attempts: u32,
    pub steps: u32,
    pub retries: u32,
    pub aborted: bool,
    /// The first reason for which it was aborted.
    pub reason: Option<String>,
    pub children: Vec<ChildId>,
    pub notes: Vec<String>,
    /// The number of messages to it (G13). `unseen` is the number that it has not seen.
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub told: u32,
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub unseen: u32,
    /// The ladder of its budget. `rungs` is the number of rungs that are reached (B21).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_budget: Vec<Rung>,
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub rungs: u32,
    /// The decisions of checks other than to pass (B16).
    #[serde(default, skip_serializing_if = "CheckCounts::is_nothing")]
    pub checks: CheckCounts,
    /// Its disputed charges, including decided ones (B18).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disputes: Vec<Dispute>,
}

/// The numbers of a context's check decisions other than to pass (B16).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckCounts {
    pub changed: u32,
    pub denied: u32,
    pub halted: u32,
}

impl CheckCounts {
    pub fn is_nothing(&self) -> bool {
        *self == CheckCounts::default()
    }
}

/// The end of one context, on `agent.outcome.<trace>.<child>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Outcome {
    pub trace_id: TraceId,
    #[serde(flatten)]
    pub context: ContextOutcome,
    /// The shared store when the root ended; empty for all other contexts (C).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<ContextKey, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<GraphOutcome>,
}

impl Outcome {
    /// Returns the outcome of a deleted context, without content of agents.
    pub fn without_content(mut self) -> Self {
        self.context.result = None;
        self.context.result_object = None;
        self.context.error = None;
        self.outputs.clear();
        if let Some(graph) = &mut self.graph {
            graph.outputs.clear();
            graph.steps.iter_mut().for_each(StepReport::remove_content);
        }
        self
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ContextOutcome {
    pub child_id: ChildId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<ChildId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    pub status: EndStatus,
    /// The result, inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// The place of a result that is too large to be inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_object: Option<ObjectReference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// The reason why it was stopped, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub budget: BudgetSnapshot,
    pub attempts: u32,
    pub steps: u32,
    pub retries: u32,
    /// The number of messages that came after its last model call, so it never saw them (G13).
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub unseen: u32,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
}

/// The verdict on a graph (G4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GraphVerdict {
    Succeeded,
    /// Some steps succeeded. The verdict distinguishes incomplete results from complete ones.
    Partial,
    Failed,
}

/// The result of a graph (G5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GraphOutcome {
    pub verdict: GraphVerdict,
    pub steps: Vec<StepReport>,
    pub succeeded: Vec<StepId>,
    pub failed: Vec<StepId>,
    pub skipped: Vec<StepId>,
    /// The steps that were undone, including those of groups (G14).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<StepId>,
    /// The steps that should have been undone but were not, completely or in part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undo_failed: Vec<StepId>,
    pub outputs: BTreeMap<ContextKey, Json>,
    pub trace_id: TraceId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    Pending,
    Running,
    Succeeded,
    Failed,
    Cancelled,
    TimedOut,
    Aborted,
    Skipped,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StepReport {
    pub id: StepId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// The graph that the step used by name, with its version: `facts@2` (G18).
    #[serde(default, rename = "use", skip_serializing_if = "Option::is_none")]
    pub uses: Option<Text>,
    pub status: StepStatus,
    /// The reason why it was skipped or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// It succeeded in part: some items or inner steps did not succeed.
    #[serde(default)]
    pub partial: bool,
    /// Its fallback returned the result.
    #[serde(default)]
    pub fallback: bool,
    /// The contexts that ran for it, including items, rounds and fallback.
    pub contexts: Vec<ChildId>,
    /// The contexts of an earlier run whose results were taken over at no cost (G15).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken_from: Vec<TakenFrom>,
    #[serde(deserialize_with = "booked::usd")]
    pub cost_usd: Usd,
    #[serde(deserialize_with = "booked::tokens")]
    pub tokens: Tokens,
    pub attempts: u32,
    /// The name of the person who decided an `approve` step, if the answer has one (G7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<Text>,
    /// The key that its result is written to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_to: Option<ContextKey>,
    /// The value that it wrote to `output_to`, else its result; for a `for_each`, the list of
    /// results. A group has the results of its `steps` instead, and the result of a race's winner
    /// is the graph's own result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// The place of a result that was too large for a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_object: Option<ObjectReference>,
    /// The size of a result that is too large for this report. The outcomes of its contexts have
    /// the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    /// The numbers of all items and of successful items of a `for_each`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<ItemCounts>,
    /// The first contexts that did not succeed, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<StepFailure>,
    /// The undo of the step, if its graph did not succeed (G14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoReport>,
    /// The steps of a group, as its last context ran them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepReport>,
}

/// The undo of a step, with all its successful runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UndoReport {
    pub status: UndoStatus,
    /// The reason of the first failed undo, or the reason why nothing was undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The contexts that undid it, in the order of the undone contexts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<ChildId>,
    #[serde(deserialize_with = "booked::usd")]
    pub cost_usd: Usd,
    #[serde(deserialize_with = "booked::tokens")]
    pub tokens: Tokens,
    pub attempts: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UndoStatus {
    /// The undo has not started yet.
    Pending,
    Running,
    Undone,
    /// At least one run of the step was not undone.
    Failed,
    /// Not undone: it was cancelled without undo, or its graph succeeded without this step.
    Dropped,
}

/// The numbers of all items and of successful items of a `for_each`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ItemCounts {
    pub total: u32,
    pub succeeded: u32,
}

/// A context of a step that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StepFailure {
    pub child_id: ChildId,
    pub status: EndStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl StepReport {
    /// Removes the content that agents wrote.
    fn remove_content(&mut self) {
        self.result = None;
        self.result_object = None;
        (self.reason, self.answered_by) = (None, None);
        self.failures.iter_mut().for_each(|failure| failure.reason = None);
        if let Some(undo) = &mut self.undo {
            undo.reason = None;
        }
        self.steps.iter_mut().for_each(StepReport::remove_content);
    }
}
