//! A run and an agent as they go on: rows that changed, lists that grew, and what agents say, a few times a second at most. Only what the page
//! shows is sent.

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

/// Entries that are read before they are shown.
const READ_AHEAD: usize = 256;
/// Lists of a page that are open, and its rows that change.
const MOST_OPEN: usize = 500;
const MOST_ROWS: usize = 5_000;
/// The last characters of what an agent says on its row.
const TAIL: usize = 120;
/// A page that takes long to look at is looked at less often: so many times as long passes between.
const REST: u32 = 10;
const LONGEST_REST: Duration = Duration::from_secs(5);
/// Of parts that are drawn anew, so many bytes are sent in a second.
const PART_BYTES: usize = 64 << 10;

/// What a page shows, and what changed of it.
trait View: Send + 'static {
    /// What changed since it was last asked, for the browser.
    fn news(&mut self, state: &State) -> VecDeque<Event>;

    /// Whether anything was told.
    fn is_told(&self) -> bool;

    /// Nothing will change any more.
    fn is_over(&self) -> bool;

    /// How long the browser is left alone after what was told last.
    fn rest(&self) -> Duration {
        Duration::ZERO
    }
}

/// A view, whenever its run changes.
struct Watch<V> {
    run: Arc<Run>,
    news: watch::Receiver<u64>,
    view: V,
    /// The browser is left alone until then.
    rests_until: Instant,
}

impl<V: View> Watch<V> {
    /// What changed of the view. None: the run can't be looked at any more, and the browser comes again.
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
                // The first time at once: what changed since the page was made is told.
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

/// A list that the page has loaded, and how many of its rows.
fn opened(text: &str) -> Option<(ChildId, usize)> {
    let (child, rows) = text.split_once(':')?;
    Some((ChildId::new(child).ok()?, rows.parse::<usize>().ok()?.min(MOST_ROWS)))
}

/// What the page has of a row, and of the rows beneath it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ShownRow {
    row: u64,
    list: u64,
}

/// The tree of a run.
struct Tree {
    /// The events that the page was made from.
    since: u64,
    /// Lists that are open, and how many of their rows are loaded: they stay so, however long they become.
    open: HashMap<ChildId, usize>,
    closed: HashSet<ChildId>,
    /// The rows that are shown.
    rows: usize,
    /// The page shows all that there is: it has said which lists are open.
    is_as_shown: bool,
    /// The chain of events that was told last; 0: none was.
    chain: u64,
    known: HashMap<ChildId, ShownRow>,
    /// How often something had been said when it was told.
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
            // The page has said which lists it has open. Lists that came later are open while there are few rows.
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

    /// The contexts that the page shows, each before those beneath it.
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

    /// A context whose list changed: which rows it has, in their order, and those that the page lacks.
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

    /// A context without the rows beneath it: these are told apart.
    fn item(&mut self, trace: &Trace, node: &ContextNode) -> String {
        let beneath = match self.rows(trace, node) {
            Some(_) => Beneath::Open,
            None if row::has_rows(node) => Beneath::Closed,
            None => Beneath::Nothing,
        };
        row::item(trace, node, beneath, &Markup::default()).0
    }
}

/// Of what the page has of a row, nothing is known.
const UNKNOWN: ShownRow = ShownRow { row: 0, list: 0 };

impl View for Tree {
    fn news(&mut self, state: &State) -> VecDeque<Event> {
        let (mut events, trace) = (VecDeque::new(), state.trace());
        let (chain, version) = state.version();
        // Other events took the place of those that were told: nothing that the page has is sure.
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
        // What was told with a list is not told again.
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
        // A row that is told anew says what its agent says still.
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

/// A part of a view that is drawn anew when it changes.
pub(super) async fn part(call: Call, draw: impl Fn(&State) -> Option<Markup> + Send + 'static) -> ApiResult {
    let run = call.watched.run(call.part("trace")?).await?;
    let part = Part { draw, shown: None, head: 0, is_over: false };
    sse::of_page(&call, Watch::of(run, part).stream())
}

struct Part<D> {
    draw: D,
    shown: Option<String>,
    /// What the head says.
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

/// One agent as it works: its money, its journal as it grows, and what it says.
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

/// An entry, with what is to be known of it besides.
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
            // Others than its first writer may have written there.
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

    /// Waits until the run or the journal changes, and takes the entries that come soon after.
    async fn wait(&mut self, watch: &mut Watch<Agent>) -> Option<()> {
        tokio::select! {
            biased;
            changed = watch.news.changed() => {
                // Whatever else has come is told with it.
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
    /// What the page has of it; none before it was told anything.
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
            // What an entry holds is said no more.
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
