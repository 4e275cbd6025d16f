//! One paid call of a model, whoever asks for it: hold the worst case, make the call, write it down,
//! settle (B3). A hold that does not fit is never shrunk and gone ahead with: the answer is made shorter,
//! or the cheaper model is asked, or there is no call (B5).
//!
//! Crash windows: before the call nothing is owed but a hold, which the successor forfeits; between the
//! answer and the journal the call is lost and its hold booked (B10); once it is written down it is never
//! made again, and the successor books it from there.

use std::time::Duration;

use shared::{
    Amount, CallId,
    id::ModelName,
    telemetry,
    wire::{CallCost, Failure, FailureKind, HistoryStep, HoldDenied, ModelStep, Said, Usage},
};

pub(crate) use super::token_bound::{Before, Question};
use crate::{
    agent::{Run, denial},
    attempt::live_output::Voice,
    billing::meter::{Hold, Priced},
    crash::Point,
    journal::Journal,
    model::{Completion, Error, Price, Request},
};

/// An answer shorter than this is not worth asking for.
const SHORTEST_ANSWER: u32 = 64;
/// How often an answer is made shorter before it is given up: others hold and settle meanwhile.
const SHORTENINGS: u32 = 4;
/// A call with no deadline is cut off after this.
const LONGEST_CALL: Duration = Duration::from_secs(600);
/// The wait before a call is tried again, unless the provider names one; doubles, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What became of it.
#[derive(Debug)]
pub(crate) enum Paid {
    /// It is written down and booked.
    Answered(Box<ModelStep>),
    /// The budget does not reach (B5), not even for the cheaper model.
    Short(Short),
    Failed(Failure),
}

#[derive(Debug)]
pub(crate) struct Short {
    /// The context may wait for more (B8).
    pub(crate) pause: bool,
    /// Used up (B4): not even a last report is possible.
    pub(crate) halted: bool,
    pub(crate) why: String,
}

pub(crate) async fn call(run: &Run<'_>, journal: &Journal<'_>, question: &Question<'_>) -> Paid {
    let Some(model) = &run.work.model else {
        return failed(FailureKind::Agent, "the agent's profile names no model".into());
    };
    let mut short = None;
    for model in std::iter::once(model).chain(&run.work.agent.fallback_model) {
        let price = match run.equipment.models.price(model) {
            Ok(price) => price,
            Err(unpriced) => return failed(FailureKind::Refused, unpriced.to_string()),
        };
        let call = Call { run, journal, question, model, price, input_tokens: question.input_tokens(model) };
        match call.make().await {
            // The cheaper one may do (B5); a budget that is used up stops them all.
            Paid::Short(denied) if !denied.halted => short = Some(denied),
            paid @ (Paid::Answered(_) | Paid::Short(_) | Paid::Failed(_)) => return paid,
        }
    }
    Paid::Short(short.expect("there is a model, and it was denied"))
}

/// One model, asked until it answers or will not.
struct Call<'a> {
    run: &'a Run<'a>,
    journal: &'a Journal<'a>,
    question: &'a Question<'a>,
    model: &'a ModelName,
    price: Price,
    input_tokens: u64,
}

/// A hold that stands.
struct Held {
    call_id: CallId,
    amount: Amount,
    max_tokens: u32,
}

impl Call<'_> {
    async fn make(&self) -> Paid {
        let mut wait = FIRST_WAIT;
        loop {
            if self.time_left().is_zero() {
                return failed(FailureKind::LimitExceeded, "timeout_ms: no time is left for a call".into());
            }
            let held = match self.hold().await {
                Ok(held) => held,
                Err(paid) => return paid,
            };
            let voice = Voice::new(self.run, self.journal.next_number());
            let began = self.run.config.clock.now();
            self.run.config.crash.pass(Point::Held);
            let answer = self.ask(&held, &voice).await;
            self.emit(&held, began, &answer);
            let (message, again, retry_after) = match answer {
                Ok(completion) => {
                    self.run.config.crash.pass(Point::Answered);
                    return Paid::Answered(Box::new(self.write_down(held, completion, &voice).await));
                }
                Err(Error::Refused { message, again, retry_after }) => {
                    self.run.meter.release(&held.call_id).await;
                    (message, again, retry_after)
                }
                Err(Error::Unknown { message }) => {
                    self.run.meter.forfeit(&held.call_id).await;
                    (message, true, None)
                }
            };
            if !again {
                return failed(FailureKind::Provider, message);
            }
            let pause = retry_after.unwrap_or(wait);
            if let Err(failure) = self.count_retry(pause, &message) {
                return Paid::Failed(failure);
            }
            tracing::info!(message, model = %self.model, "a call is tried again");
            voice.say(Said::Again { why: message }).await;
            tokio::time::sleep(pause).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// B15: a call tried again is a retry of its context; and none is begun that can't end in time.
    fn count_retry(&self, pause: Duration, message: &str) -> Result<(), Failure> {
        let (limits, counters) = (&self.run.work.limits, self.run.counters);
        counters.change(|progress| progress.retries += 1);
        let retries = counters.progress().retries;
        if retries > limits.max_retries_total {
            let message =
                format!("max_retries_total: {} used; the last failure: {message}", limits.max_retries_total);
            return Err(Failure { kind: FailureKind::LimitExceeded, message, retryable: false });
        }
        if pause >= self.time_left() {
            let message = format!("no time is left to try again: {message}");
            return Err(Failure { kind: FailureKind::Provider, message, retryable: false });
        }
        Ok(())
    }

    fn time_left(&self) -> Duration {
        let now = self.run.config.clock.now();
        let left = self.run.work.deadline.map(|deadline| Duration::from_millis(deadline.millis_since(now)));
        left.unwrap_or(LONGEST_CALL).min(LONGEST_CALL)
    }

    /// A hold, for a shorter answer if need be.
    async fn hold(&self) -> Result<Held, Paid> {
        let most = self.question.max_tokens.max(1);
        let mut max_tokens = most;
        for _ in 0..=SHORTENINGS {
            let call_id = self.run.meter.next_call();
            let amount = self.price.worst(self.input_tokens, max_tokens);
            match self.run.meter.hold(&call_id, amount, self.question.closing).await {
                Hold::Held => return Ok(Held { call_id, amount, max_tokens }),
                // It would rather wait for more than make do with less (B8).
                Hold::Denied(denied) if denied.pause => return Err(short(&denied)),
                Hold::Denied(denied) => {
                    let left = Amount::new(denied.left_usd, denied.left_tokens);
                    match self.price.affordable(self.input_tokens, left, max_tokens) {
                        Some(fits) if fits >= SHORTEST_ANSWER.min(most) && fits < max_tokens => {
                            max_tokens = fits
                        }
                        Some(_) | None => return Err(short(&denied)),
                    }
                }
                Hold::Halt { context, dimension, pause } => {
                    let why = format!("the {dimension} budget of `{context}` is used up");
                    return Err(Paid::Short(Short { pause, halted: true, why }));
                }
                Hold::Refused(refusal) => {
                    return Err(failed(
                        FailureKind::Refused,
                        format!("{} ({})", refusal.message, refusal.rule),
                    ));
                }
            }
        }
        let why = "its budget is drawn on by too many at once".into();
        Err(Paid::Short(Short { pause: false, halted: false, why }))
    }

    async fn ask(&self, held: &Held, voice: &Voice<'_>) -> Result<Completion, Error> {
        let request = Request {
            model: self.model,
            messages: self.question.messages,
            tools: self.question.tools,
            max_tokens: held.max_tokens,
            output_schema: self.question.output_schema,
            timeout: self.time_left(),
            script: self.question.script,
        };
        let mut said = |piece: &str| voice.hear(piece);
        voice.during(self.run.equipment.models.complete(&request, &mut said)).await
    }

    /// What is owed is known to the meter before anything is waited for: an attempt that is cut off here
    /// still sends it.
    async fn write_down(&self, held: Held, completion: Completion, voice: &Voice<'_>) -> ModelStep {
        let Completion { text, calls, usage, cut_off } = completion;
        let amount = usage.map_or(held.amount, |usage| self.price.cost(&usage));
        let priced =
            Priced { amount, model: Some(self.model.clone()), prices: Some(self.price.version.clone()) };
        if usage.is_some() {
            self.run.meter.owe(&held.call_id, priced.clone());
        }
        let step = ModelStep {
            call_id: held.call_id.clone(),
            model: self.model.clone(),
            cost: CallCost { amount, estimated: usage.is_none(), prices: self.price.version.clone() },
            usage,
            sent: self.question.sent(),
            retries: self.run.counters.progress().retries,
            text,
            // What was not offered can't be called.
            tool_calls: if self.question.tools.is_empty() { Vec::new() } else { calls },
            max_tokens: held.max_tokens,
            cut_off,
            closing: self.question.closing,
            asked: self.question.asked.map(str::to_owned),
        };
        let booking = async {
            match usage {
                Some(_) => self.run.meter.settle(&held.call_id, priced).await,
                None => self.run.meter.forfeit(&held.call_id).await,
            }
        };
        let writing = async {
            self.journal.append(HistoryStep::Model(Box::new(step.clone()))).await;
            self.run.config.crash.pass(Point::Written);
        };
        tokio::join!(writing, booking, voice.say_heard());
        step
    }

    fn emit(&self, held: &Held, began: shared::Timestamp, answer: &Result<Completion, Error>) {
        if !telemetry::is_on() {
            return;
        }
        let usage = answer.as_ref().ok().and_then(|completion| completion.usage);
        let Usage { input_tokens, output_tokens, .. } = usage.unwrap_or_default();
        telemetry::Span {
            name: format!("chat {}", self.model).into(),
            trace_id: self.run.work.trace_id,
            span_id: None,
            parent: Some(self.run.span),
            start: began,
            end: self.run.config.clock.now(),
            kind: telemetry::Kind::Client,
            attributes: vec![
                ("gen_ai.operation.name", "chat".into()),
                ("gen_ai.request.model", self.model.as_str().into()),
                ("gen_ai.request.max_tokens", held.max_tokens.into()),
                ("gen_ai.usage.input_tokens", input_tokens.into()),
                ("gen_ai.usage.output_tokens", output_tokens.into()),
                ("trellis.child_id", self.run.work.child_id.as_str().into()),
                ("trellis.call_id", held.call_id.as_str().into()),
                ("trellis.budget.held_nanos", held.amount.cost_usd.nanos().into()),
            ],
            error: answer.is_err().then_some("the model did not answer"),
            link: None,
        }
        .emit();
    }
}

fn short(denied: &HoldDenied) -> Paid {
    Paid::Short(Short { pause: denied.pause, halted: false, why: denial(denied) })
}

fn failed(kind: FailureKind, message: String) -> Paid {
    Paid::Failed(Failure { kind, message, retryable: false })
}
