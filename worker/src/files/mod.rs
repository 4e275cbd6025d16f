//! Files of a context: its workspace on this machine, and what goes to the object store because it is too
//! large for a message.

pub(crate) mod objects;
pub(crate) mod restore;
pub(crate) mod result;
pub(crate) mod tool_output;
pub(crate) mod worker_directory;
pub(crate) mod workspace;
