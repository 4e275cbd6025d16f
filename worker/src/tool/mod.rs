//! Tools: what an agent may do besides talking. Whether it may is decided at each call, by the set its
//! context was given, whatever its prompt says (I5). What goes wrong is an observation for the agent,
//! never the end of it.

use serde_json::Value;
use shared::{
    ChildId, Problems,
    id::ToolName,
    wire::{SharedMessage, Text},
};

use crate::{agent::Run, model::ToolSpec, settings::Settings, workspace::Workspace};

/// The tools of a worker: its own, and those of the servers it was told of.
#[derive(Debug)]
pub(crate) struct Toolbox {}

/// One call of a tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Invocation<'a> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) workspace: &'a Workspace,
    /// As the model spelled it.
    pub(crate) tool: &'a str,
    pub(crate) arguments: &'a Value,
    /// Names this call within its context, the same at every attempt: a child it starts is named by it.
    pub(crate) place: &'a str,
    /// What of the caller's window a spawn may copy (W3).
    pub(crate) shareable: &'a [SharedMessage],
    /// How many questions of this context came before this call.
    pub(crate) questions_before: usize,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Said(Observation),
    /// The call is answered when this child has ended.
    Waits {
        child: ChildId,
    },
    /// This child's result is to be the caller's own.
    HandsOver {
        child: ChildId,
    },
    /// The call is answered when a human has answered.
    Asks {
        question: Text,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Observation {
    /// What was called; `agent:spawn` for whatever starts a child (I2).
    pub(crate) tool: ToolName,
    pub(crate) text: String,
    pub(crate) is_error: bool,
    /// For people: what was done.
    pub(crate) note: Option<String>,
}

impl Toolbox {
    pub(crate) async fn start(_settings: &Settings) -> Result<Self, Problems> {
        Ok(Toolbox {})
    }

    /// The tools a context may call, as a model is told of them.
    pub(crate) fn specs(&self, _run: &Run<'_>) -> Vec<ToolSpec> {
        Vec::new()
    }

    pub(crate) async fn call(&self, invocation: Invocation<'_>) -> Outcome {
        let name = ToolName::new(invocation.tool)
            .unwrap_or_else(|_| ToolName::new("unknown").expect("a literal that fits the grammar"));
        Outcome::Said(Observation {
            tool: name,
            text: format!("there is no tool `{}`", invocation.tool),
            is_error: true,
            note: None,
        })
    }

    /// Ends what was started.
    pub(crate) async fn stop(&self) {}
}
