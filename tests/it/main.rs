//! Every test of the system, one binary. A test's name begins with the rule it proves.

mod attempts;
mod bad_input;
mod boundaries;
mod budget;
mod cancel;
mod context_store;
mod graph;
mod graph_flow;
mod pairs;
mod property;
mod schemas;
mod spawning;
