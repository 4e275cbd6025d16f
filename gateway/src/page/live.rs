//! A run as it goes on: rows that changed, lists that grew, and what agents say, a few times a second at most. Only what the page shows is sent.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    time::Duration,
};

use axum::response::sse::Event;
use coordinator::trace::{ContextNode, Replay, Row, Superseded, Trace};
use futures_util::{Stream, StreamExt, stream};
use serde_json::json;
use shared::{
    ChildId, TraceId,
    bus::{self, Bus, FirstWriters, From, Stored, Subscription},
    decode,
    subject::Filter,
    wire::{HistoryEntry, Said, StreamPiece},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;

use super::{row, run};
use crate::{
    call::{Answered, Call},
    cluster, sse,
};

/// Changes are told together, so often at most.
const TOGETHER: Duration = Duration::from_millis(250);
/// Messages that are read before they are replayed.
const READ_AHEAD: usize = 256;
/// Contexts whose rows a page may have loaded beyond those that it began with.
const MOST_OPEN: usize = 256;
/// The last characters of what an agent says.
const TAIL: usize = 120;
/// The same on the page of one agent.
const WORDS: usize = 4000;

pub(super) async fn run(call: Call) -> Answered {
    let trace_id: TraceId = call.part("trace")?;
    let since = call.number("version")?.unwrap_or(0);
    let open = call.all("open").flat_map(|ids| ids.split(',')).filter_map(|id| ChildId::new(id).ok());
    let open: Vec<ChildId> = open.take(MOST_OPEN).collect();
    if call.bus.last(&Filter::EventsOf(trace_id)).await?.is_none() {
        return Err(cluster::no_trace(trace_id));
    }
    let heard = call.bus.subscribe(&Filter::StreamsOf(trace_id)).await?;
    let (incoming, reader) = read(&call.bus, Filter::EventsOf(trace_id)).await?;
    let live = Live {
        bus: call.bus.clone(),
        replay: Replay::new(Trace::new(trace_id)),
        since,
        open,
        told: 0,
        is_behind: false,
        known: None,
        said: HashMap::new(),
        heard_of: BTreeSet::new(),
        opened: RefCell::default(),
        incoming,
        _reader: reader,
        heard,
        is_over: false,
    };
    sse::of_page(&call, live.stream())
}

type Reader = (mpsc::Receiver<Result<Stored, bus::Error>>, AbortOnDropHandle<()>);

/// Reads a log from its start, in a task of its own, so that waiting for the next message is cancel-safe.
async fn read(bus: &Bus, filter: Filter) -> Result<Reader, bus::Error> {
    let mut follow = bus.follow(&[filter], From::Start).await?;
    let (sender, incoming) = mpsc::channel(READ_AHEAD);
    let reader = tokio::spawn(async move {
        loop {
            let next = follow.next().await;
            let failed = next.is_err();
            if sender.send(next).await.is_err() || failed {
                return;
            }
        }
    });
    Ok((incoming, AbortOnDropHandle::new(reader)))
}

/// What the page has of a row, and of the rows beneath it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    row: u64,
    list: u64,
}

struct Live {
    bus: Bus,
    replay: Replay,
    /// The events that the page was made from.
    since: u64,
    open: Vec<ChildId>,
    /// The events that were told last, and whether another chain of them counts since.
    told: u64,
    is_behind: bool,
    /// None until the log is replayed to where the page was made.
    known: Option<HashMap<ChildId, Shown>>,
    /// What agents say of the answer that each is at, and who has said more since it was last told.
    said: HashMap<ChildId, Words>,
    heard_of: BTreeSet<ChildId>,
    /// Lists that were open: they stay so, however long they become.
    opened: RefCell<HashSet<ChildId>>,
    incoming: mpsc::Receiver<Result<Stored, bus::Error>>,
    _reader: AbortOnDropHandle<()>,
    heard: Subscription,
    is_over: bool,
}

impl Live {
    fn stream(self) -> impl Stream<Item = Event> + Send {
        stream::unfold((self, VecDeque::new()), |(mut live, mut waiting)| async move {
            loop {
                if let Some(event) = waiting.pop_front() {
                    return Some((event, (live, waiting)));
                }
                if live.is_over {
                    return None;
                }
                live.wait().await?;
                waiting = live.news();
            }
        })
        .boxed()
    }

    /// Waits for the first message, and takes all that come soon after it. None: the log can't be read, and the browser comes again.
    async fn wait(&mut self) -> Option<()> {
        let mut until = None;
        loop {
            let next = async {
                tokio::select! {
                    biased;
                    stored = self.incoming.recv() => stored?.ok().map(Ok),
                    message = self.heard.next() => message.map(Err),
                }
            };
            let next = match until {
                None => next.await?,
                Some(until) => match timeout_at(until, next).await {
                    Ok(next) => next?,
                    Err(_) => return Some(()),
                },
            };
            match next {
                Ok(stored) => self.take(stored).await?,
                Err(message) => self.hear(&message.payload),
            }
            until.get_or_insert_with(|| Instant::now() + TOGETHER);
        }
    }

    async fn take(&mut self, stored: Stored) -> Option<()> {
        let logged = cluster::logged(&stored.payload).ok()?;
        if let Err(Superseded) = self.replay.add(logged) {
            (self.incoming, self._reader) =
                read(&self.bus, Filter::EventsOf(self.replay.trace().id())).await.ok()?;
            self.replay.restart();
            // What the page has is told anew, once the log is read to there.
            self.since = self.since.max(self.told);
            self.known = None;
            self.is_behind = true;
        }
        if self.known.is_none() && self.replay.trace().version() >= self.since {
            let shown = self.shown();
            // Rows whose state is not known on the page differ from all.
            let unknown = Shown { row: 0, list: 0 };
            let is_behind = std::mem::take(&mut self.is_behind);
            self.known = Some(if is_behind {
                shown.into_keys().map(|child| (child, unknown)).collect()
            } else {
                shown
            });
        }
        Some(())
    }

    fn hear(&mut self, payload: &[u8]) {
        let Ok(piece) = decode::json::<StreamPiece>(payload) else { return };
        self.said.entry(piece.child_id.clone()).or_default().add(&piece);
        self.heard_of.insert(piece.child_id);
    }

    /// The rows that the page shows, by their contexts.
    fn shown(&self) -> HashMap<ChildId, Shown> {
        let trace = self.replay.trace();
        let mut shown = HashMap::new();
        let mut beneath: Vec<&ContextNode> = trace.root().into_iter().collect();
        while let Some(node) = beneath.pop() {
            let rows = trace.rows(node);
            let print = Shown { row: row::print(trace, node), list: row::print_of_list(trace, node) };
            shown.insert(node.id.clone(), print);
            let mut opened = self.opened.borrow_mut();
            if row::is_open(node, rows.len()) || self.open.contains(&node.id) || opened.contains(&node.id) {
                opened.insert(node.id.clone());
                let child =
                    |row: Row<'_>| if let Row::Context(child) = row { Some(child.id.clone()) } else { None };
                let children: Vec<ChildId> =
                    rows.into_iter().take(row::LOADED_ROWS).filter_map(child).collect();
                beneath.extend(children.iter().filter_map(|child| trace.context(child)));
            }
        }
        shown
    }

    /// What changed since it was last told.
    fn news(&mut self) -> VecDeque<Event> {
        let mut events = VecDeque::new();
        let Some(known) = self.known.take() else { return events };
        let (shown, trace) = (self.shown(), self.replay.trace());
        for (child, print) in &shown {
            let (Some(node), Some(before)) = (trace.context(child), known.get(child)) else { continue };
            if before.list != print.list {
                let data = json!({"id": row::id(child), "html": row::branch(trace, node).0});
                events.push_back(named("branch", &data));
            } else if before.row != print.row {
                let data = json!({"id": format!("r-{child}"), "html": row::context(trace, node).0});
                events.push_back(named("row", &data));
            }
        }
        if let Some(root) = trace.root().filter(|root| known.get(&root.id) != shown.get(&root.id)) {
            events.push_back(named("head", &json!({"id": "head", "html": run::head(trace, root).0})));
        }
        for child in std::mem::take(&mut self.heard_of) {
            let is_as_before =
                known.get(&child).map(|shown| shown.row) == shown.get(&child).map(|shown| shown.row);
            match self.said.get(&child) {
                // A row that is new says what its context does now.
                Some(words) if shown.contains_key(&child) && is_as_before => {
                    let text = last(&words.text, TAIL);
                    events.push_back(named("words", &json!({"id": format!("r-{child}"), "text": text})));
                }
                Some(_) | None => drop(self.said.remove(&child)),
            }
        }
        if trace.root().is_some_and(|root| !root.is_live()) {
            self.is_over = true;
            events.push_back(Event::default().event("end").data("{}"));
        }
        self.told = trace.version();
        self.known = Some(shown);
        events
    }
}

/// One agent as it works: its money, its journal as it grows, and what it says.
pub(super) async fn context(call: Call) -> Answered {
    let (trace_id, child): (TraceId, ChildId) = (call.part("trace")?, call.part("child")?);
    if call.bus.last(&Filter::EventsOf(trace_id)).await?.is_none() {
        return Err(cluster::no_trace(trace_id));
    }
    let heard = call.bus.subscribe(&Filter::StreamsOf(trace_id)).await?;
    let (events, events_reader) = read(&call.bus, Filter::EventsOf(trace_id)).await?;
    let (entries, entries_reader) = read(&call.bus, Filter::JournalOf(trace_id, child.clone())).await?;
    let one = One {
        bus: call.bus.clone(),
        replay: Replay::new(Trace::new(trace_id)),
        since: call.number("version")?.unwrap_or(0),
        step: call.number("step")?.unwrap_or(0),
        may_restore: super::context::may_restore(&call),
        child,
        print: None,
        grown: Vec::new(),
        writers: FirstWriters::default(),
        said: Words::default(),
        is_told: true,
        events,
        entries,
        _readers: [events_reader, entries_reader],
        heard,
        is_over: false,
    };
    let stream = stream::unfold((one, VecDeque::new()), |(mut one, mut waiting)| async move {
        loop {
            if let Some(event) = waiting.pop_front() {
                return Some((event, (one, waiting)));
            }
            if one.is_over {
                return None;
            }
            one.wait().await?;
            waiting = one.news();
        }
    });
    sse::of_page(&call, stream.boxed())
}

struct One {
    bus: Bus,
    replay: Replay,
    child: ChildId,
    since: u64,
    /// The last entry that the page has.
    step: u64,
    may_restore: bool,
    /// What the page has of it; none until the log is replayed to where the page was made.
    print: Option<u64>,
    grown: Vec<HistoryEntry>,
    /// Others than its first writer may have written there.
    writers: FirstWriters,
    /// What it says of the answer that it is at, and whether that is told.
    said: Words,
    is_told: bool,
    events: mpsc::Receiver<Result<Stored, bus::Error>>,
    entries: mpsc::Receiver<Result<Stored, bus::Error>>,
    _readers: [AbortOnDropHandle<()>; 2],
    heard: Subscription,
    is_over: bool,
}

impl One {
    /// Waits for the first message, and takes all that come soon after it. None: the browser comes again.
    async fn wait(&mut self) -> Option<()> {
        let mut until = None;
        loop {
            let taken = async {
                tokio::select! {
                    biased;
                    stored = self.events.recv() => {
                        let logged = cluster::logged(&stored?.ok()?.payload).ok()?;
                        if let Err(Superseded) = self.replay.add(logged) {
                            let filter = Filter::EventsOf(self.replay.trace().id());
                            (self.events, self._readers[0]) = read(&self.bus, filter).await.ok()?;
                            self.replay.restart();
                        }
                    }
                    stored = self.entries.recv() => {
                        let stored = stored?.ok()?;
                        let entry: HistoryEntry = decode::json(&stored.payload).ok()?;
                        if self.writers.takes(&stored.subject) && u64::from(entry.number) > self.step {
                            self.step = u64::from(entry.number);
                            self.grown.push(entry);
                            (self.said, self.is_told) = (Words::default(), false);
                        }
                    }
                    message = self.heard.next() => {
                        let piece = decode::json::<StreamPiece>(&message?.payload).ok();
                        if let Some(piece) = piece.filter(|piece| piece.child_id == self.child) {
                            self.said.add(&piece);
                            self.is_told = false;
                        }
                    }
                }
                Some(())
            };
            match until {
                None => taken.await?,
                Some(until) => match timeout_at(until, taken).await {
                    Ok(taken) => taken?,
                    Err(_) => return Some(()),
                },
            }
            if self.print.is_none() && self.replay.trace().version() >= self.since {
                self.print = self.printed();
            }
            until.get_or_insert_with(|| Instant::now() + TOGETHER);
        }
    }

    fn printed(&self) -> Option<u64> {
        let trace = self.replay.trace();
        trace.context(&self.child).map(|node| row::print(trace, node))
    }

    fn news(&mut self) -> VecDeque<Event> {
        let mut events = VecDeque::new();
        let (print, trace) = (self.printed(), self.replay.trace());
        let Some(node) = trace.context(&self.child).filter(|_| self.print.is_some()) else { return events };
        if print != self.print {
            self.print = print;
            events.push_back(named(
                "head",
                &json!({"id": "head", "html": super::context::head(trace, node).0}),
            ));
        }
        for entry in self.grown.drain(..) {
            let html = super::context::step(trace, &entry, self.may_restore).0;
            events.push_back(named("entry", &json!({"id": format!("e-{}", entry.number), "html": html})));
        }
        if !std::mem::replace(&mut self.is_told, true) {
            events.push_back(named("said", &json!({"text": self.said.text})));
        }
        if !node.is_live() {
            self.is_over = true;
            events.push_back(Event::default().event("end").data("{}"));
        }
        events
    }
}

fn named(name: &str, data: &serde_json::Value) -> Event {
    Event::default().event(name).data(data.to_string())
}

/// What an agent says of one answer.
#[derive(Debug, Default)]
struct Words {
    attempt: u32,
    number: u32,
    text: String,
    /// The text is what it does, not what it says.
    is_act: bool,
}

impl Words {
    fn add(&mut self, piece: &StreamPiece) {
        if (self.attempt, self.number) != (piece.attempt, piece.number) {
            *self = Words { attempt: piece.attempt, number: piece.number, ..Words::default() };
        }
        match &piece.said {
            Said::Text(text) => {
                if std::mem::take(&mut self.is_act) {
                    self.text.clear();
                }
                self.text.push_str(text);
            }
            Said::Again { .. } => self.text.clear(),
            Said::Tool { tool } => (self.text, self.is_act) = (format!("calls {tool}"), true),
            Said::Progress { message } => (self.text, self.is_act) = (message.clone(), true),
        }
        let kept = last(&self.text, WORDS).len();
        self.text.drain(..self.text.len() - kept);
    }
}

/// The last characters of a text.
fn last(text: &str, most: usize) -> &str {
    let longer = text.chars().count().saturating_sub(most);
    text.char_indices().nth(longer).map_or("", |(from, _)| &text[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(number: u32, said: Said) -> StreamPiece {
        StreamPiece {
            trace_id: TraceId::from_u128(1).unwrap(),
            child_id: ChildId::whole_trace(),
            attempt: 1,
            number,
            said,
        }
    }

    #[test]
    fn g9_words_of_one_answer_stand_together_and_acts_alone() {
        let mut words = Words::default();
        let mut say = |number, said| {
            words.add(&piece(number, said));
            words.text.clone()
        };
        let text = |text: &str| Said::Text(text.into());
        assert_eq!(say(1, text("so ")), "so ");
        assert_eq!(say(1, text("scouts")), "so scouts");
        assert_eq!(say(1, Said::Tool { tool: "http.get".into() }), "calls http.get");
        assert_eq!(say(1, text("then")), "then");
        assert_eq!(say(2, text("next")), "next");
        assert_eq!(say(2, Said::Again { why: "busy".into() }), "");
        assert_eq!(last("ööö", 2), "öö");
    }
}
