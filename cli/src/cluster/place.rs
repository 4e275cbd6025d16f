//! Where there may be a cluster that nobody named: a directory of this user, the process that has it open, and a server at the default
//! address.

use std::{
    fs, io,
    io::Write,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use shared::{
    bus::{Bus, Http},
    subject::Namespace,
};

/// Where `trellis dev` listens, if it is told nothing else.
pub(crate) const DEFAULT_ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7420));
/// The variable that says it otherwise.
pub(crate) const LISTEN: &str = "TRELLIS_LISTEN";
/// How long a server on this machine may take to answer before it counts as gone.
const ANSWERS: Duration = Duration::from_secs(2);
/// The file of a directory that says how to reach the process that has it open.
const SERVER: &str = "server";

/// How to reach the process that has a directory open. Only the directory's owner can read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Door {
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    /// Whether the process takes what others submit: `dev` does; `run` ends with its own run.
    pub(crate) is_open: bool,
}

impl Door {
    /// Writes it whole or not at all.
    pub(crate) fn put(&self, directory: &Path) -> io::Result<()> {
        let beside = directory.join(format!("{SERVER}.new"));
        // One that a process left which was killed just then.
        fs::remove_file(&beside).ok();
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        fs::rename(beside, directory.join(SERVER))
    }

    pub(crate) fn remove(directory: &Path) {
        // One that is left names a server that does not answer.
        fs::remove_file(directory.join(SERVER)).ok();
    }

    /// That of a directory, if somebody answers there.
    pub(crate) async fn of(directory: &Path, namespace: &Namespace) -> Option<(Door, Bus)> {
        let door: Door = serde_json::from_slice(&fs::read(directory.join(SERVER)).ok()?).ok()?;
        let bus = answering(&door.url, door.token.as_deref(), namespace).await?;
        Some((door, bus))
    }
}

/// Where a server of this user is looked for: where its `dev` would listen. At any free port nobody is found.
pub(crate) fn usual_address() -> Option<SocketAddr> {
    let told = std::env::var_os(LISTEN).filter(|told| !told.is_empty());
    let address = match told {
        Some(told) => told.to_str()?.parse().ok()?,
        None => DEFAULT_ADDRESS,
    };
    Some(address).filter(|address| address.port() != 0)
}

/// The server at the usual address, if it is this user's. Anybody on the machine could listen there.
pub(crate) async fn at_usual_address(namespace: &Namespace) -> Option<Bus> {
    let own = fs::metadata("/proc/self").ok()?.uid();
    let address = usual_address()?;
    let listener = listener(&fs::read_to_string("/proc/net/tcp").ok()?, address)?;
    if listener != own && listener != 0 {
        return None;
    }
    answering(&format!("http://{address}"), None, namespace).await
}

async fn answering(url: &str, token: Option<&str>, namespace: &Namespace) -> Option<Bus> {
    let bus = Bus::Http(Http::new(url, token, namespace.clone()).ok()?);
    tokio::time::timeout(ANSWERS, bus.ping()).await.ok()?.ok()?;
    Some(bus)
}

/// The user who listens on an address, by the kernel's table of sockets.
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

/// The directory in which this user's runs are kept if no other is named.
pub(crate) fn default_directory() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")))?;
    Some(data.join("trellis"))
}
