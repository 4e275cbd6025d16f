//! The environment of a process: its clock, its random numbers, other parties' servers, webhooks,
//! deliberate crashes for tests, and a network that a simulation puts between a process and its
//! servers.

pub mod clock;
pub mod crash;
pub mod internet;
pub mod random;
pub mod simulated_network;
pub mod webhook;
