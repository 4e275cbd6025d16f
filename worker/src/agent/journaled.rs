//! The beginning and the end of every agent that has a journal. At the end its output files go to
//! the object store, and its verdict becomes the last entry. After a crash before that entry, the
//! files are collected again. After a crash behind it, the next attempt reads the verdict and only
//! reports it.
//!
//! Two kinds of agents do not end here. An agent that parks or is retried writes no last entry,
//! since it continues later. An agent that is ended from outside (a cancel, a timeout, a limit)
//! loses its files with its workspace.

use domain::{
    depth::{self, MAX_VALUE_DEPTH},
    wire::{Failure, FailureKind, HistoryStep, OutputFile, Payload, ResultStep, SandboxReport, Verdict},
};
use text::set_limit::{SetLimit, UsedLimit};

use super::{run::Run, verdict};
use crate::{
    attempt::Attempt,
    files::{
        objects, result,
        workspace::{Error, Workspace},
    },
    journal::{Journal, checkpoint, received},
};

/// The largest result inside a journal entry, so that the entry fits a server's payload limit.
const MAX_JOURNALED_BYTES: u64 = 512 * 1024;

/// Reads the journal of earlier attempts, settles their calls, and creates a workspace.
pub(super) async fn begin<'a>(run: &'a Run<'a>) -> Result<(Journal<'a>, Workspace), Verdict> {
    let attempt = run.attempt;
    let journal = Journal::open(attempt).await;
    journal.note_lost(run.open_holds).await;
    run.meter.resume(run.open_holds, journal.settled(run.open_holds)).await;
    if let Some(refused) = run.resources.refusal(run.work()) {
        return Err(refused);
    }
    checkpoint::prepare(attempt, &journal).await.map_err(Verdict::Failed)?;
    received::prepare(attempt, &journal).await.map_err(Verdict::Failed)?;
    let workspace = Workspace::create(run.resources.workspaces(), attempt.trace_id(), attempt.child_id())
        .map_err(|error| verdict::retryable(format!("the workspace could not be created: {error}")))?;
    Ok((journal, workspace))
}

/// Collects the files and records the verdict, if the verdict ends the agent.
pub(super) async fn finish(
    attempt: &Attempt,
    journal: &Journal<'_>,
    workspace: &Workspace,
    verdict: Verdict,
    sandbox: Option<SandboxReport>,
) -> Verdict {
    if !is_the_end(&verdict) {
        return verdict;
    }
    let verdict = within_depth(verdict);
    let (verdict, outputs) = match (workspace.outputs(&attempt.work.limits), verdict) {
        (Ok(files), verdict) => (verdict, collect(attempt, files).await),
        // A last report or a first failure matters more than a failure of its files.
        (Err(error), verdict @ (Verdict::LastReport(_) | Verdict::Failed(_) | Verdict::Halted { .. })) => {
            tracing::warn!("the outputs are not kept");
            tracing::debug!(%error, "why");
            (verdict, Vec::new())
        }
        (Err(error), _) => (Verdict::Failed(not_kept(&error)), Vec::new()),
    };
    let extent = workspace.extent();
    attempt.progress.change(|progress| {
        progress.output_files = progress.output_files.max(extent.files);
        progress.output_size_bytes = progress.output_size_bytes.max(extent.bytes);
    });
    let inline = attempt.work.limits.max_result_bytes;
    let verdict = result::fit(attempt, verdict, inline).await;
    let written = result::fit(attempt, verdict.clone(), inline.min(MAX_JOURNALED_BYTES)).await;
    let step = ResultStep { verdict: written, outputs, sandbox };
    journal.append(HistoryStep::Result(Box::new(step))).await;
    verdict
}

/// Rejects a result that nests too deep: it could be written, but not read again (`domain::depth`).
fn within_depth(verdict: Verdict) -> Verdict {
    match &verdict {
        Verdict::Completed(Payload::Inline(value)) if depth::is_deeper(value.value(), MAX_VALUE_DEPTH) => {
            let limit = SetLimit::built_in("the maximum depth of a result", MAX_VALUE_DEPTH);
            verdict::beyond("the depth of the result", &limit)
        }
        Verdict::Completed(_)
        | Verdict::LastReport(_)
        | Verdict::Failed(_)
        | Verdict::Halted { .. }
        | Verdict::Waiting { .. }
        | Verdict::InputRequired { .. }
        | Verdict::OutOfBudget
        | Verdict::HandedBack => verdict,
    }
}

/// Returns true if no attempt follows, as far as the worker knows.
fn is_the_end(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Completed(_) | Verdict::LastReport(_) | Verdict::Halted { .. } => true,
        Verdict::Failed(failure) => !failure.retryable,
        // An agent that hands over does not run again: its child gives the result.
        Verdict::Waiting { hand_over, .. } => *hand_over,
        Verdict::InputRequired { .. } | Verdict::OutOfBudget | Verdict::HandedBack => false,
    }
}

async fn collect(attempt: &Attempt, files: Vec<(String, Vec<u8>)>) -> Vec<OutputFile> {
    let mut outputs = Vec::with_capacity(files.len());
    for (path, bytes) in files {
        let object = objects::put_output(attempt, &path, bytes).await;
        outputs.push(OutputFile { path, object });
    }
    outputs
}

fn not_kept(error: &Error) -> Failure {
    let kind = match error {
        Error::Limit { .. } | Error::TooLarge { .. } => FailureKind::LimitExceeded,
        Error::Outside { .. } | Error::File { .. } => FailureKind::Agent,
    };
    let not_kept = "the outputs could not be collected";
    let message = match error {
        Error::Limit { limit, has, max } => UsedLimit::new(limit, *has, *max).with(not_kept).to_string(),
        Error::TooLarge { .. } | Error::Outside { .. } | Error::File { .. } => format!("{not_kept}: {error}"),
    };
    Failure::lasting(kind, message)
}
