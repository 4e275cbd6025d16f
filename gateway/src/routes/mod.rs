//! The table of the API's routes: the path of each, the rights on the bus that it requires, and its
//! handler.

mod agents;
mod contexts;
mod controls;
mod deployment;
mod events;
mod graphs;
mod runs;
mod schedules;

pub(crate) use agents::profiles;
pub(crate) use contexts::{named_file, outputs_of};
pub(crate) use deployment::{coordinators_now, dead_letters};
pub(crate) use runs::{content, context, is_known, open_questions, tagged, wanted as wanted_runs};
pub(crate) use schedules::page as page_of_schedules;

use axum::http::{Method, StatusCode};
use domain::{
    AgentProfile, ChildId, PoolName, TraceId,
    graph::TaskGraph,
    subject::{Action, Subject, Topic},
    wire::{
        Acceptance, AgentVersion, Charge, GraphShown, HistoryEntry, OutputFile, Raise, Schedule,
        ScheduleShown, WorkerState,
    },
};

use crate::{
    parameter::{EVENTS, GRAPHS, LETTERS, QUESTIONS, REVISION, RUNS, SCHEDULES, VERSION, of},
    route::Route,
    types,
};

const KEY: &[(&str, &str)] = &[(
    "Idempotency-Key",
    "Identifies the request: repeating it with the same key and token returns the same answer.",
)];
const TAG: &[(&str, &str)] = &[("If-None-Match", "The `ETag` of an earlier answer: 304 if nothing changed.")];
const RESUME: &[(&str, &str)] =
    &[("Last-Event-ID", "The id of the last event that the client received; the stream continues after it.")];
const RANGE: &[(&str, &str)] = &[
    ("Range", "One range of bytes."),
    (
        "If-Range",
        "The `ETag` of the file of which the client has a part; if it differs, the whole file is sent.",
    ),
    ("If-None-Match", "The `ETag` of an earlier answer: 304 if it is the same file."),
];

/// All routes except the OpenAPI document.
pub(crate) fn table() -> Vec<Route> {
    let (trace, child) = (TraceId::from_u128(1).expect("not all zeros"), ChildId::whole_trace());
    // The rights do not depend on the run, so any id will do.
    let event = || Subject::Event(trace, child.clone());
    let history = || Subject::History(PoolName::default_pool(), trace, child.clone());
    let words = || Subject::Stream(trace, child.clone());
    let dead = || Subject::Dead(child.clone());
    let (query, admin) = (Subject::Query, Subject::Admin);
    let (get, post, put, delete) = (Method::GET, Method::POST, Method::PUT, Method::DELETE);
    let (ok, created, accepted) = (StatusCode::OK, StatusCode::CREATED, StatusCode::ACCEPTED);
    let (same, part) = (StatusCode::NOT_MODIFIED, StatusCode::PARTIAL_CONTENT);
    let octets = "application/octet-stream";
    let stream = "text/event-stream";
    vec![
        Route::new(
            post.clone(),
            "/v1/runs",
            "submitRun",
            "Start a run: an agent, a graph, or an earlier run again",
            |c| Box::pin(runs::submit(c)),
        )
        .sends(Subject::Submit)
        .headers(KEY)
        .takes_schema(types::submission)
        .gives::<Acceptance>(created, "The run is committed; `Location` is its address."),
        Route::new(get.clone(), "/v1/runs", "listRuns", "Runs, the newest first", |c| {
            Box::pin(runs::list(c))
        })
        .sends(query(Topic::Runs))
        .query(RUNS)
        .gives::<types::RunsPage>(ok, "A page of runs."),
        Route::new(get.clone(), "/v1/runs/{trace}", "getRun", "A run with its tree", |c| {
            Box::pin(runs::show(c))
        })
        .hears(event())
        .headers(TAG)
        .gives::<types::Run>(ok, "The run; its `ETag` changes with every event.")
        .gives_nothing(same, "Unchanged: the client has the current version."),
        Route::new(
            get.clone(),
            "/v1/runs/{trace}/result",
            "getResult",
            "The result of a run that has ended, whole",
            |c| Box::pin(runs::result(c)),
        )
        .hears(event())
        .gives_as(ok, "The result.", "application/json", types::any),
        Route::new(
            get.clone(),
            "/v1/runs/{trace}/events",
            "getEvents",
            "The event log of a run, or a stream of it until it ends",
            |c| Box::pin(events::events(c)),
        )
        .hears(event())
        .query(EVENTS)
        .headers(RESUME)
        .gives::<Vec<types::LoggedEvent>>(
            ok,
            "The events so far; with `Accept: text/event-stream`, a stream of all events, with the outcome last.",
        )
        .gives_as(ok, "", stream, types::event)
        .gives_nothing(StatusCode::NO_CONTENT, "The client has received every event and the outcome."),
        Route::new(
            get.clone(),
            "/v1/runs/{trace}/words",
            "getWords",
            "The text of a run's agents, live",
            |c| Box::pin(events::words(c)),
        )
        .hears(event())
        .hears(words())
        .gives_as(ok, "Pieces of text, until the run ends.", stream, types::event),
        Route::new(
            get.clone(),
            "/v1/runs/{trace}/receipt",
            "getReceipt",
            "The cost of a run, line by line",
            |c| Box::pin(runs::receipt(c)),
        )
        .hears(event())
        .hears(history())
        .gives_as(
            ok,
            "The receipt; `whole` is false if the event log is incomplete.",
            "application/json",
            types::object,
        ),
        Route::new(
            get.clone(),
            "/v1/runs/{trace}/contexts/{child}/result",
            "getContextResult",
            "The result of a context that has ended, whole",
            |c| Box::pin(runs::context_result(c)),
        )
        .hears(event())
        .gives_as(ok, "The result.", "application/json", types::any),
        Route::new(
            get.clone(),
            "/v1/runs/{trace}/contexts/{child}/journal",
            "getJournal",
            "The journal of a context",
            |c| Box::pin(contexts::journal(c)),
        )
        .hears(history())
        .gives::<Vec<HistoryEntry>>(ok, "The journal entries."),
        Route::new(
            get.clone(),
            "/v1/runs/{trace}/contexts/{child}/outputs",
            "listOutputs",
            "The files that a context left",
            |c| Box::pin(contexts::outputs(c)),
        )
        .hears(history())
        .gives::<Vec<OutputFile>>(ok, "The paths, sizes and checksums of the files."),
        Route::new(
            get.clone(),
            "/v1/runs/{trace}/contexts/{child}/outputs/{*path}",
            "getOutput",
            "A file that a context left, or a part of it",
            |c| Box::pin(contexts::output(c)),
        )
        .hears(history())
        .headers(RANGE)
        .gives_as(ok, "The file.", octets, types::text)
        .gives_as(part, "The requested part of the file.", octets, types::text)
        .gives_nothing(same, "Unchanged: the client has the current version."),
        Route::new(
            post.clone(),
            "/v1/runs/{trace}/cancel",
            "cancelRun",
            "Cancel a run, or one context of it",
            |c| Box::pin(controls::cancel(c)),
        )
        .sends(Subject::Cancel)
        .hears(event())
        .may_take::<types::Cancel>()
        .gives::<types::Stored>(accepted, "The message is stored."),
        Route::new(
            post.clone(),
            "/v1/runs/{trace}/raise",
            "raiseBudget",
            "Raise the ceilings of a context",
            |c| Box::pin(controls::raise(c)),
        )
        .sends(admin(Action::Raise))
        .hears(event())
        .takes::<Raise>()
        .gives::<types::Stored>(accepted, "The message is stored."),
        Route::new(post.clone(), "/v1/runs/{trace}/charge", "chargeRun", "Book an external cost", |c| {
            Box::pin(controls::charge(c))
        })
        .sends(admin(Action::Charge))
        .hears(event())
        .takes::<Charge>()
        .gives::<types::Stored>(accepted, "The message is stored."),
        Route::new(
            post.clone(),
            "/v1/runs/{trace}/restore",
            "restoreContext",
            "Take a live agent back to a step of its journal",
            |c| Box::pin(controls::restore(c)),
        )
        .sends(admin(Action::Restore))
        .hears(event())
        .hears(history())
        .takes::<types::Restore>()
        .gives::<types::Stored>(accepted, "The message is stored."),
        Route::new(
            post.clone(),
            "/v1/runs/{trace}/delete",
            "deleteRun",
            "Delete the content of a run, or of one context of it",
            |c| Box::pin(controls::delete(c)),
        )
        .sends(admin(Action::Delete))
        .sends(query(Topic::Runs))
        .hears(event())
        .may_take::<types::Delete>()
        .gives::<types::Stored>(accepted, "The message is stored."),
        Route::new(
            post.clone(),
            "/v1/runs/{trace}/contexts/{child}/tell",
            "tellAgent",
            "Send a message to an agent",
            |c| Box::pin(controls::tell(c)),
        )
        .sends(Subject::Steer)
        .headers(KEY)
        .takes::<types::Tell>()
        .gives::<types::Told>(ok, "The message is committed under this number."),
        Route::new(
            post.clone(),
            "/v1/runs/{trace}/contexts/{child}/answers/{number}",
            "answerQuestion",
            "Answer a question of an agent",
            |c| Box::pin(controls::answer(c)),
        )
        .sends(Subject::Steer)
        .takes::<types::Answer>()
        .gives::<types::Answered>(ok, "The answer is committed."),
        Route::new(
            get.clone(),
            "/v1/questions",
            "listQuestions",
            "Open questions of runs that wait for a human, the newest run first",
            |c| Box::pin(runs::questions(c)),
        )
        .sends(query(Topic::Runs))
        .query(QUESTIONS)
        .gives::<types::QuestionsPage>(ok, "A page of questions."),
        Route::new(get.clone(), "/v1/agents", "listAgents", "The agent profiles", |c| {
            Box::pin(agents::list(c))
        })
        .sends(query(Topic::Agents))
        .gives::<types::Agents>(ok, "All profiles."),
        Route::new(get.clone(), "/v1/agents/{agent}", "getAgent", "An agent profile", |c| {
            Box::pin(agents::show(c))
        })
        .sends(query(Topic::Agents))
        .query(VERSION)
        .gives::<AgentVersion>(ok, "The requested version; without `version`, the latest."),
        Route::new(
            put.clone(),
            "/v1/agents/{agent}",
            "applyAgent",
            "Add an agent profile, or replace it",
            |c| Box::pin(agents::apply(c)),
        )
        .sends(admin(Action::Apply))
        .takes::<AgentProfile>()
        .gives::<types::AgentApplied>(ok, "The profile is stored; new runs use it."),
        Route::new(delete.clone(), "/v1/agents/{agent}", "deleteAgent", "Delete an agent profile", |c| {
            Box::pin(agents::delete(c))
        })
        .sends(admin(Action::Apply))
        .sends(query(Topic::Agents))
        .gives::<types::AgentDeleted>(ok, "Deleted: new runs can't use it."),
        Route::new(get.clone(), "/v1/schedules", "listSchedules", "All schedules, by name", |c| {
            Box::pin(schedules::list(c))
        })
        .sends(query(Topic::Schedules))
        .query(SCHEDULES)
        .gives::<types::SchedulesPage>(ok, "A page of schedules."),
        Route::new(
            get.clone(),
            "/v1/schedules/{schedule}",
            "getSchedule",
            "A schedule with its ticks",
            |c| Box::pin(schedules::show(c)),
        )
        .sends(query(Topic::Schedules))
        .gives::<ScheduleShown>(ok, "The schedule."),
        Route::new(
            put.clone(),
            "/v1/schedules/{schedule}",
            "putSchedule",
            "Add a schedule, or replace it",
            |c| Box::pin(schedules::put(c)),
        )
        .sends(admin(Action::Schedules))
        .query(REVISION)
        .takes::<Schedule>()
        .gives::<types::ScheduleKept>(ok, "The schedule is stored."),
        Route::new(delete.clone(), "/v1/schedules/{schedule}", "deleteSchedule", "Delete a schedule", |c| {
            Box::pin(schedules::delete(c))
        })
        .sends(admin(Action::Schedules))
        .gives::<types::ScheduleDeleted>(ok, "The schedule is deleted: it starts no further runs."),
        Route::new(
            post.clone(),
            "/v1/schedules/{schedule}/pause",
            "pauseSchedule",
            "Pause a schedule",
            |c| Box::pin(schedules::pause(c)),
        )
        .sends(admin(Action::Schedules))
        .gives::<types::ScheduleKept>(ok, "The schedule is paused."),
        Route::new(
            post.clone(),
            "/v1/schedules/{schedule}/resume",
            "resumeSchedule",
            "Resume a schedule",
            |c| Box::pin(schedules::resume(c)),
        )
        .sends(admin(Action::Schedules))
        .gives::<types::ScheduleKept>(ok, "The schedule is resumed."),
        Route::new(
            post.clone(),
            "/v1/schedules/{schedule}/run",
            "runSchedule",
            "Run a schedule once, now",
            |c| Box::pin(schedules::run(c)),
        )
        .sends(admin(Action::Schedules))
        .headers(KEY)
        .gives::<types::ScheduleRun>(created, "The run is accepted; `Location` is its address."),
        Route::new(get.clone(), "/v1/graphs", "listGraphs", "Stored graphs, by name", |c| {
            Box::pin(graphs::list(c))
        })
        .sends(query(Topic::Graphs))
        .query(GRAPHS)
        .gives::<types::GraphsPage>(ok, "A page of graphs."),
        Route::new(get.clone(), "/v1/graphs/{graph}", "getGraph", "A stored graph", |c| {
            Box::pin(graphs::show(c))
        })
        .sends(query(Topic::Graphs))
        .query(VERSION)
        .gives::<GraphShown>(ok, "The requested version; without `version`, the latest."),
        Route::new(put, "/v1/graphs/{graph}", "putGraph", "Store a graph under a name", |c| {
            Box::pin(graphs::put(c))
        })
        .sends(admin(Action::Graphs))
        .takes::<TaskGraph>()
        .gives::<types::GraphKept>(ok, "The graph is stored; if its content changed, as a new version."),
        Route::new(delete.clone(), "/v1/graphs/{graph}", "deleteGraph", "Delete a stored graph", |c| {
            Box::pin(graphs::delete(c))
        })
        .sends(admin(Action::Graphs))
        .gives::<types::GraphDeleted>(ok, "Deleted: new runs can't use it."),
        Route::new(get.clone(), "/v1/workers", "listWorkers", "The workers that answer now", |c| {
            Box::pin(deployment::workers(c))
        })
        .sends(Subject::Worker)
        .gives::<Vec<WorkerState>>(ok, "The workers, each with its state and its attempts."),
        Route::new(
            post.clone(),
            "/v1/workers/{worker}/drain",
            "drainWorker",
            "Drain a worker: it takes no more work, and ends",
            |c| Box::pin(deployment::drain(c)),
        )
        .sends(Subject::Worker)
        .sends(admin(Action::Drain))
        .gives::<types::ToldToDrain>(accepted, "The request was sent to the worker."),
        Route::new(
            get.clone(),
            "/v1/coordinators",
            "listCoordinators",
            "The coordinators and their policies",
            |c| Box::pin(deployment::coordinators(c)),
        )
        .sends(query(Topic::Coordinators))
        .gives::<types::Coordinators>(ok, "All coordinators."),
        Route::new(
            get.clone(),
            "/v1/dead",
            "listDeadLetters",
            "Dead letters (messages refused for good), the newest first",
            |c| Box::pin(deployment::letters(c)),
        )
        .hears(dead())
        .query(LETTERS)
        .gives::<types::LettersPage>(ok, "A page of dead letters."),
        Route::new(get.clone(), "/v1/dead/{kind}/{sequence}", "getDeadLetter", "A dead letter", |c| {
            Box::pin(deployment::one_letter(c))
        })
        .hears(dead())
        .gives::<types::KeptLetter>(ok, "The dead letter."),
        Route::new(
            post.clone(),
            "/v1/dead/{kind}/{sequence}/retry",
            "retryDeadLetter",
            "Send its message again, and drop the letter; the body is the original message, byte by byte",
            |c| Box::pin(deployment::retry_letter(c)),
        )
        .hears(dead())
        .takes_schema(types::any)
        .gives::<types::SentAgain>(accepted, "The message is stored; if it is refused again, a new dead letter appears."),
        Route::new(delete, "/v1/dead/{kind}/{sequence}", "dropDeadLetter", "Drop a dead letter", |c| {
            Box::pin(deployment::drop_letter(c))
        })
        .hears(dead())
        .gives_nothing(StatusCode::NO_CONTENT, "The dead letter is dropped."),
        Route::new(
            post,
            "/v1/sign-in-codes",
            "makeSignInCode",
            "Make a code that opens the page in a browser, once, within ten minutes",
            |c| Box::pin(deployment::sign_in_code(c)),
        )
        .gives::<types::SignInCode>(created, "The code."),
        Route::new(get.clone(), "/healthz", "getHealth", "200 if the gateway runs", |c| {
            Box::pin(deployment::health(c))
        })
        .open()
        .gives_as(ok, "The gateway runs.", "text/plain", of::<String>),
        Route::new(get, "/readyz", "getReadiness", "200 if the gateway reaches the bus", |c| {
            Box::pin(deployment::readiness(c))
        })
        .open()
        .gives_as(ok, "The gateway reaches the bus.", "text/plain", of::<String>),
    ]
}
