//! A trace as people see it, in a terminal or on a page: the rows under a context, the word for its
//! status, its text. Decides nothing.

use domain::wire::{EndStatus, GraphVerdict, Payload, StepReport, StepStatus};
use serde_json::Value;

use super::{ContextNode, Status, Trace};

/// A row under a context.
#[derive(Debug)]
pub enum Row<'a> {
    Context(&'a ContextNode),
    /// A step without a context, or with several.
    Step(Box<StepReport>),
}

/// The current activity of a context or a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Now {
    Runs,
    Waits,
    Ended,
}

impl Trace {
    /// The children of an agent in order of their spawns; of a graph, in order of its steps.
    pub fn rows<'a>(&'a self, node: &'a ContextNode) -> Vec<Row<'a>> {
        let child = |index: &'a _| Row::Context(self.node(*index));
        let Some(outcome) = self.graph_outcome(node) else {
            return node.children.iter().map(child).collect();
        };
        let mut rows = Vec::new();
        for step in outcome.steps {
            let ran: Vec<&ContextNode> = step.contexts.iter().filter_map(|id| self.context(id)).collect();
            // A step with one context needs no row of its own; a step with items or rounds gets a
            // row with its reason.
            let summed_up = ran.is_empty() || ran.len() > 1 && step.reason.is_some() && !step.fallback;
            rows.extend(ran.into_iter().map(Row::Context));
            if summed_up {
                rows.push(Row::Step(Box::new(step)));
            }
        }
        let undos = node.children.iter().filter(|child| self.node(**child).identity.undoes.is_some());
        rows.extend(undos.map(child));
        rows
    }

    /// The word for a context's status; `partial` for a graph that completed in part, `undoing` for
    /// one that undoes.
    pub fn word(&self, node: &ContextNode) -> String {
        let completed = node.end().is_some_and(|end| end.status == EndStatus::Completed);
        if completed && self.graph_verdict(node) == Some(GraphVerdict::Partial) {
            return "partial".into();
        }
        let word = node.status_word().name();
        // While an undo asks a human, that status is more important to users.
        if node.is_undoing() && word == "working" { "undoing".into() } else { word.into() }
    }
}

impl ContextNode {
    /// A context that waits for a human is shown among the running ones, because a human has to
    /// notice it.
    pub fn now(&self) -> Now {
        match &self.status {
            Status::Submitted { .. } => Now::Waits,
            Status::Working(_) | Status::InputRequired { .. } | Status::Paused { .. } => Now::Runs,
            Status::Ended(_) => Now::Ended,
        }
    }

    /// The result of an ended context, or the question or reason of a waiting one.
    pub fn says(&self) -> Option<String> {
        match &self.status {
            Status::Submitted { .. } | Status::Working(_) => None,
            Status::InputRequired { question, .. } => Some(format!("asks: {question}")),
            Status::Paused { reason } => Some(reason.clone()),
            Status::Ended(end) => end.details.result.as_ref().map(result),
        }
    }

    /// The reason why it ended without success.
    pub fn why(&self) -> Option<String> {
        self.end()?.why().map(str::to_owned)
    }
}

/// A result as text; a stored object by its name.
fn result(result: &Payload) -> String {
    match result {
        Payload::Inline(value) => value.to_text(),
        Payload::Reference(reference) => format!("→ {}", reference.object),
    }
}

/// The status of a step, in the words for contexts.
pub fn word_of_step(step: &StepReport) -> String {
    match (step.partial, step.status) {
        (true, _) => "partial".into(),
        (false, StepStatus::Succeeded) => "completed".into(),
        (false, status) => match serde_json::to_value(status) {
            Ok(Value::String(word)) => word,
            Ok(_) | Err(_) => String::new(),
        },
    }
}

/// The current activity of a step.
pub fn now_of_step(step: &StepReport) -> Now {
    match step.status {
        StepStatus::Pending => Now::Waits,
        StepStatus::Running => Now::Runs,
        StepStatus::Succeeded
        | StepStatus::Failed
        | StepStatus::Cancelled
        | StepStatus::TimedOut
        | StepStatus::Aborted
        | StepStatus::Skipped => Now::Ended,
    }
}
