//! The files that a caller handed over (G10). The first attempt copies them under names of its own
//! context, since the caller's files may be deleted, and records the copies in its journal. Every
//! later attempt and every branch finds the same files. An attempt that ends before that entry
//! leaves unused copies, and the next one copies again.

use domain::wire::{Failure, FailureKind, HistoryEntry, HistoryStep, OutputFile};

use super::writer::Journal;
use crate::{attempt::Attempt, crash::Point, files::objects};

/// The directory of the copies among the objects of an attempt.
const DIRECTORY: &str = "received";

/// Copies the files that were handed over, unless a valid entry names the copies already. Must be
/// called before any other entry of the agent's own work is written.
pub(crate) async fn prepare(attempt: &Attempt, journal: &Journal<'_>) -> Result<(), Failure> {
    let is_done = |entry: &HistoryEntry| matches!(entry.step, HistoryStep::Received { .. });
    if attempt.work.files.is_empty() || journal.entries().iter().any(is_done) {
        return Ok(());
    }
    let mut files = Vec::with_capacity(attempt.work.files.len());
    for file in &attempt.work.files {
        let gone = |why| {
            let message = format!("the file `{}` that was handed over is missing: {why}", file.path);
            Failure::lasting(FailureKind::Agent, message)
        };
        files.push(copied(attempt, file).await.map_err(gone)?);
    }
    attempt.config.crash.pass(Point::Received);
    journal.append(HistoryStep::Received { files }).await;
    Ok(())
}

/// The entry in a branch. A file that is missing keeps its old reference.
pub(super) async fn copy(attempt: &Attempt, files: Vec<OutputFile>) -> HistoryStep {
    let mut copies = Vec::with_capacity(files.len());
    for file in files {
        copies.push(copied(attempt, &file).await.unwrap_or(file));
    }
    HistoryStep::Received { files: copies }
}

async fn copied(attempt: &Attempt, file: &OutputFile) -> Result<OutputFile, String> {
    let bytes = objects::get(&attempt.bus, &file.object).await?;
    let object = objects::put_file(attempt, DIRECTORY, &file.path, bytes.into()).await;
    Ok(OutputFile { path: file.path.clone(), object })
}
