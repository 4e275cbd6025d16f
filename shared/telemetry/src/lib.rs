//! Logs, spans and metrics.
//!
//! Spans are emitted complete, after their end. Their ids follow from their subject, so a caller
//! that knows a trace and a context can name the context's span before it is emitted. A trace that
//! is not exported costs one check of a flag. Only this crate knows OpenTelemetry.

mod environment;
mod export;
pub mod health;
mod log;
pub mod metrics;
mod outage;
mod sampling;

pub use export::{NotExported, emit, export, exports, has_content, is_on, spans_dropped, time_to_stop};
pub use log::{hide, json_line, span_of};
pub use outage::Outage;

use opentelemetry_sdk::{Resource, trace::SpanExporter};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, filter_fn},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// The default log filter without `RUST_LOG`. It omits each connection attempt of the NATS client
/// and each export attempt of the exporter.
const DEFAULT_FILTER: &str = "info,opentelemetry=off,async_nats=warn";
/// The log filter of commands that show their own progress. Such a command itself shows a denial,
/// with the roles that have the permission.
const QUIET_FILTER: &str = "warn,opentelemetry=off,trellis_bus::nats::denials=error";

/// Starts logging to stderr, and exporting spans if the environment names a collector. Call it once
/// in a process, before anything else, within the runtime.
pub fn start(service: &'static str, json_logs: bool, quiet: bool) -> Telemetry {
    let environment = environment::Environment::read();
    let default = if quiet { QUIET_FILTER } else { DEFAULT_FILTER };
    let filter = EnvFilter::try_new(environment.log_filter.as_deref().unwrap_or(default));
    let (filter, bad_filter) = match filter {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(default), Some(error)),
    };
    // Applies to every value of RUST_LOG. Below `warn`, the client of tool servers logs their
    // messages and the arguments of calls, which may contain secrets (S2, S8).
    let shows_arguments = |target: &str| target == "rmcp" || target.starts_with("rmcp::");
    // Our own log lines report an unreachable collector. Its client's lines appear only if
    // `RUST_LOG` names it.
    let asked = environment.log_filter.as_ref().is_some_and(|filter| filter.contains("opentelemetry"));
    let is_told = move |target: &str| !asked && target.starts_with("opentelemetry");
    let filter = filter.and(filter_fn(move |line| {
        let target = line.target();
        (*line.level() <= tracing::Level::WARN || !shows_arguments(target)) && !is_told(target)
    }));
    let layer = log::layer(json_logs).with_filter(filter);
    let installed = tracing_subscriber::registry().with(layer).try_init();
    if json_logs || !quiet {
        log::log_panics();
    }
    if let Some(error) = bad_filter {
        tracing::warn!(%error, "RUST_LOG is invalid; logging at `{default}`");
    }
    if installed.is_err() {
        tracing::warn!("a log subscriber was already installed; keeping it");
    }
    let resource = environment.resource(service);
    metrics::start(resource.clone(), environment.metrics);
    Telemetry { exporting: exporting(&resource, &environment) }
}

fn exporting(resource: &Resource, environment: &environment::Environment) -> Option<export::Exporting> {
    environment.endpoint.as_ref()?;
    match environment.exporter() {
        Ok(mut exporter) => {
            exporter.set_resource(resource);
            Some(export::Exporting::start(exporter, export::Settings::from(environment)))
        }
        Err(error) => {
            tracing::warn!(%error, "no spans will be exported");
            None
        }
    }
}

/// The running telemetry. Stop it last, so that the last spans are sent.
#[derive(Debug)]
#[must_use = "spans that were not flushed are lost"]
pub struct Telemetry {
    exporting: Option<export::Exporting>,
}

impl Telemetry {
    /// Sends the remaining spans for a limited time. Spans that the collector does not accept are
    /// lost.
    pub async fn stop(self) {
        let spans = async {
            if let Some(exporting) = self.exporting {
                exporting.stop().await;
            }
        };
        tokio::join!(metrics::stop(), spans);
    }
}
