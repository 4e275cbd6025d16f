//! Servers of the Model Context Protocol. A worker starts each server once and keeps it running,
//! since a start takes longer than a call. Their tools are named `server:tool`. If a server is slow,
//! broken or dead, an agent that calls it gets an error as its observation. Other agents are not
//! affected, since no lock is held during a call.

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
