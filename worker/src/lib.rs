//! Runs agents. A worker takes deliveries as it has room, claims each from its trace's coordinator,
//! runs the agent while its lease lasts, and reports. It keeps nothing that outlives an attempt, and
//! decides nothing: what a result means is the coordinator's.

mod agent;
mod attempt;
mod branch;
mod calls;
mod claim;
mod config;
mod coordinator;
mod crash;
mod equipment;
mod finish;
mod journal;
mod lease;
mod meter;
mod model;
mod object;
mod offload;
mod paid;
mod premises;
mod prompt;
mod pull;
mod ready;
mod report;
mod sandbox;
mod settings;
mod tool;
mod voice;
mod window;
mod workspace;

pub use agent::builtin::HELP as BUILTIN_HELP;
pub use config::Config;
pub use crash::Crash;
pub use pull::run;
pub use sandbox::{OWN_EXECUTABLE, VARIABLE as SANDBOX_VARIABLE, enter as enter_sandbox};
pub use settings::Settings;

/// Why a worker could not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("worker `{worker}` could not {doing}")]
    Bus {
        worker: shared::WorkerId,
        doing: &'static str,
        #[source]
        source: shared::bus::Error,
    },
    #[error("could not answer health checks on {address}")]
    Health {
        address: std::net::SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("the worker's settings make no sense: {0}")]
    Settings(shared::Problems),
    /// Nothing more will be heard from it.
    #[error("the bus was closed")]
    Closed,
}
