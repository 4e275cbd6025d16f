//! The core alone: traces, budgets and graphs by commands and events, with no servers and no clock but the test's.

mod adjusted;
mod attempts;
mod bad_input;
mod budget;
mod cancel;
mod ceilings;
mod checkpoints;
mod contention;
mod context_store;
mod deleted;
mod disputes;
mod folded_calls;
mod graph;
mod graph_flow;
mod growth;
mod log_cuts;
mod lost_costs;
mod messages;
mod outcomes;
mod property;
mod rule_combinations;
mod spawning;
mod status_table;
mod tool_names;
