//! Queries about runs, agents and coordinators, answered by any coordinator from the store. `apply_agents` is the one
//! that writes: it adds or replaces agent profiles.

use shared::{
    AgentProfile, Problems,
    bus::Message,
    decode,
    wire::{Query, QueryAnswer, Refusal, RunSummary},
};

use crate::{branches, dead_letter, directory::Directory, handles::Handles, policy, store, trace::Trace};

/// The most runs one answer lists.
const MAX_RUNS: u32 = 500;

pub(crate) async fn answer(handles: &Handles, directory: &Directory, message: &Message) {
    let answer = match decode::json::<Query>(&message.payload) {
        Ok(query) => find(handles, directory, query).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "a query could not be answered");
            QueryAnswer::Refused(Refusal::unavailable())
        }),
        Err(problems) => {
            dead_letter::keep_request(&handles.bus, message, problems.clone()).await;
            refused(problems)
        }
    };
    if let Some(to) = &message.reply_to {
        let answer = serde_json::to_vec(&answer).expect("messages have string keys only");
        handles.bus.reply(to, answer.into()).await.ok();
    }
}

fn refused(problems: Problems) -> QueryAnswer {
    QueryAnswer::Refused(Refusal::invalid(&problems))
}

async fn find(handles: &Handles, directory: &Directory, query: Query) -> Result<QueryAnswer, store::Error> {
    Ok(match query {
        Query::Runs { limit } => QueryAnswer::Runs { runs: runs(handles, limit.min(MAX_RUNS)).await? },
        Query::Agents => {
            directory.refresh().await?;
            QueryAnswer::Agents { agents: directory.all() }
        }
        Query::ApplyAgents { agents } => match check(&agents) {
            Err(problems) => refused(problems),
            Ok(()) => {
                directory.apply(&agents).await?;
                QueryAnswer::Applied { agents: agents.into_iter().map(|agent| agent.agent_id).collect() }
            }
        },
        Query::Coordinators => {
            let alive = handles.heartbeat().await?.alive;
            let policies = policy::read(&alive);
            QueryAnswer::Coordinators {
                coordinators: alive.into_iter().map(|member| member.id).collect(),
                policies,
            }
        }
        Query::Branches { trace_id } => match branches::of(handles, trace_id).await {
            Ok(branches) => QueryAnswer::Branches { branches },
            Err(branches::Error::Store(error)) => return Err(error),
            Err(error @ (branches::Error::Bus(_) | branches::Error::Corrupt(_))) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "it is unknown who branches from a run"
                );
                QueryAnswer::Refused(Refusal::unavailable())
            }
        },
    })
}

/// All problems of all profiles.
fn check(agents: &[AgentProfile]) -> Result<(), Problems> {
    let mut problems = Problems::default();
    for (index, agent) in agents.iter().enumerate() {
        for problem in agent.check().err().iter().flat_map(Problems::iter) {
            let path = format!("agents[{index}].{}", problem.path);
            problems.add(path, problem.message.clone(), problem.hint.clone());
        }
    }
    problems.or(())
}

async fn runs(handles: &Handles, limit: u32) -> Result<Vec<RunSummary>, store::Error> {
    let newest = handles.store.runs(usize::try_from(limit).unwrap_or(usize::MAX)).await?;
    let ids: Vec<_> = newest.iter().map(|(id, _)| *id).collect();
    let roots = handles.store.fields(&ids, &Trace::SUMMARY_FIELDS).await?;
    let summary = |(id, root)| {
        Trace::summary(id, &root)
            .inspect_err(|error| tracing::error!(trace_id = %id, %error, "a stored trace can't be read; it is left out of the list of runs"))
            .ok()
            .flatten()
    };
    Ok(ids.into_iter().zip(roots).filter_map(summary).collect())
}
