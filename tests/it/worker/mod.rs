//! The worker on the memory bus: against a scripted coordinator, and with the real core.

mod checks;
mod deadline;
mod files;
mod scripted_coordinator;
mod tools;
mod worker_with_core;
