//! Logs and spans. Spans are emitted whole, after the fact, with ids that follow from their subject:
//! whoever knows a trace and a context can name that context's span before it is emitted. Without an
//! exporter a span costs one check of a flag. Nothing else here knows OpenTelemetry.

mod context;
mod export;
mod log;
pub mod metrics;
mod span;

pub use context::{headers, parent, span_id};
pub use log::hide;
pub use span::{Kind, Span, Value, is_on};

use std::io::IsTerminal;

use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, filter_fn},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// The log filter unless `RUST_LOG` is set: lost spans are worth a line.
const DEFAULT_FILTER: &str = "info,opentelemetry=warn";
/// The log filter of commands that show their progress themselves, and what was denied, with the role that may.
const QUIET_FILTER: &str = "warn,trellis_shared::bus::nats::denials=error";

/// Starts logging to stderr, and exporting spans to a collector if the environment names one. Call it once
/// in a process, first, within its runtime.
pub fn start(service: &'static str, json_logs: bool, quiet: bool) -> Telemetry {
    let environment = export::Environment::read();
    let default = if quiet { QUIET_FILTER } else { DEFAULT_FILTER };
    let filter = EnvFilter::try_new(environment.log_filter.as_deref().unwrap_or(default));
    let (filter, bad_filter) = match filter {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(default), Some(error)),
    };
    // Whatever RUST_LOG says: below `warn` the client of tool servers logs what servers say, and the arguments of calls, which may have
    // secrets (S2, S8).
    let shows_arguments = |target: &str| target == "rmcp" || target.starts_with("rmcp::");
    let filter = filter
        .and(filter_fn(move |line| *line.level() <= tracing::Level::WARN || !shows_arguments(line.target())));
    let colours = std::io::stderr().is_terminal();
    let format = tracing_subscriber::fmt::layer().with_writer(log::stderr).with_ansi(colours);
    let layer = if json_logs {
        format.json().flatten_event(true).with_filter(filter).boxed()
    } else {
        format.with_filter(filter).boxed()
    };
    let installed = tracing_subscriber::registry().with(layer).try_init();
    if let Some(error) = bad_filter {
        tracing::warn!(%error, "RUST_LOG is invalid; logging at `{default}`");
    }
    if installed.is_err() {
        tracing::warn!("a log subscriber was already installed; keeping it");
    }
    let resource = export::resource(service, &environment);
    metrics::start(resource.clone());
    let provider = match environment.exporter() {
        None => None,
        Some(Ok(exporter)) => {
            let provider = export::provider(resource, exporter);
            span::switch_on(&provider);
            Some(provider)
        }
        Some(Err(error)) => {
            tracing::warn!(%error, "no spans will be exported");
            None
        }
    };
    Telemetry { provider }
}

/// The running telemetry: stop it last, so that the last spans are sent.
#[derive(Debug)]
#[must_use = "spans that were not flushed are lost"]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Sends the remaining spans. If the collector is unreachable they are lost, which is logged.
    pub async fn stop(self) {
        metrics::stop().await;
        let Some(provider) = self.provider else { return };
        let flushed = tokio::task::spawn_blocking(move || provider.shutdown()).await;
        match flushed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last spans may be lost"),
            Err(error) => tracing::warn!(%error, "the last spans may be lost"),
        }
    }
}
