//! `http.get`: reads a text from a web address, only from the hosts that the operator allows.

mod allowed;
mod getter;
#[cfg(test)]
mod tests;

pub(super) use getter::{Arguments, DESCRIPTION, Getter, NAME};
