//! The bus within one process whose streams and objects are in a directory: what is acknowledged is there after the process
//! ended, however it ended. Who listens, and which deliveries are not acknowledged, is in memory: after a restart every
//! unacknowledged message is delivered again.

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
