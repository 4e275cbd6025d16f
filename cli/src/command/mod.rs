//! The commands, a file each: arguments, what is asked of the cluster, what is printed.

pub(crate) mod agents;
mod agents_diff;
pub(crate) mod amend;
pub(crate) mod answer;
pub(crate) mod audit;
pub(crate) mod budget;
pub(crate) mod cli;
pub(crate) mod delete_restore;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod finding;
pub(crate) mod graph;
pub(crate) mod history;
pub(crate) mod outputs;
pub(crate) mod plan;
pub(crate) mod receipt;
pub(crate) mod rehearse;
pub(crate) mod rerun;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod runtime;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod submit;
pub(crate) mod tell;
pub(crate) mod workers;
