//! Programs as agents. A program runs in a sandbox and gets its task; the worker answers its requests. The worker calls
//! tools and models for it, so that it never sees a key and can't spend more than its budget. Every answer is recorded;
//! a program that is started again gets the same answers.

mod exit;
mod hint;
mod launch;
mod message;
mod replay;
mod session;

pub(super) use session::run;
