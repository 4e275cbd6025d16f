//! What the tests share: a world in which one trace lives, the invariants that must hold in it after
//! every command, and real servers.

pub mod checker;
pub mod cluster;
pub mod invariants;
pub mod processes;
pub mod script;
pub mod servers;
pub mod world;

pub use world::{World, home};
