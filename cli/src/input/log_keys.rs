//! The keys that coordinators sign with (S3), read once from a file or a variable. They are never
//! printed.

use std::path::PathBuf;

use bus::keys::Keys;

use crate::{
    cluster::local_directory,
    terminal::{ending::Ending, output},
};

/// The key itself is not an option: every user of the machine can see the arguments of a process.
const VARIABLE: &str = "TRELLIS_LOG_KEY";

#[derive(Debug, clap::Args)]
pub(crate) struct LogKeys {
    /// The key of the deployment, which signs the logs and the store.
    ///
    /// The file has a line of 64 hexadecimal digits for each key: the first signs, and all verify. The variable TRELLIS_LOG_KEY may have the
    /// same text instead.
    #[arg(long, value_name = "FILE", env = "TRELLIS_LOG_KEY_FILE", value_parser = local_directory::file())]
    log_key_file: Option<PathBuf>,
}

impl LogKeys {
    /// The file with the keys, with the name to be shown in place of each.
    pub(crate) fn secret_file(&self) -> Option<(String, PathBuf)> {
        let file = self.log_key_file.clone().filter(|path| !path.as_os_str().is_empty())?;
        Some((VARIABLE.to_owned(), file))
    }

    /// Reads the keys; `None` if no key is configured.
    pub(crate) fn read(&self) -> Result<Option<Keys>, Ending> {
        // An empty variable is treated as unset, because shells and compose files unset variables
        // that way.
        let file = self.log_key_file.as_ref().filter(|path| !path.as_os_str().is_empty());
        let text = worker::own_variable(VARIABLE)
            .or_else(|| std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned()));
        let text = text.filter(|text| !text.trim().is_empty());
        let usage = |message: String| {
            output::error(&message);
            Err(Ending::Unreadable)
        };
        let (name, text) = match (file, text) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                let hint = "store the keys in the file, and unset TRELLIS_LOG_KEY";
                return usage(format!(
                    "the keys of the logs are in a file and in a variable\n\nhint: {hint}"
                ));
            }
            (None, Some(text)) => (VARIABLE.to_owned(), text),
            (Some(path), None) => match std::fs::read_to_string(path) {
                Ok(text) => (path.display().to_string(), text),
                Err(error) => {
                    return usage(format!(
                        "the keys of the logs can't be read from {}: {error}",
                        path.display()
                    ));
                }
            },
        };
        Keys::parse(&text).map(Some).or_else(|error| usage(format!("{name} has no usable keys: {error}")))
    }
}
