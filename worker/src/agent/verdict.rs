//! Verdicts that several agents give.

use domain::{
    Json,
    wire::{Execute, Failure, FailureKind, Payload, Text, Verdict},
};
use text::set_limit::{SetLimit, UsedLimit};

pub(super) fn completed(value: Json) -> Verdict {
    Verdict::Completed(Payload::Inline(value))
}

/// Answers with the goal.
pub(super) fn goal(work: &Execute) -> Verdict {
    completed(Json::from(work.goal.as_str()))
}

/// A question that any text answers.
pub(super) fn plain_question(question: Text) -> Verdict {
    Verdict::InputRequired { question, form: Box::default() }
}

/// A failure of the worker's environment: another attempt may succeed.
pub(super) fn retryable(message: String) -> Verdict {
    Verdict::Failed(Failure::retryable(message))
}

/// A failure of the agent that another attempt would only repeat.
pub(super) fn failed(message: String) -> Verdict {
    failed_as(FailureKind::Agent, message)
}

/// The agent has used up one of its limits.
pub(super) fn limit_exceeded(used: &UsedLimit) -> Verdict {
    failed_as(FailureKind::LimitExceeded, used.to_string())
}

/// The agent passed a bound that applies to every agent.
pub(super) fn beyond(what: &str, limit: &SetLimit) -> Verdict {
    failed_as(FailureKind::LimitExceeded, format!("{what} exceeds {limit}"))
}

pub(super) fn out_of_budget(message: String) -> Verdict {
    failed_as(FailureKind::Budget, message)
}

pub(super) fn failed_as(kind: FailureKind, message: String) -> Verdict {
    Verdict::Failed(Failure::lasting(kind, message))
}
