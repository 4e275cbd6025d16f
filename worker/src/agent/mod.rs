//! Agents, by kind. An agent is an async function over a [`Run`]; it may be dropped at any await, and
//! what it wants to outlive that goes through the run.

pub(crate) mod builtin;
mod command;
pub(crate) mod journaled;
mod llm;
pub(crate) mod resources;
mod run;

use shared::{
    agent::AgentKind,
    wire::{Failure, FailureKind, Verdict},
};

use crate::{files::workspace::Workspace, journal::Journal, journal::checkpoint as branch};
pub(crate) use builtin::denial;
pub(crate) use run::{Child, Counters, Read, Run, Spawned, WayOut, child_of};

pub(crate) async fn run(run: &Run<'_>) -> Verdict {
    match run.work.agent.kind {
        AgentKind::Builtin => {
            run.resume(Vec::new()).await;
            builtin::run(run).await
        }
        AgentKind::Llm => llm::run(run).await,
        AgentKind::Command => command::run(run).await,
    }
}

/// How every agent with a journal begins: it reads what was done before it, tells how the calls of that
/// ended, and has a workspace of its own.
async fn begin<'a>(run: &'a Run<'a>) -> Result<(Journal<'a>, Workspace), Verdict> {
    let journal = Journal::open(run).await;
    run.resume(journal.settled(run.open_holds)).await;
    branch::prepare(run, &journal).await.map_err(Verdict::Failed)?;
    let made = Workspace::create(&run.equipment.workspaces, run.work.trace_id, &run.work.child_id);
    let workspace = made.map_err(|error| again(format!("its workspace could not be made: {error}")))?;
    Ok((journal, workspace))
}

/// A failure of the worker's doing: another attempt may do better.
fn again(message: String) -> Verdict {
    Verdict::Failed(Failure { kind: FailureKind::Agent, message, retryable: true })
}

/// A failure that another attempt would only repeat.
pub(crate) fn failed(message: String) -> Verdict {
    Verdict::Failed(Failure { kind: FailureKind::Agent, message, retryable: false })
}
