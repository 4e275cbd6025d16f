//! What commands need of a cluster: its addresses, a client, and running traces. Prints nothing.

pub(crate) mod access;
pub(crate) mod account;
pub(crate) mod client;
pub(crate) mod connect;
pub(crate) mod credentials;
pub(crate) mod earlier_runs;
pub(crate) mod embedded;
pub(crate) mod journal;
pub(crate) mod keys;
pub(crate) mod place;
pub(crate) mod process_id;
pub(crate) mod results;
pub(crate) mod stream;
pub(crate) mod watch;
