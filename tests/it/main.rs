//! Every test of the system, one binary. A test's name begins with the rule it proves.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    reason = "a test that is surprised shall panic, and looks at what it is about"
)]

mod attempts;
mod bad_input;
mod boundaries;
mod budget;
mod cancel;
mod cluster;
mod conformance;
mod context_store;
mod embedded;
mod faults;
mod graph;
mod graph_flow;
mod interplay;
mod pairs;
mod property;
mod schemas;
mod servers;
mod spawning;
mod together;
mod worker;
