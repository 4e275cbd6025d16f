//! All tests of the system, in one binary. The name of a test begins with the rule that it proves (docs/rules.md).

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    reason = "a failed test panics, and a test matches only the cases that it checks"
)]

mod agents;
mod browser;
mod conformance;
mod contract;
mod faults;
mod gateway;
mod sandbox;
mod simulation;
mod system;
mod worker;
