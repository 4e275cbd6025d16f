//! The bus within one process, with its streams and objects in a directory.
//!
//! An acknowledged message survives the end of the process, even a crash. Listeners and
//! unacknowledged deliveries exist in memory only, so after a restart every unacknowledged message
//! is delivered again.

mod bucket;
mod coded;
mod consume;
mod follow;
mod log;
mod look;
mod objects;
mod rows;
mod state;
mod store;

pub(super) use consume::{Acker, Consumption};
pub(super) use follow::Follow;
pub use state::Disk;
pub(super) use store::Sending;
