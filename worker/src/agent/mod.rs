//! Agents, by kind. An agent is an async function over a [`Run`]; it may be dropped at any await, and
//! what it wants to outlive that goes through the run.

pub(crate) mod builtin;
mod command;
mod llm;
mod run;

use shared::{
    agent::AgentKind,
    wire::{Failure, FailureKind, Verdict},
};

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

/// A failure that another attempt would only repeat.
pub(crate) fn failed(message: String) -> Verdict {
    Verdict::Failed(Failure { kind: FailureKind::Agent, message, retryable: false })
}
