//! Schedules (G16): cron expressions, time zones, and the reading of definitions. Pure: the time comes in. What is decided
//! about a tick is the coordinator's.

mod cron;
mod read;
mod timetable;

pub use cron::Cron;
pub use read::{
    LABEL, MAX_CATCH_UP, MAX_CATCH_UP_MS, MAX_SCHEDULES, MAX_TASK_BYTES, Readable, read, read_timetable,
};
pub use timetable::Timetable;
