//! The state of a bus in a directory: the part in the directory, and the part in this process only.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use disk::{Change, Key, Kind, Reader, Rows};
use domain::subject::Namespace;
use host::random::Random;

use super::rows::Log;
use crate::{
    error::{Error, PublishError},
    keys::Keys,
    memory::Memory,
    topology::Stream,
};

/// A bus within this process whose messages outlive the process. Clones share the same bus.
#[derive(Debug, Clone)]
pub struct Disk {
    /// The listeners, the unacknowledged deliveries, the limits and the clock.
    pub(crate) within: Memory,
    pub(super) directory: disk::Disk,
    /// Identifies the logs of this directory.
    pub(super) log: u64,
    pub(super) left: LeftoverMessages,
}

/// Handled messages that are still stored, because the disk rejected their removal. They are
/// removed with the next one.
#[derive(Debug, Clone, Default)]
pub(super) struct LeftoverMessages(Arc<Mutex<BTreeMap<Stream, BTreeSet<u64>>>>);

impl LeftoverMessages {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Stream, BTreeSet<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self, stream: Stream) -> BTreeSet<u64> {
        self.all().remove(&stream).unwrap_or_default()
    }

    pub(super) fn put(&self, stream: Stream, sequences: BTreeSet<u64>) {
        self.all().entry(stream).or_default().extend(sequences);
    }
}

impl Disk {
    /// Opens the bus of a directory. The first open of a directory fixes its namespace.
    pub async fn open(directory: &disk::Disk, namespace: Namespace) -> Result<Disk, Error> {
        let within = Memory::new(namespace);
        // The time of creation, with random digits that distinguish directories created at the same
        // moment.
        let random = u64::try_from(Random::System.bits() % 1000).unwrap_or(0);
        let made = within.now().millis() * 1000 + random;
        let name = within.namespace().to_string();
        // Only the first open writes, so an existing bus can be opened on a full disk.
        let known = directory.read(identity);
        let opened = match known.map_err(|error| failed("open the bus", &error))? {
            Some(known) => Ok(known),
            None => directory.write(move |rows| identify(rows, made, name)).await,
        };
        let (log, found) = opened.map_err(|error| failed("open the bus", &error))?;
        let asked = within.namespace().to_string();
        if found != asked {
            let reason = format!("it belongs to the namespace `{found}`, and `{asked}` is asked for");
            return Err(Error::Failed { doing: "open the bus".into(), reason });
        }
        Ok(Disk { within, directory: directory.clone(), log, left: LeftoverMessages::default() })
    }

    pub fn namespace(&self) -> &Namespace {
        self.within.namespace()
    }

    pub(crate) fn with_keys(self, keys: Keys) -> Self {
        Disk { within: self.within.with_keys(keys), ..self }
    }

    pub(super) fn rows_of(&self, stream: Stream) -> Log {
        Log::new(stream, self.within.namespace())
    }
}

/// The version of the form of all rows. A change of a row's form raises it. All forms since 2 stay
/// readable.
const FORM: u64 = 2;

fn key() -> Key {
    Key::new(Kind::Identity).rest(b"bus")
}

/// The number that identifies the logs of a directory, and its namespace.
fn identity(rows: &impl Rows) -> Result<Option<(u64, String)>, disk::Error> {
    let Some(value) = rows.get(&key())? else { return Ok(None) };
    let mut reader = Reader::new(&value);
    let form = reader.number()?;
    if form != FORM {
        let (which, hint) = if form < FORM {
            ("an earlier", "keep runs in a new directory, with `--data`")
        } else {
            ("a later", "open it with that version")
        };
        let what = format!(
            "{which} version of Trellis wrote it (form {form}, and this one reads form {FORM})\n\nhint: {hint}"
        );
        return Err(disk::Error::Corrupt { what });
    }
    Ok(Some((reader.number()?, reader.text()?.to_owned())))
}

/// Writes the identity of a new directory; returns that of an existing one.
fn identify(rows: &mut Change<'_>, made: u64, name: String) -> Result<(u64, String), disk::Error> {
    if let Some(known) = identity(rows)? {
        return Ok(known);
    }
    rows.put(&key(), Key::value().number(FORM).number(made).text(&name).bytes())?;
    Ok((made, name))
}

pub(super) fn failed(doing: &'static str, error: &disk::Error) -> Error {
    Error::Failed { doing: doing.into(), reason: error.to_string() }
}

/// After `Failed` or `Stopped` the message may have been stored or not.
pub(super) fn unpublished(error: disk::Error) -> PublishError {
    match error {
        disk::Error::Full { .. } => PublishError::Full(error.to_string()),
        disk::Error::Failed { .. } | disk::Error::Stopped => PublishError::Unacknowledged,
        disk::Error::Corrupt { .. } | disk::Error::InUse { .. } | disk::Error::Open { .. } => {
            PublishError::Other(error.to_string())
        }
    }
}
