//! What the tests share: the core with one trace (`world`), its invariants, clusters in this process and as processes,
//! real servers, a simulation, and chaos.

pub mod accounts;
pub mod chaos;
pub mod checker;
pub mod cluster;
pub mod dice;
pub mod directory;
pub mod invariants;
pub mod log_cuts;
pub mod log_lines;
pub mod processes;
pub mod prometheus;
pub mod script;
pub mod servers;
pub mod simulation;
pub mod subjects;
pub mod world;

pub use world::{World, home};
