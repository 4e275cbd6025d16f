//! The tools of the system tests: clusters in this process and as processes, real servers, a
//! simulation, and chaos.

pub mod chaos;
pub mod checker;
pub mod cluster;
pub mod directory;
pub mod log_lines;
pub mod processes;
pub mod prometheus;
pub mod script;
pub mod servers;
pub mod simulation;
pub mod subjects;
