//! One delivery from the claim to the acknowledgement.

pub(crate) mod claim;
pub(crate) mod handle;
pub(crate) mod report;
