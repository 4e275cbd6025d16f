//! The whole system: in one process, and as processes on real NATS and Redis servers.

mod agent_commands;
mod amend;
mod bad_input_end_to_end;
mod budget_commands;
mod cluster;
mod copies;
mod embedded;
mod graphs_live;
mod ground;
mod large_submissions;
mod marks;
mod observers;
mod outbox;
mod policies;
mod profiles;
mod rebuild;
mod rerun;
mod retention;
mod servers;
mod storage;
mod telemetry;
mod tell;
mod unseen_loss;
mod uploads;
