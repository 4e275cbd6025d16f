//! A client of a cluster over the bus: submit, query, publish, replay a trace. Prints nothing.

use std::time::Duration;

use anyhow::Context;
use bus::{Bus, Outgoing, PublishError, RequestError};
use domain::{
    ChildId, Timestamp, TraceId,
    graph::TaskGraph,
    span::Headers,
    subject::{Filter, Subject},
    wire::{
        Answered, BY_HEADER, Cancel, ContextStatus, Control, Query, QueryAnswer, Question, Refusal, Rerun,
        RunSummary, RunsQuery, Spawn, SubmitAnswer, Text, WorkerCall, WorkerState,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep};
use trace::{Event, Logged, Replay, Trace};
use uuid::Uuid;

use crate::cluster::{
    connect::{Unreachable, denied_hint, unreachable},
    process_id,
};

/// Timeout of one request. The coordinator answers after its commit.
const REQUEST: Duration = Duration::from_secs(10);
/// How long a request is retried while no coordinator listens: one may be restarting, and an embedded one starts
/// together with the command.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a published message may take to show an effect in the log.
pub(crate) const TAKES_EFFECT: Duration = Duration::from_secs(5);

/// How long workers have to answer a broadcast.
pub(crate) const WORKERS_ANSWER: Duration = Duration::from_millis(500);

/// A submission with all its ids. A second delivery has the same ids, so that nothing is run twice.
#[derive(Debug, Clone)]
pub(crate) enum Submission {
    Spawn(Box<Spawn>),
    Graph(Box<TaskGraph>),
    Rerun(Box<Rerun>),
}

impl Submission {
    pub(crate) fn spawn(mut spawn: Spawn) -> Self {
        let named = spawn.agent_id.as_ref().map_or("root", |agent| agent.as_str());
        spawn.child_id.get_or_insert_with(|| ChildId::new(named).expect("the two grammars are one"));
        spawn.trace_id.get_or_insert_with(fresh_trace);
        Submission::Spawn(Box::new(spawn))
    }

    pub(crate) fn graph(mut graph: TaskGraph) -> Self {
        let named = graph.name.as_ref().map_or("graph", |name| name.as_str());
        graph.child_id.get_or_insert_with(|| ChildId::new(named).expect("the two grammars are one"));
        graph.trace_id.get_or_insert_with(fresh_trace);
        Submission::Graph(Box::new(graph))
    }

    fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        match self {
            Submission::Spawn(spawn) => serde_json::to_vec(spawn),
            Submission::Graph(graph) => serde_json::to_vec(graph),
            Submission::Rerun(rerun) => serde_json::to_vec(rerun),
        }
    }
}

/// An id for a new run.
pub(crate) fn fresh_trace() -> TraceId {
    TraceId::from_u128(Uuid::new_v4().as_u128()).expect("a version is not all zeros")
}

/// Submits; the answer comes after the commit, or is a refusal. Sent again, it is the same submission.
pub(crate) async fn submit(bus: &Bus, submission: &Submission) -> anyhow::Result<SubmitAnswer> {
    request_again(bus, &Subject::Submit, submission.to_bytes()?, "the submission").await
}

pub(crate) async fn query(bus: &Bus, query: &Query) -> anyhow::Result<QueryAnswer> {
    request(bus, &Subject::of_query(query), serde_json::to_vec(query)?, "the query").await
}

/// As `query`, for one that changes nothing if it comes again.
pub(crate) async fn query_again(bus: &Bus, query: &Query) -> anyhow::Result<QueryAnswer> {
    request_again(bus, &Subject::of_query(query), serde_json::to_vec(query)?, "the query").await
}

/// The runs that are not over and do not wait for a human, the newest first: as many as a page has.
pub(crate) async fn going(bus: &Bus) -> anyhow::Result<Vec<RunSummary>> {
    let status = vec![ContextStatus::Submitted, ContextStatus::Working];
    let query = RunsQuery { limit: PAGE, status, waiting_for_human: Some(false), ..RunsQuery::default() };
    let answer = query_again(bus, &Query::Runs(Box::new(query))).await?;
    if let QueryAnswer::Runs { runs, .. } = answer { Ok(runs) } else { Err(unexpected(&answer)) }
}

/// The most that one page of an answer lists.
pub(crate) const PAGE: u32 = 500;

/// What all pages of an answer list. `query` asks for the page after a name, `page` reads it from its answer.
pub(crate) async fn all_pages<T, N>(
    bus: &Bus,
    query: impl Fn(Option<N>, u32) -> Query,
    page: impl Fn(QueryAnswer) -> anyhow::Result<(Vec<T>, Option<N>)>,
) -> anyhow::Result<Result<Vec<T>, Refusal>> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let answer = match query_again(bus, &query(after, PAGE)).await?.or_refusal() {
            Ok(answer) => answer,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let (listed, next) = page(answer)?;
        all.extend(listed);
        match next {
            Some(next) => after = Some(next),
            None => return Ok(Ok(all)),
        }
    }
}

/// The error for an answer that belongs to another query.
pub(crate) fn unexpected(answer: &QueryAnswer) -> anyhow::Error {
    anyhow::anyhow!("the coordinator gave an answer that does not fit the query: {answer:?}")
}

/// As `request`, for what changes nothing if it comes again: it is sent again if no answer comes, since a coordinator may have
/// died between its commit and its answer.
async fn request_again<A: DeserializeOwned>(
    bus: &Bus,
    subject: &Subject,
    payload: Vec<u8>,
    what: &str,
) -> anyhow::Result<A> {
    match request(bus, subject, payload.clone(), what).await {
        Err(error) if error.is::<Unreachable>() => request(bus, subject, payload, what).await,
        answer => answer,
    }
}

async fn request<A: DeserializeOwned>(
    bus: &Bus,
    subject: &Subject,
    payload: Vec<u8>,
    what: &str,
) -> anyhow::Result<A> {
    let started = Instant::now();
    loop {
        let asked = bus.request(subject, &headers(subject), payload.clone().into(), REQUEST).await;
        let why = match asked {
            Ok(answer) => {
                return serde_json::from_slice(&answer).context("could not read the coordinator's answer");
            }
            Err(RequestError::NoResponders) if started.elapsed() < PATIENCE => {
                sleep(PAUSE).await;
                continue;
            }
            Err(RequestError::NoResponders) => format!("no coordinator listens for {what}"),
            Err(RequestError::TimedOut) => {
                format!("no coordinator answered {what} within {} s", REQUEST.as_secs())
            }
            Err(RequestError::Denied(denied)) => return Err(denied_hint(&denied)),
            Err(RequestError::Other(why)) => format!("could not send {what}: {why}"),
        };
        let hint = match bus {
            Bus::Http(_) => {
                "check the address (TRELLIS_URL) and the token (TRELLIS_TOKEN_FILE); `trellis doctor` asks the server"
            }
            Bus::Nats(_) | Bus::Memory(_) | Bus::Disk(_) => {
                "is a coordinator running (`trellis coordinator`), in the same --namespace? `trellis doctor` checks each server"
            }
        };
        return Err(Unreachable(format!("{why}\n\nhint: {hint}")).into());
    }
}

/// What an administrator's message says of its sender (S7); others say nothing.
fn headers(subject: &Subject) -> Headers {
    if matches!(subject, Subject::Admin(_)) {
        [(BY_HEADER.to_owned(), process_id::user())].into()
    } else {
        Headers::new()
    }
}

/// Publishes a message for the coordinators. It is stored in the stream when this returns.
pub(crate) async fn publish(bus: &Bus, subject: Subject, message: &impl Serialize) -> anyhow::Result<()> {
    let payload = serde_json::to_vec(message)?.into();
    let id = Some(format!("cli-{}", Uuid::now_v7().simple()));
    let headers = headers(&subject);
    let outgoing = Outgoing { subject, id, headers, payload, expect_last: None };
    match bus.publish(outgoing).await {
        Ok(_) => Ok(()),
        Err(PublishError::Denied(denied)) => Err(denied_hint(&denied)),
        Err(error) => {
            Err(Unreachable(format!("{error}\n\nhint: `trellis doctor` checks each server")).into())
        }
    }
}

/// What an administrator asks for about a run, each on its own subject.
pub(crate) async fn control(bus: &Bus, control: &Control) -> anyhow::Result<()> {
    for subject in Subject::of_control(control) {
        publish(bus, subject, control).await?;
    }
    Ok(())
}

pub(crate) async fn cancel(
    bus: &Bus,
    trace_id: TraceId,
    child_id: Option<ChildId>,
    reason: Option<Text>,
    without_undo: bool,
) -> anyhow::Result<()> {
    publish(bus, Subject::Cancel, &Cancel { trace_id, child_id, reason, without_undo }).await
}

/// Answers a question. It has the answer when this returns, or the answer is refused.
pub(crate) async fn answer(
    bus: &Bus,
    question: &Question,
    answer: Text,
    by: Option<Text>,
) -> anyhow::Result<Result<(), Refusal>> {
    let (trace_id, child_id) = (question.trace_id, question.child_id.clone());
    let answered = Answered { child_id, question: question.number, answer, by };
    match query_again(bus, &Query::Answer { trace_id, answered }).await?.or_refusal() {
        Ok(QueryAnswer::Answered { .. }) => Ok(Ok(())),
        Err(refusal) => Ok(Err(refusal)),
        Ok(other) => Err(unexpected(&other)),
    }
}

/// The workers that answer a broadcast within [`WORKERS_ANSWER`], sorted by name.
pub(crate) async fn workers(bus: &Bus) -> anyhow::Result<Vec<WorkerState>> {
    let call = serde_json::to_vec(&WorkerCall::Describe)?;
    let answers = bus.gather(&Subject::Worker, call.into(), WORKERS_ANSWER).await;
    let answers = answers.map_err(|error| unreachable(&error))?;
    let mut workers: Vec<WorkerState> =
        answers.iter().filter_map(|answer| serde_json::from_slice(answer).ok()).collect();
    workers.sort_by(|one, other| one.worker_id.cmp(&other.worker_id));
    Ok(workers)
}

/// The trace replayed from its log up to now; an error if there is no such trace.
pub(crate) async fn replay(bus: &Bus, trace_id: TraceId) -> anyhow::Result<Trace> {
    let Some(trace) = find(bus, trace_id).await? else {
        anyhow::bail!(
            "there is no run {trace_id}\n\nhint: `trellis runs list` shows the newest; logs are kept for a limited \
             time"
        );
    };
    match (trace.root(), trace.version()) {
        (Some(_), _) => Ok(trace),
        (None, 0) => {
            anyhow::bail!("run {trace_id} can't be shown: the beginning of its event log has expired")
        }
        (None, _) => {
            anyhow::bail!("run {trace_id} can't be shown: it was cancelled before any context began")
        }
    }
}

/// The trace replayed from whatever its log holds: the beginning may be gone, or no context may have begun.
pub(crate) async fn find(bus: &Bus, trace_id: TraceId) -> anyhow::Result<Option<Trace>> {
    let stored = bus.read(&Filter::EventsOf(trace_id)).await.map_err(|error| unreachable(&error))?;
    let log =
        stored.iter().map(|message| logged(&message.payload)).collect::<anyhow::Result<Vec<Logged>>>()?;
    // Whatever can be replayed: the remaining messages of a commit may not be stored yet.
    Ok((!log.is_empty()).then(|| Replay::all(Trace::new(trace_id), log).0))
}

/// When the first attempt of a run began, if its log still says so.
pub(crate) async fn first_claim(bus: &Bus, trace_id: TraceId) -> anyhow::Result<Option<Timestamp>> {
    let stored = bus.read(&Filter::EventsOf(trace_id)).await.map_err(|error| unreachable(&error))?;
    let is_claim = |event: &Event| matches!(event, Event::Claimed { .. });
    let mut log = stored.iter().filter_map(|message| logged(&message.payload).ok());
    Ok(log.find(|logged| logged.events.iter().any(is_claim)).map(|logged| logged.at))
}

pub(crate) fn logged(payload: &[u8]) -> anyhow::Result<Logged> {
    serde_json::from_slice(payload).context("the log has an event this version of trellis does not know")
}

/// Replays a trace until a condition holds or [`TAKES_EFFECT`] is over. Returns the last state and whether it held.
pub(crate) async fn until(
    bus: &Bus,
    trace_id: TraceId,
    holds: impl Fn(&Trace) -> bool,
) -> anyhow::Result<(Trace, bool)> {
    let started = Instant::now();
    loop {
        let trace = find(bus, trace_id).await?.unwrap_or_else(|| Trace::new(trace_id));
        if holds(&trace) {
            return Ok((trace, true));
        }
        if started.elapsed() >= TAKES_EFFECT {
            return Ok((trace, false));
        }
        sleep(10 * PAUSE).await;
    }
}
