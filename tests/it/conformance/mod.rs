//! One behaviour, several implementations: each suite here runs on all of them, real servers among
//! them.

mod redis_faults;
mod redis_kinds;
mod store;
