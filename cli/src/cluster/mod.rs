//! What commands need of a cluster: its addresses, a client, and running traces. Prints nothing.

pub(crate) mod access;
pub(crate) mod connect;
pub(crate) mod credentials;
pub(crate) mod embedded;
pub(crate) mod failure;
pub(crate) mod keys;
pub(crate) mod local_directory;
pub(crate) mod process_id;
pub(crate) mod results;
