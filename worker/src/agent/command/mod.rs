//! Programs as agents. A program is started in a sandbox, given its task, and answered what it asks: its tools
//! and its model are the worker's, so that it never sees a key and can't spend past its budget. Every answer
//! is recorded; a program that has to be started again gets the same ones.

mod launch;
mod message;
mod replay;
mod session;

pub(super) use session::run;
