//! The journal of a context. This module appends and reads its entries, copies or revokes them at
//! checkpoints, and begins a journal with the files that were handed over.

pub(crate) mod checkpoint;
pub(crate) mod received;
mod stored;
mod writer;

pub(crate) use writer::Journal;
