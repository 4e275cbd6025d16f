//! Schedules (G16), without servers: when ticks come, what is wrong with a definition, and what becomes of each tick.

mod bad;
mod ticks;
mod timetables;
