//! Every test of the system, one binary. A test's name begins with the rule it proves (`docs/rules.md`).

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    reason = "a test that is surprised shall panic, and looks at what it is about"
)]

mod agents;
mod conformance;
mod contract;
mod core;
mod faults;
mod sandbox;
mod system;
mod worker;
