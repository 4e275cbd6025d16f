//! Exports metrics to a collector, if OpenTelemetry's own environment variables name one. A thread
//! of its own sends them. A collector that is unreachable, slow or silent delays no other work;
//! only the metrics of that time are lost.

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

/// The number of failed exports.
static FAILED: AtomicU64 = AtomicU64::new(0);
/// True when the process and its runtime end. A running export is then aborted, because it may no
/// longer use the runtime.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

pub(super) fn give_up() {
    GIVEN_UP.store(true, Ordering::Relaxed);
}

/// The number of dropped spans, and of failed exports of spans and metrics.
pub(super) fn counts() -> (u64, u64) {
    let ExportCounts { dropped, failures } = export_counts();
    (dropped, failures + FAILED.load(Ordering::Relaxed))
}

/// An exporter to the collector of the environment. Requires a runtime.
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

/// An exporter that enters the runtime of the process. The sending thread has none, and some
/// clients need one.
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
            // Not an outage of the collector: the process ends.
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
