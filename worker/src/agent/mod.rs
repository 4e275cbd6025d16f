//! Agents, by kind. An agent is an async function over a [`Run`]. It may be dropped at any `.await`; state that must
//! outlive it is kept outside, in the journal, the meter and the attempt.

pub(crate) mod builtin;
mod command;
mod journaled;
mod llm;
mod news;
mod resources;
mod run;
mod tool_step;
mod verdict;

use domain::{agent::AgentKind, wire::Verdict};

pub(crate) use resources::Resources;
pub(crate) use run::Run;

pub(crate) async fn run(run: &Run<'_>) -> Verdict {
    if let Err(failure) = run.attempt.complete_work().await {
        return Verdict::Failed(failure);
    }
    match run.attempt.work.agent.kind {
        AgentKind::Builtin => {
            run.meter.resume(run.open_holds, Vec::new()).await;
            if let Some(refused) = run.resources.refusal(run.work()) {
                return refused;
            }
            builtin::run(run).await
        }
        AgentKind::Llm => Box::pin(llm::run(run)).await,
        AgentKind::Command => Box::pin(command::run(run)).await,
    }
}
