//! The input of commands: files, values, names of contexts. Each is read once and checked, and all
//! mistakes are reported together.

pub(crate) mod context_ref;
pub(crate) mod document;
pub(crate) mod file;
pub(crate) mod inputs;
pub(crate) mod known_agents;
pub(crate) mod log_keys;
pub(crate) mod names;
pub(crate) mod parse;
pub(crate) mod price_table;
pub(crate) mod profiles;
pub(crate) mod sources;
pub(crate) mod task;
pub(crate) mod use_files;
pub(crate) mod worker_config;
