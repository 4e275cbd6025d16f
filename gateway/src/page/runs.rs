//! The list of runs, the newest first. Its filters are part of the address. Changed rows are
//! updated in place, and new runs are announced, so that the rows do not move.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use axum::response::sse::Event;
use client::RunList;
use domain::{
    TraceId,
    labels::Labels,
    subject::Subject,
    wire::{RunSummary, RunsCursor, RunsQuery},
};
use futures_util::stream;
use host::clock::Clock;
use maud::{Markup, html};
use serde_json::json;
use text::human_time;
use tokio::sync::watch;

use super::{answer, money, playground, row, shell::Here, status};
use crate::{
    call::Call,
    live_runs::List,
    problem::{ApiResult, ProblemDetails},
    routes::wanted_runs,
    sse,
};

/// The most characters of a goal.
const GOAL: usize = 90;

/// A search text of hexadecimal digits is an id from this length on.
const ID_DIGITS: usize = 6;
/// The most runs whose goals are read for one page of a search.
const SEARCHED: usize = 2_500;

/// The filters and the search text.
struct RunSearch {
    query: RunsQuery,
    /// The text that a goal must contain. Goals have no index, so the runs are read one by one.
    goal: Option<String>,
}

/// The filters of the form; empty fields are left out. A search text is an id, a label or a part of
/// a goal.
fn wanted(call: &mut Call) -> ApiResult<RunSearch> {
    call.query.retain(|(_, value)| !value.trim().is_empty());
    let mut query = wanted_runs(call)?;
    let searched = call.all("q").next().map(|text| text.trim().to_lowercase());
    let Some(text) = searched else { return Ok(RunSearch { query, goal: None }) };
    let is_id = text.len() >= ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let (true, Ok(prefix)) = (is_id, text.parse()) {
        query.prefix = Some(prefix);
        return Ok(RunSearch { query, goal: None });
    }
    let label = call.all("q").next().and_then(|text| text.trim().split_once('='));
    if let Some((Ok(key), Ok(value))) = label.map(|(key, value)| (key.parse(), value.parse())) {
        let mut labels = (*query.labels).clone();
        labels.insert(key, value);
        query.labels = Labels::new(labels).map_err(|why| ProblemDetails::wrong("query.q", why, None))?;
        return Ok(RunSearch { query, goal: None });
    }
    Ok(RunSearch { query, goal: Some(text) })
}

/// A page of the runs that match.
async fn find(call: &Call, RunSearch { query, goal }: &RunSearch) -> ApiResult<RunList> {
    let Some(goal) = goal else { return Ok(call.client.runs(query).await??) };
    let most = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let mut query = RunsQuery { limit: 500, ..query.clone() };
    let (mut runs, mut read) = (Vec::new(), 0);
    loop {
        let found = call.client.runs(&query).await??;
        read += found.runs.len();
        let fits = |run: &RunSummary| {
            run.goal
                .as_ref()
                .map_or(run.child_id.as_str(), |goal| goal.as_str())
                .to_lowercase()
                .contains(goal)
        };
        runs.extend(found.runs.into_iter().filter(fits));
        query.after = found.next;
        if runs.len() > most {
            // The next page begins after the last run that is shown.
            runs.truncate(most);
            query.after = runs
                .last()
                .map(|run: &RunSummary| RunsCursor { started_at: run.started_at, trace_id: run.trace_id });
        }
        if query.after.is_none() || runs.len() >= most || read >= SEARCHED {
            return Ok(RunList { runs, next: query.after, unfiltered: None });
        }
    }
}

pub(super) async fn list(mut call: Call) -> ApiResult {
    let wanted = wanted(&mut call)?;
    let RunList { runs, next, .. } = find(&call, &wanted).await?;
    let rest: String = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(call.query.iter().filter(|(name, _)| name != "after"))
        .finish();
    let first = runs.first().map(|run| run.started_at.millis()).unwrap_or_default();
    let live = format!("live?{rest}&shown={first}");
    let is_live = wanted.goal.is_none() && call.all("after").next().is_none();
    let body = html! {
        h1 { "Runs" }
        (kinds(&call))
        (filters(&call))
        section class="today" data-later="today" aria-label="Spent in the last 24 hours" {}
        p id="news" role="status" hidden {}
        @if runs.is_empty() && call.query.is_empty() {
            div data-live=(live) { (first_steps(&call)) }
        } @else if runs.is_empty() {
            p { @if next.is_some() { "None of the newest runs matches. " } @else { "No run matches. " } a href="./" { "Show all" } }
        } @else {
            ul class="runs" data-live=[is_live.then_some(live)] {
                @for run in &runs { (line(run)) }
            }
        }
        nav class="pages" aria-label="Pages" {
            @if call.all("after").next().is_some() { a href={ "./?" (rest) } { "Newest" } }
            @if let Some(next) = next { a href={ "./?" (rest) "&after=" (next.to_string()) } { "Older" } }
        }
    };
    answer::page(&call, "runs", Here::Runs, &body)
}

fn first_steps(call: &Call) -> Markup {
    html! {
        section class="empty" {
            p { "There are no runs yet. In a shell on this machine:" }
            pre { "trellis submit --goal \"Say hello\"\ntrellis submit examples/research.yaml --agents examples/agents.yaml" }
            @if call.may_send(&Subject::Submit) {
                p {
                    "Or here: " button type="button" data-post="v1/runs" data-go="runs/" data-body=(playground::example()) { "Run an example" }
                    " Its agents are built in, and their money is not real."
                }
            }
        }
    }
}

/// The most frequent filters, as links.
const KINDS: [(&str, &[(&str, &str)]); 4] = [
    ("All", &[]),
    ("At work", &[("status", "submitted"), ("status", "working")]),
    ("Waiting for people", &[("waiting_for_human", "true")]),
    ("Failed", &[("status", "failed"), ("status", "timed_out"), ("status", "aborted")]),
];

fn kinds(call: &Call) -> Markup {
    let address =
        |pairs: &[(&str, &str)]| form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    let is_here = |pairs: &[(&str, &str)]| {
        let shown = call.query.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        shown.eq(pairs.iter().copied())
    };
    html! {
        nav class="views" aria-label="Lists of runs" {
            @for (name, pairs) in KINDS {
                a href={ "./" @if !pairs.is_empty() { "?" (address(pairs)) } } aria-current=[is_here(pairs).then_some("page")] { (name) }
            }
        }
    }
}

fn filters(call: &Call) -> Markup {
    let given = |name: &str| call.all(name).next().unwrap_or_default().to_owned();
    let statuses = [
        "submitted",
        "working",
        "input_required",
        "paused",
        "completed",
        "failed",
        "cancelled",
        "timed_out",
        "aborted",
    ];
    html! {
        form class="filters" method="get" action="./" role="search" {
            label { "Status "
                select name="status" {
                    option value="" { "any" }
                    @for one in statuses {
                        option value=(one) selected[given("status") == one] { (status::words(one)) }
                    }
                }
            }
            label { "Agent " input name="agent_id" value=(given("agent_id")) size="12"; }
            label { "Label " input name="label" value=(given("label")) placeholder="env=prod" size="12"; }
            label { "Search " input type="search" name="q" id="search" value=(given("q")) placeholder="goal, id, label" size="16"; }
            label { "Thread " input name="thread_id" value=(given("thread_id")) size="10"; }
            label { "Since " input type="date" name="since" value=(given("since")); }
            label { "Before " input type="date" name="until" value=(given("until")); }
            label { "Costs at least $" input name="min_cost_usd" value=(given("min_cost_usd")) inputmode="decimal" size="5"; }
            label { "At most $" input name="max_cost_usd" value=(given("max_cost_usd")) inputmode="decimal" size="5"; }
            label class="check" {
                input type="checkbox" name="waiting_for_human" value="true" checked[given("waiting_for_human") == "true"];
                " waits for a human"
            }
            button type="submit" { "Filter" }
            @if !call.query.is_empty() { a href="./" { "Clear" } }
        }
    }
}

/// The row of a run.
fn line(run: &RunSummary) -> Markup {
    let goal =
        run.goal.as_ref().map_or_else(|| run.child_id.to_string(), |goal| row::short(goal.as_str(), GOAL));
    let id = run.trace_id.to_string();
    html! {
        li id={ "t-" (id) } class="run" {
            (status::mark(run.status.name()))
            span class="about" {
                a class="goal" href={ "runs/" (id) } { (goal) }
                @if let Some(agent) = &run.agent_id { span class="kind" { (agent) } }
                span class="labels" { @for (key, value) in run.labels.iter() { span { (key) "=" (value) } } }
                @if run.questions > 0 {
                    a class="asks" href={ "runs/" (id) "#asked" } { (domain::wording::count(run.questions, "question")) }
                } @else if run.waiting_for_human {
                    a class="asks" href={ "runs/" (id) "#asked" } { "waits for a larger budget" }
                }
            }
            (money::ShownBudget::of_run(run).bar())
            span class="amount" { (run.budget.spent.cost_usd) span class="of" { " of " (run.budget.limit.cost_usd) } }
            (row::lasts(run.started_at, run.ended_at))
            span class="ago" title=(run.started_at) { (human_time::ago(Clock::Machine.now(), run.started_at)) }
            code class="id" { (id.get(..8).unwrap_or(&id)) }
        }
    }
}

/// A hash of everything that a row shows, except times, which the script updates.
fn print(run: &RunSummary) -> u64 {
    let mut hasher = DefaultHasher::new();
    let budget = &run.budget;
    (run.status.name(), run.questions, run.waiting_for_human, run.ended_at.map(|end| end.millis()))
        .hash(&mut hasher);
    for amount in [budget.limit, budget.spent, budget.held, budget.estimated] {
        amount.cost_usd.nanos().hash(&mut hasher);
    }
    hasher.finish()
}

/// Updates of the shown rows, and the number of runs that are newer than the first one.
pub(super) async fn live(mut call: Call) -> ApiResult {
    // The submission time of the newest shown run.
    let first = call.number("shown")?.unwrap_or(0);
    call.query.retain(|(name, _)| name != "shown");
    let query = wanted(&mut call)?.query;
    let list = call.watched.list(&query);
    let watch = Watch { news: list.news(), _list: list, first, newer: 0, prints: HashMap::new() };
    let events = stream::unfold((watch, Vec::new()), |(mut watch, mut waiting)| async move {
        loop {
            if let Some(event) = waiting.pop() {
                return Some((event, (watch, waiting)));
            }
            waiting = watch.look().await?;
        }
    });
    sse::of_page(&call, events)
}

struct Watch {
    news: watch::Receiver<Option<Arc<RunList>>>,
    _list: Arc<List>,
    /// The submission time of the newest shown run.
    first: u64,
    newer: usize,
    prints: HashMap<TraceId, u64>,
}

impl Watch {
    /// None: the list can't be requested any more. The browser connects again.
    async fn look(&mut self) -> Option<Vec<Event>> {
        self.news.changed().await.ok()?;
        let found = self.news.borrow_and_update().clone();
        let Some(found) = found else { return Some(Vec::new()) };
        let mut events = Vec::new();
        let (newer, shown): (Vec<_>, Vec<_>) =
            found.runs.iter().partition(|run| run.started_at.millis() > self.first);
        if newer.len() != self.newer {
            self.newer = newer.len();
            // The newer runs may fill more than one page.
            let more = if shown.is_empty() && found.next.is_some() { "+" } else { "" };
            events
                .push(Event::default().event("new").data(json!(format!("{}{more}", self.newer)).to_string()));
        }
        for run in shown {
            let print = print(run);
            // The state of the rows on the page is unknown, so the first update sends every row.
            if self.prints.insert(run.trace_id, print) != Some(print) {
                let data = json!({"id": format!("t-{}", run.trace_id), "html": line(run).0});
                events.push(Event::default().event("row").data(data.to_string()));
            }
        }
        // A shown run is gone if it no longer matches. If there is a next page, newer runs may only
        // have moved it there.
        let is_gone =
            |trace: &TraceId| found.next.is_none() && !found.runs.iter().any(|run| run.trace_id == *trace);
        let gone: Vec<TraceId> = self.prints.keys().copied().filter(is_gone).collect();
        for trace in gone {
            self.prints.remove(&trace);
            events.push(Event::default().event("gone").data(json!({"id": format!("t-{trace}")}).to_string()));
        }
        Some(events)
    }
}
