//! The secrets of a worker (S8). A context names those that it may use; this worker has their values, and gives them to the
//! programs and tools that its settings list, at the last moment. No value leaves by any other way: what comes back from a
//! program or a tool, and every message of an attempt, has the names in place of the values.

mod handed;
mod placeholder;
mod redactor;
mod source;
#[cfg(test)]
pub(crate) mod tests;
mod values;

pub use handed::{hide_keys, take_keys};
pub(crate) use placeholder::{Given, is_in};
pub(crate) use redactor::Redactor;
pub(crate) use source::variable;
pub(crate) use values::Values;
