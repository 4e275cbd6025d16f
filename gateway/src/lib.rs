//! The HTTP front door of Trellis: REST and server-sent events over a bus. It keeps nothing: whatever it answers comes from
//! coordinators, workers and the logs, and any number of gateways may stand before one deployment.

mod blocking;
mod call;
mod carried;
mod config;
pub mod doctor;
mod door;
mod openapi;
mod page;
mod parameter;
mod patience;
mod problem;
mod range;
mod rate;
mod route;
mod router;
mod routes;
mod saw;
mod seen;
mod server;
mod session;
mod sse;
mod streams;
mod today;
pub mod token;
mod types;
mod watched;

pub use config::{Caller, Config, Limits, Playground, TraceUrl};
pub use seen::Seen;
pub use server::{Error, Server, SignIn};
