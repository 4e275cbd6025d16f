//! The cluster of this user on this machine, which commands use if no server is named. It is a
//! directory, and the process that has the directory open. That process writes its address and a
//! token into the file `server`, and other commands send their requests there. The file is trusted
//! only if this user owns it and a process of this user listens at the address.

use std::{
    fs, io,
    io::Write,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use bus::{ClientBus, Http};
use clap::builder::{OsStringValueParser, TypedValueParser};
use domain::subject::Namespace;
use serde::{Deserialize, Serialize};

/// The default address of `trellis dev` and `trellis gateway`.
pub(crate) const DEFAULT_ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7420));
/// The variable that overrides the default address.
pub(crate) const LISTEN: &str = "TRELLIS_LISTEN";
/// The time in which a server on this machine must answer. A slower one is reported as hung.
const ANSWERS: Duration = Duration::from_secs(2);
/// The file in a directory with the address of the process that has it open, and the file's maximum
/// size.
const SERVER: &str = "server";
const MAX_BYTES: u64 = 4096;
/// The file with the token of the directory's owner.
pub(crate) const TOKEN: &str = "token";

/// The address of the process that has a directory open. Only the directory's owner can read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Door {
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    /// True if the process accepts submissions of other commands: `dev` does, `run` ends with its
    /// own run.
    pub(crate) is_open: bool,
}

impl Door {
    /// Writes the file whole or not at all.
    pub(crate) fn put(&self, directory: &Path) -> io::Result<()> {
        write(&directory.join(SERVER), &serde_json::to_vec(self)?)
    }

    pub(crate) fn remove(directory: &Path) {
        // A file that stays behind names a server that does not answer.
        fs::remove_file(directory.join(SERVER)).ok();
    }

    /// The door of a directory, if a process of this user listens at its address. A killed process
    /// leaves its file behind, and any user may then listen at the address: without the check, the
    /// token would go to that user.
    pub(crate) async fn of(
        directory: &Path,
        namespace: &Namespace,
    ) -> anyhow::Result<Option<(Door, ClientBus)>> {
        let Some(door) = Door::read_of(directory) else { return Ok(None) };
        let Some(address) = door.url.strip_prefix("http://").and_then(|address| address.parse().ok()) else {
            return Ok(None);
        };
        if !is_own(address) {
            return Ok(None);
        }
        let bus = ClientBus::Http(Http::new(&door.url, door.token.as_deref(), namespace.clone())?);
        let asked = tokio::time::timeout(ANSWERS, bus.ping()).await;
        match asked {
            Ok(Ok(_)) => Ok(Some((door, bus))),
            // The process may have ended after the first check.
            Ok(Err(_)) | Err(_) if !is_own(address) => Ok(None),
            Ok(Err(error)) => anyhow::bail!("{error}\n\nhint: that process has {} open", directory.display()),
            Err(_) => anyhow::bail!(
                "the Trellis server at {address} does not answer\n\nhint: that process has {} open; end it if it hangs",
                directory.display()
            ),
        }
    }

    /// Reads the file of a directory, if only its owner could have written it.
    pub(crate) fn read_of(directory: &Path) -> Option<Door> {
        let path = directory.join(SERVER);
        let about = fs::symlink_metadata(&path).ok()?;
        let is_plain = about.is_file() && about.len() <= MAX_BYTES && about.mode() & 0o077 == 0;
        if !is_plain || about.uid() != own_user()? {
            return None;
        }
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }
}

/// The token of a directory's owner, created on first use. Every process that serves the directory
/// uses the same token.
pub(crate) fn token_of(directory: &Path) -> io::Result<String> {
    let path = directory.join(TOKEN);
    match fs::read_to_string(&path) {
        Ok(token) if !token.trim().is_empty() => return Ok(token.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let token = gateway::token::fresh();
    write(&path, format!("{token}\n").as_bytes())?;
    Ok(token)
}

/// Writes a file that only its owner can read, whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    // A process that was killed between the write and the rename leaves this file.
    fs::remove_file(&beside).ok();
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(beside, path)
}

fn own_user() -> Option<u32> {
    Some(fs::metadata("/proc/self").ok()?.uid())
}

/// True if a process of this user, or of root, listens on an address of this machine. The check
/// prevents sending the token to another user's server.
fn is_own(address: SocketAddr) -> bool {
    let listens = || listener(&fs::read_to_string("/proc/net/tcp").ok()?, address);
    address.ip().is_loopback() && listens().is_some_and(|user| Some(user) == own_user() || user == 0)
}

/// The user id of the process that listens on an address, from the kernel's table of sockets.
fn listener(table: &str, address: SocketAddr) -> Option<u32> {
    const LISTENS: &str = "0A";
    let SocketAddr::V4(address) = address else { return None };
    let host = u32::from_ne_bytes(address.ip().octets());
    let wanted = [format!("{host:08X}:{:04X}", address.port()), format!("{:08X}:{:04X}", 0, address.port())];
    table.lines().find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let listens = wanted.iter().any(|wanted| columns.get(1) == Some(&wanted.as_str()));
        (listens && columns.get(3) == Some(&LISTENS)).then(|| columns.get(7)?.parse().ok())?
    })
}

/// The directory of this user's runs, if no other is named.
pub(crate) fn default_directory() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")))?;
    Some(data.join("trellis"))
}

/// The parser for a file or directory. Unlike clap's own parser it accepts an empty text, which
/// means no file: shells and compose files unset variables that way.
pub(crate) fn file() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}
