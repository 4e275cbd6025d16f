//! The journal of a context: its entries. Appends and reads them, and copies or revokes them at checkpoints.

pub(crate) mod checkpoint;
mod stored;
mod writer;

pub(crate) use writer::Journal;
