//! Schedules (G16), without servers: the times of ticks, mistakes in definitions, and the outcome
//! of each tick.

mod bad;
mod ticks;
mod timetables;
