//! LLM agents: a loop of model calls and tool calls, each recorded when it is done. What comes next follows
//! from the journal alone, so that a successor goes on where a worker was lost, and an agent that waits for a
//! child or a human holds no worker.

mod agent;
mod conversation;
mod judge;
mod prompt;
mod window;

pub(super) use agent::run;
