//! The meter of an attempt: hold the worst case, make the call, settle its cost (B3). Costs are
//! published, so they are safe while the coordinator is away. A cost that arrives several times is
//! booked once, by its `call_id` (B9). A settled cost is never forgotten: a cancelled attempt still
//! sends it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bus::Outgoing;
use domain::{
    Amount, CallId, ChildId, Dimension,
    id::ModelName,
    span::{Attribute, attribute},
    wire::{
        self, Answer, Ask, CALL_CONFLICT, Cost, HoldDenied, News, OpenHold, Refusal, Resume, SeenNumbers,
        SettledCall,
    },
};
use telemetry::metrics;
use tokio::time::Instant;

use crate::{
    attempt::{Attempt, span::Doing},
    retry::Backoff,
};

/// The time for which an ended attempt may send the costs of its calls.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The time for which a result waits until earlier costs are booked.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The answer to a hold. There is no variant for `stop`, because it ends the attempt.
#[derive(Debug)]
pub(crate) enum Hold {
    Held,
    /// The hold does not fit (B5).
    Denied(Box<HoldDenied>),
    /// Only calls in flight leave too little for the hold, and they take long. The context keeps
    /// its place in the line without this worker.
    Crowded(Box<HoldDenied>),
    /// The budget is used up: make no call (B4).
    Halt {
        context: ChildId,
        dimension: Dimension,
        pause: bool,
    },
    /// No hold was taken: the agent has to see this first (G13, B21).
    News(Box<News>),
    Refused(Refusal),
}

impl From<Answer> for Hold {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Done => Hold::Held,
            Answer::Denied(denied) => Hold::Denied(Box::new(denied)),
            Answer::Wait(denied) => Hold::Crowded(Box::new(denied)),
            Answer::Halt { context, dimension, pause } => Hold::Halt { context, dimension, pause },
            Answer::News(news) => Hold::News(news),
            answer @ (Answer::Claimed(_)
            | Answer::Taken { .. }
            | Answer::GoOn { .. }
            | Answer::Stop { .. }
            | Answer::Spawned { .. }
            | Answer::Value { .. }
            | Answer::Keys { .. }
            | Answer::Part(_)
            | Answer::Refused(_)) => Hold::Refused(answer.into_refusal("hold")),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Meter<'a> {
    attempt: &'a Attempt,
    books: Mutex<Books>,
}

/// The cost of a call, with its model and the version of its prices.
#[derive(Debug, Clone)]
pub(crate) struct MeteredCall {
    pub(crate) amount: Amount,
    pub(crate) model: Option<ModelName>,
    pub(crate) prices: Option<String>,
}

impl From<Amount> for MeteredCall {
    /// A cost that is reported as an amount, without a price list.
    fn from(amount: Amount) -> Self {
        MeteredCall { amount, model: None, prices: None }
    }
}

#[derive(Debug, Default)]
struct Books {
    calls: u32,
    held: BTreeSet<CallId>,
    /// Calls that were cut off at the deadline and are not booked yet.
    cut_off: BTreeSet<CallId>,
    /// Costs that are not stored yet.
    unsent: BTreeMap<CallId, MeteredCall>,
    /// Costs that are stored, but perhaps not booked. Until then their holds still take up budget.
    unconfirmed: BTreeMap<CallId, (Amount, Option<ModelName>)>,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(attempt: &'a Attempt) -> Self {
        Meter { attempt, books: Mutex::default() }
    }

    pub(crate) fn attempt(&self) -> &'a Attempt {
        self.attempt
    }

    /// Reports to the coordinator how the calls of earlier attempts ended. Calls with an unknown
    /// end are booked as estimated (B10). Runs before any call of this attempt.
    pub(crate) async fn resume(&self, open: &[OpenHold], settled: Vec<SettledCall>) {
        if open.is_empty() {
            return;
        }
        let resume = Resume { lease: self.attempt.token(), settled };
        if let Answer::Refused(refusal) = self.attempt.ask(Ask::Resume(resume)).await {
            tracing::warn!(code = refusal.code, "the holds of earlier attempts stay open");
        }
    }

    /// A new id that is unique among the calls of this context: the attempt's number and the
    /// call's.
    pub(crate) fn next_call(&self) -> CallId {
        let mut books = self.books();
        books.calls += 1;
        CallId::new(&format!("{}-{}", self.attempt.number(), books.calls)).expect("digits and a dash")
    }

    /// Holds the worst case. If the hold does not fit while costs of this attempt are not booked
    /// yet, those are booked, and the hold is tried once more. While only calls in flight leave too
    /// little, it waits for a while. With `seen`, the answer may be news that the agent has not
    /// seen yet.
    pub(crate) async fn hold(
        &self,
        call_id: &CallId,
        amount: Amount,
        closing: bool,
        seen: Option<SeenNumbers>,
    ) -> Hold {
        let lease = self.attempt.token();
        let ask = Ask::Hold(wire::Hold { lease, call_id: call_id.clone(), amount, closing, seen });
        if self.climbs(seen) {
            // Rungs depend on the spent amount, so published costs are booked first.
            self.confirm().await;
        }
        let mut span = self.ending("hold", call_id);
        span.add(|| amounts(amount));
        let asked = Instant::now();
        let mut answer = self.attempt.ask(ask.clone()).await;
        metrics::hold_answered(asked.elapsed());
        if matches!(answer, Answer::Denied(_) | Answer::Wait(_)) {
            let booked = self.confirm().await;
            if booked > 0 || matches!(answer, Answer::Wait(_)) {
                answer = self.attempt.ask_patiently(ask).await;
            }
        }
        let held = Hold::from(answer);
        if matches!(held, Hold::Held) {
            // The process may have been suspended before it saw the answer.
            self.attempt.lease.live().await;
            self.books().held.insert(call_id.clone());
        }
        tell_of_hold(span, &held);
        held
    }

    /// Returns true if the ladder of the budget has rungs that the agent has not seen.
    fn climbs(&self, seen: Option<SeenNumbers>) -> bool {
        seen.and_then(|seen| seen.rungs)
            .is_some_and(|seen| (seen as usize) < self.attempt.work.on_budget.len())
    }

    /// Asks the coordinator to book the published costs; returns their number.
    async fn confirm(&self) -> usize {
        let costs = std::mem::take(&mut self.books().unconfirmed);
        let count = costs.len();
        let bookings = costs.into_iter().map(|(call_id, (amount, model))| async move {
            let settle = Ask::Settle { lease: self.attempt.token(), call_id: call_id.clone(), amount, model };
            let answer = self.attempt.coordinator.until_answered(settle).await;
            if let Answer::Refused(refusal) = answer {
                tracing::warn!(%call_id, code = refusal.code, "a cost was not booked");
            }
        });
        futures_util::future::join_all(bookings).await;
        count
    }

    /// Returns the whole hold to the budget, because the call was not made or was refused.
    pub(crate) async fn release(&self, call_id: &CallId) {
        let lease = self.attempt.token();
        let span = self.ending("release", call_id);
        self.end_hold(Ask::Release { lease, call_id: call_id.clone() }, call_id).await;
        span.end();
    }

    /// Books a call of unknown cost at its hold (B10). If this attempt dies before that, its
    /// successor does the same.
    pub(crate) async fn forfeit(&self, call_id: &CallId) {
        let lease = self.attempt.token();
        let span = self.ending("forfeit", call_id);
        self.end_hold(Ask::Forfeit { lease, call_id: call_id.clone() }, call_id).await;
        span.end();
    }

    /// Records that a call was made and is over. Its hold is ended by [`Meter::forfeit`], or when
    /// the attempt is stopped.
    pub(crate) fn cut_off(&self, call_id: &CallId) {
        let mut books = self.books();
        books.held.remove(call_id);
        books.cut_off.insert(call_id.clone());
    }

    /// Books the calls that a stopped attempt has cut off, so that the end of the context is not
    /// delayed by their holds (B12). The coordinator books the calls that are left after the
    /// timeout.
    pub(crate) async fn forfeit_cut_off(&self) {
        let cut_off: Vec<CallId> = {
            let books = self.books();
            let calling = books.held.iter().filter(|id| !books.unsent.contains_key(*id));
            calling.chain(&books.cut_off).cloned().collect()
        };
        let forfeiting = async {
            for call_id in &cut_off {
                self.forfeit(call_id).await;
            }
        };
        if tokio::time::timeout(FLUSH_TIMEOUT, forfeiting).await.is_err() {
            tracing::warn!("calls that were cut off could not be booked; their holds stay open");
        }
    }

    async fn end_hold(&self, ask: Ask, call_id: &CallId) {
        {
            let mut books = self.books();
            books.held.remove(call_id);
            books.cut_off.remove(call_id);
        }
        if let Answer::Refused(refusal) = self.attempt.coordinator.until_answered(ask).await {
            tracing::warn!(%call_id, code = refusal.code, "a hold could not be ended");
        }
    }

    /// Records the cost of an ended call. [`Meter::settle`] sends it, or the end of the attempt
    /// does.
    pub(crate) fn owe(&self, call_id: &CallId, priced: MeteredCall) {
        self.books().unsent.insert(call_id.clone(), priced);
    }

    /// Sends the cost of a call. The cost is stored before this returns, or when the attempt ends.
    pub(crate) async fn settle(&self, call_id: &CallId, priced: MeteredCall) {
        let amount = priced.amount;
        let mut span = self.ending("settle", call_id);
        span.add(|| amounts(amount));
        self.owe(call_id, priced.clone());
        self.send(call_id, priced).await;
        self.books().held.remove(call_id);
        span.end();
    }

    /// Sends a cost again. The coordinator books the first report, unless that was an estimate.
    pub(crate) async fn settle_again(&self, call_id: &CallId, priced: MeteredCall) {
        self.send(call_id, priced).await;
    }

    /// The span of the end of a hold.
    fn ending(&self, name: &'static str, call_id: &CallId) -> Doing<'_> {
        let mut span = self.attempt.begin(name, domain::span::Kind::Client, &format!("{call_id}.{name}"));
        span.add(|| vec![attribute("trellis.call_id", call_id.as_str())]);
        span
    }

    /// Waits until all costs are booked, before the result is reported, so that the outcome shows
    /// them. If the coordinator is away, it books them later, from the queue.
    pub(crate) async fn close(&self) {
        if tokio::time::timeout(CLOSE_TIMEOUT, self.confirm()).await.is_err() {
            tracing::debug!("costs are not booked yet; they wait in the queue");
        }
    }

    /// Sends the costs that a cancelled agent has not sent. The coordinator books the costs that
    /// are left after the timeout as estimated, and their holds stay open until then (B10).
    pub(crate) async fn flush(&self) {
        let unsent: Vec<_> =
            self.books().unsent.iter().map(|(id, priced)| (id.clone(), priced.clone())).collect();
        let sending = async {
            for (call_id, priced) in unsent {
                self.send(&call_id, priced).await;
            }
        };
        if tokio::time::timeout(FLUSH_TIMEOUT, sending).await.is_err() {
            tracing::warn!(
                count = self.books().unsent.len(),
                "costs could not be sent; their holds stay open"
            );
        }
    }

    /// Publishes a cost. A repeated message is stored once by its id, and booked once by its
    /// `call_id`. A cost that can't be stored within the retry limit stays owed: its hold stays
    /// open, and the cost is sent again when the attempt ends. A cost without a hold exists only
    /// here, so it is retried without a limit.
    async fn send(&self, call_id: &CallId, priced: MeteredCall) {
        let MeteredCall { amount, model, prices } = priced;
        let lease = self.attempt.token();
        let trace_id = self.attempt.trace_id();
        let id = self.attempt.message_id(&format!("{call_id}.cost"));
        let cost = Cost { trace_id, lease, call_id: call_id.clone(), amount, model, prices };
        let message = Outgoing {
            subject: self.attempt.cost_subject(),
            id: Some(id),
            headers: self.attempt.headers(),
            payload: serde_json::to_vec(&cost).expect("a message has string keys").into(),
            expect_last: None,
        };
        let mut backoff = Backoff::default();
        while let Err(error) = self.attempt.bus.publish(message.clone()).await {
            tracing::debug!(%error, %call_id, "could not store a cost yet");
            if !self.books().held.contains(call_id) {
                backoff.wait().await;
            } else if backoff.wait_bounded().await.is_err() {
                tracing::warn!(%error, %call_id, "could not store a cost; it stays owed, and its hold stays open");
                return;
            }
        }
        let mut books = self.books();
        books.held.remove(call_id);
        books.unsent.remove(call_id);
        books.unconfirmed.insert(call_id.clone(), (amount, cost.model));
    }

    /// Returns true while a call is being made, or its cost is not stored yet.
    pub(crate) fn in_flight(&self) -> bool {
        !self.books().held.is_empty()
    }

    /// The guard is never held over an await.
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn amounts(amount: Amount) -> Vec<Attribute> {
    vec![
        attribute("trellis.budget.amount_usd", amount.cost_usd),
        attribute("trellis.budget.amount_nanos", amount.cost_usd.nanos()),
        attribute("trellis.budget.tokens", amount.tokens.count()),
    ]
}

/// Records the answer to a hold in its span. A denial is not an error.
fn tell_of_hold(mut span: Doing<'_>, held: &Hold) {
    match held {
        Hold::Held => span.happened("trellis.budget.held", Vec::new),
        Hold::Denied(denied) | Hold::Crowded(denied) => span.happened("trellis.budget.denied", || {
            let HoldDenied {
                context,
                dimension,
                asked: _,
                limit,
                spent,
                held,
                left_usd,
                left_tokens,
                pause: _,
            } = &**denied;
            vec![
                attribute("trellis.budget.scope", context.as_str()),
                attribute("trellis.budget.dimension", dimension.to_string()),
                attribute("trellis.budget.limit_usd", limit.cost_usd),
                attribute("trellis.budget.limit_tokens", limit.tokens.count()),
                attribute("trellis.budget.spent_usd", spent.cost_usd),
                attribute("trellis.budget.spent_tokens", spent.tokens.count()),
                attribute("trellis.budget.held_usd", held.cost_usd),
                attribute("trellis.budget.held_tokens", held.tokens.count()),
                attribute("trellis.budget.remaining_usd", *left_usd),
                attribute("trellis.budget.remaining_tokens", left_tokens.count()),
            ]
        }),
        Hold::Halt { context, dimension, pause: _ } => span.happened("trellis.budget.exhausted", || {
            vec![
                attribute("trellis.budget.scope", context.as_str()),
                attribute("trellis.budget.dimension", dimension.to_string()),
            ]
        }),
        Hold::News(_) => span.happened("trellis.news", Vec::new),
        Hold::Refused(refusal) if refusal.code == CALL_CONFLICT => return span.forget(),
        Hold::Refused(_) => span.fail("refused"),
    }
    span.end();
}
