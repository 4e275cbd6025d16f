//! One paid call of a model, for any kind of agent (B3). The order: reserve the worst case; call;
//! record the cost in memory before the next `.await`; then write the journal and publish the cost
//! at the same time. Every call is covered by its hold. If a hold is denied, a shorter answer or
//! the fallback model is held for instead, or no call is made (B5). The agent's checks run before
//! the hold, and before the answer is in the journal (B16).
//!
//! Crash windows:
//! - Before the call only a hold is open. It is booked when a successor resumes.
//! - Between the answer and the journal the call is lost. The successor records the loss and books
//!   the hold (B10).
//! - Behind the journal entry the call is never made again. The successor books its cost from the
//!   entry.

use std::time::Duration;

use domain::{
    Amount, CallId, Json,
    depth::{self, MAX_VALUE_DEPTH},
    id::ModelName,
    span::{Kind, Value, attribute},
    wire::{
        CallCost, CheckedStep, Failure, FailureKind, HistoryStep, HoldDenied, LostStep, ModelStep, News,
        Prompt, Said, Text, ToolCall, Usage, Verdict, exhausted,
    },
};
use telemetry::metrics;
use text::set_limit::UsedLimit;

use tokio::time::Instant;

use super::{
    content,
    meter::{Hold, Meter, MeteredCall},
    prompt,
    token_bound::PaidRequest,
};
use crate::{
    attempt::{Attempt, live_output::LiveOutput, span::Doing},
    check::{Checker, Gate, GatePass, GateStop, ModelCall},
    crash::Point,
    journal::Journal,
    model::{Completion, Error, Models, Price, Request},
};

/// The shortest answer worth paying for, in tokens.
const MIN_ANSWER_TOKENS: u32 = 64;
/// The number of tries with a shorter answer. One may not be enough, since other calls hold and
/// settle meanwhile.
const MAX_SHORTENINGS: u32 = 4;
/// The least time for a call. No call begins with less time than this. A call that is cut off so
/// near the deadline was cut off by the deadline.
const MIN_CALL_TIME: Duration = Duration::from_millis(100);
/// The longest call, even if the deadline leaves more time.
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
    /// No call was made: the agent has to see this news first (G13, B21).
    News(Box<News>),
    Failed(Failure),
    /// A check halted the context (B16).
    Halted(Verdict),
    /// A check asks a human whether the call may be made.
    Asks {
        question: Text,
    },
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
    checker: &Checker<'_>,
    request: &PaidRequest<'_>,
) -> CallOutcome {
    let work = &meter.attempt().work;
    let Some(model) = request.model.or(work.model.as_ref()) else {
        return failed(FailureKind::Agent, "the agent's profile names no model");
    };
    let mut opened = GatePass { changed: None, passed: Vec::new() };
    let mut shortage = None;
    // A summary is made by the cheaper model (W7).
    let cheaper = work.agent.fallback_model.as_ref();
    let (first, second) = match request.summary_of {
        Some(_) => (cheaper.unwrap_or(model), None),
        None => (model, cheaper.filter(|fallback| *fallback != model)),
    };
    for model in std::iter::once(first).chain(second) {
        let price = match models.price(model) {
            Ok(price) => price,
            Err(unpriced) => return failed(FailureKind::Refused, unpriced.to_string()),
        };
        let is_fallback = shortage.is_some();
        let tokenizer = models.tokenizer(model);
        let cost =
            price.worst_case(request.input_tokens(model, tokenizer), request.max_tokens.max(1)).cost_usd;
        let PaidRequest { asked, summary_of, messages, .. } = *request;
        let call = ModelCall { asked, summary_of, messages, model, cost, is_fallback };
        match checker.before_call(&call).await {
            Gate::Open(_) if is_fallback => {}
            Gate::Open(checked) => opened = checked,
            Gate::Stopped(stopped) => return stop(checker, &stopped),
            Gate::Asks { question } => return CallOutcome::Asks { question },
        }
        let request = &match &opened.changed {
            Some(messages) => PaidRequest { messages, earlier: None, ..*request },
            None => *request,
        };
        let input_tokens = request.input_tokens(model, tokenizer);
        let (attempt, passed) = (meter.attempt(), &opened.passed[..]);
        let call =
            Call { attempt, meter, models, journal, checker, request, passed, model, price, input_tokens };
        // Boxed: otherwise every frame above would contain this future, which is more than a
        // thread's stack has room for.
        match Box::pin(call.make()).await {
            // The fallback may be affordable (B5); a budget that is used up stops both.
            CallOutcome::CannotAfford(denied) if !denied.halted => shortage = Some(denied),
            outcome @ (CallOutcome::Answered(_)
            | CallOutcome::CannotAfford(_)
            | CallOutcome::News(_)
            | CallOutcome::Failed(_)
            | CallOutcome::Halted(_)
            | CallOutcome::Asks { .. }) => return outcome,
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
    checker: &'a Checker<'a>,
    request: &'a PaidRequest<'a>,
    /// The checks that the call has passed.
    passed: &'a [CheckedStep],
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
        // One span over all tries.
        let mut chat = None;
        let outcome = self.try_until_answered(&mut chat).await;
        if let Some(mut chat) = chat {
            chat.fail("no_answer");
            chat.end();
        }
        outcome
    }

    async fn try_until_answered<'a>(&'a self, chat: &mut Option<Doing<'a>>) -> CallOutcome {
        let mut wait = FIRST_PAUSE;
        loop {
            self.attempt.deadline.leaves(MIN_CALL_TIME).await;
            let held = match self.hold().await {
                Ok(held) => held,
                Err(outcome) => return outcome,
            };
            if self.is_out_of_time() {
                // The hold was taken after a wait, and the time is used up.
                self.meter.release(&held.call_id).await;
                continue;
            }
            let live = LiveOutput::new(self.attempt, self.journal.next_number());
            self.attempt.config.crash.pass(Point::Held);
            chat.get_or_insert_with(|| self.begin(&held));
            let answer = Box::pin(self.ask(&held, &live)).await;
            let (message, retryable, retry_after, kind) = match answer {
                Ok(completion) => {
                    if let Some(chat) = chat.take() {
                        self.answered(chat, &held, &completion);
                    }
                    self.attempt.config.crash.pass(Point::Answered);
                    let step = Box::pin(self.record(held, completion, &live)).await;
                    let halted = self.checker.halted().map(CallOutcome::Halted);
                    return halted.unwrap_or_else(|| CallOutcome::Answered(Box::new(step)));
                }
                Err(Error::Refused { message, retryable, retry_after }) => {
                    self.meter.release(&held.call_id).await;
                    (message, retryable, retry_after, "refused")
                }
                Err(Error::Unknown { message }) => {
                    self.note_lost(&held, &message).await;
                    if self.is_out_of_time() {
                        // L: the hold is booked after the end of the context, so that the deadline
                        // ends it and not the budget.
                        self.meter.cut_off(&held.call_id);
                        self.attempt.deadline.leaves(MIN_CALL_TIME).await;
                    }
                    self.meter.forfeit(&held.call_id).await;
                    (message, true, None, "unknown_end")
                }
            };
            if let Some(chat) = chat {
                chat.happened("trellis.call.failed", || {
                    vec![attribute("error.type", kind), attribute("trellis.call_id", held.call_id.as_str())]
                });
            }
            if self.is_out_of_time() {
                continue;
            }
            if !retryable {
                return failed(FailureKind::Provider, message);
            }
            let pause = retry_after.unwrap_or(wait);
            if let Err(failure) = self.count_retry(pause, &message) {
                return CallOutcome::Failed(failure);
            }
            tracing::debug!(model = %self.model, said = message, "the call failed; trying again");
            live.send(Said::Again { why: message }).await;
            tokio::time::sleep(pause).await;
            wait = (wait * 2).min(MAX_PAUSE);
        }
    }

    /// Records a call with an unknown end in the journal (B19). Its hold is booked after that.
    async fn note_lost(&self, held: &Held, cause: &str) {
        let lost = LostStep {
            call_id: held.call_id.clone(),
            model: Some(self.model.clone()),
            amount: held.amount,
            cause: cause.to_owned(),
        };
        self.journal.append(HistoryStep::Lost(Box::new(lost))).await;
    }

    /// Counts a retry of the context (B15). Returns an error if no retry is left, or the deadline
    /// comes before the next one.
    fn count_retry(&self, pause: Duration, message: &str) -> Result<(), Failure> {
        let (limits, progress) = (&self.attempt.work.limits, &self.attempt.progress);
        progress.change(|progress| progress.retries += 1);
        let retries = progress.get().retries;
        if retries > limits.max_retries_total {
            let used = UsedLimit::new("max_retries_total", retries, limits.max_retries_total);
            let used = used.with(message);
            return Err(Failure::lasting(FailureKind::LimitExceeded, used.to_string()));
        }
        if pause >= self.time_left() {
            let message = format!("no time is left to try again: {message}");
            return Err(Failure::lasting(FailureKind::Provider, message));
        }
        Ok(())
    }

    /// Returns true if the deadline leaves no time for a call. The coordinator then ends the
    /// context, as `timed_out`.
    fn is_out_of_time(&self) -> bool {
        self.time_left() < MIN_CALL_TIME
    }

    fn time_left(&self) -> Duration {
        self.attempt.deadline.left().unwrap_or(MAX_CALL_TIME).min(MAX_CALL_TIME)
    }

    /// Holds the worst case; if the budget is too small, that of a shorter answer.
    async fn hold(&self) -> Result<Held, CallOutcome> {
        let max = self.request.max_tokens.max(1);
        let mut max_tokens = max;
        for _ in 0..=MAX_SHORTENINGS {
            let call_id = self.meter.next_call();
            let amount = self.price.worst_case(self.input_tokens, max_tokens);
            match self.meter.hold(&call_id, amount, self.request.closing, self.request.seen).await {
                Hold::Held => return Ok(Held { call_id, amount, max_tokens }),
                // A context that may pause waits for a larger budget instead of taking a shorter
                // answer (B8).
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
                Hold::News(news) => return Err(CallOutcome::News(news)),
                Hold::Refused(refusal) => {
                    return Err(failed(FailureKind::Refused, refusal.to_text()));
                }
            }
        }
        let why = "too many calls use the budget at the same time".into();
        Err(CallOutcome::CannotAfford(Shortage { pause: false, halted: false, why }))
    }

    async fn ask(&self, held: &Held, live: &LiveOutput<'_>) -> Result<Completion, Error> {
        let traceparent = self.attempt.traceparent();
        let request = Request {
            model: self.model,
            messages: self.request.messages,
            tools: self.request.tools,
            max_tokens: held.max_tokens,
            output_schema: self.request.output_schema,
            timeout: self.time_left(),
            traceparent: traceparent.as_deref(),
            script: self.request.script,
        };
        // An answer that a check may change or deny is shown after the check has passed. A summary
        // is not an answer of the agent.
        let is_shown = !self.checker.guards_answers() && self.request.summary_of.is_none();
        let (began, mut first_chunk) = (Instant::now(), None);
        let mut added = |piece: &str| {
            first_chunk.get_or_insert_with(|| began.elapsed());
            if is_shown {
                live.add(piece);
            }
        };
        let answer = live.during(self.models.complete(&request, &mut added)).await;
        let usage = answer.as_ref().ok().and_then(|completion| completion.usage);
        metrics::model_called(metrics::ModelCall {
            model: self.model.as_str(),
            took: began.elapsed(),
            first_chunk,
            tokens: usage.map(|usage| (usage.input_tokens, usage.output_tokens)),
            error: answer.as_ref().err().map(|error| match error {
                Error::Refused { .. } => "refused",
                Error::Unknown { .. } => "unknown",
            }),
        });
        answer
    }

    /// Records the answer in the journal and settles its cost. The meter knows the cost before the first
    /// `.await`, so that an attempt that is cut off here still sends it.
    async fn record(&self, held: Held, completion: Completion, live: &LiveOutput<'_>) -> ModelStep {
        let Completion { mut text, calls, usage, cut_off, named: _ } = completion;
        let amount = usage.map_or(held.amount, |usage| self.price.cost(&usage));
        let priced =
            MeteredCall { amount, model: Some(self.model.clone()), prices: Some(self.price.version.clone()) };
        if usage.is_some() {
            self.meter.owe(&held.call_id, priced.clone());
        }
        let unoffered = self.request.unoffered(&calls);
        // Without tools a call would stay unanswered, and some providers reject a conversation with
        // an unanswered call.
        let mut tool_calls = if self.request.tools.is_empty() { Vec::new() } else { flattened(calls) };
        let booking = async {
            match usage {
                Some(_) => self.meter.settle(&held.call_id, priced).await,
                None => self.meter.forfeit(&held.call_id).await,
            }
        };
        let writing = async {
            let decided = self.checker.after_call(self.request.summary_of, &mut text, &mut tool_calls).await;
            let step = ModelStep {
                call_id: held.call_id.clone(),
                model: self.model.clone(),
                cost: CallCost { amount, estimated: usage.is_none(), prices: self.price.version.clone() },
                usage,
                sent: Some(self.request.sent()),
                prompt: self.prompt(),
                retries: self.attempt.progress.get().retries,
                text,
                unoffered,
                tool_calls,
                max_tokens: held.max_tokens,
                cut_off,
                closing: self.request.closing,
                asked: self.request.asked.map(str::to_owned),
                summary_of: self.request.summary_of,
                checks: [self.passed, &decided[..]].concat(),
            };
            let entry = self.journal.append(HistoryStep::Model(Box::new(step.clone()))).await;
            self.attempt.config.crash.pass(Point::Written);
            let is_shown = self.checker.guards_answers() && step.summary_of.is_none();
            if let (true, None, Some(text)) = (is_shown, step.denied(), &step.text) {
                live.add(text);
            }
            (entry, step)
        };
        let ((entry, step), ()) = tokio::join!(writing, booking);
        tokio::join!(self.checker.note(&entry), live.flush());
        step
    }

    /// The beginning of the request, for readers of the journal. It is recorded once, and again
    /// when it changes; for a program, when its system message or its tools change.
    fn prompt(&self) -> Option<Box<Prompt>> {
        // The request for a summary consists of texts that the journal already has.
        if self.request.summary_of.is_some() {
            return None;
        }
        let prompt = prompt::of(self.request, |text| self.attempt.redactor.text(text));
        let is_known = self.journal.with_all_entries(|entries| {
            let answers = entries.iter().rev().filter_map(|entry| entry.step.as_model());
            let mut known = answers.filter_map(|step| step.prompt.as_deref());
            known.next().is_some_and(|last| prompt::is_known(last, &prompt, self.request.asked.is_some()))
        });
        (!is_known).then(|| Box::new(prompt))
    }

    fn begin(&self, held: &Held) -> Doing<'_> {
        let (provider, model) = self.models.names(self.model);
        let id = format!("{}.chat", held.call_id);
        let mut chat = self.attempt.begin(format!("chat {model}"), Kind::Client, &id);
        chat.add(|| {
            let mut attributes = vec![
                attribute("gen_ai.operation.name", "chat"),
                attribute("gen_ai.provider.name", provider),
                attribute("gen_ai.request.model", model),
                attribute("gen_ai.request.max_tokens", held.max_tokens),
                attribute("gen_ai.agent.id", self.attempt.work.agent.agent_id.as_str()),
                attribute("gen_ai.agent.name", self.attempt.work.agent.agent_id.as_str()),
                attribute(
                    "gen_ai.output.type",
                    if self.request.output_schema.is_some() { "json" } else { "text" },
                ),
            ];
            if telemetry::has_content() {
                let show = |text: &str| self.attempt.content(text.to_owned());
                attributes
                    .push(attribute("gen_ai.input.messages", content::sent(self.request.messages, &show)));
            }
            attributes
        });
        chat
    }

    /// Ends the span of an answered call, with its usage and its cost.
    fn answered(&self, mut chat: Doing<'_>, held: &Held, completion: &Completion) {
        chat.add(|| {
            let Completion { text, calls, usage, cut_off, named } = completion;
            let finished = match (cut_off, calls.is_empty()) {
                (true, _) => "length",
                (false, false) => "tool_call",
                (false, true) => "stop",
            };
            let cost = usage.map_or(held.amount, |usage| self.price.cost(&usage)).cost_usd;
            let mut attributes = vec![
                attribute("trellis.call_id", held.call_id.as_str()),
                (("gen_ai.response.finish_reasons").into(), Value::Texts(vec![finished.to_owned()])),
                attribute("gen_ai.usage.cost", cost),
                attribute("trellis.cost.nanos", cost.nanos()),
                attribute("trellis.cost.currency", "USD"),
                attribute("trellis.cost.is_estimated", usage.is_none()),
            ];
            let names = [("gen_ai.response.id", &named.id), ("gen_ai.response.model", &named.model)];
            let name = |(name, text): (&'static str, &Option<String>)| {
                text.as_ref().map(|text| attribute(name, self.attempt.content(text.clone())))
            };
            attributes.extend(names.into_iter().filter_map(name));
            let Usage { input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens } =
                usage.unwrap_or_default();
            if usage.is_some() {
                attributes.push(attribute("gen_ai.usage.input_tokens", input_tokens));
                attributes.push(attribute("gen_ai.usage.output_tokens", output_tokens));
            }
            let more = [
                ("gen_ai.usage.cache_read.input_tokens", cached_tokens),
                ("gen_ai.usage.cache_creation.input_tokens", cache_write_tokens),
                ("gen_ai.usage.reasoning.output_tokens", reasoning_tokens),
            ];
            attributes.extend(
                more.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| attribute(name, count)),
            );
            if telemetry::has_content() {
                let show = |text: &str| self.attempt.content(text.to_owned());
                let messages = content::answered(text.as_deref(), calls, finished, &show);
                attributes.push(attribute("gen_ai.output.messages", messages));
            }
            attributes
        });
        chat.end();
    }
}

fn cannot_afford(denied: &HoldDenied) -> CallOutcome {
    CallOutcome::CannotAfford(Shortage { pause: denied.pause, halted: false, why: denied.describe("hold") })
}

fn failed(kind: FailureKind, message: impl Into<String>) -> CallOutcome {
    CallOutcome::Failed(Failure::lasting(kind, message))
}

/// The outcome of a call that a check stopped before its hold. It is not retried, since the check
/// would deny it again.
fn stop(checker: &Checker<'_>, stopped: &GateStop) -> CallOutcome {
    match checker.halted() {
        Some(verdict) => CallOutcome::Halted(verdict),
        None => failed(FailureKind::Refused, format!("the model call was {}", stopped.describe())),
    }
}

/// Changes calls to a form that the journal can store. Arguments that nest too deep become text;
/// the tool then refuses them, and the model sees the error.
fn flattened(mut calls: Vec<ToolCall>) -> Vec<ToolCall> {
    for call in &mut calls {
        if depth::is_deeper(call.arguments.value(), MAX_VALUE_DEPTH) {
            call.arguments = Json::from(call.arguments.to_text().as_str());
        }
    }
    calls
}
