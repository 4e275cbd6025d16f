//! Running graphs (section G). A graph or group is a context that runs no agent, but starts one
//! context for each of its steps. `advance` decides which step starts next, and `start` starts it.
//! `step` handles the end of a step's context, and `conclude` ends the graph. `gather` builds the
//! input of its synthesis. `amend` replaces its plan, and `undo` undoes its steps.

mod advance;
mod amend;
mod conclude;
mod gather;
mod report;
mod results;
mod scope;
mod start;
mod step;
mod undo;
mod view;

pub(super) use advance::{advance, goes_on_for_free, next_is_busy};
pub(super) use amend::amend;
pub(super) use conclude::gathering_is_over;
pub(super) use gather::synthesis_goal;
pub(super) use start::begin_taken;
pub(super) use step::context_ended;
pub(super) use view::status_of;
