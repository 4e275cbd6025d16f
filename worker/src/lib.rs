//! Runs agents. A worker takes deliveries as it has room, claims each from its trace's coordinator,
//! runs the agent while its lease lasts, and reports. It keeps nothing that outlives an attempt, and
//! decides nothing: what a result means is the coordinator's.

mod agent;
mod attempt;
mod billing;
mod config;
mod crash;
mod delivery;
mod files;
mod journal;
mod model;
mod sandbox;
mod service;
mod settings;
mod tool;

pub use agent::builtin::HELP as BUILTIN_HELP;
pub use config::Config;
pub use crash::Crash;
pub use sandbox::{VARIABLE as SANDBOX_VARIABLE, enter as enter_sandbox};
pub use service::pull::run;
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
