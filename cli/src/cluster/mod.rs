//! What commands need of a cluster: where it is, a client of it, runs as they go on. Prints nothing.

pub(crate) mod client;
pub(crate) mod connect;
pub(crate) mod embedded;
pub(crate) mod stream;
pub(crate) mod watch;
