//! The news that an agent has to see before its next call: messages to it (G13), and rungs of its
//! budget (B21). The answer to a hold brings them, and the worker appends each of them to the
//! journal before it asks again. So the journal has a message once, from whichever attempt, and every
//! later call contains it.

use domain::{
    id::ModelName,
    ladder::RungAction,
    wire::{HistoryEntry, HistoryStep, News, OutputFile, PersonMessage, ReachedRung},
};

use super::tool_step::note_in_history;
use crate::{attempt::Attempt, crash::Point, files::workspace::Workspace, journal::Journal};

/// The most handed-over files that are named to a model.
const SHOWN_FILES: usize = 50;

/// The number of the last message in the journal; 0 before the first. It includes messages that a
/// restore revoked, since the agent has seen them and must not get them again.
pub(super) fn last_told(journal: &Journal<'_>) -> u32 {
    let number =
        |entry: &HistoryEntry| if let HistoryStep::Told(told) = &entry.step { told.number } else { None };
    journal.with_all_entries(|entries| entries.iter().rev().find_map(number)).unwrap_or_default()
}

/// Writes news to the journal. Returns the entries.
pub(super) async fn record(
    attempt: &Attempt,
    journal: &Journal<'_>,
    workspace: &Workspace,
    news: News,
) -> Vec<HistoryEntry> {
    let told = news.told.into_iter().map(|told| HistoryStep::Told(Box::new(told)));
    let rungs = news.rungs.into_iter().map(|rung| HistoryStep::Rung(Box::new(rung)));
    let mut entries = Vec::new();
    for step in told.chain(rungs) {
        let entry = journal.append(step).await;
        note_in_history(workspace, &entry);
        entries.push(entry);
    }
    attempt.config.crash.pass(Point::Told);
    entries
}

/// A message as the model sees it.
pub(super) fn message_text(told: &PersonMessage) -> String {
    match &told.by {
        Some(by) => format!("A message from the operator ({by}): {}", told.text),
        None => format!("A message from the operator: {}", told.text),
    }
}

/// The files that an agent got at a handover, as the model sees them.
pub(super) fn received_text(files: &[OutputFile]) -> String {
    let shown = files.iter().take(SHOWN_FILES);
    let shown: Vec<String> =
        shown.map(|file| format!("`{}` ({} bytes)", file.path, file.object.size_bytes)).collect();
    let more = match files.len().saturating_sub(SHOWN_FILES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("This work was handed over to you with its files, in outputs/: {}{more}.", shown.join(", "))
}

/// The text about the budget that is left at a rung.
pub(super) fn budget_text(rung: &ReachedRung) -> String {
    let ReachedRung { at, left_usd, left_tokens, .. } = rung;
    format!(
        "Your budget: {at} is spent; left: {left_usd} and {left_tokens} tokens. Do what matters most first, and keep \
         enough for your answer."
    )
}

/// The model that a rung changes to; `None` for other rungs.
pub(super) fn model_of(rung: &ReachedRung) -> Option<&ModelName> {
    match &rung.action {
        RungAction::Model(model) => Some(model),
        RungAction::Tell | RungAction::Compact => None,
    }
}
