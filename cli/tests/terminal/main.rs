//! The command line at a terminal: its questions, and its output in terminals of several sizes.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod asking;
mod leaving;
mod pty;
mod screen;
mod widths;
