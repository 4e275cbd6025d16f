//! Metrics (X7): one instrument for each line of `list`. They feed `/metrics` and, if the
//! environment names a collector, OTLP.
//!
//! They are on in a process that serves `/metrics` or has a collector; elsewhere each record costs
//! one check of a flag. No decision depends on a metric.

mod exports;
mod instruments;
mod list;
mod names;
mod record;
mod watched;

use std::sync::OnceLock;

use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::{
    Resource,
    metrics::{Instrument, PeriodicReader, SdkMeterProvider, Stream},
};
use prometheus::{Encoder, Registry, TextEncoder};

pub use list::{ALL, Kind, Metric};
pub use record::{
    EndedWork, ModelCall, Source, attempt_ended, batch, cancelled, commit_conflict, context_ended,
    dead_letter, delivered, denied, disputed, hold, hold_answered, is_on, lease_expired, model_called,
    overspent, queue_waited, run_ended, spent, store, tool_called, webhook,
};
pub use watched::{GaugeHandle, LIVE, Live, Queue, tell_partitions, tell_queues, tell_runs, tell_slots};

use instruments::Instruments;

use super::{environment::MetricsTo, time_to_stop};

/// The most series of one metric. More are counted together, as OpenTelemetry's overflow.
const MOST_SERIES: usize = 1_000;

/// The arguments of [`start`]: the resource of this process, and the protocol of its collector.
static STARTED: OnceLock<(Resource, Option<MetricsTo>)> = OnceLock::new();
static METER: OnceLock<Option<Meter>> = OnceLock::new();
/// Set once metrics are on.
static INSTRUMENTS: OnceLock<Instruments> = OnceLock::new();

struct Meter {
    provider: SdkMeterProvider,
    registry: Registry,
    exports: bool,
}

/// Sets the resource of this process, and the protocol of its collector. Call it before any other
/// function here.
pub(super) fn start(resource: Resource, to: Option<MetricsTo>) {
    let _ = STARTED.set((resource, to));
}

/// Called once the process has metrics to export: switches metrics on if there is a collector. Call
/// it within the runtime.
pub fn begin() {
    if STARTED.get().is_some_and(|(_, to)| to.is_some()) {
        switch_on();
    }
}

/// Switches metrics on. Further calls do nothing. Call it within the runtime.
pub fn switch_on() {
    METER.get_or_init(meter);
}

/// The answer of `/metrics`: every series in the text format of Prometheus.
pub fn text() -> String {
    let Some(Some(meter)) = METER.get() else { return String::new() };
    let mut text = Vec::new();
    if let Err(error) = TextEncoder::new().encode(&meter.registry.gather(), &mut text) {
        tracing::warn!(%error, "the metrics can't be rendered");
    }
    String::from_utf8(text).unwrap_or_default()
}

/// The content type of [`text`].
pub const TEXT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Sends the last numbers to the collector, for a limited time. If the collector hangs, the sending
/// thread is abandoned.
pub(super) async fn stop() {
    let Some(Some(meter)) = METER.get() else { return };
    if !meter.exports {
        return;
    }
    let (done, stopped) = tokio::sync::oneshot::channel();
    let provider = meter.provider.clone();
    let stopping = std::thread::Builder::new().name("metrics-stop".into()).spawn(move || {
        let _ = done.send(provider.shutdown());
    });
    match stopping {
        Ok(_) => drop(tokio::time::timeout(time_to_stop(), stopped).await),
        Err(error) => tracing::warn!(%error, "the last metrics could not be sent"),
    }
    exports::give_up();
}

fn meter() -> Option<Meter> {
    let registry = Registry::new();
    let prometheus = opentelemetry_prometheus::exporter()
        .with_registry(registry.clone())
        .scope_info_enabled(false)
        .build();
    let prometheus = match prometheus {
        Ok(prometheus) => prometheus,
        Err(error) => {
            tracing::warn!(%error, "there are no metrics");
            return None;
        }
    };
    let bounded = |_: &Instrument| Stream::builder().with_cardinality_limit(MOST_SERIES).build().ok();
    let (resource, to) = STARTED.get().cloned().unwrap_or_else(|| (Resource::builder().build(), None));
    let exporter = to.and_then(exports::exporter);
    let exports = exporter.is_some();
    let mut provider =
        SdkMeterProvider::builder().with_resource(resource).with_view(bounded).with_reader(prometheus);
    if let Some(exporter) = exporter {
        provider = provider.with_reader(PeriodicReader::builder(exporter).build());
    }
    let provider = provider.build();
    let _ = INSTRUMENTS.set(Instruments::new(&provider.meter("trellis")));
    Some(Meter { provider, registry, exports })
}
