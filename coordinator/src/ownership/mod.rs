//! Which partitions this coordinator owns, and what an owner does on its own: it serves their workers,
//! wakes traces whose timer is due, looks after schedules, removes runs whose retention is over, looks for traces that the store has lost, from
//! its mark on, and copies live ones into a log that is nearly full. Nothing is decided here.

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
