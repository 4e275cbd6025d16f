//! Keeps the keys and passwords of a process out of its environment, which the kernel shows in `/proc` for as long as a process lives: the process
//! replaces itself by the same program without them, and hands them over in a file that is only in memory.

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

/// What was handed over. Written once, before there is a second thread.
static HANDED: OnceLock<BTreeMap<String, String>> = OnceLock::new();

/// Takes what the process was handed over, if it was. Call it first: the file is found in `/proc`, which a protected process can't
/// read about itself.
pub fn take_keys() -> io::Result<()> {
    let Some(descriptor) = variable(VARIABLE).and_then(|text| text.parse::<i32>().ok()) else {
        return Ok(());
    };
    let keys = fs::read(format!("/proc/self/fd/{descriptor}"))?;
    close(descriptor)?;
    let _ = HANDED.set(serde_json::from_slice(&keys)?);
    Ok(())
}

/// Replaces this process by itself, without what is secret in its environment: the keys that the settings name, passwords and keys of
/// connections, and addresses with a login. Whoever needs one asks [`variable`]. Returns if there are none, or if that can't be
/// done: then they stay where they are, which only root can read.
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
    // Without `MFD_CLOEXEC`: the next program inherits it.
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

/// A variable that was handed over, or else of the environment; an empty one counts as unset.
#[expect(
    clippy::disallowed_methods,
    reason = "the settings name the variable, so that no file holds its value"
)]
pub fn variable(name: &str) -> Option<String> {
    let handed = HANDED.get().and_then(|keys| keys.get(name).cloned());
    handed.or_else(|| std::env::var(name).ok()).filter(|value| !value.is_empty())
}
