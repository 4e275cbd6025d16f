//! Tools: what an agent may do besides calling its model. Whether it may is decided at each call, by the set
//! its context was given, whatever its prompt says (I5). A failure is an observation for the agent, never the
//! end of it.

mod arguments;
mod builtin;
pub(crate) mod call;
mod context;
mod fs;
mod http;
pub(crate) mod human;
mod mcp;
pub(crate) mod spawn;
mod toolbox;

pub(crate) use toolbox::Toolbox;
