//! Servers of the Model Context Protocol: each is started once per worker and kept, since a start takes
//! longer than a call. Their tools are named `server:tool`. A server that is slow, broken or dead costs
//! an agent that calls it an observation, and nobody else anything: no lock is held over a call.

mod connection;
mod content;
mod environment;
mod offer;
mod process;
mod secrets;
mod server;
mod servers;
mod supervise;
#[cfg(test)]
mod tests;

pub(super) use server::Server;
pub(super) use servers::{Servers, is_of};
