//! The database file: opens it, reads and writes it, and opens it again after an error.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock, RwLockReadGuard},
};

use redb::{ReadableDatabase, TableDefinition, TableError};

use super::{Change, Error, Lock, View};

const NAME: &str = "trellis.redb";
/// The name of a file that is being created.
const FRESH: &str = "trellis.redb.new";
/// All rows are in one table, which is opened once per transaction.
pub(super) const ROWS: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("rows");
/// The bytes of the file that the database caches: inner nodes and the pages that were written
/// last.
const CACHE_BYTES: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct Database {
    directory: PathBuf,
    /// None after a failure until the file is opened again. A database with an I/O error rejects
    /// every operation.
    opened: RwLock<Option<redb::Database>>,
    /// Held for as long as the database, which is closed first.
    _lock: Lock,
}

impl Database {
    pub(super) fn open(directory: &Path, mut lock: Lock) -> Result<Database, Error> {
        let is_whole = lock.was_left_whole();
        let open = || {
            make_file(directory)?;
            let mut database = open_file(directory)?;
            if !is_whole {
                // Reads the whole file. Damage that can't be repaired is an error. Damage that can
                // be repaired is not in our rows.
                database.check_integrity()?;
            }
            Ok(database)
        };
        // A damaged file can make the database panic.
        let opened = catch_unwind(open).unwrap_or_else(|_| Err(Error::corrupt("the file is damaged")));
        let database = opened.map_err(|error: Error| match error {
            Error::Corrupt { .. } | Error::Full { .. } => error,
            Error::InUse { .. } | Error::Open { .. } | Error::Failed { .. } | Error::Stopped => {
                Error::open(directory, &error)
            }
        })?;
        lock.opened();
        Ok(Database { directory: directory.to_owned(), opened: RwLock::new(Some(database)), _lock: lock })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    fn opened(&self) -> RwLockReadGuard<'_, Option<redb::Database>> {
        self.opened.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read<T>(&self, look: impl FnOnce(&View) -> Result<T, Error>) -> Result<T, Error> {
        if self.opened().is_none() {
            self.open_again()?;
        }
        let opened = self.opened();
        let database = opened.as_ref().ok_or_else(not_open)?;
        let reading = database.begin_read()?;
        look(&View(match reading.open_table(ROWS) {
            Ok(table) => Some(table),
            // No row was ever written.
            Err(TableError::TableDoesNotExist(_)) => None,
            Err(error) => return Err(error.into()),
        }))
    }

    /// Commits a change to the disk: all of it or, after an error, nothing. After an error the file
    /// is opened again, so that reads continue and the next change can succeed.
    pub(super) fn write(
        &self,
        change: impl FnOnce(&mut Change<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.opened().is_none() {
            self.open_again()?;
        }
        // Undetected damage can make the database panic.
        let written = catch_unwind(AssertUnwindSafe(|| self.try_write(change)));
        let written = written.unwrap_or_else(|_| Err(Error::corrupt("the file is damaged")));
        if written.is_err() {
            self.open_again().ok();
        }
        written
    }

    fn try_write(&self, change: impl FnOnce(&mut Change<'_>) -> Result<(), Error>) -> Result<(), Error> {
        let opened = self.opened();
        let mut writing = opened.as_ref().ok_or_else(not_open)?.begin_write()?;
        // Each commit stores which pages are free, so that after a crash the file is opened without
        // reading all of it. Each commit also consists of two writes with a sync each, so that a
        // torn commit is never mistaken for a whole one.
        writing.set_quick_repair(true);
        let mut rows = Change::new(writing.open_table(ROWS)?);
        let changed = change(&mut rows);
        let has_changed = rows.has_changed();
        drop(rows);
        match changed {
            Ok(()) if has_changed => Ok(writing.commit()?),
            // The change wrote nothing: everything that it read is committed already.
            Ok(()) => Ok(writing.abort()?),
            Err(error) => {
                // If the abort fails too, its writes are discarded all the same.
                writing.abort().ok();
                Err(error)
            }
        }
    }

    fn open_again(&self) -> Result<(), Error> {
        let mut opened = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may already have opened it. It is closed first, because the file can't be
        // open twice.
        *opened = None;
        *opened = Some(open_file(&self.directory)?);
        Ok(())
    }
}

fn not_open() -> Error {
    Error::Failed { reason: "the file could not be opened again".into() }
}

/// Creates the file if it is missing: whole, or not at all.
fn make_file(directory: &Path) -> Result<(), Error> {
    let (path, fresh) = (directory.join(NAME), directory.join(FRESH));
    if path.exists() {
        return Ok(());
    }
    let failed = |error: std::io::Error| Error::from(redb::Error::Io(error));
    // A file of an interrupted creation contains no data.
    if fresh.exists() {
        fs::remove_file(&fresh).map_err(failed)?;
    }
    drop(redb::Builder::new().create(&fresh)?);
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    fs::rename(&fresh, &path).map_err(failed)
}

fn open_file(directory: &Path) -> Result<redb::Database, Error> {
    Ok(redb::Builder::new().set_cache_size(CACHE_BYTES).create(directory.join(NAME))?)
}
