//! A shard decides on traces: it takes jobs, decides them on traces in memory, commits, sends and
//! replies. A coordinator has several shards; each trace belongs to one of them. A shard does not
//! depend on how a job arrived.

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
