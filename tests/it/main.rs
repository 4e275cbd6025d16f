//! Every test of the system, one binary. A test's name begins with the rule it proves.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    reason = "a test that is surprised shall panic, and looks at what it is about"
)]

mod agents;
mod attempts;
mod bad_input;
mod budget;
mod cancel;
mod checkpoints;
mod cluster;
mod conformance;
mod context_store;
mod contract;
mod deploy;
mod embedded;
mod faults;
mod files;
mod graph;
mod graph_flow;
mod graphs_live;
mod hostile;
mod interplay;
mod observers;
mod pairs;
mod property;
mod protocol;
mod python;
mod sandbox;
mod schemas;
mod servers;
mod spawning;
mod telemetry;
mod together;
mod tools;
mod worker;
