//! Metrics for a collector, if OpenTelemetry's own environment variables name one. They are sent by a thread of their own: a collector
//! that is away, slow or silent delays nobody, and loses nothing but the numbers of its own minutes.

use std::{
    future::Future,
    pin::pin,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    task::Poll,
    time::Duration,
};

use opentelemetry_otlp::{ExporterBuildError, MetricExporter, Protocol, WithExportConfig};
use opentelemetry_sdk::{
    error::{OTelSdkError, OTelSdkResult},
    metrics::{Temporality, data::ResourceMetrics, exporter::PushMetricExporter},
};
use tokio::runtime::Handle;

use super::super::export::{ExportCounts, export_counts};

/// Metrics that a collector did not take, by how often.
static FAILED: AtomicU64 = AtomicU64::new(0);
/// The process ends, and its runtime with it: what is being sent is given up, because it may not use the runtime any more.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

pub(super) fn give_up() {
    GIVEN_UP.store(true, Ordering::Relaxed);
}

/// Spans dropped; exports of spans and metrics that failed.
pub(super) fn counts() -> (u64, u64) {
    let ExportCounts { dropped, failures } = export_counts();
    (dropped, failures + FAILED.load(Ordering::Relaxed))
}

/// Sends to the collector that the environment names, if it names one. Needs a runtime.
pub(super) fn exporter() -> Option<Collector> {
    let get = |name: &str| {
        #[expect(
            clippy::disallowed_methods,
            reason = "these names are OpenTelemetry's, not settings of ours"
        )]
        std::env::var(name).ok().filter(|value| !value.is_empty())
    };
    get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT").or(get("OTEL_EXPORTER_OTLP_ENDPOINT"))?;
    let disabled = get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let none = get("OTEL_METRICS_EXPORTER").is_some_and(|value| value == "none");
    if disabled || none {
        return None;
    }
    let protocol = get("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL").or(get("OTEL_EXPORTER_OTLP_PROTOCOL"));
    let built = match protocol.as_deref() {
        Some("grpc") => MetricExporter::builder().with_tonic().build(),
        Some(_) | None => http(),
    };
    match built {
        Ok(exporter) => Some(Collector { exporter, runtime: Handle::try_current().ok()? }),
        Err(error) => {
            tracing::warn!(%error, "no metrics will be exported");
            None
        }
    }
}

fn http() -> Result<MetricExporter, ExporterBuildError> {
    MetricExporter::builder().with_http().with_protocol(Protocol::HttpBinary).build()
}

/// An exporter that knows the runtime of the process: the thread that sends has none, and some clients need one.
pub(super) struct Collector {
    exporter: MetricExporter,
    runtime: Handle,
}

impl PushMetricExporter for Collector {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let mut exported = pin!(self.exporter.export(metrics));
        let within = std::future::poll_fn(|context| {
            if GIVEN_UP.load(Ordering::Relaxed) {
                return Poll::Ready(Err(OTelSdkError::AlreadyShutdown));
            }
            let _runtime = self.runtime.enter();
            exported.as_mut().poll(context)
        });
        within.await.inspect_err(|_| {
            FAILED.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.exporter.temporality()
    }
}
