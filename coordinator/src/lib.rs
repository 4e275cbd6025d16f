//! The coordinator owns budgets, contexts and graphs. Its core, [`trace`], makes the decisions. The
//! rest of this crate brings commands to the core, stores its decisions in the [`store`], and
//! publishes them on the bus.

mod audit;
mod clock;
mod config;
mod crash;
mod dead_letter;
mod dependents;
mod directory;
mod epoch;
mod error_log;
mod health;
mod inbound;
mod kept;
mod loops;
mod ownership;
mod policy;
mod profile_log;
mod registry;
pub mod rehearsal;
mod removal;
mod run;
mod schedule_runner;
mod schedules;
mod sealed;
mod shard;
mod source_run;
mod spans;
mod storage_headroom;
pub mod store;
mod webhooks;

pub use config::Config;
pub use crash::{Crash, Point};
use domain::schema::Message;
pub use run::{Error, run};
pub use storage_headroom::MARK_PERCENT;

/// Every message of the interface, with its JSON Schema.
pub fn messages() -> Vec<Message> {
    let mut all = domain::wire::messages();
    all.push(Message::of::<trace::LoggedEvents>("event-message"));
    all.push(Message::of::<trace::Event>("event"));
    all
}
