//! A finished span, and how it is emitted. It carries ids, counts and amounts, never the text of a goal or
//! an answer.

use std::{
    borrow::Cow,
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use opentelemetry::{
    Context, KeyValue,
    trace::{
        Link, Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceState,
        Tracer as _, TracerProvider,
    },
};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use super::export::with_ids;
use crate::{id::TraceId, time::Timestamp};

/// Set once, by [`super::start`].
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

pub(super) fn switch_on(provider: &SdkTracerProvider) {
    // Only the first start counts.
    let _ = TRACER.set(provider.tracer("trellis"));
}

/// Whether spans are exported: callers check this before they build an expensive one.
pub fn is_on() -> bool {
    TRACER.get().is_some()
}

/// The role of the process that emits the span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Internal,
    /// Served a request.
    Server,
    /// Made a request.
    Client,
    Producer,
    Consumer,
}

/// An attribute's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Integer(i64),
    Flag(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Value::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(count: u32) -> Self {
        Value::Integer(count.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Value::Flag(flag)
    }
}

impl From<Value> for opentelemetry::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Text(text) => text.into(),
            Value::Integer(count) => count.into(),
            Value::Flag(flag) => flag.into(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Span {
    pub name: Cow<'static, str>,
    pub trace_id: TraceId,
    /// See [`super::span_id`]; random if nobody has to know it in advance.
    pub span_id: Option<u64>,
    pub parent: Option<u64>,
    pub start: Timestamp,
    pub end: Timestamp,
    pub kind: Kind,
    pub attributes: Vec<(&'static str, Value)>,
    /// The error, in a few words of ours: a text of a user, a provider or a program never is one (S2).
    pub error: Option<&'static str>,
    /// A span of another trace that this one originates from (X2).
    pub link: Option<(TraceId, u64)>,
}

impl Span {
    /// Gives the span to the exporter, if there is one.
    pub fn emit(self) {
        if let Some(tracer) = TRACER.get() {
            self.emit_to(tracer);
        }
    }

    fn emit_to(self, tracer: &SdkTracer) {
        let trace_id = opentelemetry::trace::TraceId::from(self.trace_id.as_u128());
        let context = match self.parent {
            Some(parent) => Context::new().with_remote_span_context(sampled(self.trace_id, parent)),
            None => Context::new(),
        };
        let mut builder = tracer
            .span_builder(self.name)
            .with_kind(match self.kind {
                Kind::Internal => SpanKind::Internal,
                Kind::Server => SpanKind::Server,
                Kind::Client => SpanKind::Client,
                Kind::Producer => SpanKind::Producer,
                Kind::Consumer => SpanKind::Consumer,
            })
            .with_start_time(moment(self.start))
            .with_attributes(self.attributes.into_iter().map(|(key, value)| KeyValue::new(key, value)));
        if let Some((trace, span)) = self.link {
            builder = builder.with_links(vec![Link::with_context(sampled(trace, span))]);
        }
        let span_id = self.span_id.map(SpanId::from);
        let mut span = with_ids(trace_id, span_id, || tracer.build_with_context(builder, &context));
        if let Some(error) = self.error {
            span.set_status(Status::error(error));
        }
        span.end_with_timestamp(moment(self.end.max(self.start)));
    }
}

fn sampled(trace: TraceId, span: u64) -> SpanContext {
    let trace = opentelemetry::trace::TraceId::from(trace.as_u128());
    SpanContext::new(trace, SpanId::from(span), TraceFlags::SAMPLED, true, TraceState::default())
}

fn moment(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(at.millis())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use opentelemetry_sdk::{
        Resource,
        error::OTelSdkResult,
        trace::{SpanData, SpanExporter},
    };

    use super::{super::export::provider, *};

    #[derive(Debug, Clone, Default)]
    struct Collected(Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for Collected {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().unwrap().extend(batch);
            Ok(())
        }
    }

    #[test]
    fn x4_a_span_has_the_ids_times_and_parent_it_was_given() {
        let collected = Collected::default();
        let provider = provider(Resource::builder_empty().build(), collected.clone());
        let tracer = provider.tracer("test");
        let trace_id: TraceId = "0af7651916cd43dd8448eb211c80319c".parse().unwrap();
        let root = Span {
            name: "invoke_workflow".into(),
            trace_id,
            span_id: Some(7),
            parent: None,
            start: Timestamp::from_millis(1_000),
            end: Timestamp::from_millis(3_000),
            kind: Kind::Server,
            attributes: vec![("trellis.child_id", "root".into())],
            error: Some("it failed"),
            link: Some((TraceId::from_u128(5).unwrap(), 6)),
        };
        let child = Span {
            name: "queue wait".into(),
            span_id: None,
            parent: Some(7),
            kind: Kind::Internal,
            error: None,
            link: None,
            ..root.clone()
        };
        child.emit_to(&tracer);
        root.emit_to(&tracer);
        provider.shutdown().unwrap();
        let spans = collected.0.lock().unwrap();
        let [child, root] = spans.as_slice() else { panic!("{} spans", spans.len()) };
        let ids = |span: &SpanData| (span.span_context.trace_id(), span.span_context.span_id());
        let trace = opentelemetry::trace::TraceId::from(trace_id.as_u128());
        assert_eq!(ids(root), (trace, SpanId::from(7)));
        assert_eq!(root.parent_span_id, SpanId::INVALID);
        assert_eq!((ids(child).0, child.parent_span_id), (trace, SpanId::from(7)));
        assert_ne!(ids(child).1, SpanId::from(7));
        assert_eq!(root.start_time, moment(Timestamp::from_millis(1_000)));
        assert_eq!(root.end_time, moment(Timestamp::from_millis(3_000)));
        assert_eq!(root.status, Status::error("it failed"));
        assert_eq!(root.links.links[0].span_context.span_id(), SpanId::from(6));
        assert!(!is_on(), "no exporter was set up: emit() does nothing");
    }
}
