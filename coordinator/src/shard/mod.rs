//! Where traces are decided: jobs come in, are decided on traces in memory, committed, sent and answered. A
//! coordinator has several shards; each trace belongs to one of them. A shard does not know how a job came in.

mod batch;
mod cache;
mod commit;
pub(crate) mod dispatch;
pub(crate) mod job;
mod lines;
mod load;
pub(crate) mod outbox;
mod profiles;
pub(crate) mod rebuild;
mod reply;
mod send;
mod shard_gauges;
mod spans;
mod state;
mod turn;
mod turn_metrics;
mod upload;
mod waiting;

pub(crate) use reply::NOT_AUTHENTIC;
pub(crate) use state::Shard;
