//! Checkpoints (W5): a context that branches begins with a copy of another's steps, and one that was
//! restored goes on from an earlier step of its own. Both are written into the journal before anything
//! else is done, once, however many attempts it takes: the next one completes what it finds begun.

use shared::{
    CallId,
    id::ToolName,
    wire::{Checkpoint, Failure, FailureKind, HistoryEntry, HistoryStep, ToolOutput},
};

use crate::{
    agent::Run,
    files::objects as object,
    journal::{self, Journal},
};

/// Comes right after the journal was opened.
pub(crate) async fn prepare(run: &Run<'_>, journal: &Journal<'_>) -> Result<(), Failure> {
    if let Some(from) = &run.work.branch_from {
        branch(run, journal, from).await?;
    }
    restore_point(run, journal).await;
    Ok(())
}

/// Copies what is not copied yet. Nothing of its own comes before the last copy, so the steps it has are
/// copies as long as there are fewer of them than there should be.
async fn branch(run: &Run<'_>, journal: &Journal<'_>, from: &Checkpoint) -> Result<(), Failure> {
    let (begun, done) = journal.look(|written| {
        let begun = written.iter().find_map(|entry| match &entry.step {
            HistoryStep::Branched { copies, .. } => Some(*copies as usize),
            HistoryStep::Began { .. }
            | HistoryStep::Model(_)
            | HistoryStep::Tool(_)
            | HistoryStep::Restored { .. }
            | HistoryStep::Result(_) => None,
        });
        (begun, written.iter().filter(|entry| is_step(entry)).count())
    });
    if begun.is_some_and(|copies| done >= copies) {
        return Ok(());
    }
    let steps = steps_at(run, from).await?;
    match begun {
        Some(copies) if steps.len() < copies => return Err(gone(from)),
        Some(_) => {}
        None => {
            let copies = u32::try_from(steps.len()).unwrap_or(u32::MAX);
            journal.append(HistoryStep::Branched { from: from.clone(), copies }).await;
        }
    }
    for entry in steps.into_iter().skip(done) {
        let copy = copy(run, entry).await;
        journal.append(copy).await;
    }
    Ok(())
}

/// The model and tool steps that counted when that step was the last, whatever came later.
async fn steps_at(run: &Run<'_>, from: &Checkpoint) -> Result<Vec<HistoryEntry>, Failure> {
    let (entries, _) = journal::read(run.bus, from.trace_id, &from.child_id).await?;
    if !entries.iter().any(|entry| entry.number == from.step) {
        return Err(gone(from));
    }
    let until: Vec<HistoryEntry> = entries.into_iter().filter(|entry| entry.number <= from.step).collect();
    Ok(journal::standing(&until).into_iter().filter(is_step).collect())
}

fn is_step(entry: &HistoryEntry) -> bool {
    match entry.step {
        HistoryStep::Model(_) | HistoryStep::Tool(_) => true,
        HistoryStep::Began { .. }
        | HistoryStep::Restored { .. }
        | HistoryStep::Branched { .. }
        | HistoryStep::Result(_) => false,
    }
}

/// A step as a branch has it. What it cost is there to be read; its call is none of this context's, so
/// that no hold is ever settled by it. What it put aside is this context's own: the other may be deleted.
async fn copy(run: &Run<'_>, entry: HistoryEntry) -> HistoryStep {
    match entry.step {
        HistoryStep::Model(mut step) => {
            let call_id = format!("branched-{}", entry.number);
            step.call_id = CallId::new(&call_id).expect("letters, a dash and digits");
            step.retries = 0;
            HistoryStep::Model(step)
        }
        HistoryStep::Tool(mut step) => {
            if let ToolOutput::Offloaded { path, object: reference, .. } = &mut step.output
                && let Ok(bytes) = object::get(run.bus, reference).await
            {
                let beneath = path.strip_prefix("outputs/").unwrap_or(path);
                *reference = object::put_output(run, beneath, bytes.into()).await;
            }
            HistoryStep::Tool(step)
        }
        other @ (HistoryStep::Began { .. }
        | HistoryStep::Restored { .. }
        | HistoryStep::Branched { .. }
        | HistoryStep::Result(_)) => other,
    }
}

fn gone(from: &Checkpoint) -> Failure {
    let Checkpoint { trace_id, child_id, step } = from;
    let message = format!(
        "there is no step {step} of `{child_id}` in trace {trace_id} to branch from; `trellis history` shows those there are"
    );
    Failure { kind: FailureKind::Agent, message, retryable: false }
}

/// Writes down the last restore that was asked for, if no attempt has done so yet.
async fn restore_point(run: &Run<'_>, journal: &Journal<'_>) {
    let Some(point) = run.work.restore else { return };
    let is_done = |entry: &HistoryEntry| match entry.step {
        HistoryStep::Restored { number, .. } => number >= point.number,
        HistoryStep::Began { .. }
        | HistoryStep::Model(_)
        | HistoryStep::Tool(_)
        | HistoryStep::Branched { .. }
        | HistoryStep::Result(_) => false,
    };
    let done = journal.look(|written| written.iter().any(is_done));
    if !done {
        journal.append(HistoryStep::Restored { number: point.number, to: point.to }).await;
    }
}

/// How many of the answers this context was given came before its next question, `asks` being the tool
/// that asks. What was copied was answered elsewhere; what was asked before the last restore was settled
/// by that. A call that was refused never asked.
pub(crate) fn answers_before(run: &Run<'_>, journal: &Journal<'_>, asks: &ToolName) -> usize {
    let (mut before, mut copies) = (0, 0);
    journal.look(|written| {
        for entry in written {
            match &entry.step {
                HistoryStep::Branched { copies: made, .. } => copies = *made,
                HistoryStep::Model(_) | HistoryStep::Tool(_) if copies > 0 => copies -= 1,
                HistoryStep::Tool(step) if step.tool == *asks && !step.is_error => before += 1,
                HistoryStep::Restored { .. } => {
                    before = run.work.restore.map_or(0, |point| point.answers as usize);
                }
                HistoryStep::Model(_)
                | HistoryStep::Tool(_)
                | HistoryStep::Began { .. }
                | HistoryStep::Result(_) => {}
            }
        }
    });
    before
}
