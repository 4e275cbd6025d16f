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
    /// What is lower than the submission asked for (B17).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adjusted: Vec<Adjustment>,
}

/// How a context ended. The first committed end counts.
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

/// A question from an agent in the tree or from an `approve` step, for the root's caller. Sent again, with the number of the
/// reminder, it is still one question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Question {
    pub trace_id: TraceId,
    pub child_id: ChildId,
    /// The number of the question within its context, from 1; the answer names it.
    pub number: u32,
    pub question: Text,
    /// The contexts from the root down to the asking one.
    pub path: Vec<ChildId>,
    /// What the answer must be, and what happens without one.
    #[serde(flatten)]
    pub form: Form,
    /// When `timeout_ms` is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_by: Option<Timestamp>,
    /// How often it was asked again.
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub reminder: u32,
}

/// The budget of one context (B14).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BudgetSnapshot {
    pub limit: Amount,
    /// Of the context and its descendants.
    #[serde(deserialize_with = "booked::amount")]
    pub spent: Amount,
    #[serde(deserialize_with = "booked::amount")]
    pub held: Amount,
    #[serde(deserialize_with = "booked::amount")]
    pub remaining: Amount,
    /// Of the context alone.
    #[serde(deserialize_with = "booked::amount")]
    pub own: Amount,
    /// The part of `spent` booked for calls whose end is unknown (B10).
    #[serde(deserialize_with = "booked::amount")]
    pub estimated: Amount,
    /// Costs that nobody held and for which nothing was left, of the context and its descendants. Not part of `spent`
    /// unless an administrator accepts them (B18).
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    pub disputed: Amount,
    /// By how much its limit is passed: by a provider that took more than its hold, or by accepted disputes (B11).
    #[serde(deserialize_with = "booked::amount")]
    pub overspent: Amount,
    pub closing_reserve_usd: Usd,
    pub funding: Funding,
}

/// The status of a context. Maps one to one to A2A task states. A context that waits for others, of which some have asked
/// a human, is `input_required` as they are (G7).
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
    /// The version of its agent's profile; a built-in agent has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_version: Option<u64>,
    pub thread_id: Option<ThreadId>,
    /// Of a root: the labels of the run (G17).
    #[serde(default, skip_serializing_if = "crate::labels::is_none")]
    pub labels: Labels,
    pub depth: u32,
    pub status: ContextStatus,
    /// The context of an earlier run whose result it took over, at no cost (G15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_from: Option<TakenFrom>,
    /// The context that it undoes (G14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<ChildId>,
    /// It is a graph that does not succeed, and undoes what had succeeded in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undoing: bool,
    /// The children it waits for.
    pub waiting_for: Vec<ChildId>,
    /// What it waits for in its budget: a raise, or calls in flight to return what they don't use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The contexts from here down to the first that has asked a human, if any has (G7).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by: Vec<ChildId>,
    pub budget: BudgetSnapshot,
    pub limits: Limits,
    /// What is lower than was asked for it (B17).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adjusted: Vec<Adjustment>,
    /// None if it has none, while it waits for a human, or before its first attempt begins.
    pub deadline: Option<Timestamp>,
    /// Its own timeout, if it counts from when its first attempt begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Until when it may wait for a worker, if it waits and `max_queue_ms`, or the `timeout_ms` of an undo, bounds that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_until: Option<Timestamp>,
    pub attempts: u32,
    pub steps: u32,
    pub retries: u32,
    pub aborted: bool,
    /// The first reason it was aborted for.
    pub reason: Option<String>,
    pub children: Vec<ChildId>,
    pub notes: Vec<String>,
    /// Messages to it (G13), and how many of them it has not seen.
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub told: u32,
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub unseen: u32,
    /// The ladder of its budget, and how many rungs are reached (B21).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_budget: Vec<Rung>,
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub rungs: u32,
    /// How often checks decided other than to pass (B16).
    #[serde(default, skip_serializing_if = "CheckCounts::is_nothing")]
    pub checks: CheckCounts,
    /// Its disputed charges, decided ones too (B18).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disputes: Vec<Dispute>,
}

/// How often the checks of a context decided other than to pass (B16).
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

/// How one context ended, on `agent.outcome.<trace>.<child>`.
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
    /// Its result, inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// Where its result is stored, if it is too large to be inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_object: Option<ObjectReference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Why it was stopped, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub budget: BudgetSnapshot,
    pub attempts: u32,
    pub steps: u32,
    pub retries: u32,
    /// Messages to it that came too late: it made no model call after them (G13).
    #[serde(default, skip_serializing_if = "super::report::is_zero")]
    pub unseen: u32,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
}

/// Whether a graph succeeded (G4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GraphVerdict {
    Succeeded,
    /// In part: complete and incomplete results are never mixed unnoticed.
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
    /// The steps that were undone, those of groups included (G14).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<StepId>,
    /// The steps that should have been undone and were not, as a whole or in part.
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
    /// The graph that it used by name, with the version: `facts@2` (G18).
    #[serde(default, rename = "use", skip_serializing_if = "Option::is_none")]
    pub uses: Option<Text>,
    pub status: StepStatus,
    /// Why it was skipped or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Succeeded in part: some items or inner steps did not succeed.
    #[serde(default)]
    pub partial: bool,
    /// Its fallback gave the result.
    #[serde(default)]
    pub fallback: bool,
    /// The contexts that ran for it: items, rounds and fallback included.
    pub contexts: Vec<ChildId>,
    /// The contexts of an earlier run whose results were taken over, at no cost (G15).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken_from: Vec<TakenFrom>,
    #[serde(deserialize_with = "booked::usd")]
    pub cost_usd: Usd,
    #[serde(deserialize_with = "booked::tokens")]
    pub tokens: Tokens,
    pub attempts: u32,
    /// Who decided an `approve` step, if they said so (G7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<Text>,
    /// The key that its result is written to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_to: Option<ContextKey>,
    /// What it wrote to `output_to`, else its result; of a `for_each`, the list of results. A group shows those of its
    /// `steps` instead, and the winner of a race is the graph's own result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// Where its result is stored, if that was too large for a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_object: Option<ObjectReference>,
    /// The size of a result that this report has no room for: the outcomes of its contexts have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    /// How many items a `for_each` has, and how many succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<ItemCounts>,
    /// The first of its contexts that did not succeed, with the reason of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<StepFailure>,
    /// What became of undoing it, if its graph did not succeed (G14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoReport>,
    /// The steps of a group, as its last context ran them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepReport>,
}

/// What became of undoing a step: all its runs that had succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UndoReport {
    pub status: UndoStatus,
    /// Why the first of those failed that did, or why nothing was undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The contexts that undid it, in the order of what they undid.
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
    /// Its turn has not come.
    Pending,
    Running,
    Undone,
    /// At least one run of the step was not undone.
    Failed,
    /// It was not undone: it was cancelled without undo, or its step did not succeed and its graph did.
    Dropped,
}

/// How many items a `for_each` has, and how many succeeded.
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
