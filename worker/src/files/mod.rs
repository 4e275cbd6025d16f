//! Files of a context: its workspace on this machine, and the data in the object store that is too
//! large for a message.

pub(crate) mod objects;
pub(crate) mod restore;
pub(crate) mod result;
pub(crate) mod tool_output;
pub(crate) mod worker_directory;
pub(crate) mod workspace;
