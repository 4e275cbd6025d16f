//! Live updates of a run's page and of an agent's page: changed rows, grown lists, and the output
//! of agents, a few times a second at most. Only the shown parts are sent.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use axum::response::sse::Event;
use bus::{FirstWriters, Follow, From};
use domain::{ChildId, TraceId, subject::Filter, wire::HistoryEntry};
use futures_util::{Stream, StreamExt, stream};
use maud::Markup;
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;
use trace::{ContextNode, Row, Trace};

use super::{
    context,
    row::{self, Beneath, LOADED_ROWS},
    run,
};
use crate::{
    call::Call,
    live_runs::{Run, State, TOGETHER, Words},
    problem::ApiResult,
    routes::context as one_of,
    sse,
};

/// How many entries are read ahead.
const READ_AHEAD: usize = 256;
/// The most open lists of a page, and the most rows that are updated.
const MOST_OPEN: usize = 500;
const MOST_ROWS: usize = 5_000;
/// The most characters of an agent's output on its row.
const TAIL: usize = 120;
/// A page that takes long to update is updated less often: the pause is this many times as long as
/// the update.
const REST: u32 = 10;
const LONGEST_REST: Duration = Duration::from_secs(5);
/// The bytes per second for parts that are drawn anew.
const PART_BYTES: usize = 64 << 10;

/// The content that a page shows, and its changes.
trait View: Send + 'static {
    /// The changes since the last call, as events for the browser.
    fn news(&mut self, state: &State) -> VecDeque<Event>;

    /// True after the first call of [`View::news`].
    fn is_told(&self) -> bool;

    /// True if nothing will change any more.
    fn is_over(&self) -> bool;

    /// The least pause after the last events.
    fn rest(&self) -> Duration {
        Duration::ZERO
    }
}

/// A view that is updated when its run changes.
struct Watch<V> {
    run: Arc<Run>,
    news: watch::Receiver<u64>,
    view: V,
    /// No events are sent before then.
    rests_until: Instant,
}

impl<V: View> Watch<V> {
    /// The changes of the view. None: the run can't be read any more. The browser then connects
    /// again.
    async fn look(self) -> Option<(VecDeque<Event>, Self)> {
        let Watch { run, news, mut view, rests_until } = self;
        sleep_until(rests_until).await;
        let began = Instant::now();
        let (events, view) = run.look(move |state| (view.news(state), view)).await.ok()?;
        let rest = began.elapsed().saturating_mul(REST).max(view.rest()).min(LONGEST_REST);
        Some((events, Watch { run, news, view, rests_until: Instant::now() + rest }))
    }

    fn of(run: Arc<Run>, view: V) -> Self {
        Watch { news: run.news(), run, view, rests_until: Instant::now() }
    }

    fn stream(self) -> impl Stream<Item = Event> + Send {
        stream::unfold((self, VecDeque::new()), |(mut watch, mut waiting)| async move {
            loop {
                if let Some(event) = waiting.pop_front() {
                    return Some((event, (watch, waiting)));
                }
                if watch.view.is_over() {
                    return None;
                }
                // The first update is immediate: the run may have changed since the page was made.
                if watch.view.is_told() {
                    watch.news.changed().await.ok()?;
                }
                (waiting, watch) = watch.look().await?;
            }
        })
        .boxed()
    }
}

pub(super) async fn run(call: Call) -> ApiResult {
    let trace_id: TraceId = call.part("trace")?;
    let since = call.number("version")?.unwrap_or(0);
    let open = call.all("open").flat_map(|open| open.split(',')).filter_map(opened);
    let open = open.take(MOST_OPEN).collect();
    let run = call.watched.run(trace_id).await?;
    let tree = Tree {
        since,
        open,
        closed: HashSet::new(),
        rows: 0,
        is_as_shown: false,
        chain: 0,
        known: HashMap::new(),
        heard: 0,
        is_over: false,
    };
    sse::of_page(&call, Watch::of(run, tree).stream())
}

/// A list that the page has loaded, and the number of its rows.
fn opened(text: &str) -> Option<(ChildId, usize)> {
    let (child, rows) = text.split_once(':')?;
    Some((ChildId::new(child).ok()?, rows.parse::<usize>().ok()?.min(MOST_ROWS)))
}

/// The versions of a row and of the list beneath it that the page has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ShownRow {
    row: u64,
    list: u64,
}

/// The tree of a run.
struct Tree {
    /// The version of the run from which the page was made.
    since: u64,
    /// The open lists, and how many of their rows are loaded. They stay open, even if they grow.
    open: HashMap<ChildId, usize>,
    closed: HashSet<ChildId>,
    /// How many rows are shown.
    rows: usize,
    /// The run has not changed since the page was made, so `open` names all open lists.
    is_as_shown: bool,
    /// The chain of the last update; 0 before the first one.
    chain: u64,
    known: HashMap<ChildId, ShownRow>,
    /// The value of [`State::heard`] at the last update.
    heard: u64,
    is_over: bool,
}

impl Tree {
    /// The rows that are shown beneath a context; none if its list is closed.
    fn rows<'a>(&mut self, trace: &'a Trace, node: &'a ContextNode) -> Option<Vec<Row<'a>>> {
        if !row::has_rows(node) || self.closed.contains(&node.id) {
            return None;
        }
        let rows = trace.rows(node);
        if !self.open.contains_key(&node.id) {
            // The page named the lists that it had open. A newer list is open as long as there are
            // few rows.
            if self.is_as_shown || self.rows + rows.len() > row::OPEN_ROWS {
                self.closed.insert(node.id.clone());
                return None;
            }
            self.rows += rows.len();
            self.open.insert(node.id.clone(), LOADED_ROWS);
        }
        Some(rows)
    }

    /// How many rows of a list the page has, or may have.
    fn loaded(&self, node: &ContextNode) -> usize {
        self.open.get(&node.id).copied().unwrap_or(LOADED_ROWS).max(LOADED_ROWS)
    }

    /// The shown contexts, parents before their children.
    fn shown(&mut self, trace: &Trace) -> Vec<(ChildId, ShownRow)> {
        let mut shown = Vec::new();
        let mut beneath: VecDeque<&ContextNode> = trace.root().into_iter().collect();
        while let Some(node) = beneath.pop_front() {
            let rows = self.rows(trace, node);
            let list = row::print_of_list(node, rows.as_deref());
            shown.push((node.id.clone(), ShownRow { row: row::print(trace, node), list }));
            if shown.len() >= MOST_ROWS {
                break;
            }
            for row in rows.unwrap_or_default().into_iter().take(self.loaded(node)) {
                if let Row::Context(child) = row {
                    beneath.push_back(child);
                }
            }
        }
        self.rows = shown.len();
        shown
    }

    /// The update of a changed list: the order of its rows, and the HTML of those that the page
    /// lacks.
    fn list(&mut self, trace: &Trace, node: &ContextNode, told: &mut HashSet<ChildId>) -> Value {
        told.insert(node.id.clone());
        let Some(rows) = self.rows(trace, node) else {
            return json!({"id": row::id(&node.id), "html": self.item(trace, node), "items": null, "more": null});
        };
        let loaded = self.loaded(node);
        let mut items = Vec::new();
        for row in rows.iter().take(loaded) {
            items.push(match row {
                Row::Context(child)
                    if self.known.get(&child.id).is_some_and(|known| known.row != UNKNOWN.row) =>
                {
                    json!([row::id(&child.id), null])
                }
                Row::Context(child) => {
                    told.insert(child.id.clone());
                    json!([row::id(&child.id), self.item(trace, child)])
                }
                Row::Step(report) => json!([row::id_of_step(node, report), row::step(trace, node, report).0]),
            });
        }
        let more = (rows.len() > loaded).then(|| row::more(trace, node, loaded, rows.len()).0);
        json!({"id": row::id(&node.id), "html": self.item(trace, node), "items": items, "more": more})
    }

    /// The row of a context, without the rows beneath it, which are sent separately.
    fn item(&mut self, trace: &Trace, node: &ContextNode) -> String {
        let beneath = match self.rows(trace, node) {
            Some(_) => Beneath::Open,
            None if row::has_rows(node) => Beneath::Closed,
            None => Beneath::Nothing,
        };
        row::item(trace, node, beneath, &Markup::default()).0
    }
}

/// Means that the page's version of a row is unknown.
const UNKNOWN: ShownRow = ShownRow { row: 0, list: 0 };

impl View for Tree {
    fn news(&mut self, state: &State) -> VecDeque<Event> {
        let (mut events, trace) = (VecDeque::new(), state.trace());
        let (chain, version) = state.version();
        // Another chain of events replaced the shown one, so the page may show wrong rows.
        if self.chain != 0 && self.chain != chain {
            self.is_over = true;
            return [Event::default().event("reload").data("{}")].into();
        }
        self.is_as_shown = self.chain == 0 && version == self.since;
        let shown = self.shown(trace);
        if self.is_as_shown {
            self.known = shown.iter().cloned().collect();
        } else if self.chain == 0 {
            self.known = shown.iter().map(|(child, _)| (child.clone(), UNKNOWN)).collect();
        }
        self.chain = chain;
        let root = trace.root().and_then(|root| shown.iter().find(|(child, _)| *child == root.id));
        let is_changed = root.is_some_and(|(child, print)| self.known.get(child) != Some(print));
        // A row that was sent with its list is not sent again.
        let (mut told, mut again) = (HashSet::new(), HashSet::new());
        for (child, print) in &shown {
            let Some(node) = trace.context(child) else { continue };
            let before = self.known.get(child).copied().unwrap_or(UNKNOWN);
            let is_told = told.contains(child);
            if before.list != print.list && !(is_told && print.list == row::CLOSED) {
                events.push_back(named("list", &self.list(trace, node, &mut told)));
            } else if before.row != print.row && !is_told {
                let data = json!({"id": format!("r-{child}"), "html": row::context(trace, node).0});
                events.push_back(named("row", &data));
                again.insert(child.clone());
            }
        }
        if let Some(root) = trace.root().filter(|_| is_changed) {
            events.push_back(named("head", &json!({"id": "head", "html": run::head(trace, root).0})));
        }
        let shown: HashMap<ChildId, ShownRow> = shown.into_iter().collect();
        // A row that is drawn anew needs the output of its agent again.
        let is_told = |child: &ChildId, words: &Words| words.is_since(self.heard) || again.contains(child);
        let heard =
            state.words().filter(|(child, words)| shown.contains_key(*child) && is_told(child, words));
        for (child, words) in heard {
            events.push_back(named("words", &json!({"id": format!("r-{child}"), "text": words.last(TAIL)})));
        }
        (self.heard, self.known) = (state.heard(), shown);
        if trace.root().is_some_and(|root| !root.is_live()) {
            self.is_over = true;
            events.push_back(Event::default().event("end").data("{}"));
        }
        events
    }

    fn is_told(&self) -> bool {
        self.chain > 0
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

/// Live updates of a part of a view that is drawn as a whole.
pub(super) async fn part(call: Call, draw: impl Fn(&State) -> Option<Markup> + Send + 'static) -> ApiResult {
    let run = call.watched.run(call.part("trace")?).await?;
    let part = Part { draw, shown: None, head: 0, is_over: false };
    sse::of_page(&call, Watch::of(run, part).stream())
}

struct Part<D> {
    draw: D,
    shown: Option<String>,
    /// The version of the shown head.
    head: u64,
    is_over: bool,
}

impl<D: Fn(&State) -> Option<Markup> + Send + 'static> View for Part<D> {
    fn news(&mut self, state: &State) -> VecDeque<Event> {
        let (mut events, trace) = (VecDeque::new(), state.trace());
        let drawn = (self.draw)(state).map(|markup| markup.0).unwrap_or_default();
        if let Some(root) = trace.root() {
            let head = row::print(trace, root);
            if std::mem::replace(&mut self.head, head) != head {
                events.push_back(named("head", &json!({"id": "head", "html": run::head(trace, root).0})));
            }
            if self.shown.as_deref() != Some(drawn.as_str()) {
                events.push_back(named("part", &json!({"id": "part", "html": drawn})));
            }
        }
        self.shown = Some(drawn);
        if trace.root().is_some_and(|root| !root.is_live()) {
            self.is_over = true;
            events.push_back(Event::default().event("end").data("{}"));
        }
        events
    }

    fn is_told(&self) -> bool {
        self.shown.is_some()
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn rest(&self) -> Duration {
        let bytes = self.shown.as_ref().map_or(0, String::len);
        Duration::from_millis(u64::try_from(bytes * 1000 / PART_BYTES).unwrap_or(u64::MAX))
    }
}

/// Live updates of one agent: its head, its growing journal, and its output.
pub(super) async fn context(call: Call) -> ApiResult {
    let (trace_id, child): (TraceId, ChildId) = (call.part("trace")?, call.part("child")?);
    let run = call.watched.run(trace_id).await?;
    let named = child.clone();
    let is_live = run.show(move |trace| Ok(one_of(trace, &named)?.is_live())).await?;
    let journal =
        call.client.bus().follow(&[Filter::JournalOf(trace_id, child.clone())], From::Start).await?;
    let may = context::May::of(&call, is_live);
    let agent = Agent { child, may, print: None, grown: Vec::new(), heard: 0, is_over: false };
    let watch = Watch::of(run, agent);
    let journal = Journal::read(journal, call.number("step")?.unwrap_or(0));
    let events = stream::unfold(
        (watch, journal, VecDeque::new()),
        |(mut watch, mut journal, mut waiting)| async move {
            loop {
                if let Some(event) = waiting.pop_front() {
                    return Some((event, (watch, journal, waiting)));
                }
                if watch.view.is_over() {
                    return None;
                }
                if watch.view.print.is_some() {
                    journal.wait(&mut watch).await?;
                }
                (waiting, watch) = watch.look().await?;
            }
        },
    );
    sse::of_page(&call, events.boxed())
}

/// An entry, with the facts from the entries before it.
type NewEntry = (HistoryEntry, context::EntryContext);

/// The journal of an agent, from an entry on.
struct Journal {
    entries: mpsc::Receiver<NewEntry>,
    _task: AbortOnDropHandle<()>,
}

impl Journal {
    fn read(mut follow: Follow, mut step: u64) -> Self {
        let (sender, entries) = mpsc::channel(READ_AHEAD);
        let task = tokio::spawn(async move {
            // The pool of the agent is unknown here, so only the entries of the pool that wrote
            // first are read. Another pool may have written under the agent's name.
            let (mut writers, mut before) = (FirstWriters::default(), context::Before::default());
            while let Ok(stored) = follow.next().await {
                let Ok(entry) = client::entry(&stored.payload) else { return };
                if !writers.takes(&stored.subject) {
                    continue;
                }
                let around = before.take(&entry);
                if u64::from(entry.number) > step {
                    step = u64::from(entry.number);
                    if sender.send((entry, around)).await.is_err() {
                        return;
                    }
                }
            }
        });
        Journal { entries, _task: AbortOnDropHandle::new(task) }
    }

    /// Waits until the run or the journal changes, and collects the entries that follow soon.
    async fn wait(&mut self, watch: &mut Watch<Agent>) -> Option<()> {
        tokio::select! {
            biased;
            changed = watch.news.changed() => {
                // Entries that have already arrived are sent with the change.
                while let Ok(entry) = self.entries.try_recv() {
                    watch.view.grown.push(entry);
                }
                return changed.ok();
            }
            entry = self.entries.recv() => watch.view.grown.push(entry?),
        }
        let until = Instant::now() + TOGETHER;
        while let Ok(entry) = timeout_at(until, self.entries.recv()).await {
            watch.view.grown.push(entry?);
        }
        Some(())
    }
}

struct Agent {
    child: ChildId,
    may: context::May,
    /// The version of the head that the page has; none before the first update.
    print: Option<u64>,
    grown: Vec<NewEntry>,
    heard: u64,
    is_over: bool,
}

impl View for Agent {
    fn news(&mut self, state: &State) -> VecDeque<Event> {
        let (mut events, trace) = (VecDeque::new(), state.trace());
        let Some(node) = trace.context(&self.child) else {
            self.is_over = true;
            return events;
        };
        let print = Some(row::print(trace, node));
        if std::mem::replace(&mut self.print, print) != print {
            let html = context::head(trace, node).0;
            events.push_back(named("head", &json!({"id": "head", "html": html})));
        }
        let has_grown = !self.grown.is_empty();
        for (entry, around) in self.grown.drain(..) {
            let html = context::step(trace, &entry, self.may, around).0;
            events.push_back(named("entry", &json!({"id": format!("e-{}", entry.number), "html": html})));
        }
        let heard = std::mem::replace(&mut self.heard, state.heard());
        let words = state.said(&self.child).filter(|words| words.is_since(heard));
        if has_grown || words.is_some() {
            // Text that an entry contains is removed from the live output.
            events.push_back(named("said", &json!({"text": words.map_or("", |words| words.text())})));
        }
        if !node.is_live() {
            self.is_over = true;
            events.push_back(Event::default().event("end").data("{}"));
        }
        events
    }

    fn is_told(&self) -> bool {
        self.print.is_some()
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

fn named(name: &str, data: &Value) -> Event {
    Event::default().event(name).data(data.to_string())
}
