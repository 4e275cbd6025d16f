//! What commands need of a cluster: where it is, a client of it, runs as they go on. Prints nothing.

pub(crate) mod client;
pub(crate) mod connect;
pub(crate) mod embedded;
pub(crate) mod journal;
pub(crate) mod process_id;
pub(crate) mod stream;
pub(crate) mod watch;
