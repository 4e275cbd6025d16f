//! Removes the keys and passwords of a process from its environment, which the kernel shows in
//! `/proc` for as long as the process lives. The process replaces itself by the same program
//! without them, and hands them over in a file that is only in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fs::{self, File},
    io::{self, Write as _},
    os::{fd::AsRawFd as _, unix::process::CommandExt as _},
    process::Command,
    sync::OnceLock,
};

use nix::{
    sys::memfd::{MFdFlags, memfd_create},
    unistd::close,
};

use super::address::{ADDRESSES, PASSWORDS, passwords};
use crate::settings::Settings;

/// The variable that names the descriptor of the file.
const VARIABLE: &str = "TRELLIS_KEYS_FD";

/// The values that were handed over. Set once, before there is a second thread.
static HANDED: OnceLock<BTreeMap<String, String>> = OnceLock::new();

/// Takes the values that were handed over to this process, if there are any. Must be called first:
/// the file is found in `/proc`, which a protected process can't read about itself.
pub fn take_keys() -> io::Result<()> {
    let Some(descriptor) = variable(VARIABLE).and_then(|text| text.parse::<i32>().ok()) else {
        return Ok(());
    };
    let keys = fs::read(format!("/proc/self/fd/{descriptor}"))?;
    close(descriptor)?;
    let _ = HANDED.set(serde_json::from_slice(&keys)?);
    Ok(())
}

/// Replaces this process by itself, without the secrets in its environment: the keys that the
/// settings name, passwords and keys of connections, and addresses with a login. Later code gets a
/// secret from [`variable`]. Returns if there are no secrets, or with an error if the replacement
/// fails. Then they stay in the environment, which only root can read.
pub fn hide_keys(settings: &Settings) -> io::Result<()> {
    let names: BTreeSet<&str> = settings.secret_variables().into_iter().chain(PASSWORDS).collect();
    let found = names.into_iter().filter_map(|name| Some((name, variable(name)?)));
    let addresses = ADDRESSES.into_iter().filter_map(|name| Some((name, variable(name)?)));
    let addresses = addresses.filter(|(_, address)| !passwords(address).is_empty());
    let found: BTreeMap<&str, String> = found.chain(addresses).collect();
    if found.is_empty() || HANDED.get().is_some() {
        return Ok(());
    }
    match replace(&found) {
        Err(error) => Err(error),
        Ok(never) => match never {},
    }
}

fn replace(keys: &BTreeMap<&str, String>) -> io::Result<Infallible> {
    // Without `MFD_CLOEXEC`, so that the next program inherits it.
    let mut file = File::from(memfd_create(c"trellis-keys", MFdFlags::empty())?);
    file.write_all(&serde_json::to_vec(keys)?)?;
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(name).args(arguments).env(VARIABLE, file.as_raw_fd().to_string());
    for name in keys.keys() {
        command.env_remove(name);
    }
    Err(command.exec())
}

/// A variable that was handed over, or else of the environment. An empty variable is treated as
/// unset.
#[expect(
    clippy::disallowed_methods,
    reason = "the settings name the variable, so that no file holds its value"
)]
pub fn variable(name: &str) -> Option<String> {
    let handed = HANDED.get().and_then(|keys| keys.get(name).cloned());
    handed.or_else(|| std::env::var(name).ok()).filter(|value| !value.is_empty())
}
