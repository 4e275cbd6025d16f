//! The coordinator: owns budgets, contexts and graphs. What stands is its core, [`trace`]; the loop
//! that feeds it from the bus and commits it to the store comes next.

pub mod rehearsal;
pub mod trace;
