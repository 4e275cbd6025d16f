//! The client of a cluster over the bus: it submits, queries, steers and reads runs. The command
//! line, the gateway and the tests share it. It prints nothing and decides nothing; hints, exit
//! codes and HTTP statuses belong to its users.

mod client;
mod content;
mod control;
mod dead_letter;
mod earlier_runs;
mod error;
mod journal;
mod live_output;
mod off_thread;
mod query;
mod read_ahead;
mod run_log;
mod submission;
mod watch;
mod workers;

pub use client::Client;
pub use content::Content;
pub use control::TAKES_EFFECT;
pub use dead_letter::{RetryRefusal, StoredLetter};
pub use error::{Error, NoJournal};
pub use journal::entry;
pub use live_output::LiveOutput;
pub use query::{PAGE, Reply, RunList};
pub use read_ahead::{ReadAhead, RunMessage};
pub use run_log::{log_message, logged, root};
pub use submission::{Submission, fresh_trace};
pub use watch::{Watch, questions};
pub use workers::WORKERS_ANSWER;
