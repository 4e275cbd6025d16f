//! The core alone: traces, budgets and graphs by commands and events, without servers and on the
//! test's clock.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    reason = "a failed test panics, and a test matches only the cases that it checks"
)]

mod accounts;
mod adjusted;
mod asked_by;
mod attempts;
mod bad_files;
mod bad_input;
mod budget;
mod cancel;
mod ceilings;
mod checkpoints;
mod checks;
mod content;
mod contention;
mod context_store;
mod deleted;
mod disputes;
mod estimates;
mod folded_calls;
mod found_by;
mod graph;
mod graph_flow;
mod growth;
mod handed_over;
mod hostile_worker;
mod humans;
mod lent_keys;
mod limit_texts;
mod log_cuts;
mod lost_costs;
mod messages;
mod named_graphs;
mod outcomes;
mod pools;
mod property;
mod rerun;
mod rule_combinations;
mod schedules;
mod secrets;
mod spans;
mod spawning;
mod spender_sums;
mod spenders;
mod statements;
mod status_table;
mod steering;
mod stored_forms;
mod tool_names;
mod typed_graphs;
mod undo;
mod used_graphs;
