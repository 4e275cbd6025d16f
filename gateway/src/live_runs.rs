//! What people look at: a run is replayed once and a list is asked for once, however many look at it. Both go on while somebody looks, a run
//! also for a short while after.

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

/// Changes of a run are told together, so often at most.
pub(crate) const TOGETHER: Duration = Duration::from_millis(250);
/// How long it is told what was found before it is looked for again.
const RECENT: Duration = Duration::from_secs(5);
/// How often a list is asked for.
const LOOK: Duration = Duration::from_secs(1);
/// How long a run is kept after it was looked at, and how many are.
const KEPT: Duration = Duration::from_secs(20);
const MOST_KEPT: usize = 8;
/// How long the log of a run may take to be read.
const READ: Duration = Duration::from_secs(30);
/// The last characters of what an agent says.
const WORDS: usize = 4000;

/// What there is one of for each key while somebody has it.
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

/// What takes long to find, and is told for a while after.
#[derive(Debug)]
struct RecentAnswer<T>(tokio::sync::Mutex<Option<(Instant, Arc<T>)>>);

impl<T> RecentAnswer<T> {
    /// Whoever asks while it is looked for waits for that.
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

    /// What ails the deployment, as of a moment ago.
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

    /// What was spent in the last 24 hours, as of a moment ago.
    pub(crate) async fn today(&self) -> ApiResult<Arc<Today>> {
        self.today.get(Today::of(&self.client)).await
    }

    /// A run as it is now, or a moment later.
    pub(crate) async fn run(&self, trace_id: TraceId) -> ApiResult<Arc<Run>> {
        let filter = Filter::EventsOf(trace_id);
        let last = self.client.bus().last(&filter).await?.ok_or(client::Error::NoRun(trace_id))?;
        let run = self.runs.get(trace_id, Run::is_over, || Run::begin(&self.client, trace_id));
        run.keep(&self.kept);
        let is_read = |sequence: &u64| *sequence >= last.sequence;
        let mut news = run.news.clone();
        let read = timeout(READ, news.wait_for(is_read)).await.map(|read| read.map(drop));
        if matches!(read, Ok(Err(_))) {
            // What is wrong with the log is said by whoever reads it as a whole.
            self.client.replay(trace_id).await?;
        }
        if !matches!(read, Ok(Ok(_))) {
            return Err(ProblemDetails::unavailable(&format!(
                "the log of {trace_id} can't be read now\n\nhint: try again in a moment"
            )));
        }
        Ok(run)
    }

    /// The first page of a list of runs, again and again.
    pub(crate) fn list(&self, query: &RunsQuery) -> Arc<List> {
        let key = serde_json::to_string(query).unwrap_or_default();
        self.lists.get(key, List::is_over, || List::begin(&self.client, query))
    }
}

/// A list of runs that is asked for while somebody has it.
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
            // Without an answer it ends, and whoever looks comes again.
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

    /// What was found last, and every time after.
    pub(crate) fn news(&self) -> watch::Receiver<Option<Arc<RunList>>> {
        let mut news = self.news.clone();
        news.mark_changed();
        news
    }
}

/// A run that is replayed while somebody has it.
#[derive(Debug)]
pub(crate) struct Run {
    state: Arc<RwLock<State>>,
    /// The last message of its log that was read. It is told anew whenever the run changes.
    news: watch::Receiver<u64>,
    is_kept: AtomicBool,
    /// Somebody has looked at it lately.
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

    /// It stays for a while, so that whoever looks at another part of it need not wait until it is replayed.
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

    /// Changes whenever the run does. It ends if the run can't be followed any more.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.clone()
    }

    /// Looks at the run where nothing else waits for it: a large run takes a while.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&State) -> T + Send + 'static,
    ) -> ApiResult<T> {
        let state = self.state.clone();
        blocking(move || look(&state.read().unwrap_or_else(PoisonError::into_inner))).await
    }

    /// The same, for what may be refused.
    pub(crate) async fn show<T: Send + 'static>(
        &self,
        show: impl FnOnce(&Trace) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        self.look(|state| show(state.trace())).await?
    }
}

/// A run, and what its agents say.
#[derive(Debug)]
pub(crate) struct State {
    replay: Replay,
    /// How often another chain of events took the place of one that was shown.
    chain: u64,
    saw: Saw,
    said: HashMap<ChildId, Words>,
    /// How often an agent said something.
    heard: u64,
}

impl State {
    pub(crate) fn trace(&self) -> &Trace {
        self.replay.trace()
    }

    /// Which chain of events this is, and how long it is: both stay as long as nothing changes.
    pub(crate) fn version(&self) -> (u64, u64) {
        (self.chain, self.trace().version())
    }

    /// What conditions saw that were not true.
    pub(crate) fn saw(&self) -> &Saw {
        &self.saw
    }

    /// What an agent says.
    pub(crate) fn said(&self, child: &ChildId) -> Option<&Words> {
        self.said.get(child)
    }

    /// How often something was said until now.
    pub(crate) fn heard(&self) -> u64 {
        self.heard
    }

    /// What each agent says that works.
    pub(crate) fn words(&self) -> impl Iterator<Item = (&ChildId, &Words)> {
        self.said.iter()
    }

    fn hear(&mut self, piece: &StreamPiece) {
        // Whoever has ended says nothing more.
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

/// Reads the log of a run as it grows, and what its agents say.
struct Reader {
    client: Client,
    trace_id: TraceId,
    state: Arc<RwLock<State>>,
    tell: watch::Sender<u64>,
}

/// What came of the messages that were taken.
enum TakeOutcome {
    All,
    Superseded,
}

impl Reader {
    /// None: the log can't be read. Whoever looks comes again.
    async fn go_on(self) -> Option<()> {
        let mut heard = self.client.live_output(self.trace_id).await.ok()?;
        loop {
            let mut log = self.read_again().await?;
            while let TakeOutcome::All = self.take(&mut log, &mut heard).await? {}
        }
    }

    /// The run from the start of its log, in the place of what is known of it.
    async fn read_again(&self) -> Option<ReadAhead> {
        let filter = Filter::EventsOf(self.trace_id);
        // It keeps which commits others took the place of.
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

    /// Waits for the first message, and takes all that come soon after it.
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

    /// Changes the run where it may wait for those who look at it, and tells that it has changed.
    async fn change<T: Send + 'static>(
        &self,
        sequence: u64,
        change: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> Option<T> {
        let state = self.state.clone();
        let changed = blocking(move || change(&mut state.write().unwrap_or_else(PoisonError::into_inner)));
        let changed = changed.await.ok()?;
        // Told although it may be the same: what agents say is no message of the log.
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

/// What an agent says of one answer.
#[derive(Debug, Default)]
pub(crate) struct Words {
    attempt: u32,
    number: u32,
    text: String,
    /// The text is what it does, not what it says.
    is_act: bool,
    /// How often something was said when it last said something.
    heard: u64,
}

impl Words {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The last of it.
    pub(crate) fn last(&self, most: usize) -> &str {
        last(&self.text, most)
    }

    /// Whether something was said since.
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
