//! How spans reach a collector. They wait in a bounded queue, and one task sends them in batches. A collector that is away, slow
//! or refuses them delays nobody: what does not fit into the queue is dropped, and counted.

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

/// Spans that wait to be sent, and their bytes. Beyond that they are dropped.
const MAX_WAITING: usize = 8_192;
const MAX_WAITING_BYTES: usize = 32 << 20;
/// Spans of one batch.
const MAX_BATCH: usize = 512;
/// Bytes of one batch, unless one part of it has more: collectors take 4 MiB by default, or more.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// How long a span waits for others of its batch.
const BATCH_WITHIN: Duration = Duration::from_secs(1);
/// The pauses in seconds after which a batch is sent again. After the last it is dropped: two minutes after the first try.
const AGAIN_AFTER: [u64; 8] = [1, 2, 4, 8, 15, 30, 30, 30];
/// The most that telemetry delays the end of a process, unless `OTEL_BSP_EXPORT_TIMEOUT` says so.
const STOP_WITHIN: Duration = Duration::from_millis(300);

/// Set once, by [`super::start`].
static PIPELINE: OnceLock<Pipeline> = OnceLock::new();
/// When the process began to end.
static STOPPING: OnceLock<Instant> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);
/// Bytes of the spans in the queue.
static WAITING_BYTES: AtomicUsize = AtomicUsize::new(0);

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

/// Spans of this process that no collector took.
pub fn spans_dropped() -> u64 {
    DROPPED.load(Relaxed)
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
    let waiting = Waiting::new(spans, None);
    if WAITING_BYTES.load(Relaxed) > MAX_WAITING_BYTES || pipeline.queue.try_send(waiting).is_err() {
        DROPPED.fetch_add(count as u64, Relaxed);
    }
}

/// Sends spans, and returns when the collector has them or did not take them.
pub async fn export(spans: Vec<Span>) -> Result<(), NotExported> {
    let Some(pipeline) = PIPELINE.get() else { return Err(NotExported) };
    let (told, outcome) = oneshot::channel();
    pipeline.queue.send(Waiting::new(spans, Some(told))).await.map_err(|_| NotExported)?;
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

    /// Sends a batch, again and again for a while. Those who wait are told of the first try.
    async fn send(&mut self, batch: Vec<Waiting>) {
        let scope = InstrumentationScope::builder("trellis").build();
        // Those that somebody waits for are sent once, the others again and again.
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
            // Whoever waited may be gone.
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
