//! The coordinator: owns budgets, contexts and graphs. Its core, [`trace`], decides. Everything else here
//! brings commands to the core, keeps its decisions in the [`store`], and publishes them on the bus.

mod audit;
mod branches;
mod clock;
mod config;
mod crash;
mod dead_letter;
mod directory;
mod earlier;
mod epoch;
mod handles;
mod health;
mod inbound;
mod kept;
mod ownership;
mod policy;
mod profile_log;
pub mod rehearsal;
mod removal;
mod room;
mod run;
mod schedules;
mod sealed;
mod shard;
mod spans;
pub mod store;
mod tick;
mod trouble;
mod webhooks;

pub use config::Config;
pub use crash::{Crash, Point};
pub use room::MARK_PERCENT;
pub use run::{Error, run};

/// The JSON Schema of every message of the interface, by name.
pub fn schemas() -> Vec<(&'static str, serde_json::Value)> {
    let mut all = domain::wire::schemas();
    all.push(("event-message", domain::schema::of::<trace::Logged>()));
    all.push(("event", domain::schema::of::<trace::Event>()));
    all
}
