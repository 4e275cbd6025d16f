//! A trace under test: [`World`] holds one trace and a clock that the test moves, and checks the invariants after every
//! command. Tests of the core, of a worker with the core, and of whole clusters use the same checks.

pub mod accounts;
pub mod dice;
pub mod invariants;
pub mod log_cuts;
mod world;

pub use world::{World, cases, cents, home, id, with};
