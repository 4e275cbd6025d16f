//! Files of a context: its workspace, and what goes to the object store.

pub(crate) mod objects;
pub(crate) mod tool_output;
pub(crate) mod worker_directory;
pub(crate) mod workspace;
