//! Large outputs of tools are put aside, and the window has a preview of them (W4): as a file the agent can
//! read, and in the object store, for whoever goes on elsewhere. A fresh workspace gets back what the
//! journal says was in the last one.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use shared::{
    Json,
    wire::{Execute, HistoryEntry, HistoryStep, ToolCall, ToolOutput},
};

use crate::{agent::Run, delivery::report, files::objects as object, files::workspace::Workspace};

/// From here on an output is large.
const BYTES: usize = 2048;
const LINES: usize = 50;
/// What of it stays in the window.
const PREVIEW_BYTES: usize = 1024;
const PREVIEW_LINES: usize = 20;
/// The most of a file that is shown at once, when lines of it are asked for.
pub(crate) const PASSAGE_BYTES: usize = 16 * 1024;
/// The line below a passage, which says what it is.
const BELOW_BYTES: usize = 200;

/// Where outputs lie in the workspace, beneath `outputs/` as everything that goes to the object store.
const BENEATH: &str = "outputs/";

/// `number` is that of the journal's entry this output will be in.
pub(crate) async fn offload(run: &Run<'_>, workspace: &Workspace, number: u32, text: String) -> ToolOutput {
    if !is_large(&text) {
        return ToolOutput::Inline(text);
    }
    let name = name(run.work, number);
    let path = match workspace.put_aside(&name, text.as_bytes()) {
        Ok(path) => path,
        Err(error) => {
            // The object is what counts: a successor has the file again.
            tracing::warn!(%error, "an output is not in the workspace");
            format!("outputs/tools/{name}")
        }
    };
    let preview = preview(&text, &path);
    let beneath = path.strip_prefix(BENEATH).unwrap_or(&path);
    let object = object::put_output(run, beneath, text.into_bytes()).await;
    ToolOutput::Offloaded { path, preview, object }
}

/// What a branch copied keeps the name its window knows it by; its own steps come to the same numbers, so
/// those have its trace in theirs: a trace branches once.
fn name(work: &Execute, number: u32) -> String {
    match work.branch_from {
        None => format!("step_{number:03}.txt"),
        Some(_) => format!("step_{number:03}_{}.txt", work.trace_id),
    }
}

/// Whether a call asks for some lines of a file: to put those aside would be to show no more of it ever.
pub(crate) fn is_passage(call: &ToolCall) -> bool {
    let asks = |name| call.arguments.value().get(name).is_some_and(|value| !value.is_null());
    call.tool == "fs.read" && (asks("first_line") || asks("lines"))
}

/// Lines of a file that is in the workspace already.
pub(crate) fn passage(text: String) -> ToolOutput {
    ToolOutput::Inline(report::cut(text, PASSAGE_BYTES + BELOW_BYTES))
}

/// Puts back what the steps so far left in a workspace: the journal's own files, what was offloaded, and
/// what the agent wrote, in the order it did. What can't be put back is missing, as the agent will see.
pub(crate) async fn restore(run: &Run<'_>, workspace: &Workspace, entries: &[HistoryEntry]) {
    let mut asked: HashMap<&str, (&str, &Json)> = HashMap::new();
    for entry in entries {
        if let Err(error) = workspace.note(entry) {
            tracing::warn!(%error, number = entry.number, "a step is not in the workspace's history");
        }
        match &entry.step {
            HistoryStep::Model(step) => {
                asked = step
                    .tool_calls
                    .iter()
                    .map(|call| (call.id.as_str(), (call.tool.as_str(), &call.arguments)))
                    .collect();
            }
            HistoryStep::Tool(step) => {
                if let ToolOutput::Offloaded { path, object, .. } = &step.output {
                    put_back(run, workspace, path, object).await;
                }
                if let Some(("fs.write", arguments)) = asked.get(step.id.as_str())
                    && !step.is_error
                {
                    write_again(workspace, arguments.value());
                }
            }
            HistoryStep::Began { .. }
            | HistoryStep::Restored { .. }
            | HistoryStep::Branched { .. }
            | HistoryStep::Result(_) => {}
        }
    }
}

async fn put_back(
    run: &Run<'_>,
    workspace: &Workspace,
    path: &str,
    reference: &shared::wire::ObjectReference,
) {
    let bytes = match object::get(run.bus, reference).await {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::warn!(path, error, "an output that was put aside is gone");
            return;
        }
    };
    let name = path.strip_prefix("outputs/tools/").unwrap_or(path);
    if let Err(error) = workspace.put_aside(name, &bytes) {
        tracing::warn!(%error, path, "an output is not in the workspace");
    }
}

/// The arguments of `fs.write`, as far as they matter here.
#[derive(Deserialize)]
struct Written {
    path: String,
    content: String,
}

/// What `fs.write` was once told to do, in a workspace where it has not.
pub(crate) fn write_again(workspace: &Workspace, arguments: &Value) {
    let Ok(Written { path, content }) = Written::deserialize(arguments) else { return };
    if let Err(error) = workspace.write(&path, content.as_bytes()) {
        tracing::warn!(%error, path, "a file the agent wrote is not in its new workspace");
    }
}

fn is_large(text: &str) -> bool {
    text.len() >= BYTES || text.lines().nth(LINES - 1).is_some()
}

/// The beginning, and a line that says how to get the rest.
fn preview(text: &str, path: &str) -> String {
    let beginning: Vec<&str> = text.lines().take(PREVIEW_LINES).collect();
    let beginning = report::cut(beginning.join("\n"), PREVIEW_BYTES);
    let (bytes, lines) = (text.len(), text.lines().count());
    format!(
        "{beginning}\n[{bytes} bytes in {lines} lines; `fs.read` with path `{path}`, `first_line` and `lines` shows more]"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w4_outputs_are_large_from_2_kib_or_50_lines_on() {
        assert!(!is_large(&"x".repeat(2047)));
        assert!(is_large(&"x".repeat(2048)));
        assert!(!is_large(&"x\n".repeat(49)));
        assert!(is_large(&"x\n".repeat(50)));
        assert!(!is_large(""));
    }

    #[test]
    fn w4_a_passage_is_asked_for_by_a_number_and_not_by_null() {
        let call =
            |arguments| ToolCall { id: "a".into(), tool: "fs.read".into(), arguments: Json::from(arguments) };
        assert!(is_passage(&call(serde_json::json!({"path": "p", "lines": 3}))));
        assert!(!is_passage(&call(serde_json::json!({"path": "p", "first_line": null, "lines": null}))));
    }

    #[test]
    fn w4_a_preview_is_short_whole_characters_and_says_where_the_rest_is() {
        let text = "ü".repeat(5000);
        let shown = preview(&text, "outputs/tools/step_003.txt");
        assert!(shown.len() < 1200 && shown.starts_with('ü'), "{shown}");
        assert!(shown.contains("10000 bytes") && shown.contains("outputs/tools/step_003.txt"), "{shown}");
        let lines: String = (1..=100).map(|number| format!("line {number}\n")).collect();
        let shown = preview(&lines, "p");
        assert!(shown.contains("line 20\n") && !shown.contains("line 21"), "{shown}");
    }
}
