//! One paid call of a model, for any kind of agent (B3): reserve the worst case; call; record the cost in memory
//! before the next `.await`; then write the journal and publish the cost at the same time. No call is
//! made that its hold does not cover: if a hold is denied, a shorter answer or the fallback model is held for
//! instead, or no call is made (B5).
//!
//! Crash windows: before the call only a hold is open, which is booked when a successor resumes; between the answer and
//! the journal the call is lost and its hold is booked (B10); once the call is in the journal it is never
//! made again, and the successor books it from there.

use std::time::Duration;

use shared::{
    Amount, CallId, Timestamp,
    id::ModelName,
    telemetry,
    wire::{CallCost, Failure, FailureKind, HistoryStep, HoldDenied, ModelStep, Said, Usage, exhausted},
};

use super::{
    meter::{Hold, Meter, Priced},
    token_bound::PaidRequest,
};
use crate::{
    attempt::{Attempt, live_output::LiveOutput},
    crash::Point,
    journal::Journal,
    model::{Completion, Error, Models, Price, Request},
};

/// The shortest answer worth paying for, in tokens.
const MIN_ANSWER_TOKENS: u32 = 64;
/// How often a call is tried with a shorter answer. More than once, since other calls hold and settle meanwhile.
const MAX_SHORTENINGS: u32 = 4;
/// The longest call, also where the deadline leaves more time.
const MAX_CALL_TIME: Duration = Duration::from_secs(600);
/// The pause before a retry, unless the provider gives one; doubles up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) enum CallOutcome {
    /// The answer is in the journal, and its cost is booked.
    Answered(Box<ModelStep>),
    /// The budget is too small (B5), also for the fallback model.
    CannotAfford(Shortage),
    Failed(Failure),
}

#[derive(Debug)]
pub(crate) struct Shortage {
    /// The context may wait: for a larger budget (B8), or for calls in flight.
    pub(crate) pause: bool,
    /// No other call is possible either: the budget is used up (B4), or calls in flight have it.
    pub(crate) halted: bool,
    pub(crate) why: String,
}

/// Calls the agent's model, and its fallback if the budget is too small for the first.
pub(crate) async fn call(
    meter: &Meter<'_>,
    models: &Models,
    journal: &Journal<'_>,
    request: &PaidRequest<'_>,
) -> CallOutcome {
    let work = &meter.attempt().work;
    let Some(model) = &work.model else {
        return failed(FailureKind::Agent, "the agent's profile names no model");
    };
    let mut shortage = None;
    // A summary is the work of the cheaper model (W7).
    let first = work.agent.fallback_model.as_ref().filter(|_| request.summary_of.is_some()).unwrap_or(model);
    let second = work.agent.fallback_model.as_ref().filter(|_| request.summary_of.is_none());
    for model in std::iter::once(first).chain(second) {
        let price = match models.price(model) {
            Ok(price) => price,
            Err(unpriced) => return failed(FailureKind::Refused, unpriced.to_string()),
        };
        let input_tokens = request.input_tokens(model, models.tokenizer(model));
        let attempt = meter.attempt();
        match (Call { attempt, meter, models, journal, request, model, price, input_tokens }).make().await {
            // The fallback may be affordable (B5); a budget that is used up stops both.
            CallOutcome::CannotAfford(denied) if !denied.halted => shortage = Some(denied),
            outcome @ (CallOutcome::Answered(_) | CallOutcome::CannotAfford(_) | CallOutcome::Failed(_)) => {
                return outcome;
            }
        }
    }
    CallOutcome::CannotAfford(shortage.expect("there is a model, and it was denied"))
}

/// A call of one model, retried until it answers or no retry can help.
struct Call<'a> {
    attempt: &'a Attempt,
    meter: &'a Meter<'a>,
    models: &'a Models,
    journal: &'a Journal<'a>,
    request: &'a PaidRequest<'a>,
    model: &'a ModelName,
    price: Price,
    input_tokens: u64,
}

/// An open hold.
struct Held {
    call_id: CallId,
    amount: Amount,
    max_tokens: u32,
}

impl Call<'_> {
    async fn make(&self) -> CallOutcome {
        let mut wait = FIRST_PAUSE;
        loop {
            if self.time_left().is_zero() {
                return failed(FailureKind::LimitExceeded, "timeout_ms: no time is left for a call");
            }
            let held = match self.hold().await {
                Ok(held) => held,
                Err(outcome) => return outcome,
            };
            let live = LiveOutput::new(self.attempt, self.journal.next_number());
            let began = self.attempt.now();
            self.attempt.config.crash.pass(Point::Held);
            let answer = self.ask(&held, &live).await;
            self.emit(&held, began, &answer);
            let (message, retryable, retry_after) = match answer {
                Ok(completion) => {
                    self.attempt.config.crash.pass(Point::Answered);
                    return CallOutcome::Answered(Box::new(self.record(held, completion, &live).await));
                }
                Err(Error::Refused { message, retryable, retry_after }) => {
                    self.meter.release(&held.call_id).await;
                    (message, retryable, retry_after)
                }
                Err(Error::Unknown { message }) => {
                    self.meter.forfeit(&held.call_id).await;
                    (message, true, None)
                }
            };
            if !retryable {
                return failed(FailureKind::Provider, message);
            }
            let pause = retry_after.unwrap_or(wait);
            if let Err(failure) = self.count_retry(pause, &message) {
                return CallOutcome::Failed(failure);
            }
            tracing::info!(message, model = %self.model, "the call failed; trying again");
            live.send(Said::Again { why: message }).await;
            tokio::time::sleep(pause).await;
            wait = (wait * 2).min(MAX_PAUSE);
        }
    }

    /// Counts a retry of the context (B15). An error if no retry is left, or the deadline comes before the next one.
    fn count_retry(&self, pause: Duration, message: &str) -> Result<(), Failure> {
        let (limits, progress) = (&self.attempt.work.limits, &self.attempt.progress);
        progress.change(|progress| progress.retries += 1);
        let retries = progress.get().retries;
        if retries > limits.max_retries_total {
            let message =
                format!("max_retries_total: {} used; the last failure: {message}", limits.max_retries_total);
            return Err(Failure::lasting(FailureKind::LimitExceeded, message));
        }
        if pause >= self.time_left() {
            let message = format!("no time is left to try again: {message}");
            return Err(Failure::lasting(FailureKind::Provider, message));
        }
        Ok(())
    }

    fn time_left(&self) -> Duration {
        self.attempt.deadline.left().unwrap_or(MAX_CALL_TIME).min(MAX_CALL_TIME)
    }

    /// Holds the worst case, of a shorter answer if the budget is too small.
    async fn hold(&self) -> Result<Held, CallOutcome> {
        let max = self.request.max_tokens.max(1);
        let mut max_tokens = max;
        for _ in 0..=MAX_SHORTENINGS {
            let call_id = self.meter.next_call();
            let amount = self.price.worst_case(self.input_tokens, max_tokens);
            match self.meter.hold(&call_id, amount, self.request.closing).await {
                Hold::Held => return Ok(Held { call_id, amount, max_tokens }),
                // The context waits for a larger budget rather than take a shorter answer (B8).
                Hold::Denied(denied) if denied.pause => return Err(cannot_afford(&denied)),
                Hold::Denied(denied) => {
                    let left = Amount::new(denied.left_usd, denied.left_tokens);
                    match self.price.affordable(self.input_tokens, left, max_tokens) {
                        Some(fits) if fits >= MIN_ANSWER_TOKENS.min(max) && fits < max_tokens => {
                            max_tokens = fits
                        }
                        Some(_) | None => return Err(cannot_afford(&denied)),
                    }
                }
                Hold::Crowded(denied) => {
                    let why = denied.describe("hold");
                    return Err(CallOutcome::CannotAfford(Shortage { pause: true, halted: true, why }));
                }
                Hold::Halt { context, dimension, pause } => {
                    let why = exhausted(&context, dimension);
                    return Err(CallOutcome::CannotAfford(Shortage { pause, halted: true, why }));
                }
                Hold::Refused(refusal) => {
                    return Err(failed(FailureKind::Refused, refusal.to_text()));
                }
            }
        }
        let why = "too many calls use the budget at the same time".into();
        Err(CallOutcome::CannotAfford(Shortage { pause: false, halted: false, why }))
    }

    async fn ask(&self, held: &Held, live: &LiveOutput<'_>) -> Result<Completion, Error> {
        let request = Request {
            model: self.model,
            messages: self.request.messages,
            tools: self.request.tools,
            max_tokens: held.max_tokens,
            output_schema: self.request.output_schema,
            timeout: self.time_left(),
            script: self.request.script,
        };
        // A summary is nothing that the agent says.
        let mut added = |piece: &str| {
            if self.request.summary_of.is_none() {
                live.add(piece)
            }
        };
        live.during(self.models.complete(&request, &mut added)).await
    }

    /// Records the answer in the journal and settles its cost. The meter knows the cost before the first
    /// `.await`, so that an attempt that is cut off here still sends it.
    async fn record(&self, held: Held, completion: Completion, live: &LiveOutput<'_>) -> ModelStep {
        let Completion { text, calls, usage, cut_off } = completion;
        let amount = usage.map_or(held.amount, |usage| self.price.cost(&usage));
        let priced =
            Priced { amount, model: Some(self.model.clone()), prices: Some(self.price.version.clone()) };
        if usage.is_some() {
            self.meter.owe(&held.call_id, priced.clone());
        }
        let step = ModelStep {
            call_id: held.call_id.clone(),
            model: self.model.clone(),
            cost: CallCost { amount, estimated: usage.is_none(), prices: self.price.version.clone() },
            usage,
            sent: Some(self.request.sent()),
            retries: self.attempt.progress.get().retries,
            text,
            unoffered: self.request.unoffered(&calls),
            // Without tools there is nobody to answer a call, and some providers refuse a conversation with one.
            tool_calls: if self.request.tools.is_empty() { Vec::new() } else { calls },
            max_tokens: held.max_tokens,
            cut_off,
            closing: self.request.closing,
            asked: self.request.asked.map(str::to_owned),
            summary_of: self.request.summary_of,
        };
        let booking = async {
            match usage {
                Some(_) => self.meter.settle(&held.call_id, priced).await,
                None => self.meter.forfeit(&held.call_id).await,
            }
        };
        let writing = async {
            self.journal.append(HistoryStep::Model(Box::new(step.clone()))).await;
            self.attempt.config.crash.pass(Point::Written);
        };
        tokio::join!(writing, booking, live.flush());
        step
    }

    fn emit(&self, held: &Held, began: Timestamp, answer: &Result<Completion, Error>) {
        if !telemetry::is_on() {
            return;
        }
        let usage = answer.as_ref().ok().and_then(|completion| completion.usage);
        let Usage { input_tokens, output_tokens, .. } = usage.unwrap_or_default();
        telemetry::Span {
            name: format!("chat {}", self.model).into(),
            trace_id: self.attempt.trace_id(),
            span_id: None,
            parent: Some(self.attempt.span),
            start: began,
            end: self.attempt.now(),
            kind: telemetry::Kind::Client,
            attributes: vec![
                ("gen_ai.operation.name", "chat".into()),
                ("gen_ai.request.model", self.model.as_str().into()),
                ("gen_ai.request.max_tokens", held.max_tokens.into()),
                ("gen_ai.usage.input_tokens", input_tokens.into()),
                ("gen_ai.usage.output_tokens", output_tokens.into()),
                ("trellis.child_id", self.attempt.child_id().as_str().into()),
                ("trellis.call_id", held.call_id.as_str().into()),
                ("trellis.budget.held_nanos", held.amount.cost_usd.nanos().into()),
            ],
            error: answer.is_err().then_some("the model did not answer"),
            link: None,
        }
        .emit();
    }
}

fn cannot_afford(denied: &HoldDenied) -> CallOutcome {
    CallOutcome::CannotAfford(Shortage { pause: denied.pause, halted: false, why: denied.describe("hold") })
}

fn failed(kind: FailureKind, message: impl Into<String>) -> CallOutcome {
    CallOutcome::Failed(Failure::lasting(kind, message))
}
