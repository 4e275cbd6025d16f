//! Paid calls: hold the worst case, make the call, settle what it cost (B3). Costs are published, so
//! that they wait safely while the coordinator is away, and are booked once by `call_id` however often
//! they come (B9). What is settled is never forgotten on the way: an attempt that is cancelled still
//! sends it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use shared::{
    Amount, CallId, ChildId, Dimension, Timestamp,
    bus::{Bus, Headers, Outgoing},
    clock::Clock,
    id::ModelName,
    subject::Subject,
    telemetry,
    wire::{self, Answer, Ask, Cost, HoldDenied, Refusal},
};

use crate::{
    attempt::coordinator::{Backoff, Coordinator},
    attempt::lease::Keeper,
};

/// How long a cancelled attempt may take to send what its calls cost.
const FLUSH: Duration = Duration::from_secs(5);

/// How long a result waits for the costs before it to be booked.
const CLOSE: Duration = Duration::from_secs(2);

/// The answer to a hold. A `stop` is none: it ends the attempt around it.
#[derive(Debug)]
pub(crate) enum Hold {
    Held,
    /// It does not fit (B5).
    Denied(Box<HoldDenied>),
    /// The budget is used up: make no call (B4).
    Halt {
        context: ChildId,
        dimension: Dimension,
        pause: bool,
    },
    Refused(Refusal),
}

#[derive(Debug)]
pub(crate) struct Meter<'a> {
    bus: &'a Bus,
    coordinator: &'a Coordinator,
    keeper: &'a Keeper,
    clock: Clock,
    /// Where costs go.
    subject: Subject,
    trace_id: shared::TraceId,
    span: u64,
    books: Mutex<Books>,
}

/// What a call cost, of which model, by which prices.
#[derive(Debug, Clone)]
pub(crate) struct Priced {
    pub(crate) amount: Amount,
    pub(crate) model: Option<ModelName>,
    pub(crate) prices: Option<String>,
}

impl From<Amount> for Priced {
    /// A cost that nobody priced: it was told as it is.
    fn from(amount: Amount) -> Self {
        Priced { amount, model: None, prices: None }
    }
}

#[derive(Debug, Default)]
struct Books {
    calls: u32,
    held_at: BTreeMap<CallId, Timestamp>,
    /// Settled, but not stored yet.
    unsent: BTreeMap<CallId, Priced>,
    /// Stored, but perhaps not booked yet: until then their holds stand in the way of others.
    unconfirmed: BTreeMap<CallId, Amount>,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(
        bus: &'a Bus,
        coordinator: &'a Coordinator,
        keeper: &'a Keeper,
        clock: Clock,
        subject: Subject,
        trace_id: shared::TraceId,
        span: u64,
    ) -> Self {
        Meter { bus, coordinator, keeper, clock, subject, trace_id, span, books: Mutex::default() }
    }

    /// An id no other call of this context has: attempts have numbers, and so have their calls.
    pub(crate) fn next_call(&self) -> CallId {
        let mut books = self.books();
        books.calls += 1;
        CallId::new(&format!("{}-{}", self.keeper.lease.attempt, books.calls)).expect("digits and a dash")
    }

    /// Sets the worst case aside. Denied only because costs on their way are not booked yet, it has
    /// them booked and asks once more.
    pub(crate) async fn hold(&self, call_id: &CallId, amount: Amount, closing: bool) -> Hold {
        let held = match self.ask_hold(call_id, amount, closing).await {
            Hold::Denied(denied) => match self.confirm().await {
                0 => Hold::Denied(denied),
                _ => self.ask_hold(call_id, amount, closing).await,
            },
            held @ (Hold::Held | Hold::Halt { .. } | Hold::Refused(_)) => held,
        };
        if matches!(held, Hold::Held) {
            self.books().held_at.insert(call_id.clone(), self.clock.now());
            // The answer may have found a process that was stopped meanwhile.
            self.keeper.live().await;
        }
        held
    }

    async fn ask_hold(&self, call_id: &CallId, amount: Amount, closing: bool) -> Hold {
        let hold = wire::Hold { lease: self.keeper.lease.clone(), call_id: call_id.clone(), amount, closing };
        let answer = self.coordinator.until_answered(Ask::Hold(hold), Some(self.keeper)).await;
        match answer {
            Answer::Done => Hold::Held,
            Answer::Denied(denied) => Hold::Denied(Box::new(denied)),
            Answer::Halt { context, dimension, pause } => Hold::Halt { context, dimension, pause },
            Answer::Stop { reason } => self.keeper.stop(&reason).await,
            Answer::Refused(refusal) => Hold::Refused(refusal),
            Answer::Claimed(_)
            | Answer::Taken { .. }
            | Answer::GoOn { .. }
            | Answer::Spawned { .. }
            | Answer::Value { .. }
            | Answer::Keys { .. } => Hold::Refused(unexpected("hold")),
        }
    }

    /// Has the coordinator book what is on its way to it; how many costs that were.
    async fn confirm(&self) -> usize {
        let costs = std::mem::take(&mut self.books().unconfirmed);
        let count = costs.len();
        let bookings = costs.into_iter().map(|(call_id, amount)| async move {
            let settle = Ask::Settle { lease: self.keeper.lease.clone(), call_id: call_id.clone(), amount };
            let answer = self.coordinator.until_answered(settle, None).await;
            if let Answer::Refused(refusal) = answer {
                tracing::warn!(%call_id, message = refusal.message, "a cost was not booked");
            }
        });
        futures_util::future::join_all(bookings).await;
        count
    }

    /// The call was not made, or was refused: its hold returns whole.
    pub(crate) async fn release(&self, call_id: &CallId) {
        let lease = self.keeper.lease.clone();
        self.end_hold(Ask::Release { lease, call_id: call_id.clone() }, call_id).await;
    }

    /// The call was made, and nobody knows what it cost: it is booked at its hold (B10). Should this
    /// attempt die before, its successor does the same.
    pub(crate) async fn forfeit(&self, call_id: &CallId) {
        let lease = self.keeper.lease.clone();
        self.end_hold(Ask::Forfeit { lease, call_id: call_id.clone() }, call_id).await;
    }

    async fn end_hold(&self, ask: Ask, call_id: &CallId) {
        if let Answer::Refused(refusal) = self.coordinator.until_answered(ask, None).await {
            tracing::warn!(%call_id, message = refusal.message, "a hold did not end as told");
        }
        self.books().held_at.remove(call_id);
    }

    /// The call is over and this is owed: sent by [`Meter::settle`], or when the attempt ends.
    pub(crate) fn owe(&self, call_id: &CallId, priced: Priced) {
        self.books().unsent.insert(call_id.clone(), priced);
    }

    /// What the call cost. It is on record before this returns, or when the attempt ends.
    pub(crate) async fn settle(&self, call_id: &CallId, priced: Priced) {
        let amount = priced.amount;
        self.owe(call_id, priced.clone());
        self.send(call_id, priced).await;
        let held_at = self.books().held_at.remove(call_id);
        if let Some(held_at) = held_at.filter(|_| telemetry::is_on()) {
            telemetry::Span {
                name: "settle".into(),
                trace_id: self.trace_id,
                span_id: None,
                parent: Some(self.span),
                start: held_at,
                end: self.clock.now(),
                kind: telemetry::Kind::Client,
                attributes: vec![
                    ("trellis.child_id", self.keeper.lease.child_id.as_str().into()),
                    ("trellis.call_id", call_id.as_str().into()),
                    ("trellis.budget.cost_nanos", amount.cost_usd.nanos().into()),
                    ("trellis.budget.tokens", amount.tokens.count().into()),
                ],
                error: None,
                link: None,
            }
            .emit();
        }
    }

    /// Has everything booked before the result is told, so that the outcome shows it all. A coordinator
    /// that is away books it later, from the queue.
    pub(crate) async fn close(&self) {
        if tokio::time::timeout(CLOSE, self.confirm()).await.is_err() {
            tracing::debug!("costs are still on their way to the books");
        }
    }

    /// Sends what a cancelled agent had settled but not sent. What can't be sent in time is booked as
    /// estimated by the coordinator: the hold stands until then (B10).
    pub(crate) async fn flush(&self) {
        let unsent: Vec<_> =
            self.books().unsent.iter().map(|(id, priced)| (id.clone(), priced.clone())).collect();
        let sending = async {
            for (call_id, priced) in unsent {
                self.send(&call_id, priced).await;
            }
        };
        if tokio::time::timeout(FLUSH, sending).await.is_err() {
            tracing::warn!(count = self.books().unsent.len(), "costs could not be sent; their holds stand");
        }
    }

    /// Sent twice, it is stored once by its id, and booked once by its call whatever is stored. What can't
    /// be stored for a while stays owed: its hold stands, and it is sent again when the attempt ends. One
    /// that has no hold is known nowhere else, and is waited for.
    async fn send(&self, call_id: &CallId, priced: Priced) {
        let Priced { amount, model, prices } = priced;
        let lease = self.keeper.lease.clone();
        let id = format!("{}.{}.{call_id}.cost", self.trace_id, lease.child_id);
        let cost = Cost { trace_id: self.trace_id, lease, call_id: call_id.clone(), amount, model, prices };
        let message = Outgoing {
            subject: self.subject.clone(),
            id: Some(id),
            headers: self.headers(),
            payload: serde_json::to_vec(&cost).expect("a message has string keys").into(),
            expect_last: None,
        };
        let mut pause = Backoff::default();
        while let Err(error) = self.bus.publish(message.clone()).await {
            tracing::warn!(%error, %call_id, "a cost could not be stored yet");
            if !self.books().held_at.contains_key(call_id) {
                pause.wait().await;
            } else if pause.wait_a_while().await.is_err() {
                tracing::error!(%error, %call_id, "a cost can't be stored; it stays owed, and its hold stands");
                return;
            }
        }
        let mut books = self.books();
        books.unsent.remove(call_id);
        books.unconfirmed.insert(call_id.clone(), amount);
    }

    fn headers(&self) -> Headers {
        telemetry::headers(self.trace_id, self.span)
    }

    /// Held for no longer than a look.
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A protocol that is not ours: named, and treated as a refusal.
pub(crate) fn unexpected(ask: &str) -> Refusal {
    Refusal {
        code: "unexpected_answer".into(),
        rule: "P".into(),
        message: format!("the coordinator answered a {ask} with something else"),
        problems: Vec::new(),
    }
}
