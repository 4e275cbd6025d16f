//! The command line at a terminal: what it asks, and what it shows in one of any size.

#![allow(clippy::unwrap_used, reason = "a test that is surprised shall panic")]

mod asking;
mod leaving;
mod pty;
mod screen;
mod widths;
