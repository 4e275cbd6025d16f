//! The rules of schedules (G16), pure: no I/O, no clock, no randomness. [`decide`] tells what becomes of the next tick, on
//! the state that was decided before; whoever stores the new state first has decided. The state is small, and stays so: a
//! tick costs the same bytes, whatever the task is and however many ticks there were.
//!
//! State first, submission second: a tick that is to be run is stored as `pending`, with the id of its run, and submitted
//! then. The id is derived from the tick, so a second submission is the same run.

mod decide;
mod state;

pub use decide::{Found, NotNow, Rules, Submitted, ask, decide, looks_at, pause, submitted};
pub use state::{MAX_LIVE, Paused, Run, State};
