//! Queries about runs, agents and coordinators, answered by any coordinator from the store. Those in `agents` may write.

use shared::{
    Problems,
    bus::Message,
    decode,
    wire::{Query, QueryAnswer, Refusal, RunSummary},
};

use super::agents;
use crate::{branches, dead_letter, directory, handles::Handles, policy, store, trace::Trace};

/// The most runs one answer lists.
const MAX_RUNS: u32 = 500;

pub(crate) async fn answer(handles: &Handles, message: &Message) {
    let answer = match decode::json::<Query>(&message.payload) {
        Ok(query) => find(handles, query).await.unwrap_or_else(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "a query could not be answered");
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

async fn find(handles: &Handles, query: Query) -> Result<QueryAnswer, directory::Error> {
    Ok(match query {
        Query::Runs { limit } => QueryAnswer::Runs { runs: runs(handles, limit.min(MAX_RUNS)).await? },
        Query::Agents => {
            handles.directory.refresh().await?;
            let (agents, versions) = handles.directory.all();
            QueryAnswer::Agents { agents, versions }
        }
        Query::Agent { agent_id, version } => agents::one(handles, agent_id, version).await?,
        Query::ApplyAgents { agents } => agents::apply(handles, agents).await?,
        Query::DeleteAgent { agent_id } => agents::delete(handles, agent_id).await?,
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
            Err(branches::Error::Store(error)) => return Err(error.into()),
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
