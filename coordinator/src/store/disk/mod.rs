//! The store of the embedded mode in a directory: acknowledged writes survive the end of the
//! process, even a crash. It behaves as the store in memory does. Lists are rows sorted by time, so
//! that opening the directory reads no list.

mod deployment;
mod find;
mod index;
mod list;
mod rows;
mod traces;

use disk::{Change, View};
use domain::subject::Partition;
use host::{clock::Clock, random::Random};

use super::{Error, memory::Memory};

/// Made once for a directory; all clones share it.
#[derive(Debug, Clone)]
pub struct Disk {
    partitions: u16,
    directory: disk::Disk,
    /// The clock, and the heartbeats: all coordinators are in this process.
    within: Memory,
    /// Identifies this process.
    run: String,
}

impl Disk {
    pub fn new(directory: disk::Disk, partitions: u16) -> Disk {
        let within = Memory::with_clock(partitions, Clock::Machine);
        Disk { partitions, directory, within, run: Random::System.id().to_string() }
    }

    fn homes(&self) -> impl Iterator<Item = Partition> {
        Partition::all(self.partitions)
    }

    fn read<T>(
        &self,
        doing: &'static str,
        look: impl FnOnce(&View) -> Result<T, disk::Error>,
    ) -> Result<T, Error> {
        self.directory.read(look).map_err(|error| unavailable(doing, error))
    }

    async fn write<T: Send + 'static>(
        &self,
        doing: &'static str,
        change: impl FnOnce(&mut Change<'_>) -> Result<T, disk::Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.directory.write(change).await.map_err(|error| unavailable(doing, error))
    }
}

fn unavailable(doing: &'static str, error: disk::Error) -> Error {
    Error::Unavailable { doing, source: Box::new(error) }
}
