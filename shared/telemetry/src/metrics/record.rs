//! Records metrics: one function for each kind of occasion. Without a reader of metrics, a call
//! costs one check of a flag. A label is a `'static` word of the program, or a name from a limited
//! set; never an id or a text.

use std::time::Duration;

use domain::money::Usd;
use opentelemetry::{Key, KeyValue, Value};

use super::{INSTRUMENTS, instruments::Instruments, names::OTHER, watched::dollars};

const OPERATION: Key = Key::from_static_str("gen_ai.operation.name");
const PROVIDER: Key = Key::from_static_str("gen_ai.provider.name");
const MODEL: Key = Key::from_static_str("gen_ai.request.model");
const ERROR: Key = Key::from_static_str("error.type");

/// One call of a model.
#[derive(Debug, Clone, Copy)]
pub struct ModelCall<'a> {
    /// With the provider in front, as `openai/gpt-5`. It must have a price.
    pub model: &'a str,
    pub took: Duration,
    pub first_chunk: Option<Duration>,
    /// Input and output tokens, if the provider reported them.
    pub tokens: Option<(u64, u64)>,
    pub error: Option<&'static str>,
}

/// The origin of a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A worker reported the cost of a call.
    Call,
    /// The cost is unknown: the whole hold was booked.
    Estimate,
    /// The cost was reported from outside.
    Charge,
}

/// The kind of work that ended.
#[derive(Debug, Clone, Copy)]
pub enum EndedWork<'a> {
    Workflow,
    Agent(&'a str),
}

/// Returns true if metrics are on.
pub fn is_on() -> bool {
    INSTRUMENTS.get().is_some()
}

fn on(tell: impl FnOnce(&'static Instruments)) {
    if let Some(instruments) = INSTRUMENTS.get() {
        tell(instruments);
    }
}

fn label(key: &'static str, value: impl Into<Value>) -> KeyValue {
    KeyValue::new(key, value)
}

pub fn queue_waited(pool: &str, waited: Duration) {
    on(|all| all.queue_wait.record(waited.as_secs_f64(), &[label("pool", all.pools.label(pool))]));
}

/// A message of a queue was delivered; `times` is the number of its deliveries so far, with this
/// one.
pub fn delivered(stream: &'static str, times: u64) {
    if times > 1 {
        on(|all| all.redeliveries.add(1, &[label("stream", stream)]));
    }
}

pub fn dead_letter(kind: &str) {
    on(|all| all.dead_letters.add(1, &[label("kind", all.kinds.label(kind))]));
}

/// A message to a webhook was `told`, `failed` or `given_up`.
pub fn webhook(result: &'static str) {
    on(|all| all.webhooks.add(1, &[label("result", result)]));
}

pub fn attempt_ended(verdict: &'static str) {
    on(|all| all.attempts.add(1, &[label("verdict", verdict)]));
}

pub fn lease_expired() {
    on(|all| all.leases_expired.add(1, &[]));
    attempt_ended("lost");
}

pub fn run_ended(status: &'static str) {
    on(|all| all.runs.add(1, &[label("status", status)]));
}

/// A context ended; `error` unless it succeeded or was cancelled.
pub fn context_ended(what: EndedWork<'_>, took: Duration, error: Option<&'static str>) {
    on(|all| {
        let took = took.as_secs_f64();
        let error = error.map(|error| KeyValue::new(ERROR, error));
        match (what, error) {
            (EndedWork::Workflow, None) => all.workflow.record(took, &[]),
            (EndedWork::Workflow, Some(error)) => all.workflow.record(took, &[error]),
            (EndedWork::Agent(name), error) => {
                let name = label("gen_ai.agent.name", all.agents.label(name));
                match error {
                    None => all.invoke_agent.record(took, &[name]),
                    Some(error) => all.invoke_agent.record(took, &[name, error]),
                }
            }
        }
    });
}

/// A cancelled context has ended and has no holds any more. `took` is the time between the two.
pub fn cancelled(took: Duration) {
    on(|all| all.cancel.record(took.as_secs_f64(), &[]));
}

pub fn commit_conflict() {
    on(|all| all.commit_conflicts.add(1, &[]));
}

pub fn batch(jobs: usize) {
    on(|all| all.batch_size.record(jobs as u64, &[]));
}

/// The store answered, or failed to.
pub fn store(op: &'static str, took: Duration, failed: bool) {
    on(|all| {
        let op = [label("op", op)];
        all.store.record(took.as_secs_f64(), &op);
        all.store_errors.add(u64::from(failed), &op);
    });
}

/// A worker received the answer to a hold.
pub fn hold_answered(took: Duration) {
    on(|all| all.hold.record(took.as_secs_f64(), &[]));
}

/// A hold was decided.
pub fn hold(result: &'static str) {
    on(|all| all.holds.add(1, &[label("result", result)]));
}

pub fn denied(dimension: &'static str, reason: &'static str) {
    on(|all| all.denials.add(1, &[label("dimension", dimension), label("reason", reason)]));
}

/// Money was spent; the model must have a price.
pub fn spent(model: Option<&str>, source: Source, usd: Usd) {
    on(|all| {
        let model = model.map_or(OTHER.into(), |model| all.models.label(apart(model).1));
        let source = match source {
            Source::Call => "call",
            Source::Estimate => "estimate",
            Source::Charge => "charge",
        };
        all.spend.add(dollars(usd.nanos()), &[label("model", model), label("source", source)]);
    });
}

pub fn overspent(usd: Usd) {
    on(|all| all.overspent.add(dollars(usd.nanos()), &[]));
}

pub fn disputed(usd: Usd) {
    on(|all| all.disputed.add(dollars(usd.nanos()), &[]));
}

pub fn model_called(call: ModelCall<'_>) {
    on(|all| {
        let (provider, model) = apart(call.model);
        let chat = KeyValue::new(OPERATION, "chat");
        let provider = KeyValue::new(PROVIDER, all.providers.label(provider));
        let model = KeyValue::new(MODEL, all.models.label(model));
        let of = [chat, provider, model];
        let took = call.took.as_secs_f64();
        match call.error {
            None => all.operation.record(took, &of),
            Some(error) => {
                let [chat, provider, model] = of.clone();
                all.operation.record(took, &[chat, provider, model, KeyValue::new(ERROR, error)]);
            }
        }
        if let Some(first) = call.first_chunk {
            all.first_chunk.record(first.as_secs_f64(), &of);
        }
        if let Some((input, output)) = call.tokens {
            for (tokens, which) in [(input, "input"), (output, "output")] {
                let [chat, provider, model] = of.clone();
                all.tokens.record(tokens, &[chat, provider, model, label("gen_ai.token.type", which)]);
            }
        }
    });
}

/// A tool answered, or failed.
pub fn tool_called(tool: &str, took: Duration, failed: bool) {
    on(|all| {
        let (tool, took) = (label("gen_ai.tool.name", all.tools.label(tool)), took.as_secs_f64());
        if failed {
            all.execute_tool.record(took, &[tool, KeyValue::new(ERROR, "tool_error")]);
        } else {
            all.execute_tool.record(took, &[tool]);
        }
    });
}

/// The provider and the model of a name.
fn apart(model: &str) -> (&str, &str) {
    model.split_once('/').unwrap_or((OTHER, model))
}
