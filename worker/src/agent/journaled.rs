//! The end of an agent that has a journal: its files go to the object store, and how it ended is its last
//! entry. A crash before that entry repeats the collecting; one after it finds the verdict there, and only
//! reports. What merely parks or is tried again writes nothing: it is not the end. One that is ended from
//! outside (a cancel, a timeout, a limit) does not come here: its files go with its workspace.

use shared::wire::{Failure, FailureKind, HistoryStep, OutputFile, ResultStep, SandboxReport, Verdict};

use crate::{
    agent::Run,
    delivery::report,
    files::objects as object,
    files::workspace::{Error, Workspace},
    journal::Journal,
};

/// The largest result an entry of the journal has in it: with all else it fits a server's payload limit.
const MAX_JOURNALED_BYTES: u64 = 512 * 1024;

pub(crate) async fn finish(
    run: &Run<'_>,
    journal: &Journal<'_>,
    workspace: &Workspace,
    verdict: Verdict,
    sandbox: Option<SandboxReport>,
) -> Verdict {
    if !is_the_end(&verdict) {
        return verdict;
    }
    let (verdict, outputs) = match (workspace.outputs(&run.work.limits), verdict) {
        (Ok(files), verdict) => (verdict, collect(run, files).await),
        // What it says in the end is worth more than the files that were too many.
        (Err(error), verdict @ (Verdict::LastReport(_) | Verdict::Failed(_) | Verdict::Halted { .. })) => {
            tracing::warn!(%error, "its outputs are not kept");
            (verdict, Vec::new())
        }
        (Err(error), _) => (Verdict::Failed(not_kept(&error)), Vec::new()),
    };
    let extent = workspace.extent();
    run.counters.change(|progress| {
        progress.output_files = progress.output_files.max(extent.files);
        progress.output_size_bytes = progress.output_size_bytes.max(extent.bytes);
    });
    let name = report::name(run.work.trace_id, &run.keeper.lease);
    let inline = run.work.limits.max_result_bytes;
    let verdict = report::fit(run.bus, &name, verdict, inline).await;
    let written = report::fit(run.bus, &name, verdict.clone(), inline.min(MAX_JOURNALED_BYTES)).await;
    let step = ResultStep { verdict: written, outputs, sandbox };
    journal.append(HistoryStep::Result(Box::new(step))).await;
    verdict
}

/// Whether nothing will come after it, as far as the worker can tell.
fn is_the_end(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Completed(_) | Verdict::LastReport(_) | Verdict::Halted { .. } => true,
        Verdict::Failed(failure) => !failure.retryable,
        // Whoever hands over does not run again: the child's end is its own.
        Verdict::Waiting { hand_over, .. } => *hand_over,
        Verdict::InputRequired { .. } | Verdict::OutOfBudget | Verdict::HandedBack => false,
    }
}

async fn collect(run: &Run<'_>, files: Vec<(String, Vec<u8>)>) -> Vec<OutputFile> {
    let mut outputs = Vec::with_capacity(files.len());
    for (path, bytes) in files {
        let object = object::put_output(run, &path, bytes).await;
        outputs.push(OutputFile { path, object });
    }
    outputs
}

fn not_kept(error: &Error) -> Failure {
    let kind = match error {
        Error::Limit { .. } | Error::TooLarge { .. } => FailureKind::LimitExceeded,
        Error::Outside { .. } | Error::File { .. } => FailureKind::Agent,
    };
    Failure { kind, message: format!("its outputs could not be collected: {error}"), retryable: false }
}
