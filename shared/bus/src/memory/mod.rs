//! The bus within one process, with the semantics of JetStream as far as the interface shows them: for the
//! simulation and the embedded mode. Time is tokio's, so a paused clock pauses ack waits too. Nothing here
//! is random: the same calls give the same answers.

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
