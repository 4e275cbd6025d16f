//! The runs and lists that people look at. A run is replayed once and a list is requested once, for
//! all pages that show it. Both continue as long as a page shows them, a run also for a short while
//! after that.

use std::{
    collections::HashMap,
    convert::Infallible,
    hash::Hash,
    sync::{
        Arc, Mutex, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use client::{Client, LiveOutput, ReadAhead, RunList, RunMessage};
use domain::{
    ChildId, TraceId,
    subject::Filter,
    wire::{RunsQuery, Said, StreamPiece},
};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;
use trace::{LoggedEvents, Replay, Superseded, Trace};

use crate::{
    blocking::blocking,
    doctor::{self, Bounds, Findings},
    problem::{ApiResult, ProblemDetails},
    skipped_conditions::Saw,
    spend_last_24h::Today,
};

/// Changes of a run are sent together, at most once in this time.
pub(crate) const TOGETHER: Duration = Duration::from_millis(250);
/// The age from which an answer is computed anew.
const RECENT: Duration = Duration::from_secs(5);
/// The interval at which a list is requested.
const LOOK: Duration = Duration::from_secs(1);
/// The time for which a run is kept after a page showed it, and the most runs that are kept.
const KEPT: Duration = Duration::from_secs(20);
const MOST_KEPT: usize = 8;
/// The most time that a request waits until the log of a run is read.
const READ: Duration = Duration::from_secs(30);
/// How many characters of an agent's output are kept, from its end.
const WORDS: usize = 4000;

/// Shares one value per key for as long as a caller holds it.
#[derive(Debug)]
struct SharedByKey<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K: Eq + Hash, V> SharedByKey<K, V> {
    fn get(&self, key: K, is_over: impl FnOnce(&V) -> bool, make: impl FnOnce() -> V) -> Arc<V> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = all.get(&key).and_then(Weak::upgrade).filter(|there| !is_over(there)) {
            return there;
        }
        all.retain(|_, one| one.strong_count() > 0);
        let made = Arc::new(make());
        all.insert(key, Arc::downgrade(&made));
        made
    }
}

impl<K, V> Default for SharedByKey<K, V> {
    fn default() -> Self {
        SharedByKey(Mutex::default())
    }
}

/// An answer that takes long to compute and is reused for a while.
#[derive(Debug)]
struct RecentAnswer<T>(tokio::sync::Mutex<Option<(Instant, Arc<T>)>>);

impl<T> RecentAnswer<T> {
    /// Returns the recent answer, or computes it. Concurrent callers wait for the same computation.
    async fn get<E>(&self, look: impl Future<Output = Result<T, E>>) -> Result<Arc<T>, E> {
        let mut known = self.0.lock().await;
        if let Some((_, found)) = known.as_ref().filter(|(at, _)| at.elapsed() < RECENT) {
            return Ok(found.clone());
        }
        let found = Arc::new(look.await?);
        *known = Some((Instant::now(), found.clone()));
        Ok(found)
    }
}

impl<T> Default for RecentAnswer<T> {
    fn default() -> Self {
        RecentAnswer(tokio::sync::Mutex::default())
    }
}

#[derive(Debug)]
pub(crate) struct LiveRuns {
    client: Client,
    runs: SharedByKey<TraceId, Run>,
    lists: SharedByKey<String, List>,
    kept: Arc<Semaphore>,
    examined: RecentAnswer<Findings>,
    today: RecentAnswer<Today>,
}

impl LiveRuns {
    pub(crate) fn of(client: &Client) -> Arc<Self> {
        let kept = Arc::new(Semaphore::new(MOST_KEPT));
        let (runs, lists) = (SharedByKey::default(), SharedByKey::default());
        let (examined, today) = (RecentAnswer::default(), RecentAnswer::default());
        Arc::new(LiveRuns { client: client.clone(), runs, lists, kept, examined, today })
    }

    /// The findings of the doctor, at most [`RECENT`] old.
    pub(crate) async fn findings(&self) -> Arc<Findings> {
        let look = async {
            let mut found = Findings::default();
            let bus = self.client.bus();
            doctor::storage(bus, &mut found).await;
            doctor::stream_settings(bus, &mut found).await;
            doctor::processes(bus, &Bounds::default(), &mut found).await;
            Ok::<_, Infallible>(found)
        };
        self.examined.get(look).await.unwrap_or_else(|never| match never {})
    }

    /// The spend of the last 24 hours, at most [`RECENT`] old.
    pub(crate) async fn today(&self) -> ApiResult<Arc<Today>> {
        self.today.get(Today::of(&self.client)).await
    }

    /// The run, with every event that its log has at the time of the call.
    pub(crate) async fn run(&self, trace_id: TraceId) -> ApiResult<Arc<Run>> {
        let filter = Filter::EventsOf(trace_id);
        let last = self.client.bus().last(&filter).await?.ok_or(client::Error::NoRun(trace_id))?;
        let run = self.runs.get(trace_id, Run::is_over, || Run::begin(&self.client, trace_id));
        run.keep(&self.kept);
        let is_read = |sequence: &u64| *sequence >= last.sequence;
        let mut news = run.news.clone();
        let read = timeout(READ, news.wait_for(is_read)).await.map(|read| read.map(drop));
        if matches!(read, Ok(Err(_))) {
            // Reading the whole log reports the error that stopped the reader.
            self.client.replay(trace_id).await?;
        }
        if !matches!(read, Ok(Ok(_))) {
            return Err(ProblemDetails::unavailable(&format!(
                "the event log of {trace_id} can't be read at the moment\n\nhint: try again"
            )));
        }
        Ok(run)
    }

    /// The first page of a list of runs, requested again and again.
    pub(crate) fn list(&self, query: &RunsQuery) -> Arc<List> {
        let key = serde_json::to_string(query).unwrap_or_default();
        self.lists.get(key, List::is_over, || List::begin(&self.client, query))
    }
}

/// A list of runs that is requested for as long as a caller holds it.
#[derive(Debug)]
pub(crate) struct List {
    /// None before the first answer.
    news: watch::Receiver<Option<Arc<RunList>>>,
    _task: AbortOnDropHandle<()>,
}

impl List {
    fn begin(client: &Client, query: &RunsQuery) -> Self {
        let (tell, news) = watch::channel(None);
        let (client, query) = (client.clone(), query.clone());
        let task = tokio::spawn(async move {
            // The first failure ends the task. The next request for the list begins a new one.
            while let Ok(Ok(found)) = client.runs(&query).await {
                tell.send_replace(Some(Arc::new(found)));
                sleep(LOOK).await;
            }
        });
        List { news, _task: AbortOnDropHandle::new(task) }
    }

    fn is_over(&self) -> bool {
        self.news.has_changed().is_err()
    }

    /// The latest list, marked as unread, and each one after it.
    pub(crate) fn news(&self) -> watch::Receiver<Option<Arc<RunList>>> {
        let mut news = self.news.clone();
        news.mark_changed();
        news
    }
}

/// A run that is replayed for as long as a caller holds it.
#[derive(Debug)]
pub(crate) struct Run {
    state: Arc<RwLock<State>>,
    /// The sequence of the last message that was read from the log. It is sent again at every
    /// change of the run.
    news: watch::Receiver<u64>,
    is_kept: AtomicBool,
    /// A request used the run since the last check.
    is_looked_at: AtomicBool,
    task: AbortOnDropHandle<Option<()>>,
}

impl Run {
    fn begin(client: &Client, trace_id: TraceId) -> Self {
        let state = Arc::new(RwLock::new(State {
            replay: Replay::new(Trace::new(trace_id)),
            chain: 0,
            saw: Saw::default(),
            said: HashMap::new(),
            heard: 0,
        }));
        let (tell, news) = watch::channel(0);
        let reader = Reader { client: client.clone(), trace_id, state: state.clone(), tell };
        let task = AbortOnDropHandle::new(tokio::spawn(reader.go_on()));
        Run { state, news, is_kept: AtomicBool::new(false), is_looked_at: AtomicBool::new(true), task }
    }

    fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Keeps the run for a while, so that a request for another part of it need not replay it
    /// again.
    fn keep(self: &Arc<Self>, places: &Arc<Semaphore>) {
        self.is_looked_at.store(true, Ordering::Relaxed);
        if self.is_kept.swap(true, Ordering::Relaxed) {
            return;
        }
        let Ok(place) = places.clone().try_acquire_owned() else {
            self.is_kept.store(false, Ordering::Relaxed);
            return;
        };
        let run = self.clone();
        tokio::spawn(async move {
            while run.is_looked_at.swap(false, Ordering::Relaxed) {
                sleep(KEPT).await;
            }
            run.is_kept.store(false, Ordering::Relaxed);
            drop(place);
        });
    }

    /// Notifies at every change of the run. It ends if the run can't be followed any more.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.clone()
    }

    /// Reads the run on the pool for blocking calls: a large run takes a while.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&State) -> T + Send + 'static,
    ) -> ApiResult<T> {
        let state = self.state.clone();
        blocking(move || look(&state.read().unwrap_or_else(PoisonError::into_inner))).await
    }

    /// As [`Run::look`], for a function that may fail.
    pub(crate) async fn show<T: Send + 'static>(
        &self,
        show: impl FnOnce(&Trace) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        self.look(|state| show(state.trace())).await?
    }
}

/// The replayed run and the live output of its agents.
#[derive(Debug)]
pub(crate) struct State {
    replay: Replay,
    /// The number of replays from the start of the log. Each one after the first replaced another
    /// chain of commits.
    chain: u64,
    saw: Saw,
    said: HashMap<ChildId, Words>,
    /// How many pieces of live output have arrived.
    heard: u64,
}

impl State {
    pub(crate) fn trace(&self) -> &Trace {
        self.replay.trace()
    }

    /// Identifies the chain of events and its length: the run is unchanged as long as both are
    /// equal.
    pub(crate) fn version(&self) -> (u64, u64) {
        (self.chain, self.trace().version())
    }

    /// The values that conditions read when they skipped a step.
    pub(crate) fn saw(&self) -> &Saw {
        &self.saw
    }

    /// The live output of an agent.
    pub(crate) fn said(&self, child: &ChildId) -> Option<&Words> {
        self.said.get(child)
    }

    /// How many pieces of live output have arrived.
    pub(crate) fn heard(&self) -> u64 {
        self.heard
    }

    /// The live output of each running agent.
    pub(crate) fn words(&self) -> impl Iterator<Item = (&ChildId, &Words)> {
        self.said.iter()
    }

    fn hear(&mut self, piece: &StreamPiece) {
        // A piece that arrives after the end of its context is ignored.
        if self.trace().context(&piece.child_id).is_none_or(|node| !node.is_live()) {
            return;
        }
        self.heard += 1;
        let words = self.said.entry(piece.child_id.clone()).or_default();
        words.add(piece);
        words.heard = self.heard;
    }

    fn forget_the_ended(&mut self) {
        let trace = self.replay.trace();
        self.said.retain(|child, _| trace.context(child).is_some_and(|node| node.is_live()));
    }
}

/// Follows the log of a run and the live output of its agents.
struct Reader {
    client: Client,
    trace_id: TraceId,
    state: Arc<RwLock<State>>,
    tell: watch::Sender<u64>,
}

/// The result of applying a batch of messages.
enum TakeOutcome {
    All,
    Superseded,
}

impl Reader {
    /// Runs until the log can't be read any more, and returns none then. The next request begins a
    /// new reader.
    async fn go_on(self) -> Option<()> {
        let mut heard = self.client.live_output(self.trace_id).await.ok()?;
        loop {
            let mut log = self.read_again().await?;
            while let TakeOutcome::All = self.take(&mut log, &mut heard).await? {}
        }
    }

    /// Replays the run from the start of its log, and replaces the state with it.
    async fn read_again(&self) -> Option<ReadAhead> {
        let filter = Filter::EventsOf(self.trace_id);
        // The old replay is cloned because it knows which commits were superseded.
        let state = self.state.clone();
        let known = blocking(move || state.read().unwrap_or_else(PoisonError::into_inner).replay.clone());
        let mut replay = known.await.ok()?;
        loop {
            replay.restart();
            let mut saw = Saw::default();
            let last = self.client.bus().last(&filter).await.ok()??.sequence;
            let mut log = self.client.read_ahead(std::slice::from_ref(&filter)).await.ok()?;
            let read = loop {
                let (sequence, logged) = next_events(&mut log).await?;
                saw.note(&logged);
                if replay.add(logged).is_err() {
                    break None;
                }
                if sequence >= last {
                    break Some(sequence);
                }
            };
            let Some(sequence) = read else { continue };
            self.change(sequence, |state| {
                (state.replay, state.saw) = (replay, saw);
                state.chain += 1;
            })
            .await?;
            return Some(log);
        }
    }

    /// Waits for the first message, collects those of the next [`TOGETHER`], and applies all.
    async fn take(&self, log: &mut ReadAhead, heard: &mut LiveOutput) -> Option<TakeOutcome> {
        let mut until = None;
        let (mut events, mut pieces) = (Vec::new(), Vec::new());
        loop {
            let next = async {
                tokio::select! {
                    biased;
                    event = next_events(log) => event.map(|event| events.push(event)),
                    piece = heard.next() => piece.map(|piece| pieces.push(piece)),
                }
            };
            match until {
                None => next.await?,
                Some(until) => match timeout_at(until, next).await {
                    Ok(next) => next?,
                    Err(_) => break,
                },
            }
            until.get_or_insert_with(|| Instant::now() + TOGETHER);
        }
        let sequence = events.last().map_or(0, |(sequence, _)| *sequence);
        self.change(sequence, move |state| {
            for (_, logged) in events {
                state.saw.note(&logged);
                if let Err(Superseded) = state.replay.add(logged) {
                    return TakeOutcome::Superseded;
                }
            }
            pieces.iter().for_each(|piece| state.hear(piece));
            state.forget_the_ended();
            TakeOutcome::All
        })
        .await
    }

    /// Changes the state on the pool for blocking calls, because the lock waits for readers. Then
    /// it notifies the pages.
    async fn change<T: Send + 'static>(
        &self,
        sequence: u64,
        change: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> Option<T> {
        let state = self.state.clone();
        let changed = blocking(move || change(&mut state.write().unwrap_or_else(PoisonError::into_inner)));
        let changed = changed.await.ok()?;
        // Notifies even if the sequence is the same: live output is not a message of the log.
        self.tell.send_modify(|read| *read = (*read).max(sequence));
        Some(changed)
    }
}

/// The next message of an event log; none if the log can't be read any more. Cancel-safe.
async fn next_events(log: &mut ReadAhead) -> Option<(u64, LoggedEvents)> {
    loop {
        if let RunMessage::Events(message) = log.next().await.ok()? {
            return Some((message.sequence, message.logged));
        }
    }
}

/// The live output of an agent for one model answer.
#[derive(Debug, Default)]
pub(crate) struct Words {
    attempt: u32,
    number: u32,
    text: String,
    /// The text describes an action, such as a tool call, and is not output of the model.
    is_act: bool,
    /// The value of [`State::heard`] at the last piece of this agent.
    heard: u64,
}

impl Words {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The last characters of the text.
    pub(crate) fn last(&self, most: usize) -> &str {
        last(&self.text, most)
    }

    /// True if a piece arrived after the count `since`.
    pub(crate) fn is_since(&self, since: u64) -> bool {
        self.heard > since
    }

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
        let kept = self.last(WORDS).len();
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
