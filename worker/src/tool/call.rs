//! One call of a tool: its input and its outcome.

use domain::{
    ChildId,
    id::ToolName,
    wire::{CheckedStep, Form, SharedMessage, Text},
};
use serde_json::Value;

use crate::{attempt::Attempt, files::workspace::Workspace};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Invocation<'a> {
    pub(crate) attempt: &'a Attempt,
    pub(crate) workspace: &'a Workspace,
    /// The name of the tool as the model spelled it.
    pub(crate) tool: &'a str,
    pub(crate) arguments: &'a Value,
    /// Names this call within its context, with the same text in every attempt. A child of the call
    /// is named after it.
    pub(crate) place: &'a str,
    /// The messages of the caller's window that a spawn may copy (W3).
    pub(crate) shareable: &'a [SharedMessage],
    /// The number of questions that this context asked a human before this call.
    pub(crate) questions_before: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Answered(Observation),
    /// The call is answered when this child has ended.
    Waits {
        child: ChildId,
    },
    /// This child's result becomes the caller's own.
    HandsOver {
        child: ChildId,
    },
    /// The call is answered when a human has answered.
    Asks {
        question: Text,
        form: Box<Form>,
    },
}

/// The answer to a call, for the agent and for the journal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Observation {
    /// The tool that was called; `agent:spawn` for every tool that starts a child (I2).
    pub(crate) tool: ToolName,
    pub(crate) text: String,
    pub(crate) is_error: bool,
    /// A description of the call, for users.
    pub(crate) note: Option<String>,
    /// The decisions of the checks of the call (B16).
    pub(crate) checks: Vec<CheckedStep>,
    /// An earlier attempt made the call, and a child or a human has answered since.
    pub(crate) is_late: bool,
}

/// The output of a tool, or its error: both are text for the agent.
pub(crate) type Output = Result<String, String>;

impl Observation {
    /// The answer to a call whose turn was cut off at its limit of tokens. The call is not made.
    pub(crate) fn cut_off(tool: &str, max_tokens: u32) -> Self {
        let text = format!(
            "this call was not made: your answer was cut off after {max_tokens} tokens, so its arguments may be \
             incomplete\n\nhint: make a shorter call, such as writing a long text in several files"
        );
        Observation::new(journal_name(tool), Err(text))
    }

    pub(crate) fn new(tool: ToolName, output: Output) -> Self {
        let is_error = output.is_err();
        let (Ok(text) | Err(text)) = output;
        Observation { tool, text, is_error, note: None, checks: Vec::new(), is_late: false }
    }
}

/// The name for the journal: `unknown` if the model's spelling is not a name.
pub(super) fn journal_name(name: &str) -> ToolName {
    ToolName::new(name).unwrap_or_else(|_| ToolName::new("unknown").expect("a literal that fits the grammar"))
}
