//! Metrics for a collector, if OpenTelemetry's own environment variables name one. They are sent by a thread of their own: a collector
//! that is away, slow or silent delays nobody, and loses nothing but the numbers of its own minutes.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use opentelemetry_otlp::{ExporterBuildError, MetricExporter, Protocol, WithExportConfig};
use opentelemetry_sdk::{
    error::{OTelSdkError, OTelSdkResult},
    metrics::{Temporality, data::ResourceMetrics, exporter::PushMetricExporter},
};
use tokio::runtime::Handle;

use super::super::{
    Outage,
    environment::MetricsTo,
    export::{ExportCounts, export_counts},
};

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

/// Sends to the collector that the environment names. Needs a runtime.
pub(super) fn exporter(to: MetricsTo) -> Option<Collector> {
    let built = match to {
        MetricsTo::Grpc => MetricExporter::builder().with_tonic().build(),
        MetricsTo::Http => http(),
    };
    match built {
        Ok(exporter) => {
            let outage = Mutex::new(Outage::new("the collector of metrics"));
            Some(Collector { exporter, outage, runtime: Handle::try_current().ok()? })
        }
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
    outage: Mutex<Outage>,
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
        let exported = within.await;
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        match &exported {
            Ok(()) => outage.ended(),
            // The process ends: that says nothing of the collector.
            Err(OTelSdkError::AlreadyShutdown) => {}
            Err(error) => {
                FAILED.fetch_add(1, Ordering::Relaxed);
                outage.failed(&error.to_string());
            }
        }
        exported
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
