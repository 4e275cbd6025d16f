//! Queries about runs, agents and coordinators, answered by any coordinator from the store. Two of them write:
//! `apply_agents` adds or replaces agent profiles, and `tell` is a command for the shard of its trace.

use shared::{
    AgentProfile, Problems, TraceId,
    bus::Message,
    decode,
    wire::{Query, QueryAnswer, Refusal, RunSummary},
};

use crate::{
    branches, dead_letter,
    directory::Directory,
    handles::Handles,
    policy,
    shard::{
        dispatch::Dispatch,
        job::{Job, Origin},
    },
    store,
    trace::{Command, Trace},
};

/// The most runs one answer lists.
const MAX_RUNS: u32 = 500;

pub(crate) async fn answer(handles: &Handles, directory: &Directory, dispatch: &Dispatch, message: &Message) {
    let answer = match decode::json::<Query>(&message.payload) {
        Ok(Query::Tell { trace_id, told }) => {
            let origin = Origin::Told { reply_to: message.reply_to.clone(), told: Box::new(told.clone()) };
            return dispatch.give(Job::command(trace_id, Command::Tell(told), origin)).await;
        }
        Ok(Query::Runs { limit }) => runs(handles, limit.min(MAX_RUNS)).await,
        Ok(Query::Agents) => agents(directory).await,
        Ok(Query::ApplyAgents { agents }) => apply(directory, agents).await,
        Ok(Query::Coordinators) => coordinators(handles).await,
        Ok(Query::Branches { trace_id }) => branches_of(handles, trace_id).await,
        Err(problems) => {
            dead_letter::keep_request(&handles.bus, message, problems.clone()).await;
            Ok(refused(problems))
        }
    };
    let answer = answer.unwrap_or_else(|error| {
        tracing::warn!(%error, "a query could not be answered");
        QueryAnswer::Refused(Refusal::unavailable())
    });
    if let Some(to) = &message.reply_to {
        let answer = serde_json::to_vec(&answer).expect("messages have string keys only");
        handles.bus.reply(to, answer.into()).await.ok();
    }
}

fn refused(problems: Problems) -> QueryAnswer {
    QueryAnswer::Refused(Refusal::invalid(&problems))
}

async fn agents(directory: &Directory) -> Result<QueryAnswer, store::Error> {
    directory.refresh().await?;
    Ok(QueryAnswer::Agents { agents: directory.all() })
}

async fn apply(directory: &Directory, agents: Vec<AgentProfile>) -> Result<QueryAnswer, store::Error> {
    if let Err(problems) = check(&agents) {
        return Ok(refused(problems));
    }
    directory.apply(&agents).await?;
    Ok(QueryAnswer::Applied { agents: agents.into_iter().map(|agent| agent.agent_id).collect() })
}

async fn coordinators(handles: &Handles) -> Result<QueryAnswer, store::Error> {
    let alive = handles.heartbeat().await?.alive;
    let policies = policy::read(&alive);
    Ok(QueryAnswer::Coordinators {
        coordinators: alive.into_iter().map(|member| member.id).collect(),
        policies,
    })
}

async fn branches_of(handles: &Handles, trace_id: TraceId) -> Result<QueryAnswer, store::Error> {
    match branches::of(handles, trace_id).await {
        Ok(branches) => Ok(QueryAnswer::Branches { branches }),
        Err(branches::Error::Store(error)) => Err(error),
        Err(error @ (branches::Error::Bus(_) | branches::Error::Corrupt(_))) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "it is unknown who branches from a run");
            Ok(QueryAnswer::Refused(Refusal::unavailable()))
        }
    }
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

async fn runs(handles: &Handles, limit: u32) -> Result<QueryAnswer, store::Error> {
    let newest = handles.store.runs(usize::try_from(limit).unwrap_or(usize::MAX)).await?;
    let ids: Vec<_> = newest.iter().map(|(id, _)| *id).collect();
    let roots = handles.store.fields(&ids, &Trace::SUMMARY_FIELDS).await?;
    let summary = |(id, root)| {
        Trace::summary(id, &root)
            .inspect_err(|error| tracing::error!(trace_id = %id, %error, "a stored trace can't be read; it is left out of the list of runs"))
            .ok()
            .flatten()
    };
    let runs: Vec<RunSummary> = ids.into_iter().zip(roots).filter_map(summary).collect();
    Ok(QueryAnswer::Runs { runs })
}
