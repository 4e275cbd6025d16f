//! A run as it goes on: rows that changed, lists that grew, and what agents say, a few times a second at most. Only what the page shows is sent.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use axum::response::sse::Event;
use coordinator::trace::{ContextNode, Replay, Row, Superseded, Trace};
use futures_util::{Stream, StreamExt, stream};
use serde_json::json;
use shared::{
    ChildId, TraceId,
    bus::{self, Bus, From, Stored, Subscription},
    decode,
    subject::Filter,
    wire::{Said, StreamPiece},
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

pub(super) async fn run(call: Call) -> Answered {
    let trace_id: TraceId = call.part("trace")?;
    let since = call.number("version")?.unwrap_or(0);
    let open = call.all("open").flat_map(|ids| ids.split(',')).filter_map(|id| ChildId::new(id).ok());
    let open: Vec<ChildId> = open.take(MOST_OPEN).collect();
    if call.bus.last(&Filter::EventsOf(trace_id)).await?.is_none() {
        return Err(cluster::no_trace(trace_id));
    }
    let heard = call.bus.subscribe(&Filter::StreamsOf(trace_id)).await?;
    let (incoming, reader) = read(&call.bus, trace_id).await?;
    let live = Live {
        bus: call.bus.clone(),
        replay: Replay::new(Trace::new(trace_id)),
        since,
        open,
        known: None,
        said: BTreeMap::new(),
        incoming,
        _reader: reader,
        heard,
        is_over: false,
    };
    sse::stream(&call, live.stream())
}

type Reader = (mpsc::Receiver<Result<Stored, bus::Error>>, AbortOnDropHandle<()>);

/// Reads the log from its start, in a task of its own, so that waiting for the next message is cancel-safe.
async fn read(bus: &Bus, trace_id: TraceId) -> Result<Reader, bus::Error> {
    let mut follow = bus.follow(&[Filter::EventsOf(trace_id)], From::Start).await?;
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
    /// None until the log is replayed to where the page was made.
    known: Option<HashMap<ChildId, Shown>>,
    /// What agents said since it was last told.
    said: BTreeMap<ChildId, String>,
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
            (self.incoming, self._reader) = read(&self.bus, self.replay.trace().id()).await.ok()?;
            self.replay.restart();
        }
        if self.known.is_none() && self.replay.trace().version() >= self.since {
            self.known = Some(self.shown());
        }
        Some(())
    }

    fn hear(&mut self, payload: &[u8]) {
        let Ok(piece) = decode::json::<StreamPiece>(payload) else { return };
        let said = self.said.entry(piece.child_id).or_default();
        match piece.said {
            Said::Text(text) => said.push_str(&text),
            Said::Again { .. } => said.clear(),
            Said::Tool { tool } => *said = format!("calls {tool}"),
            Said::Progress { message } => *said = message,
        }
        let longer = said.chars().count().saturating_sub(TAIL);
        if let Some((from, _)) = said.char_indices().nth(longer).filter(|_| longer > 0) {
            said.drain(..from);
        }
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
            if row::is_open(node, rows.len()) || self.open.contains(&node.id) {
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
        let named = |name: &str, data: serde_json::Value| Event::default().event(name).data(data.to_string());
        for (child, print) in &shown {
            let (Some(node), Some(before)) = (trace.context(child), known.get(child)) else { continue };
            if before.list != print.list {
                let data = json!({"id": row::id(child), "html": row::branch(trace, node).0});
                events.push_back(named("branch", data));
            } else if before.row != print.row {
                let data = json!({"id": format!("r-{child}"), "html": row::context(trace, node).0});
                events.push_back(named("row", data));
            }
        }
        if let Some(root) = trace.root().filter(|root| known.get(&root.id) != shown.get(&root.id)) {
            events.push_back(named("head", json!({"id": "head", "html": run::head(trace, root).0})));
        }
        for (child, said) in std::mem::take(&mut self.said) {
            if shown.contains_key(&child) {
                events.push_back(named("words", json!({"id": format!("r-{child}"), "text": said})));
                // More may follow what was said so far.
                self.said.insert(child, said);
            }
        }
        if trace.root().is_some_and(|root| !root.is_live()) {
            self.is_over = true;
            events.push_back(Event::default().event("end").data("{}"));
        }
        self.known = Some(shown);
        events
    }
}
