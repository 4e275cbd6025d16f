//! A directory in which one process keeps all it has: one database file, one lock, one thread that writes. What is
//! acknowledged is on the disk, whatever becomes of the process afterwards. It keeps rows of bytes and knows no meaning of
//! them; only this module knows the database. Why this one: docs/decisions/008-disk.md.

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

/// Changes that may wait for the writer before whoever has more must wait too: many turns of all loops of a process.
const MAX_WAITING: usize = 8192;

/// A handle to an open directory; clones are the same. The last one that is dropped closes it, when everything that was
/// handed in is written.
#[derive(Clone)]
pub struct Disk(Arc<Opened>);

struct Opened {
    database: Arc<Database>,
    /// None once it is being closed.
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    writer: Option<JoinHandle<()>>,
}

/// A change that was handed in.
#[derive(Debug)]
pub struct Waiting<T>(oneshot::Receiver<Result<T, Error>>);

impl<T> Waiting<T> {
    /// Waits until it is on the disk, or refused.
    pub async fn done(self) -> Result<T, Error> {
        self.0.await.unwrap_or(Err(Error::Stopped))
    }
}

impl Disk {
    /// Opens a directory, and makes it if it is not there. Nobody else can open it meanwhile.
    pub fn open(directory: &Path) -> Result<Disk, Error> {
        // The process may change to another directory, and this one is opened again after an error.
        let directory = &path::absolute(directory).map_err(|error| Error::open(directory, &error))?;
        let failed = |error: std::io::Error| Error::open(directory, &error);
        // What runs write is there: others may not read it.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let lock = Lock::take(directory)?;
        let database = Arc::new(Database::open(directory, lock)?);
        // A file that was just made is there after a loss of power only if its directory says so.
        File::open(directory).and_then(|holder| holder.sync_all()).map_err(failed)?;
        // Not everybody may open what it is in.
        directory.parent().map(|holder| File::open(holder).and_then(|holder| holder.sync_all()).ok());
        let (jobs, waiting) = mpsc::channel(MAX_WAITING);
        let written = database.clone();
        let writer = thread::Builder::new().name("disk".into());
        let writer = writer.spawn(move || writer::run(&written, waiting)).map_err(failed)?;
        Ok(Disk(Arc::new(Opened { database, jobs: Some(jobs), writer: Some(writer) })))
    }

    /// Looks at what is committed, all of it as it was at one moment. Short, and without another read within.
    pub fn read<T>(&self, look: impl FnOnce(&View) -> Result<T, Error>) -> Result<T, Error> {
        self.0.database.read(look)
    }

    /// Changes rows and waits until that is on the disk: all of it, or after an error nothing. Changes that wait at the same
    /// time are committed together.
    pub async fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Change<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.submit(change, |_| ()).await.done().await
    }

    /// Hands a change in: changes happen in the order in which they are handed in. `then` is told before whoever waits, on the
    /// writer's thread.
    pub async fn submit<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Change<'_>) -> Result<T, Error> + Send + 'static,
        then: impl FnOnce(&Result<T, Error>) + Send + 'static,
    ) -> Waiting<T> {
        let (answer, waiting) = oneshot::channel();
        let answered = move |result: Result<T, Error>| {
            then(&result);
            // Whoever asked may have gone.
            answer.send(result).ok();
        };
        if let Some(jobs) = &self.0.jobs {
            // A writer that has ended drops the job, and with it the answer: that is told by `done`.
            jobs.send(Box::new(Work::new(change, answered))).await.ok();
        }
        Waiting(waiting)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let writer = self.writer.take();
        // The writer itself may be the last that had a handle.
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
