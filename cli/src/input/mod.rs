//! What users give a command: files, values, names of contexts. Read once, checked, with all mistakes at once.

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
