//! Programs as agents. A program runs in a sandbox and reads its task; the worker answers its
//! requests. The worker calls tools and models on its behalf, so the program never sees a key and
//! can't spend more than its budget. Every answer is recorded, and a restarted program gets the
//! same answers.

mod exit;
mod hint;
mod launch;
mod message;
mod replay;
mod session;

pub(super) use session::run;
