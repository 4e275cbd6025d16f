//! Messages that come in over the bus: submissions and controls of clients, asks and reports of
//! workers, queries. Each message becomes a job for a shard, or a refusal for its sender and a dead
//! letter. Queries are answered here, and some of them change agent profiles, schedules or kept
//! graphs. No decision on a trace is made here.

mod agents;
pub(crate) mod ask;
mod finding;
pub(crate) mod intake;
mod kept;
mod names;
pub(crate) mod query;
pub(crate) mod report;
mod schedules;
pub(crate) mod submission;
