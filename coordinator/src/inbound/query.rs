//! Queries about runs, agents and coordinators, answered by any coordinator from the store. Those in `agents` may write, and
//! `tell` and `amend` are commands for the shard of their trace.

use shared::{
    Problems, TraceId,
    bus::Message,
    decode,
    graph::Plan,
    wire::{self, Query, QueryAnswer, Refusal, StateDigest},
};

use super::{agents, finding};
use crate::{
    branches, dead_letter, directory,
    handles::Handles,
    policy,
    shard::{
        dispatch::Dispatch,
        job::{Job, Origin},
    },
    trace::{Amend, Command, Trace, agents_of_plan},
};

pub(crate) async fn answer(handles: &Handles, dispatch: &Dispatch, message: &Message) {
    let answer = match decode::json::<Query>(&message.payload) {
        Ok(Query::Tell { trace_id, told }) => {
            let origin = Origin::Told { reply_to: message.reply_to.clone(), told: Box::new(told.clone()) };
            return dispatch.give(Job::command(trace_id, Command::Tell(told), origin)).await;
        }
        Ok(Query::Answer { trace_id, answered }) => {
            let reply_to = message.reply_to.clone();
            let origin = Origin::Answered { reply_to, answered: Box::new(answered.clone()) };
            return dispatch.give(Job::command(trace_id, Command::Answer(answered), origin)).await;
        }
        Ok(Query::Amend { trace_id, amend }) => match Plan::compile(&amend.graph) {
            Ok(plan) => {
                let command = amended(handles, *amend, plan).await;
                let origin = Origin::Amended { reply_to: message.reply_to.clone() };
                return dispatch.give(Job::command(trace_id, command, origin)).await;
            }
            Err(problems) => Ok(refused(problems)),
        },
        Ok(Query::Runs(query)) => finding::runs(handles, &query).await,
        Ok(Query::Pending(query)) => finding::pending(handles, &query).await,
        Ok(Query::Agents) => agents::all(handles).await,
        Ok(Query::Agent { agent_id, version }) => agents::one(handles, agent_id, version).await,
        Ok(Query::ApplyAgents { agents }) => agents::apply(handles, agents).await,
        Ok(Query::DeleteAgent { agent_id }) => agents::delete(handles, agent_id).await,
        Ok(Query::Coordinators) => coordinators(handles).await,
        Ok(Query::Branches { trace_id }) => branches_of(handles, trace_id).await,
        Ok(Query::Snapshot { trace_id }) => snapshot(handles, trace_id).await,
        Err(problems) => {
            dead_letter::keep_request(&handles.bus, message, problems.clone()).await;
            Ok(refused(problems))
        }
    };
    let answer = answer.unwrap_or_else(|error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "a query could not be answered");
        QueryAnswer::Refused(Refusal::unavailable())
    });
    if let Some(to) = &message.reply_to {
        let answer = serde_json::to_vec(&answer).expect("messages have string keys only");
        handles.bus.reply(to, answer.into()).await.ok();
    }
}

/// The command of an amend, with the profiles of the agents that it names.
async fn amended(handles: &Handles, amend: wire::Amend, plan: Plan) -> Command {
    let agents = handles.directory.find(&agents_of_plan(&plan)).await;
    let wire::Amend { child_id, id, revision, by, graph: _ } = amend;
    Command::Amend(Box::new(Amend { child_id, id, revision, plan: plan.into(), by, agents }))
}

fn refused(problems: Problems) -> QueryAnswer {
    QueryAnswer::Refused(Refusal::invalid(&problems))
}

async fn coordinators(handles: &Handles) -> Result<QueryAnswer, directory::Error> {
    let alive = handles.heartbeat().await?.alive;
    let policies = policy::read(&alive);
    Ok(QueryAnswer::Coordinators {
        coordinators: alive.into_iter().map(|member| member.id).collect(),
        policies,
    })
}

async fn branches_of(handles: &Handles, trace_id: TraceId) -> Result<QueryAnswer, directory::Error> {
    match branches::of(handles, trace_id).await {
        Ok(branches) => Ok(QueryAnswer::Branches { branches }),
        Err(branches::Error::Store(error)) => Err(error.into()),
        Err(error @ (branches::Error::Bus(_) | branches::Error::Corrupt(_))) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "it is unknown who branches from a run");
            Ok(QueryAnswer::Refused(Refusal::unavailable()))
        }
    }
}

/// What the store has of a run. One that can't be read is rebuilt when it is next worked on: until then it is unavailable.
async fn snapshot(handles: &Handles, trace_id: TraceId) -> Result<QueryAnswer, directory::Error> {
    let record = handles.store.load(&[trace_id]).await?.pop().and_then(|loaded| loaded.record);
    let Some(record) = record else { return Ok(QueryAnswer::Snapshot { state: None }) };
    match Trace::from_stored(trace_id, record.version, &record.fields, &record.values) {
        Ok(trace) => {
            let state = trace.root().map(|root| StateDigest {
                version: record.version,
                digest: trace.digest(),
                budget: root.budget.snapshot(),
            });
            Ok(QueryAnswer::Snapshot { state })
        }
        Err(error) => {
            tracing::warn!(%trace_id, %error, "a stored trace can't be read, so nobody can be told what it is");
            Ok(QueryAnswer::Refused(Refusal::unavailable()))
        }
    }
}
