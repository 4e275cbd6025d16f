//! The secrets of a worker (S8). A context names those that it may use. The worker has their
//! values, and gives them to the programs and tools in its settings, at the last moment. No value
//! leaves in any other way: the output of programs and tools, and every message of an attempt, has
//! the names in place of the values.

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

/// Removes the credentials of this process's connections from all further lines of its log: the
/// values of its variables and of these files. Each file comes with the name that is shown in its
/// place.
pub fn hide_in_log(files: &[(String, PathBuf)]) {
    let hidden = Values::read(&Settings::default(), files).redactor().clone();
    if !hidden.is_empty() {
        telemetry::hide(move |line| hidden.bytes(line).into_owned());
    }
}
