//! Checkpoints (W5). A context that branches begins with a copy of another context's entries; a
//! restored context continues from one of its earlier entries. Both are written to the journal
//! before any other entry, and once: if an attempt ends in between, the next one completes them.

use domain::{
    CallId,
    id::ToolName,
    subject::Filter,
    wire::{
        CheckedStep, Checkpoint, Failure, FailureKind, HistoryEntry, HistoryStep, ModelStep, PersonMessage,
        ToolOutput,
    },
};

use super::{received, stored, writer::Journal};
use crate::{
    attempt::Attempt,
    files::{objects, workspace},
};

/// The beginning of the call id of a copied answer.
const COPIED: &str = "branched-";

/// Returns true if an answer was copied from another context.
pub(crate) fn is_copy(step: &ModelStep) -> bool {
    step.call_id.as_str().starts_with(COPIED)
}

/// Completes a branch and records a restore. Must be called right after the journal is opened.
pub(crate) async fn prepare(attempt: &Attempt, journal: &Journal<'_>) -> Result<(), Failure> {
    if let Some(from) = &attempt.work.branch_from {
        branch(attempt, journal, from).await?;
    }
    restore_point(attempt, journal).await;
    Ok(())
}

/// Copies the steps that are not copied yet. The context's own steps begin after the last copy. So
/// while there are too few steps, all of them are copies.
async fn branch(attempt: &Attempt, journal: &Journal<'_>, from: &Checkpoint) -> Result<(), Failure> {
    let (begun, done) = journal.with_all_entries(|written| {
        let begun = written.iter().find_map(|entry| copies(&entry.step));
        (begun, written.iter().filter(|entry| entry.step.is_work()).count())
    });
    if begun.is_some_and(|copies| done >= copies) {
        return Ok(());
    }
    let steps = steps_at(attempt, from).await?;
    match begun {
        Some(copies) if steps.len() < copies => return Err(gone(from)),
        Some(_) => {}
        None => {
            let copies = u32::try_from(steps.len()).unwrap_or(u32::MAX);
            journal.append(HistoryStep::Branched { from: from.clone(), copies }).await;
        }
    }
    let numbers: Vec<u32> = steps.iter().map(|entry| entry.number).collect();
    for entry in steps.into_iter().skip(done) {
        let copy = copy(attempt, entry).await;
        journal.append(renumbered(copy, &numbers, journal)).await;
    }
    Ok(())
}

/// Renumbers the entries that a copy refers to: copies have other numbers than the originals. The
/// entries it refers to were copied before it.
fn renumbered(step: HistoryStep, originals: &[u32], journal: &Journal<'_>) -> HistoryStep {
    let copies: Vec<u32> = journal.with_all_entries(|written| {
        written.iter().filter(|entry| entry.step.is_work()).map(|entry| entry.number).collect()
    });
    // The copy of the last original up to this number.
    let number = |original: u32| {
        let before = originals.iter().take_while(|number| **number <= original).count();
        copies.get(before.saturating_sub(1)).copied().unwrap_or(0)
    };
    match step {
        HistoryStep::Compacted { from, to, how } => {
            HistoryStep::Compacted { from: number(from), to: number(to), how }
        }
        HistoryStep::Model(mut step) => {
            step.summary_of = step.summary_of.map(number);
            HistoryStep::Model(step)
        }
        other @ (HistoryStep::Began { .. }
        | HistoryStep::Lost(_)
        | HistoryStep::Received { .. }
        | HistoryStep::Tool(_)
        | HistoryStep::Told(_)
        | HistoryStep::Rung(_)
        | HistoryStep::Checked(_)
        | HistoryStep::Restored { .. }
        | HistoryStep::Branched { .. }
        | HistoryStep::Result(_)) => other,
    }
}

/// The work steps that were valid when `from.step` was the last entry. Later entries have no effect
/// on them.
async fn steps_at(attempt: &Attempt, from: &Checkpoint) -> Result<Vec<HistoryEntry>, Failure> {
    let journal = Filter::JournalOf(from.trace_id, from.child_id.clone());
    let (entries, _) = stored::read(&attempt.bus, &journal, &from.child_id).await?;
    if !entries.iter().any(|entry| entry.number == from.step) {
        return Err(gone(from));
    }
    let until: Vec<HistoryEntry> = entries.into_iter().filter(|entry| entry.number <= from.step).collect();
    Ok(stored::standing(&until).into_iter().filter(|entry| entry.step.is_work()).collect())
}

/// The number of copies of a branch, if this entry begins one.
fn copies(step: &HistoryStep) -> Option<usize> {
    if let HistoryStep::Branched { copies, .. } = step { Some(*copies as usize) } else { None }
}

/// The copy of a step. Its cost stays readable, but its call id does not belong to this context, so
/// that it never settles a hold. A large output is copied too, since the other context may be
/// deleted.
async fn copy(attempt: &Attempt, entry: HistoryEntry) -> HistoryStep {
    match entry.step {
        HistoryStep::Model(mut step) => {
            let call_id = format!("{COPIED}{}", entry.number);
            step.call_id = CallId::new(&call_id).expect("letters, a dash and digits");
            step.retries = 0;
            // The checks of this context decide about the calls that are still to be made.
            step.checks.retain(CheckedStep::denies_answer);
            HistoryStep::Model(step)
        }
        HistoryStep::Tool(mut step) => {
            step.checks.clear();
            if let ToolOutput::Offloaded { path, object: reference, .. } = &mut step.output
                && let Ok(bytes) = objects::get(&attempt.bus, reference).await
            {
                let relative = path.strip_prefix(workspace::OUTPUTS_PREFIX).unwrap_or(path);
                *reference = objects::put_output(attempt, relative, bytes.into()).await;
            }
            HistoryStep::Tool(step)
        }
        HistoryStep::Received { files } => received::copy(attempt, files).await,
        // The branch numbers its own messages.
        HistoryStep::Told(told) => HistoryStep::Told(Box::new(PersonMessage { number: None, ..*told })),
        other @ (HistoryStep::Began { .. }
        | HistoryStep::Rung(_)
        | HistoryStep::Lost(_)
        | HistoryStep::Restored { .. }
        | HistoryStep::Branched { .. }
        | HistoryStep::Checked(_)
        | HistoryStep::Compacted { .. }
        | HistoryStep::Result(_)) => other,
    }
}

fn gone(from: &Checkpoint) -> Failure {
    let Checkpoint { trace_id, child_id, step } = from;
    let message = format!(
        "there is no step {step} of `{child_id}` in run {trace_id} to branch from; `trellis history` lists the existing steps"
    );
    Failure::lasting(FailureKind::Agent, message)
}

/// Records the last requested restore, unless an attempt has recorded it already.
async fn restore_point(attempt: &Attempt, journal: &Journal<'_>) {
    let Some(point) = attempt.work.restore else { return };
    let is_done = |entry: &HistoryEntry| matches!(entry.step, HistoryStep::Restored { number, .. } if number >= point.number);
    let done = journal.with_all_entries(|written| written.iter().any(is_done));
    if !done {
        journal.append(HistoryStep::Restored { number: point.number, to: point.to }).await;
    }
}

/// The number of answers of humans that this context had used before its next question, of the tool
/// `asks` or of a check. Copied questions are skipped, since they were answered in another context.
/// A restore contains the number of answers before it. A refused call asked no question.
pub(crate) fn answers_before(attempt: &Attempt, journal: &Journal<'_>, asks: &ToolName) -> usize {
    let (mut before, mut copies) = (0, 0);
    journal.with_all_entries(|written| {
        for entry in written {
            match &entry.step {
                HistoryStep::Branched { copies: made, .. } => copies = *made,
                step if copies > 0 && step.is_work() => copies -= 1,
                HistoryStep::Tool(step) if step.tool == *asks && (!step.is_error || step.output_denied()) => {
                    before += 1;
                }
                HistoryStep::Checked(step) if step.asked => before += 1,
                HistoryStep::Restored { .. } => {
                    before = attempt.work.restore.map_or(0, |point| point.answers as usize);
                }
                HistoryStep::Model(_)
                | HistoryStep::Tool(_)
                | HistoryStep::Received { .. }
                | HistoryStep::Told(_)
                | HistoryStep::Rung(_)
                | HistoryStep::Lost(_)
                | HistoryStep::Checked(_)
                | HistoryStep::Compacted { .. }
                | HistoryStep::Began { .. }
                | HistoryStep::Result(_) => {}
            }
        }
    });
    before
}
