//! The pages for browsers: runs, agents, money, workers and more. They are generated here as HTML
//! and SVG, and updated by server-sent events and a small script. Text of agents, tools and users
//! never becomes markup: every value is escaped, and only this folder generates markup.

mod agents;
mod answer;
mod asset;
mod bar;
mod card;
mod context;
mod dead;
mod entry;
mod fields;
mod files;
mod graph;
mod layout;
mod live;
mod money;
mod money_bars;
mod open_requests;
mod operations;
mod playground;
mod questions;
mod raise;
mod receipt;
mod row;
mod run;
mod runs;
mod schedules;
mod shell;
mod spend_last_24h;
mod status;
mod timeline;
mod waiting_contexts;
mod workers;

use axum::http::Method;
use domain::{
    ChildId, PoolName, TraceId,
    subject::{Action, Subject, Topic},
};

pub(crate) use answer::{ASSETS, Place, SIGN_IN, base, refused};

use crate::{
    parameter::{
        ASSET, CONTEXT_VIEW, GRAPH_VIEW, LETTERS, LIVE_RUNS, MONEY_VIEW, QUESTIONS, ROWS, RUN_VIEW, SCHEDULES,
    },
    route::Route,
};

/// The routes for browsers. They are not in the OpenAPI document.
pub(crate) fn table() -> Vec<Route> {
    let (trace, child) = (TraceId::from_u128(1).expect("not all zeros"), ChildId::whole_trace());
    let event = || Subject::Event(trace, child.clone());
    let words = || Subject::Stream(trace, child.clone());
    let history = || Subject::History(PoolName::default_pool(), trace, child.clone());
    let get = |path, id, handler| Route::new(Method::GET, path, id, "", handler);
    vec![
        get("/", "pageOfRuns", |call| Box::pin(runs::list(call)))
            .sends(Subject::Query(Topic::Runs))
            .query(LIVE_RUNS),
        get("/live", "liveRuns", |call| Box::pin(runs::live(call)))
            .sends(Subject::Query(Topic::Runs))
            .query(LIVE_RUNS),
        get("/today", "spentToday", |call| Box::pin(spend_last_24h::show(call)))
            .sends(Subject::Query(Topic::Runs)),
        get("/runs/{trace}", "pageOfRun", |call| Box::pin(run::show(call))).hears(event()).query(RUN_VIEW),
        get("/runs/{trace}/live", "liveRun", |call| Box::pin(live::run(call)))
            .hears(event())
            .hears(words())
            .query(RUN_VIEW),
        get("/runs/{trace}/graph", "graphOfRun", |call| Box::pin(graph::show(call)))
            .hears(event())
            .query(GRAPH_VIEW),
        get("/runs/{trace}/graph/live", "liveGraph", |call| Box::pin(graph::live(call)))
            .hears(event())
            .query(GRAPH_VIEW),
        get("/runs/{trace}/money", "moneyOfRun", |call| Box::pin(money_bars::show(call)))
            .hears(event())
            .query(MONEY_VIEW),
        get("/runs/{trace}/money/live", "liveMoney", |call| Box::pin(money_bars::live(call)))
            .hears(event())
            .query(GRAPH_VIEW),
        get("/runs/{trace}/receipt", "receiptAsPage", |call| Box::pin(receipt::show(call)))
            .hears(event())
            .hears(history()),
        get("/runs/{trace}/events", "eventsOfRun", |call| Box::pin(receipt::events(call)))
            .hears(event())
            .hears(history())
            .query(ROWS),
        get("/runs/{trace}/files", "filesOfRun", |call| Box::pin(files::list(call)))
            .hears(event())
            .hears(history()),
        get("/runs/{trace}/contexts/{child}/files/{*path}", "fileOfContext", |call| {
            Box::pin(files::show(call))
        })
        .hears(event())
        .hears(history()),
        get("/runs/{trace}/timeline", "timelineOfRun", |call| Box::pin(timeline::show(call)))
            .hears(event())
            .hears(history())
            .query(ROWS),
        get("/runs/{trace}/rows/{child}", "rowsOfContext", |call| Box::pin(run::rows(call)))
            .hears(event())
            .query(ROWS),
        get("/runs/{trace}/contexts/{child}", "pageOfContext", |call| Box::pin(context::show(call)))
            .hears(event())
            .hears(history())
            .query(CONTEXT_VIEW),
        get("/runs/{trace}/contexts/{child}/entries/{number}", "pageOfEntry", |call| {
            Box::pin(entry::show(call))
        })
        .hears(event())
        .hears(history()),
        get("/runs/{trace}/contexts/{child}/live", "liveContext", |call| Box::pin(live::context(call)))
            .hears(event())
            .hears(history())
            .hears(words())
            .query(CONTEXT_VIEW),
        get("/questions", "pageOfQuestions", |call| Box::pin(questions::list(call)))
            .sends(Subject::Query(Topic::Runs))
            .query(QUESTIONS),
        get("/questions/count", "countOfQuestions", |call| Box::pin(questions::count_open(call)))
            .sends(Subject::Query(Topic::Runs)),
        get("/workers", "pageOfWorkers", |call| Box::pin(workers::list(call))).sends(Subject::Worker),
        get("/operations", "pageOfOperations", |call| Box::pin(operations::show(call)))
            .sends(Subject::Query(Topic::Coordinators))
            .sends(Subject::Worker),
        get("/agents", "pageOfAgents", |call| Box::pin(agents::list(call)))
            .sends(Subject::Query(Topic::Agents)),
        get("/schedules", "pageOfSchedules", |call| Box::pin(schedules::list(call)))
            .sends(Subject::Query(Topic::Schedules))
            .query(SCHEDULES),
        get("/dead", "pageOfDeadLetters", |call| Box::pin(dead::list(call)))
            .hears(Subject::Dead(child.clone()))
            .query(LETTERS),
        get("/playground", "pageOfPlayground", |call| Box::pin(playground::show(call)))
            .sends(Subject::Submit),
        Route::new(Method::POST, "/playground/check", "checkGraph", "", |call| {
            Box::pin(playground::check(call))
        })
        .sends(Subject::Submit)
        .sends(Subject::Query(Topic::Agents))
        .takes::<playground::PlaygroundForm>(),
        Route::new(Method::POST, "/playground/kill", "killWorker", "", |call| {
            Box::pin(playground::kill(call))
        })
        .sends(Subject::Admin(Action::Drain))
        .may_take::<playground::Nothing>(),
        Route::new(Method::POST, "/sign-out", "signOut", "", |call| Box::pin(answer::sign_out(call))),
        get("/assets/{name}", "asset", |call| Box::pin(asset::get(call))).open().query(ASSET),
    ]
}
