//! Where spans are sent: to an OTLP collector, if OpenTelemetry's own environment variables name one.

use std::cell::Cell;

use opentelemetry::{
    KeyValue,
    trace::{SpanId, TraceId},
};
use opentelemetry_otlp::{ExporterBuildError, Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{BatchSpanProcessor, IdGenerator, RandomIdGenerator, SdkTracerProvider},
};

use crate::random::Random;

/// What the environment sets; the exporter itself reads the endpoint, its headers and timeouts.
pub(super) struct Environment {
    pub(super) log_filter: Option<String>,
    service_name: Option<String>,
    protocol: Option<String>,
    exports: bool,
}

impl Environment {
    pub(super) fn read() -> Self {
        let get = |name: &str| {
            #[expect(
                clippy::disallowed_methods,
                reason = "these names are OpenTelemetry's and Rust's, not settings of ours"
            )]
            std::env::var(name).ok().filter(|value| !value.is_empty())
        };
        let endpoint = get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or(get("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let disabled = get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let none = get("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
        Environment {
            log_filter: get("RUST_LOG"),
            service_name: get("OTEL_SERVICE_NAME"),
            protocol: get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or(get("OTEL_EXPORTER_OTLP_PROTOCOL")),
            exports: endpoint.is_some() && !disabled && !none,
        }
    }

    pub(super) fn exporter(&self) -> Option<Result<SpanExporter, ExporterBuildError>> {
        self.exports.then(|| match self.protocol.as_deref() {
            Some("grpc") => SpanExporter::builder().with_tonic().build(),
            Some("http/json") => {
                tracing::warn!("OTLP over http/json is not supported; using http/protobuf");
                http()
            }
            Some("http/protobuf") | None => http(),
            Some(other) => {
                tracing::warn!(protocol = other, "unknown OTLP protocol; using http/protobuf");
                http()
            }
        })
    }
}

fn http() -> Result<SpanExporter, ExporterBuildError> {
    SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary).build()
}

pub(super) fn resource(service: &'static str, environment: &Environment) -> Resource {
    let name = environment.service_name.clone().unwrap_or_else(|| service.to_owned());
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let instance = KeyValue::new("service.instance.id", Random::default().id().to_string());
    Resource::builder().with_service_name(name).with_attribute(version).with_attribute(instance).build()
}

/// Sends batches on a thread of its own, so that a slow collector delays nobody.
pub(super) fn provider(
    resource: Resource,
    exporter: impl opentelemetry_sdk::trace::SpanExporter + 'static,
) -> SdkTracerProvider {
    SdkTracerProvider::builder()
        .with_resource(resource)
        .with_id_generator(GivenIds::default())
        .with_span_processor(BatchSpanProcessor::builder(exporter).build())
        .build()
}

thread_local! {
    // Two cells: the SDK asks for the span's id before it asks for the trace's.
    static TRACE_ID: Cell<Option<TraceId>> = const { Cell::new(None) };
    static SPAN_ID: Cell<Option<SpanId>> = const { Cell::new(None) };
}

/// Runs `start`; the one span that it starts gets these ids.
pub(super) fn with_ids<T>(trace: TraceId, span: Option<SpanId>, start: impl FnOnce() -> T) -> T {
    TRACE_ID.set(Some(trace));
    SPAN_ID.set(span);
    let started = start();
    TRACE_ID.set(None);
    SPAN_ID.set(None);
    started
}

/// The ids set on this thread, or random ones.
#[derive(Debug, Default)]
struct GivenIds(RandomIdGenerator);

impl IdGenerator for GivenIds {
    fn new_trace_id(&self) -> TraceId {
        TRACE_ID.take().unwrap_or_else(|| self.0.new_trace_id())
    }

    fn new_span_id(&self) -> SpanId {
        SPAN_ID.take().unwrap_or_else(|| self.0.new_span_id())
    }
}
