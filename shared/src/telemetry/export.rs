//! How spans reach a collector. They wait in a bounded queue, and one task sends them in batches. A collector that is away, slow
//! or refuses them delays nobody: what does not fit into the queue is dropped, and counted.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use opentelemetry::{
    Array, InstrumentationScope, KeyValue, StringValue,
    trace::{Event, SpanContext, SpanKind, Status, TraceFlags, TraceState},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter, SpanLinks};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};

use super::{
    Caller,
    context::SpanId,
    environment::Environment,
    outage::Outage,
    sampling::Sampler,
    span::{Attribute, Kind, Link, Moment, Span, Value},
};
use crate::id::TraceId;

/// Spans that wait to be sent. Beyond that they are dropped.
const MAX_WAITING: usize = 8_192;
/// Spans of one batch.
const MAX_BATCH: usize = 512;
/// How long a span waits for others of its batch.
const BATCH_WITHIN: Duration = Duration::from_secs(1);
/// The pauses after which a batch is sent again. After the last it is dropped.
const AGAIN_AFTER: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];
/// The most that telemetry delays the end of a process, unless `OTEL_BSP_EXPORT_TIMEOUT` says so.
const STOP_WITHIN: Duration = Duration::from_millis(300);

/// Set once, by [`super::start`].
static PIPELINE: OnceLock<Pipeline> = OnceLock::new();
/// When the process began to end.
static STOPPING: OnceLock<Instant> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

/// What became of spans of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExportCounts {
    /// Spans that were dropped.
    pub(super) dropped: u64,
    /// Batches that could not be sent, each time it was tried.
    pub(super) failures: u64,
}

pub(super) fn export_counts() -> ExportCounts {
    ExportCounts { dropped: DROPPED.load(Relaxed), failures: FAILED.load(Relaxed) }
}

/// The collector did not take the spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the collector did not take the spans")]
pub struct NotExported;

#[derive(Debug)]
struct Pipeline {
    queue: mpsc::Sender<Waiting>,
    settings: Settings,
}

/// What the environment says of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) sampler: Sampler,
    pub(super) content: bool,
    pub(super) stop_within: Duration,
}

impl Settings {
    pub(super) fn from(environment: &Environment) -> Self {
        Settings {
            sampler: Sampler::from(environment),
            content: environment.content,
            stop_within: environment.stop_within_ms.map_or(STOP_WITHIN, Duration::from_millis),
        }
    }
}

/// Spans in the queue, and who is told what became of them.
struct Waiting {
    spans: Vec<Span>,
    told: Option<oneshot::Sender<Result<(), NotExported>>>,
}

/// Whether this process exports spans.
pub fn is_on() -> bool {
    PIPELINE.get().is_some()
}

/// Whether a new trace is to be exported. The caller of a submission is followed, unless the settings say otherwise.
pub fn exports(trace: TraceId, caller: Option<Caller>) -> bool {
    PIPELINE.get().is_some_and(|pipeline| pipeline.settings.sampler.exports(trace, caller))
}

/// Whether spans may have what people, agents and providers wrote.
pub fn has_content() -> bool {
    PIPELINE.get().is_some_and(|pipeline| pipeline.settings.content)
}

/// Sends spans some time soon, if this process exports any.
pub fn emit(spans: Vec<Span>) {
    let Some(pipeline) = PIPELINE.get() else { return };
    let count = spans.len();
    if pipeline.queue.try_send(Waiting { spans, told: None }).is_err() {
        DROPPED.fetch_add(count as u64, Relaxed);
    }
}

/// Sends spans, and returns when the collector has them or did not take them.
pub async fn export(spans: Vec<Span>) -> Result<(), NotExported> {
    let Some(pipeline) = PIPELINE.get() else { return Err(NotExported) };
    let (told, outcome) = oneshot::channel();
    pipeline.queue.send(Waiting { spans, told: Some(told) }).await.map_err(|_| NotExported)?;
    outcome.await.unwrap_or(Err(NotExported))
}

/// What is left of the time that telemetry may delay the end of this process, which begins with the first call.
pub fn time_to_stop() -> Duration {
    let began = STOPPING.get_or_init(Instant::now);
    let within = PIPELINE.get().map_or(STOP_WITHIN, |pipeline| pipeline.settings.stop_within);
    within.saturating_sub(began.elapsed())
}

/// The task that sends spans: ends when it was told to stop.
#[derive(Debug)]
pub(super) struct Exporting {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Exporting {
    /// Only the first start of a process counts.
    pub(super) fn start(exporter: impl SpanExporter + 'static, settings: Settings) -> Self {
        let (queue, waiting) = mpsc::channel(MAX_WAITING);
        let (stop, stopped) = oneshot::channel();
        let _ = PIPELINE.set(Pipeline { queue, settings });
        let outage = Outage::new("the collector of spans");
        let sender = Sender { exporter, outage, waiting, stop: stopped, stopping: false };
        Exporting { stop, task: tokio::spawn(sender.run()) }
    }

    /// Sends what waits, for a moment; what can't be sent is dropped.
    pub(super) async fn stop(self) {
        let _ = self.stop.send(());
        if timeout(time_to_stop(), self.task).await.is_err() {
            tracing::warn!("the last spans could not be sent in time");
        }
    }
}

struct Sender<E> {
    exporter: E,
    outage: Outage,
    waiting: mpsc::Receiver<Waiting>,
    stop: oneshot::Receiver<()>,
    /// Nothing more is taken into the queue; what is in it is tried once.
    stopping: bool,
}

impl<E: SpanExporter> Sender<E> {
    async fn run(mut self) {
        while let Some(first) = self.next(None).await {
            let batch = self.collect(first).await;
            self.send(batch).await;
        }
    }

    /// What waits next; none when it is too late, or when nothing will come any more.
    async fn next(&mut self, until: Option<Instant>) -> Option<Waiting> {
        loop {
            tokio::select! {
                biased;
                next = self.waiting.recv() => return next,
                _ = &mut self.stop, if !self.stopping => {
                    self.stopping = true;
                    self.waiting.close();
                }
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => return None,
            }
        }
    }

    /// Spans that come within a moment, up to a batch. Someone who waits to be told is not kept waiting.
    async fn collect(&mut self, first: Waiting) -> Vec<Waiting> {
        let began = Instant::now();
        let mut count = first.spans.len();
        let mut batch = vec![first];
        while count < MAX_BATCH {
            let is_waited_for = batch.iter().any(|part| part.told.is_some());
            let until = if is_waited_for { began } else { began + BATCH_WITHIN };
            let Some(next) = self.next(Some(until)).await else { break };
            count += next.spans.len();
            batch.push(next);
        }
        batch
    }

    /// Sends a batch, again and again for a while. Those who wait are told of the first try.
    async fn send(&mut self, batch: Vec<Waiting>) {
        let scope = InstrumentationScope::builder("trellis").build();
        let data = |span: &Span| data(span, &scope);
        let sent = self.once(batch.iter().flat_map(|part| &part.spans).map(data).collect()).await;
        let mut left = Vec::new();
        for part in batch {
            match part.told {
                Some(told) => drop(told.send(sent)),
                None => left.extend(part.spans),
            }
        }
        if sent.is_ok() || left.is_empty() {
            return;
        }
        for pause in AGAIN_AFTER {
            if self.stopping {
                break;
            }
            tokio::select! {
                biased;
                _ = &mut self.stop => {
                    self.stopping = true;
                    self.waiting.close();
                }
                () = tokio::time::sleep(pause) => {}
            }
            if self.once(left.iter().map(data).collect()).await.is_ok() {
                return;
            }
        }
        DROPPED.fetch_add(left.len() as u64, Relaxed);
    }

    async fn once(&mut self, batch: Vec<SpanData>) -> Result<(), NotExported> {
        // The exporter bounds the time: `OTEL_EXPORTER_OTLP_TIMEOUT`, 10 s by default.
        match self.exporter.export(batch).await {
            Ok(()) => {
                self.outage.ended();
                Ok(())
            }
            Err(error) => {
                FAILED.fetch_add(1, Relaxed);
                self.outage.failed(&error.to_string());
                Err(NotExported)
            }
        }
    }
}

/// A span as the exporter takes it.
fn data(span: &Span, scope: &InstrumentationScope) -> SpanData {
    let mut attributes: Vec<KeyValue> = span.attributes.iter().map(key_value).collect();
    attributes.extend(span.error.as_deref().map(|error| KeyValue::new("error.type", error.to_owned())));
    let mut events = SpanEvents::default();
    events.events = span
        .events
        .iter()
        .map(|event| {
            let attributes = event.attributes.iter().map(key_value).collect();
            Event::new(event.name.clone(), system_time(event.at), attributes, 0)
        })
        .collect();
    let mut links = SpanLinks::default();
    links.links = span.links.iter().map(link).collect();
    SpanData {
        span_context: span_context(span.trace_id, span.span_id),
        parent_span_id: span.parent.map_or(opentelemetry::trace::SpanId::INVALID, span_id),
        parent_span_is_remote: false,
        span_kind: match span.kind {
            Kind::Internal => SpanKind::Internal,
            Kind::Client => SpanKind::Client,
            Kind::Consumer => SpanKind::Consumer,
        },
        name: span.name.clone(),
        start_time: system_time(span.start),
        end_time: system_time(span.end),
        attributes,
        dropped_attributes_count: 0,
        events,
        links,
        status: span.error.as_ref().map_or(Status::Unset, |error| Status::error(error.clone())),
        instrumentation_scope: scope.clone(),
    }
}

fn span_id(id: SpanId) -> opentelemetry::trace::SpanId {
    opentelemetry::trace::SpanId::from(id.as_u64())
}

fn span_context(trace: TraceId, span: SpanId) -> SpanContext {
    let trace = opentelemetry::trace::TraceId::from(trace.as_u128());
    SpanContext::new(trace, span_id(span), TraceFlags::SAMPLED, false, TraceState::default())
}

fn link(link: &Link) -> opentelemetry::trace::Link {
    opentelemetry::trace::Link::with_context(span_context(link.trace_id, link.span_id))
}

fn key_value((name, value): &Attribute) -> KeyValue {
    let value = match value {
        Value::Text(text) => text.clone().into(),
        Value::Texts(texts) => {
            opentelemetry::Value::Array(Array::String(texts.iter().cloned().map(StringValue::from).collect()))
        }
        Value::Integer(number) => (*number).into(),
        Value::Flag(flag) => (*flag).into(),
        Value::Usd(amount) => dollars(amount.nanos()).into(),
    };
    KeyValue::new(name.clone(), value)
}

#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "shown in viewers, never booked")]
fn dollars(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn system_time(at: Moment) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(at.nanos())
}
