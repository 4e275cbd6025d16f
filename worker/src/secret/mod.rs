//! The secrets of a worker (S8). A context names those that it may use; this worker has their values, and gives them to the
//! programs and tools that its settings list, at the last moment. No value leaves by any other way: what comes back from a
//! program or a tool, and every message of an attempt, has the names in place of the values.

mod address;
mod directory;
mod file;
mod handed;
mod placeholder;
mod redactor;
mod source;
#[cfg(test)]
pub(crate) mod tests;
mod values;

use std::path::PathBuf;

pub use address::without_login;
pub use directory::read_secrets;
pub use handed::{hide_keys, take_keys, variable as own_variable};
pub(crate) use placeholder::{GivenSecrets, is_in};
pub(crate) use redactor::Redactor;
pub(crate) use source::variable;
pub(crate) use values::Values;

use crate::settings::Settings;

/// From now on, what the connections of this process are secured by is in no line of its log: the values of its variables, and of these
/// files, each with the name that is shown in its stead.
pub fn hide_in_log(files: &[(String, PathBuf)]) {
    let hidden = Values::read(&Settings::default(), files).redactor().clone();
    if !hidden.is_empty() {
        telemetry::hide(move |line| hidden.bytes(line).into_owned());
    }
}
