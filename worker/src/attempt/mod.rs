//! One attempt at running a context: who acts, under which lease.

pub(crate) mod coordinator;
pub(crate) mod lease;
pub(crate) mod live_output;
