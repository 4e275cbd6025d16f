//! A refusal for its recipient: a code for programs, a message for people, and all problems of the
//! input. The constructors here are for refusals that are not decided on a trace.

use serde::{Deserialize, Serialize};

use crate::problem::{Problem, Problems};

/// The code of a refusal: a call with this name exists already, with another amount or end.
pub const CALL_CONFLICT: &str = "call_conflict";

/// The reason for a refusal: a code, the rule's id, a message, and all problems of the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Refusal {
    /// A code that programs can match on, such as `depth` or `budget`.
    pub code: String,
    /// The rule in docs/rules.md, such as `B6`.
    pub rule: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

impl Refusal {
    pub fn new(code: &str, rule: &str, message: impl Into<String>) -> Self {
        Refusal { code: code.into(), rule: rule.into(), message: message.into(), problems: Vec::new() }
    }

    /// Returns the message and all problems of the input as lines for people.
    pub fn to_text(&self) -> String {
        let mut text = self.message.clone();
        for problem in &self.problems {
            let line = problem.to_string();
            // Some messages already contain their problems.
            if !text.contains(&line) {
                text.push_str(&format!("\n{line}"));
            }
        }
        text
    }

    /// The input can't be read or contradicts itself.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::new("malformed", "P", message)
    }

    /// The input is invalid; its sender gets all problems.
    pub fn invalid(problems: &Problems) -> Self {
        let problems_listed = problems.iter().cloned().collect();
        Refusal {
            problems: problems_listed,
            ..Self::malformed(format!("the request is invalid:\n{problems}"))
        }
    }

    /// The coordinator's answer does not belong to `ask`, so it uses another version of the
    /// protocol.
    pub fn unexpected(ask: &str) -> Self {
        let message = format!(
            "the coordinator's answer does not fit a {ask}; the coordinator may have another version"
        );
        Self::new("unexpected_answer", "P", message)
    }

    /// B13: decisions need the store.
    pub fn unavailable() -> Self {
        Self::new("unavailable", "B13", "the coordinator can't reach its store: try again")
    }

    /// S3: the stored data was not written by a coordinator of the deployment.
    pub fn not_authentic(message: impl Into<String>) -> Self {
        Self::new("not_authentic", "S3", message)
    }

    /// t2: a decision about it panicked twice.
    pub fn internal() -> Self {
        let message = "the coordinator failed to decide about it; its log shows where, and earlier decisions remain valid";
        Self::new("internal", "t2", message)
    }

    /// N6: the store may lack room for new runs.
    pub fn storage_full(message: impl Into<String>) -> Self {
        Self::new("storage_full", "N6", message)
    }

    /// B15: the last permitted attempt was lost with its worker.
    pub fn worker_lost(message: impl Into<String>) -> Self {
        Self::new("worker_lost", "B15", message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_written_once() {
        let problems = Problems::one("goal", "the text is empty", None);
        let text = Refusal::invalid(&problems).to_text();
        assert_eq!(text, "the request is invalid:\ngoal: the text is empty");
        let apart = Refusal { message: "refused".into(), ..Refusal::invalid(&problems) };
        assert_eq!(apart.to_text(), "refused\ngoal: the text is empty");
    }
}
