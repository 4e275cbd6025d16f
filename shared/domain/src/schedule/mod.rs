//! Schedules (G16): cron expressions, time zones, the reading of definitions, and the rules of
//! ticks. This module is pure; the time is an argument.
//!
//! [`decide()`] decides the next tick from the state that the previous decision left. The decision
//! belongs to the first coordinator that stores the new state. The size of the state does not
//! depend on the task, nor on the number of earlier ticks.
//!
//! The state is stored first and the run submitted second. A tick that is due is stored as
//! `pending` with the id of its run, and submitted afterwards. The id is derived from the tick, so
//! a second submission after a crash in between gives the same run.

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
