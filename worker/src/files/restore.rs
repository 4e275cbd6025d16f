//! Restores a workspace. A later attempt starts with an empty directory, and the journal has its
//! former content: files that an LLM agent wrote with tools, files that were handed over, and files
//! that were stored with a result. A file that can't be restored is missing, and the agent will
//! notice that.

use std::collections::HashMap;

use domain::wire::{HistoryEntry, HistoryStep, ObjectReference, OutputFile, ToolCall, ToolOutput};
use serde::Deserialize;
use serde_json::Value;

use super::{
    objects,
    workspace::{TOOL_OUTPUTS_PREFIX, Workspace},
};
use crate::attempt::Attempt;

/// The tool whose calls are repeated in a new workspace.
pub(crate) const WRITE_TOOL: &str = domain::tool::FS_WRITE;

/// Restores the files of all steps so far, in their order: the journal's own files, large tool
/// outputs, and the agent's files. `changed` gets a tool, the place of a call and the arguments in
/// the model's answer. It returns the arguments of the actual call, since checks may have changed
/// them.
pub(crate) async fn restore(
    attempt: &Attempt,
    workspace: &Workspace,
    entries: &[HistoryEntry],
    changed: impl Fn(&str, &str, &Value) -> Value,
) {
    let mut calls: HashMap<&str, (String, &ToolCall)> = HashMap::new();
    for entry in entries {
        if let Err(error) = workspace.note(entry) {
            tracing::warn!(%error, number = entry.number, "could not write a step into the workspace's history");
        }
        match &entry.step {
            HistoryStep::Model(step) => {
                calls = (1..)
                    .zip(&step.tool_calls)
                    .map(|(n, call)| (call.id.as_str(), (format!("{}-{n}", entry.number), call)))
                    .collect();
            }
            HistoryStep::Tool(step) => {
                if let ToolOutput::Offloaded { path, object, .. } = &step.output {
                    restore_output(attempt, workspace, path, object).await;
                }
                if let Some((place, call)) = calls.get(step.id.as_str())
                    && call.tool == WRITE_TOOL
                    && !step.is_error
                {
                    write_again(workspace, &changed(&call.tool, place, call.arguments.value()));
                }
            }
            // This result was refused, since the agent continues. Its stored files are put back.
            HistoryStep::Result(result) => {
                for OutputFile { path, object } in &result.outputs {
                    restore_file(attempt, workspace, path, object).await;
                }
            }
            HistoryStep::Received { files } => {
                for OutputFile { path, object } in files {
                    restore_file(attempt, workspace, path, object).await;
                }
            }
            HistoryStep::Told(_)
            | HistoryStep::Rung(_)
            | HistoryStep::Began { .. }
            | HistoryStep::Lost(_)
            | HistoryStep::Restored { .. }
            | HistoryStep::Branched { .. }
            | HistoryStep::Compacted { .. }
            | HistoryStep::Checked(_) => {}
        }
    }
}

async fn restore_output(attempt: &Attempt, workspace: &Workspace, path: &str, reference: &ObjectReference) {
    let bytes = match objects::get(&attempt.bus, reference).await {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::warn!("a large tool output could not be restored");
            tracing::debug!(path, error, "the path and the reason");
            return;
        }
    };
    let name = path.strip_prefix(TOOL_OUTPUTS_PREFIX).unwrap_or(path);
    if let Err(error) = workspace.store_tool_output(name, &bytes) {
        tracing::warn!("could not write a tool's output into the workspace");
        tracing::debug!(%error, path, "the path and the reason");
    }
}

async fn restore_file(attempt: &Attempt, workspace: &Workspace, path: &str, reference: &ObjectReference) {
    let written = match objects::get(&attempt.bus, reference).await {
        Ok(bytes) => workspace.write(&format!("outputs/{path}"), &bytes).map_err(|error| error.to_string()),
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        tracing::warn!("a file in outputs/ could not be restored");
        tracing::debug!(path, error, "the path and the reason");
    }
}

/// The arguments of `fs.write`.
#[derive(Deserialize)]
struct WriteArguments {
    path: String,
    content: String,
}

/// Repeats an earlier `fs.write` in a new workspace.
pub(crate) fn write_again(workspace: &Workspace, arguments: &Value) {
    let Ok(WriteArguments { path, content }) = WriteArguments::deserialize(arguments) else { return };
    if let Err(error) = workspace.write(&path, content.as_bytes()) {
        tracing::warn!("could not restore a file the agent wrote");
        tracing::debug!(%error, path, "the path and the reason");
    }
}
