//! Queries about runs, agents, schedules, kept graphs and coordinators, answered by any coordinator
//! from the store. Queries in `agents`, `schedules` and `kept` may write; `tell`, `answer` and
//! `amend` are commands for the shard of their trace.

use std::sync::Arc;

use bus::Message;
use domain::{
    Problems, TraceId, WorkerId, decode,
    graph::{self, Plan, Purpose, ResolveError, ResolvedGraph, UnverifiedGraph},
    span::Headers,
    subject::{Partition, Subject},
    wire::{self, Drain, Query, QueryAnswer, Refusal, StateDigest},
};
use trace::{Amend, Command, Trace, agents_of_plan};

use super::{agents, finding, kept, names, schedules};
use crate::{
    audit, dead_letter, dependents, directory, error_log,
    loops::Handles,
    ownership::owner::owner,
    policy,
    sealed::{Broken, OpenResult},
    shard::{
        NOT_AUTHENTIC,
        dispatch::Dispatch,
        job::{Job, Origin},
    },
};

/// Takes a query. `tell` and `answer` go to their shard at once, in the order of arrival. Every
/// other query is read in a task of its own, because it may take long.
pub(crate) async fn take(handles: &Arc<Handles>, dispatch: &Dispatch, message: Message) {
    let query = decode::json::<Query>(&message.payload).and_then(|query| belongs(query, &message.subject));
    if matches!(query, Ok(Query::Tell { .. } | Query::Answer { .. })) {
        return answer(handles, dispatch, &message, query).await;
    }
    let (own, dispatch) = (handles.clone(), dispatch.clone());
    handles.beside_others(async move { answer(&own, &dispatch, &message, query).await });
}

/// Permissions are granted by subject, so a query is accepted only on its own subject.
fn belongs(query: Query, subject: &Subject) -> Result<Query, Problems> {
    let own = Subject::of_query(&query);
    if own == *subject {
        return Ok(query);
    }
    Err(Problems::one("", "this subject does not accept it", Some(format!("send it on `{own}`"))))
}

async fn answer(
    handles: &Arc<Handles>,
    dispatch: &Dispatch,
    message: &Message,
    query: Result<Query, Problems>,
) {
    if let Ok(query) = &query
        && let Err(error) = audit::keep(handles, query, message).await
    {
        error_log::tell(&error, None, "the sender of a change could not be recorded: nothing is changed");
        return reply(handles, message.reply_to.as_ref(), &QueryAnswer::Refused(Refusal::unavailable()))
            .await;
    }
    let origin = || Origin::Query { reply_to: message.reply_to.clone() };
    let answer = match query {
        Ok(Query::Tell { trace_id, told }) => {
            return dispatch.give(Job::order(trace_id, Command::Tell(told), origin())).await;
        }
        Ok(Query::Answer { trace_id, answered }) => {
            return dispatch.give(Job::order(trace_id, Command::Answer(answered), origin())).await;
        }
        Ok(Query::Amend { trace_id, amend }) => match planned(handles, &amend, message.payload.len()).await {
            Ok(planned) => {
                let command = amended(handles, *amend, planned).await;
                return dispatch.give(Job::order(trace_id, command, origin())).await;
            }
            Err(refusal) => Ok(QueryAnswer::Refused(refusal)),
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
        Ok(Query::PutSchedule { schedule, revision }) => {
            Ok(schedules::put(handles, &schedule, revision).await)
        }
        Ok(Query::DeleteSchedule { name }) => Ok(schedules::delete(handles, &name).await),
        Ok(Query::PauseSchedule { name }) => Ok(schedules::set_paused(handles, &name, true).await),
        Ok(Query::ResumeSchedule { name }) => Ok(schedules::set_paused(handles, &name, false).await),
        Ok(Query::Schedules { after, limit }) => Ok(schedules::list(handles, after.as_ref(), limit).await),
        Ok(Query::Schedule { name }) => Ok(schedules::show(handles, &name).await),
        Ok(Query::RunSchedule { name, id }) => Ok(schedules::run(handles, &name, &id).await),
        Ok(Query::PutGraph { name, graph }) => Ok(kept::put(handles, &name, &graph).await),
        Ok(Query::DeleteGraph { name }) => Ok(kept::delete(handles, &name).await),
        Ok(Query::Drain(drain)) => Ok(tell_to_drain(handles, drain).await),
        Ok(Query::Graphs { after, limit }) => Ok(kept::list(handles, after.as_ref(), limit).await),
        Ok(Query::Graph { name, version }) => Ok(kept::show(handles, &name, version).await),
        Err(problems) => {
            dead_letter::keep_request(handles, message, &problems);
            Ok(refused(problems))
        }
    };
    let answer = answer.unwrap_or_else(|error| {
        error_log::tell(&error, None, "a query could not be answered");
        QueryAnswer::Refused(Refusal::unavailable())
    });
    reply(handles, message.reply_to.as_ref(), &answer).await;
}

/// Broadcasts the drain. A broadcast may be lost: the worker's state shows the client if it has to
/// ask again.
async fn tell_to_drain(handles: &Handles, drain: Drain) -> QueryAnswer {
    let payload = serde_json::to_vec(&drain).expect("a message has string keys only");
    match handles.bus.broadcast(&Subject::Drain, &Headers::new(), payload.into()).await {
        Ok(()) => QueryAnswer::ToldToDrain { worker_id: drain.worker_id },
        Err(error) => {
            tracing::warn!(%error, worker_id = %drain.worker_id, "the request to drain could not be sent to a worker");
            QueryAnswer::Refused(Refusal::unavailable())
        }
    }
}

async fn reply(handles: &Handles, to: Option<&String>, answer: &QueryAnswer) {
    if let Some(to) = to {
        let answer = serde_json::to_vec(answer).expect("messages have string keys only");
        handles.bus.reply(to, answer.into()).await.ok();
    }
}

/// The plan of an amend, with the graphs that it uses by name.
struct AmendPlan {
    plan: Plan,
    unresolved: Option<trace::Refusal>,
    unverified: Vec<UnverifiedGraph>,
}

async fn planned(handles: &Handles, amend: &wire::Amend, bytes: usize) -> Result<AmendPlan, Refusal> {
    let definition = serde_json::to_value(&amend.graph).expect("a definition has string keys only");
    // The stored definition must be readable within a larger document.
    decode::check_depth(definition.to_string().as_bytes()).map_err(|problems| Refusal::invalid(&problems))?;
    if graph::names(&definition).is_empty() {
        let plan = Plan::compile(&amend.graph).map_err(|problems| Refusal::invalid(&problems))?;
        return Ok(AmendPlan { plan, unresolved: None, unverified: Vec::new() });
    }
    match names::read(handles, definition, bytes, Purpose::Amend).await {
        Ok(Ok(ResolvedGraph { plan, unverified, .. })) => {
            Ok(AmendPlan { plan, unresolved: None, unverified })
        }
        Ok(Err(ResolveError::Now { plan, problems, .. })) => {
            let unresolved = Some(trace::Refusal::Malformed(problems));
            Ok(AmendPlan { plan: *plan, unresolved, unverified: Vec::new() })
        }
        Ok(Err(ResolveError::Wrong(problems))) => Err(Refusal::invalid(&problems)),
        Err(error) => {
            error_log::tell(&error, None, "the graphs that an amend uses by name can't be read");
            Err(Refusal::unavailable())
        }
    }
}

/// The command of an amend, with the profiles of the agents that it names.
async fn amended(handles: &Handles, amend: wire::Amend, planned: AmendPlan) -> Command {
    let AmendPlan { plan, unresolved, unverified } = planned;
    let agents = handles.directory.find(&agents_of_plan(&plan)).await;
    let wire::Amend { child_id, id, revision, by, graph: _ } = amend;
    let plan = plan.into();
    Command::Amend(Box::new(Amend { child_id, id, revision, plan, by, agents, unresolved, unverified }))
}

fn refused(problems: Problems) -> QueryAnswer {
    QueryAnswer::Refused(Refusal::invalid(&problems))
}

async fn coordinators(handles: &Handles) -> Result<QueryAnswer, directory::Error> {
    let alive = handles.heartbeat().await?.alive;
    let policies = policy::read(&alive);
    let mut coordinators: Vec<WorkerId> = alive.into_iter().map(|member| member.id).collect();
    // An earlier process of a coordinator that was killed may still be listed.
    coordinators.dedup();
    let all = || Partition::all(handles.config.topology.partitions);
    let owned = |id: &WorkerId| {
        all().filter(|one| owner(*one, &coordinators) == Some(id)).map(Partition::number).collect()
    };
    let partitions = coordinators.iter().map(owned).collect();
    Ok(QueryAnswer::Coordinators { coordinators, policies, partitions })
}

async fn branches_of(handles: &Handles, trace_id: TraceId) -> Result<QueryAnswer, directory::Error> {
    match dependents::of(handles, trace_id).await {
        Ok(branches) => Ok(QueryAnswer::Branches { branches }),
        Err(dependents::Error::Store(error)) => Err(error.into()),
        Err(error @ (dependents::Error::Bus(_) | dependents::Error::Corrupt(_))) => {
            error_log::tell(&error, None, "the branches of a run can't be read");
            Ok(QueryAnswer::Refused(Refusal::unavailable()))
        }
    }
}

/// The stored state of a run. A run that can't be read is unavailable until it is rebuilt, when it
/// is next worked on.
async fn snapshot(handles: &Handles, trace_id: TraceId) -> Result<QueryAnswer, directory::Error> {
    let found = handles.store.load(&[trace_id]).await?.pop().map(|loaded| loaded.found);
    let record = match found {
        Some(
            OpenResult::Whole(record, _) | OpenResult::Refused(Broken { record: Some((record, _)), .. }),
        ) => record,
        Some(OpenResult::Refused(_)) => {
            let why = "the stored state of the run is not authentic; a coordinator rebuilds it from its event log when it next works on the run";
            return Ok(QueryAnswer::Refused(Refusal::not_authentic(why)));
        }
        Some(OpenResult::Foreign(_) | OpenResult::Damaged(_)) => {
            return Ok(QueryAnswer::Refused(Refusal::not_authentic(NOT_AUTHENTIC)));
        }
        Some(OpenResult::Nothing) | None => return Ok(QueryAnswer::Snapshot { state: None }),
    };
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
            tracing::warn!(%trace_id, %error, "a stored trace can't be read; its state can't be shown");
            Ok(QueryAnswer::Refused(Refusal::unavailable()))
        }
    }
}
