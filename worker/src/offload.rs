//! Stand-in until the workspace is merged.
use crate::{agent::Run, workspace::Workspace};
use shared::wire::{HistoryEntry, ToolOutput};
pub(crate) async fn offload(
    _run: &Run<'_>,
    _workspace: &Workspace,
    _number: u32,
    text: String,
) -> ToolOutput {
    ToolOutput::Inline(text)
}
pub(crate) async fn restore(_run: &Run<'_>, _workspace: &Workspace, _entries: &[HistoryEntry]) {}
