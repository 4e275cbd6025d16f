//! The HTTP server of Trellis: REST and server-sent events over a bus. It stores nothing: every
//! answer comes from coordinators, workers and the logs, so one deployment may have any number of
//! gateways.

mod auth;
mod blocking;
mod bus_over_http;
mod call;
mod config;
pub mod doctor;
mod last_request;
mod live_runs;
mod openapi;
mod page;
mod parameter;
mod problem;
mod range;
mod rate;
mod route;
mod router;
mod routes;
mod server;
mod session;
mod skipped_conditions;
mod spend_last_24h;
mod sse;
mod streams;
pub mod token;
mod types;
mod write_timeout;

pub use config::{Caller, Config, Limits, Playground, TraceUrl};
pub use last_request::LastRequest;
pub use server::{Error, Server, SignIn};
