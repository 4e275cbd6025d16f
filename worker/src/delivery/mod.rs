//! One delivery of work, from the claim to the acknowledgement.

mod claim;
pub(crate) mod dead_letter;
pub(crate) mod handle;
mod heartbeat;
mod report;
pub(crate) mod skew;
