//! LLM agents: a loop of model calls and tool calls, each recorded in the journal when it is done.
//! The next action follows from the journal alone, so another worker can continue after a crash. An
//! agent that waits for a child or a human holds no worker.

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
