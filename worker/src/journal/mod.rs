//! The journal of a context: its entries. Appends and reads them, copies or revokes them at checkpoints, and begins
//! with the files that were handed over.

pub(crate) mod checkpoint;
pub(crate) mod received;
mod stored;
mod writer;

pub(crate) use writer::Journal;
