//! The settings in OpenTelemetry's own environment variables. The exporter itself reads the
//! endpoint, its headers, its timeout and its compression.

use opentelemetry_otlp::{ExporterBuildError, Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;

use host::random::Random;

#[derive(Debug, Default)]
pub(super) struct Environment {
    pub(super) log_filter: Option<String>,
    pub(super) sampler: Option<String>,
    pub(super) sampler_argument: Option<String>,
    /// True if spans may contain texts of people, agents and providers.
    pub(super) content: bool,
    /// The most that telemetry may delay the end of the process, in milliseconds; none: the
    /// default.
    pub(super) stop_within_ms: Option<u64>,
    /// The address that spans are sent to; none: they are not exported.
    pub(super) endpoint: Option<String>,
    pub(super) service_name: Option<String>,
    pub(super) protocol: Option<String>,
    /// The protocol by which metrics are sent; none: they are not exported.
    pub(super) metrics: Option<MetricsTo>,
}

/// The protocol of a collector of metrics. The exporter itself reads the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricsTo {
    Http,
    Grpc,
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
        let is_true = |name: &str| get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let endpoint = get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or(get("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let none = |name: &str| get(name).is_some_and(|value| value == "none");
        let is_off = is_true("OTEL_SDK_DISABLED");
        let metrics_to = get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT").or(get("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let protocol = |name: &str| get(name).or(get("OTEL_EXPORTER_OTLP_PROTOCOL"));
        let metrics = match protocol("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL").as_deref() {
            Some("grpc") => MetricsTo::Grpc,
            Some(_) | None => MetricsTo::Http,
        };
        Environment {
            log_filter: get("RUST_LOG"),
            sampler: get("OTEL_TRACES_SAMPLER"),
            sampler_argument: get("OTEL_TRACES_SAMPLER_ARG"),
            content: is_true("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"),
            stop_within_ms: get("OTEL_BSP_EXPORT_TIMEOUT").and_then(|value| value.parse().ok()),
            endpoint: endpoint.filter(|_| !is_off && !none("OTEL_TRACES_EXPORTER")),
            service_name: get("OTEL_SERVICE_NAME"),
            protocol: protocol("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
            metrics: metrics_to.filter(|_| !is_off && !none("OTEL_METRICS_EXPORTER")).map(|_| metrics),
        }
    }

    pub(super) fn exporter(&self) -> Result<SpanExporter, ExporterBuildError> {
        match self.protocol.as_deref() {
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
        }
    }

    /// The exporting service: its name, its version, and a random id of this process.
    pub(super) fn resource(&self, service: &'static str) -> Resource {
        let name = self.service_name.clone().unwrap_or_else(|| service.to_owned());
        let instance = Random::default().id().to_string();
        Resource::builder()
            .with_service_name(name)
            .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(opentelemetry::KeyValue::new("service.instance.id", instance))
            .build()
    }
}

fn http() -> Result<SpanExporter, ExporterBuildError> {
    SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary).build()
}
