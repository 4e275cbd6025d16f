//! Ownership of partitions, and the duties of an owner: it serves the partition's workers, wakes
//! traces whose timer is due, and looks after schedules. It removes runs after their retention,
//! sweeps for traces that the store has lost, from the mark on, and copies live traces into a log
//! that is nearly full. No decision on a trace is made here.

pub(crate) mod copies;
pub(crate) mod mark;
pub(crate) mod membership;
pub(crate) mod owner;
pub(crate) mod queues;
pub(crate) mod retention;
pub(crate) mod schedules;
pub(crate) mod signing;
pub(crate) mod sweep;
pub(crate) mod timer;
