//! Servers of the Model Context Protocol. Each is started once per worker and kept, since a start takes longer than a
//! call. Their tools are named `server:tool`. If a server is slow, broken or dead, an agent that calls it gets an error
//! as its observation, and no other agent is affected: no lock is held during a call.

mod bounded;
mod connection;
mod content;
mod offer;
mod process;
mod secrets;
mod server;
mod servers;
mod supervise;
#[cfg(test)]
mod tests;

pub(super) use process::Confinement;
pub(super) use server::Server;
pub(super) use servers::{Servers, is_tool_of};
