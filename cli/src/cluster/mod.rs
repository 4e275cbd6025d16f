//! The part of the command line that reaches a cluster: addresses, credentials, a client, and a
//! cluster in this process. Prints nothing.

pub(crate) mod access;
pub(crate) mod connect;
pub(crate) mod credentials;
pub(crate) mod embedded;
pub(crate) mod failure;
pub(crate) mod keys;
pub(crate) mod local_directory;
pub(crate) mod process_id;
pub(crate) mod results;
