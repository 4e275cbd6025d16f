//! A directory that holds all data of one process: one database file, one lock, one writer thread.
//!
//! An acknowledged change is on disk and survives every end of the process. The directory stores
//! rows of bytes and does not interpret them. Only this crate knows the database;
//! docs/decisions/008-disk.md explains its choice.

mod database;
mod error;
mod job;
mod key;
mod lock;
mod rows;
mod writer;

use std::{
    fmt,
    fs::{self, File},
    os::unix::fs::DirBuilderExt,
    path::{self, Path},
    sync::Arc,
    thread::{self, JoinHandle},
};

use tokio::sync::{mpsc, oneshot};

use database::Database;
pub use error::Error;
use job::{Job, Work};
pub use key::{Key, Kind, Reader};
use lock::Lock;
pub use rows::{Change, Row, Rows, View};

/// The most changes that may wait for the writer. A caller with more waits until there is room. The
/// number covers many turns of all loops of a process.
const MAX_WAITING: usize = 8192;

/// A handle to an open directory. Clones share it. Dropping the last one closes the directory after
/// all submitted changes are written.
#[derive(Clone)]
pub struct Disk(Arc<Opened>);

struct Opened {
    database: Arc<Database>,
    /// None once the directory is being closed.
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    writer: Option<JoinHandle<()>>,
}

/// A submitted change.
#[derive(Debug)]
pub struct Waiting<T>(oneshot::Receiver<Result<T, Error>>);

impl<T> Waiting<T> {
    /// Waits until the change is on disk, or has failed.
    pub async fn done(self) -> Result<T, Error> {
        self.0.await.unwrap_or(Err(Error::Stopped))
    }
}

impl Disk {
    /// Opens a directory, and creates it if it is missing. No other process can open it at the same
    /// time.
    pub fn open(directory: &Path) -> Result<Disk, Error> {
        // Absolute, because the process may change its working directory, and the file is opened
        // again after an error.
        let directory = &path::absolute(directory).map_err(|error| Error::open(directory, &error))?;
        let failed = |error: std::io::Error| Error::open(directory, &error);
        // The directory holds the data of runs, so other users may not read it.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let lock = Lock::take(directory)?;
        let database = Arc::new(Database::open(directory, lock)?);
        // A new file survives a loss of power only if its directory is synced.
        File::open(directory).and_then(|holder| holder.sync_all()).map_err(failed)?;
        // Best effort: this process may lack the right to open the parent directory.
        directory.parent().map(|holder| File::open(holder).and_then(|holder| holder.sync_all()).ok());
        let (jobs, waiting) = mpsc::channel(MAX_WAITING);
        let written = database.clone();
        let writer = thread::Builder::new().name("disk".into());
        let writer = writer.spawn(move || writer::run(&written, waiting)).map_err(failed)?;
        Ok(Disk(Arc::new(Opened { database, jobs: Some(jobs), writer: Some(writer) })))
    }

    /// Reads the committed rows as of one moment. `look` must be short and must not start another
    /// read.
    pub fn read<T>(&self, look: impl FnOnce(&View) -> Result<T, Error>) -> Result<T, Error> {
        self.0.database.read(look)
    }

    /// Changes rows and waits until the change is on disk: all of it or, after an error, nothing.
    /// Changes that wait at the same time are committed together.
    pub async fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Change<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.submit(change, |_| ()).await.done().await
    }

    /// Submits a change. Changes are applied in the order of submission. `then` is called on the
    /// writer's thread, before the waiting caller gets the result.
    pub async fn submit<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Change<'_>) -> Result<T, Error> + Send + 'static,
        then: impl FnOnce(&Result<T, Error>) + Send + 'static,
    ) -> Waiting<T> {
        let (answer, waiting) = oneshot::channel();
        let answered = move |result: Result<T, Error>| {
            then(&result);
            // The caller may have stopped waiting.
            answer.send(result).ok();
        };
        if let Some(jobs) = &self.0.jobs {
            // A writer that has ended drops the job and its answer, and then `done` returns an
            // error.
            jobs.send(Box::new(Work::new(change, answered))).await.ok();
        }
        Waiting(waiting)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let writer = self.writer.take();
        // The writer's thread itself may drop the last handle.
        if let Some(writer) = writer.filter(|writer| writer.thread().id() != thread::current().id()) {
            writer.join().ok();
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("directory", &self.0.database.directory()).finish_non_exhaustive()
    }
}
