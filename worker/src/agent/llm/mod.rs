//! LLM agents: a loop of model calls and tool calls, each recorded in the journal when it is done. The next action
//! follows from the journal alone, so that another worker continues where one was lost, and an agent that waits for a
//! child or a human holds no worker.

mod agent;
mod compacted;
mod compaction;
mod conversation;
mod inputs;
mod judge;
mod prompt;
mod repetition;
mod room;
mod summary;
mod window;

pub(super) use agent::run;
