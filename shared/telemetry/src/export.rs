//! Exports spans to a collector. Spans wait in a bounded queue, and one task sends them in batches.
//! A collector that is unreachable or slow, or that rejects spans, delays no other work: spans
//! beyond the queue's bounds are dropped and counted.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
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

use domain::{
    id::TraceId,
    span::{Attribute, Caller, Kind, Link, Moment, Span, SpanId, Value},
};

use super::{environment::Environment, outage::Outage, sampling::Sampler};

/// The most entries in the queue, and the most bytes of their spans. Spans beyond that are dropped.
const MAX_WAITING: usize = 8_192;
const MAX_WAITING_BYTES: usize = 32 << 20;
/// The most spans of one batch, apart from those of its last entry.
const MAX_BATCH: usize = 512;
/// The bytes after which a batch is full; its last entry may exceed them. Collectors accept 4 MiB
/// by default, or more.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// The time that a span waits for others of its batch.
const BATCH_WITHIN: Duration = Duration::from_secs(1);
/// The pauses, in seconds, before each retry of a batch. After the last retry, two minutes after
/// the first attempt, the batch is dropped.
const AGAIN_AFTER: [u64; 8] = [1, 2, 4, 8, 15, 30, 30, 30];
/// The most that telemetry may delay the end of a process, unless `OTEL_BSP_EXPORT_TIMEOUT` is set.
const STOP_WITHIN: Duration = Duration::from_millis(300);

/// Set once, by [`super::start`].
static PIPELINE: OnceLock<Pipeline> = OnceLock::new();
/// The time when the process began to end.
static STOPPING: OnceLock<Instant> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);
/// The bytes of the spans in the queue.
static WAITING_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The number of spans and batches of this process that were not exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExportCounts {
    /// The number of dropped spans.
    pub(super) dropped: u64,
    /// The number of failed attempts to send a batch.
    pub(super) failures: u64,
}

pub(super) fn export_counts() -> ExportCounts {
    ExportCounts { dropped: DROPPED.load(Relaxed), failures: FAILED.load(Relaxed) }
}

/// The number of spans of this process that were dropped instead of exported.
pub fn spans_dropped() -> u64 {
    DROPPED.load(Relaxed)
}

/// The collector did not accept the spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the collector did not accept the spans")]
pub struct NotExported;

#[derive(Debug)]
struct Pipeline {
    queue: mpsc::Sender<Waiting>,
    settings: Settings,
}

/// The settings of the pipeline, from the environment.
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

/// Spans in the queue, with the channel for the result if a caller waits for it.
struct Waiting {
    spans: Vec<Span>,
    bytes: usize,
    told: Option<oneshot::Sender<Result<(), NotExported>>>,
}

impl Waiting {
    fn new(spans: Vec<Span>, told: Option<oneshot::Sender<Result<(), NotExported>>>) -> Self {
        let bytes = spans.iter().map(Span::bytes).sum();
        WAITING_BYTES.fetch_add(bytes, Relaxed);
        Waiting { spans, bytes, told }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING_BYTES.fetch_sub(self.bytes, Relaxed);
    }
}

/// Returns true if this process exports spans.
pub fn is_on() -> bool {
    PIPELINE.get().is_some()
}

/// Returns true if a new trace is to be exported. The decision of the submission's caller is
/// followed, unless the settings ignore callers.
pub fn exports(trace: TraceId, caller: Option<Caller>) -> bool {
    PIPELINE.get().is_some_and(|pipeline| pipeline.settings.sampler.exports(trace, caller))
}

/// Returns true if spans may contain texts of people, agents and providers.
pub fn has_content() -> bool {
    PIPELINE.get().is_some_and(|pipeline| pipeline.settings.content)
}

/// Queues spans to be sent soon, if this process exports any.
pub fn emit(spans: Vec<Span>) {
    let Some(pipeline) = PIPELINE.get() else { return };
    let count = spans.len();
    let waiting = Waiting::new(spans, None);
    if WAITING_BYTES.load(Relaxed) > MAX_WAITING_BYTES || pipeline.queue.try_send(waiting).is_err() {
        DROPPED.fetch_add(count as u64, Relaxed);
    }
}

/// Sends spans, and returns once the collector has accepted or rejected them.
pub async fn export(spans: Vec<Span>) -> Result<(), NotExported> {
    let Some(pipeline) = PIPELINE.get() else { return Err(NotExported) };
    let (told, outcome) = oneshot::channel();
    pipeline.queue.send(Waiting::new(spans, Some(told))).await.map_err(|_| NotExported)?;
    outcome.await.unwrap_or(Err(NotExported))
}

/// The rest of the time that telemetry may delay the end of this process. The time starts with the
/// first call.
pub fn time_to_stop() -> Duration {
    let began = STOPPING.get_or_init(Instant::now);
    let within = PIPELINE.get().map_or(STOP_WITHIN, |pipeline| pipeline.settings.stop_within);
    within.saturating_sub(began.elapsed())
}

/// The task that sends spans. It ends when it is stopped.
#[derive(Debug)]
pub(super) struct Exporting {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Exporting {
    /// Only the first call in a process has an effect.
    pub(super) fn start(exporter: impl SpanExporter + 'static, settings: Settings) -> Self {
        let (queue, waiting) = mpsc::channel(MAX_WAITING);
        let (stop, stopped) = oneshot::channel();
        let _ = PIPELINE.set(Pipeline { queue, settings });
        let outage = Outage::new("the collector of spans");
        let sender = Sender { exporter, outage, waiting, stop: stopped, stopping: false };
        Exporting { stop, task: tokio::spawn(sender.run()) }
    }

    /// Sends the queued spans for a limited time, and drops the rest.
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
    /// True once the queue accepts no more spans. Each remaining batch is sent once.
    stopping: bool,
}

impl<E: SpanExporter> Sender<E> {
    async fn run(mut self) {
        while let Some(first) = self.next(None).await {
            let batch = self.collect(first).await;
            self.send(batch).await;
        }
    }

    /// The next entry of the queue; none when `until` has passed, or when the queue is closed and
    /// empty.
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

    /// Adds the spans that arrive soon, up to a full batch. A batch with a waiting caller is not
    /// delayed.
    async fn collect(&mut self, first: Waiting) -> Vec<Waiting> {
        let began = Instant::now();
        let (mut count, mut bytes) = (first.spans.len(), first.bytes);
        let mut batch = vec![first];
        while count < MAX_BATCH && bytes < MAX_BATCH_BYTES {
            let is_waited_for = batch.iter().any(|part| part.told.is_some());
            let until = if is_waited_for { began } else { began + BATCH_WITHIN };
            let Some(next) = self.next(Some(until)).await else { break };
            (count, bytes) = (count + next.spans.len(), bytes + next.bytes);
            batch.push(next);
        }
        batch
    }

    /// Sends a batch, and retries for a while. Waiting callers get the result of the first attempt.
    async fn send(&mut self, batch: Vec<Waiting>) {
        let scope = InstrumentationScope::builder("trellis").build();
        // Spans with a waiting caller are sent once; the others are retried.
        let (mut once, mut left, mut told) = (Vec::new(), Vec::new(), Vec::new());
        for mut part in batch {
            let spans = std::mem::take(&mut part.spans);
            match part.told.take() {
                Some(waits) => {
                    told.push(waits);
                    once.extend(spans.into_iter().map(|span| data(span, &scope)));
                }
                None => left.extend(spans),
            }
        }
        once.extend(left.iter().cloned().map(|span| data(span, &scope)));
        let sent = self.once(once).await;
        for waits in told {
            // The caller may have stopped waiting.
            let _ = waits.send(sent);
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
                () = tokio::time::sleep(Duration::from_secs(pause)) => {}
            }
            if self.once(left.iter().cloned().map(|span| data(span, &scope)).collect()).await.is_ok() {
                return;
            }
        }
        DROPPED.fetch_add(left.len() as u64, Relaxed);
    }

    async fn once(&mut self, batch: Vec<SpanData>) -> Result<(), NotExported> {
        // The exporter limits the time: `OTEL_EXPORTER_OTLP_TIMEOUT`, 10 s by default.
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

/// A span in the exporter's form.
fn data(span: Span, scope: &InstrumentationScope) -> SpanData {
    let Span { name, trace_id, span_id: id, parent, start, end, kind, attributes, events, links, error } =
        span;
    let mut attributes: Vec<KeyValue> = attributes.into_iter().map(key_value).collect();
    attributes.extend(error.as_deref().map(|error| KeyValue::new("error.type", error.to_owned())));
    let mut told = SpanEvents::default();
    told.events = events
        .into_iter()
        .map(|event| {
            let attributes = event.attributes.into_iter().map(key_value).collect();
            Event::new(event.name, system_time(event.at), attributes, 0)
        })
        .collect();
    let mut linked = SpanLinks::default();
    linked.links = links.iter().map(link).collect();
    SpanData {
        span_context: span_context(trace_id, id),
        parent_span_id: parent.map_or(opentelemetry::trace::SpanId::INVALID, span_id),
        parent_span_is_remote: false,
        span_kind: match kind {
            Kind::Internal => SpanKind::Internal,
            Kind::Client => SpanKind::Client,
            Kind::Consumer => SpanKind::Consumer,
        },
        name,
        start_time: system_time(start),
        end_time: system_time(end),
        attributes,
        dropped_attributes_count: 0,
        events: told,
        links: linked,
        status: error.map_or(Status::Unset, Status::error),
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

fn key_value((name, value): Attribute) -> KeyValue {
    let value = match value {
        Value::Text(text) => text.into(),
        Value::Texts(texts) => {
            opentelemetry::Value::Array(Array::String(texts.into_iter().map(StringValue::from).collect()))
        }
        Value::Integer(number) => number.into(),
        Value::Flag(flag) => flag.into(),
        Value::Usd(amount) => dollars(amount.nanos()).into(),
    };
    KeyValue::new(name, value)
}

#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "shown in viewers, never booked")]
fn dollars(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn system_time(at: Moment) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(at.nanos())
}
