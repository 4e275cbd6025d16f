//! The cluster behind the bus: requests, published messages, and runs that are replayed from their logs. It does what the commands of
//! `trellis` do, and decides nothing.

use std::time::Duration;

use bus::{Bus, FirstWriters, From, Outgoing, RequestError, Stored, of_first_writers};
use domain::{
    ChildId, TraceId, decode,
    span::Headers,
    subject::{Filter, Subject},
    wire::{
        BY_HEADER, Control, HistoryEntry, Query, QueryAnswer, Refusal, RunSummary, RunsCursor, RunsQuery,
        WorkerCall, WorkerState,
    },
};
use host::clock::Clock;
use serde::{Serialize, de::DeserializeOwned};
use trace::{
    Command, ContextNode, Logged, Replay, Trace,
    account::{Journals, Ledger, LogMessage, ReadLog},
};
use uuid::Uuid;

use crate::{blocking::blocking, config::Caller, problem::ProblemDetails};

/// Timeout of one request. The coordinator answers after its commit.
pub(crate) const REQUEST: Duration = Duration::from_secs(10);
/// How long workers have to answer a broadcast.
pub(crate) const WORKERS_ANSWER: Duration = Duration::from_millis(500);

type Told<T> = Result<T, Box<ProblemDetails>>;

/// What an administrator's message says of its sender (S7); others say nothing.
pub(crate) fn headers(subject: &Subject, caller: &Caller) -> Headers {
    if matches!(subject, Subject::Admin(_)) {
        [(BY_HEADER.to_owned(), caller.name.clone())].into()
    } else {
        Headers::new()
    }
}

/// Asks a coordinator. With `again` the request is sent a second time if no answer comes, since a coordinator may have died between
/// its commit and its answer.
pub(crate) async fn request<A: DeserializeOwned>(
    bus: &Bus,
    caller: &Caller,
    subject: &Subject,
    payload: Vec<u8>,
    again: bool,
) -> Told<A> {
    let headers = headers(subject, caller);
    let mut asked = bus.request(subject, &headers, payload.clone().into(), REQUEST).await;
    if again && asked == Err(RequestError::TimedOut) {
        asked = bus.request(subject, &headers, payload.into(), REQUEST).await;
    }
    serde_json::from_slice(&asked?).map_err(|_| ProblemDetails::refused(Refusal::unexpected(subject.kind())))
}

/// The answer to a query, or the refusal of it.
pub(crate) async fn ask(bus: &Bus, caller: &Caller, query: &Query) -> Told<Result<QueryAnswer, Refusal>> {
    // A second time, the revision would be another.
    let again = !matches!(query, Query::PutSchedule { revision: Some(_), .. });
    let payload = serde_json::to_vec(query)
        .map_err(|error| ProblemDetails::internal("the query could not be written", &error))?;
    let subject = Subject::of_query(query);
    let answer: QueryAnswer = request(bus, caller, &subject, payload, again).await?;
    Ok(answer.or_refusal())
}

/// The same, if every refusal of it means what its code says.
pub(crate) async fn answer(bus: &Bus, caller: &Caller, query: &Query) -> Told<QueryAnswer> {
    ask(bus, caller, query).await?.map_err(ProblemDetails::refused)
}

/// An answer that belongs to another query.
pub(crate) fn unexpected() -> Box<ProblemDetails> {
    ProblemDetails::refused(Refusal::unexpected("query"))
}

/// A page of a list of runs.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) runs: Vec<RunSummary>,
    pub(crate) next: Option<RunsCursor>,
}

pub(crate) async fn find_runs(bus: &Bus, caller: &Caller, query: &RunsQuery) -> Told<Found> {
    let answer = answer(bus, caller, &Query::Runs(Box::new(query.clone()))).await?;
    let QueryAnswer::Runs { runs, next, .. } = answer else { return Err(unexpected()) };
    Ok(Found { runs, next })
}

/// Publishes a message for the coordinators. It is stored when this returns.
pub(crate) async fn publish(
    bus: &Bus,
    caller: &Caller,
    subject: Subject,
    message: &impl Serialize,
) -> Told<()> {
    let payload = serde_json::to_vec(message)
        .map_err(|error| ProblemDetails::internal("the message could not be written", &error))?;
    let headers = headers(&subject, caller);
    let id = Some(format!("gateway-{}", Uuid::now_v7().simple()));
    bus.publish(Outgoing { subject, id, headers, payload: payload.into(), expect_last: None }).await?;
    Ok(())
}

/// What an administrator asks for about a run, each on its own subject.
pub(crate) async fn control(bus: &Bus, caller: &Caller, control: &Control) -> Told<()> {
    for subject in Subject::of_control(control) {
        publish(bus, caller, subject, control).await?;
    }
    Ok(())
}

/// Refuses what the core would refuse, so that the client learns it at once. The coordinator decides again.
pub(crate) async fn rehearse(trace: Trace, command: Command) -> Told<Trace> {
    let decided = blocking(move || {
        let decided = trace::decide(&trace, command, Clock::Machine.now()).map(drop);
        decided.map(|()| trace).map_err(|refusal| refusal.to_wire())
    });
    decided.await?.map_err(ProblemDetails::refused_body)
}

pub(crate) async fn workers(bus: &Bus) -> Told<Vec<WorkerState>> {
    let call = serde_json::to_vec(&WorkerCall::Describe)
        .map_err(|error| ProblemDetails::internal("the call could not be written", &error))?;
    let answers = bus.gather(&Subject::Worker, call.into(), WORKERS_ANSWER).await?;
    let mut workers: Vec<WorkerState> =
        answers.iter().filter_map(|answer| serde_json::from_slice(answer).ok()).collect();
    workers.sort_by(|one, other| one.worker_id.cmp(&other.worker_id));
    Ok(workers)
}

pub(crate) fn no_trace(trace_id: TraceId) -> Box<ProblemDetails> {
    let hint = "`GET /v1/runs` lists the newest; logs are kept for a limited time";
    ProblemDetails::not_found("no_trace", format!("there is no run {trace_id}\n\nhint: {hint}"))
}

/// The run replayed from its log up to now; a refusal if there is no such run.
pub(crate) async fn replay(bus: &Bus, trace_id: TraceId) -> Told<Trace> {
    let trace = find(bus, trace_id).await?.ok_or_else(|| no_trace(trace_id))?;
    root(&trace)?;
    Ok(trace)
}

/// The root of a run; a refusal if there is none: the beginning of its log may be gone.
pub(crate) fn root(trace: &Trace) -> Told<&ContextNode> {
    match (trace.root(), trace.version()) {
        (Some(root), _) => Ok(root),
        (None, 0) => {
            let message = format!("the beginning of the event log of {} has expired", trace.id());
            Err(ProblemDetails::not_found("expired", message))
        }
        (None, _) => {
            let message = format!("{} was cancelled before any context began", trace.id());
            Err(ProblemDetails::not_found("not_begun", message))
        }
    }
}

/// The run replayed from whatever its log holds: the beginning may be gone, or no context may have begun.
pub(crate) async fn find(bus: &Bus, trace_id: TraceId) -> Told<Option<Trace>> {
    let stored = bus.read(&Filter::EventsOf(trace_id)).await?;
    if stored.is_empty() {
        return Ok(None);
    }
    let replayed = blocking(move || {
        let log = stored.iter().map(|message| logged(&message.payload)).collect::<Told<Vec<Logged>>>()?;
        // Whatever can be replayed: the remaining messages of a commit may not be stored yet.
        Ok(Replay::all(Trace::new(trace_id), log).0)
    });
    replayed.await?.map(Some)
}

pub(crate) fn logged(payload: &[u8]) -> Told<Logged> {
    serde_json::from_slice(payload).map_err(|error| {
        ProblemDetails::internal(
            "the log has an event that this version of the gateway does not know",
            &error,
        )
    })
}

pub(crate) fn entry(payload: &[u8]) -> Told<HistoryEntry> {
    decode::from_peer(payload).map_err(|problems| {
        ProblemDetails::internal(
            "the journal has an entry that this version of the gateway can't read",
            &problems,
        )
    })
}

/// The journal of a context as it is now; a refusal if it has none.
pub(crate) async fn journal(bus: &Bus, trace: TraceId, child: &ChildId) -> Told<Vec<HistoryEntry>> {
    let stored = of_first_writers(bus.read(&Filter::JournalOf(trace, child.clone())).await?);
    if stored.is_empty() {
        let others = bus.subjects(&Filter::HistoriesOf(trace)).await?;
        let owner = |subject| if let Subject::History(_, _, child) = subject { Some(child) } else { None };
        let others: Vec<String> = others.into_iter().filter_map(owner).map(|id| format!("`{id}`")).collect();
        let hint = if others.is_empty() {
            "built-in agents and graphs keep no journal, and journals are kept for a limited time".to_owned()
        } else {
            format!("these contexts have one: {}", others.join(", "))
        };
        let message = format!("`{child}` of the run {trace} has no journal\n\nhint: {hint}");
        return Err(ProblemDetails::not_found("no_journal", message));
    }
    blocking(move || stored.iter().map(|message| entry(&message.payload)).collect()).await?
}

pub(crate) fn message(stored: Stored) -> Told<LogMessage> {
    let Stored { sequence, id, at, payload, .. } = stored;
    Ok(LogMessage { sequence, id, stored_at: at, logged: logged(&payload)? })
}

/// What a run cost: its log, the ledger of it, and its journals. The journals are read first, so that a cost of which one
/// tells may be missing in the books, and never the other way round.
pub(crate) async fn account(bus: &Bus, trace_id: TraceId) -> Told<(ReadLog, Ledger, Journals)> {
    let journals = journals(bus, trace_id).await?;
    let stored = bus.read(&Filter::EventsOf(trace_id)).await?;
    if stored.is_empty() {
        return Err(no_trace(trace_id));
    }
    let read = blocking(move || {
        let messages = stored.into_iter().map(message).collect::<Told<Vec<_>>>()?;
        let log = ReadLog::new(trace_id, messages);
        let ledger = Ledger::of(&log);
        Ok((log, ledger, journals))
    });
    read.await?
}

async fn journals(bus: &Bus, trace_id: TraceId) -> Told<Journals> {
    let filter = Filter::HistoriesOf(trace_id);
    let mut journals = Journals::default();
    let Some(last) = bus.last(&filter).await? else { return Ok(journals) };
    let mut entries = bus.follow(&[filter], From::Start).await?;
    let mut writers = FirstWriters::default();
    loop {
        let stored = entries.next().await?;
        if writers.takes(&stored.subject) {
            journals.add(&entry(&stored.payload)?);
        }
        if stored.sequence >= last.sequence {
            return Ok(journals);
        }
    }
}
