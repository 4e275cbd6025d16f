//! Large outputs of tools (W4). The window shows a preview. The whole output is a file in the
//! workspace for the agent, and an object in the store for the worker of a later attempt.

use domain::{
    wire::{Execute, ToolCall, ToolOutput},
    wording::cut,
};

use super::{
    objects,
    workspace::{OUTPUTS_PREFIX, TOOL_OUTPUTS_PREFIX, Workspace},
};
use crate::attempt::Attempt;

/// An output of this many bytes or lines is large.
const LARGE_OUTPUT_BYTES: usize = 2048;
const LARGE_OUTPUT_LINES: usize = 50;
/// The part of its beginning that stays in the window.
const PREVIEW_BYTES: usize = 1024;
const PREVIEW_LINES: usize = 20;
/// The most bytes of a file that are shown at once, when a call asks for lines of it.
pub(crate) const PASSAGE_BYTES: usize = 16 * 1024;
/// The most bytes of the line below a passage that names the lines shown.
const FOOTER_BYTES: usize = 200;

/// The tools whose calls may ask for lines of a file, or for bytes of a value.
pub(crate) const READ_TOOL: &str = domain::tool::FS_READ;
pub(crate) const READ_CONTEXT_TOOL: &str = domain::tool::READ_CONTEXT;

/// Stores a large output as a file and an object. `number` is the number of its journal entry.
pub(crate) async fn offload(
    attempt: &Attempt,
    workspace: &Workspace,
    number: u32,
    text: String,
) -> ToolOutput {
    if !is_large(&text) {
        return ToolOutput::Inline(text);
    }
    let name = name(&attempt.work, number);
    let path = match workspace.store_tool_output(&name, text.as_bytes()) {
        Ok(path) => path,
        Err(error) => {
            // A successor restores the file from the object.
            tracing::warn!(%error, "could not write a tool's output into the workspace");
            format!("{TOOL_OUTPUTS_PREFIX}{name}")
        }
    };
    let preview = preview(&text, &path);
    let relative = path.strip_prefix(OUTPUTS_PREFIX).unwrap_or(&path);
    let object = objects::put_output(attempt, relative, text.into_bytes()).await;
    ToolOutput::Offloaded { path, preview, object }
}

/// The file name of an output. Outputs that a branch copied keep their names, since the window
/// refers to them. The branch's own steps get the same numbers, so their names also contain the
/// trace. A trace branches once.
fn name(work: &Execute, number: u32) -> String {
    match work.branch_from {
        None => format!("step_{number:03}.txt"),
        Some(_) => format!("step_{number:03}_{}.txt", work.trace_id),
    }
}

/// Returns true if a call asks for a part of a file or a value. Such an output is never replaced by
/// a preview, since the agent could not read more than the preview otherwise.
pub(crate) fn is_passage(call: &ToolCall) -> bool {
    let asks = |name| call.arguments.value().get(name).is_some_and(|value| !value.is_null());
    match call.tool.as_str() {
        READ_TOOL => asks("first_line") || asks("lines"),
        READ_CONTEXT_TOOL => asks("offset") || asks("length"),
        _ => false,
    }
}

/// The output of a call that asked for a passage.
pub(crate) fn passage(text: String) -> ToolOutput {
    ToolOutput::Inline(cut(text, PASSAGE_BYTES + FOOTER_BYTES))
}

fn is_large(text: &str) -> bool {
    text.len() >= LARGE_OUTPUT_BYTES || text.lines().nth(LARGE_OUTPUT_LINES - 1).is_some()
}

/// The beginning, and a line that names the way to read the rest.
fn preview(text: &str, path: &str) -> String {
    let beginning: Vec<&str> = text.lines().take(PREVIEW_LINES).collect();
    let beginning = cut(beginning.join("\n"), PREVIEW_BYTES);
    let (bytes, lines) = (text.len(), text.lines().count());
    format!(
        "{beginning}\n[{bytes} bytes in {lines} lines; `fs.read` with path `{path}`, `first_line` and `lines` shows more]"
    )
}

#[cfg(test)]
mod tests {
    use domain::Json;

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
