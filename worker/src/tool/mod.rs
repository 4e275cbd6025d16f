//! Tools: everything an agent may do besides calling its model. Each call is checked against the
//! set of tools of its context, which no text in its prompt can change (I5). A failure is an
//! observation for the agent, and never its end.

mod arguments;
mod builtin;
pub(crate) mod call;
mod context;
mod fs;
mod http;
pub(crate) mod human;
mod mcp;
mod passage;
pub(crate) mod spawn;
mod toolbox;

pub(crate) use context::{READ as READ_CONTEXT, WRITE as WRITE_CONTEXT};
pub(crate) use fs::{READ as FS_READ, WRITE as FS_WRITE};
pub(crate) use toolbox::{Toolbox, may_call};
