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
mod registry;
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
use domain::schema::Message;
pub use room::MARK_PERCENT;
pub use run::{Error, run};

/// Every message of the interface, with its JSON Schema.
pub fn messages() -> Vec<Message> {
    let mut all = domain::wire::messages();
    all.push(Message::of::<trace::Logged>("event-message"));
    all.push(Message::of::<trace::Event>("event"));
    all
}
