//! The bus within one process, for the simulation and the embedded mode. It has the semantics of
//! JetStream as far as the interface shows them.
//!
//! Time is tokio's, so a paused clock also pauses ack waits. It has no randomness: the same calls
//! return the same answers.

mod bucket;
mod carried;
mod consume;
mod entry;
mod listen;
mod listeners;
mod log;
mod objects;
mod pattern;
mod queue;
mod state;
mod store;

pub(super) use carried::Sending;
pub(super) use consume::{Acker, Consumption};
pub(super) use entry::Entry;
pub(super) use listen::Subscription;
pub(super) use log::Bounds;
pub(super) use pattern::Pattern;
pub(super) use queue::Messages;
pub use state::Memory;
pub(super) use store::{Follow, StorePlace};
