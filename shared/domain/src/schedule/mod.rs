//! Schedules (G16): cron expressions, time zones, the reading of definitions, and the rules of ticks. Pure: the time comes in.
//!
//! [`decide`] decides the next tick on the state that the last decision left. The first coordinator that stores the new state
//! has decided. A tick costs the same bytes, whatever its task is and however many ticks there were before.
//!
//! State first, submission second: a tick that is to run is stored as `pending` with the id of its run, and submitted
//! afterwards. The id is derived from the tick, so a second submission is the same run.

mod cron;
mod decide;
mod read;
mod state;
mod timetable;

pub use cron::Cron;
pub use decide::{NotNow, Rules, RunState, SubmitOutcome, ask, decide, looks_at, pause, submitted};
pub use read::{
    LABEL, MAX_CATCH_UP, MAX_CATCH_UP_MS, MAX_SCHEDULES, MAX_TASK_BYTES, ReadySchedule, read, read_timetable,
};
pub use state::{MAX_LIVE, PauseState, Run, State};
pub use timetable::Timetable;
