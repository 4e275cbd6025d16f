//! Runs agents. A worker takes as many deliveries as it has free slots, claims each context from
//! its trace's coordinator, runs the agent while the lease lasts, and reports. It stores nothing
//! that outlives an attempt, and the coordinator decides what a result means.
//!
//! Layers, top first; each uses only those beneath it: `service` takes deliveries, `delivery`
//! handles one, `agent` runs an agent, `billing` makes its paid calls, `tool` its tool calls,
//! `journal` records its steps, `sandbox` confines its programs, `files` manages its files, `model`
//! calls providers, `attempt` has the lease and the asks of one attempt, `secret` has the values of
//! secrets, and `relay` bounds the HTTP answers of servers.

mod agent;
mod attempt;
mod billing;
mod check;
mod config;
mod crash;
mod delivery;
mod error;
mod files;
mod journal;
mod model;
mod price_table;
mod relay;
mod retry;
mod sandbox;
mod secret;
mod service;
mod settings;
mod simulated_provider;
mod tool;

pub use agent::builtin::HELP as BUILTIN_HELP;
pub use config::Config;
pub use crash::Crash;
pub use error::Error;
pub use price_table::{PriceTable, PricedCall};
pub use sandbox::{
    OWN_EXECUTABLE, VARIABLE as SANDBOX_VARIABLE, enter as enter_sandbox, protect_process, runs_as_root,
    tell_layers,
};
pub use secret::{hide_in_log, hide_keys, own_variable, read_secrets, take_keys, without_login};
pub use service::pull::run;
pub use settings::Settings;
pub use simulated_provider::{CallEnd, SimulatedProvider};
