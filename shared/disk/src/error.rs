//! The errors of the disk.

use std::{io, path::Path};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("`{directory}` is in use by process {pid}: one process at a time can open it")]
    InUse { directory: String, pid: String },
    #[error("could not open `{directory}`: {reason}")]
    Open { directory: String, reason: String },
    /// Nothing was changed. Stored data can still be read.
    #[error("there is no room left on the disk: {reason}")]
    Full { reason: String },
    /// After a failed write it is unknown whether the change is stored.
    #[error("the disk failed: {reason}")]
    Failed { reason: String },
    /// The stored data differs from the data that was written.
    #[error("the stored data can't be read: {what}")]
    Corrupt { what: String },
    #[error("the directory is closed")]
    Stopped,
}

impl Error {
    pub(super) fn open(directory: &Path, reason: &dyn std::fmt::Display) -> Error {
        Error::Open { directory: directory.display().to_string(), reason: reason.to_string() }
    }

    pub(super) fn corrupt(what: &str) -> Error {
        Error::Corrupt { what: what.to_owned() }
    }
}

impl From<redb::Error> for Error {
    fn from(error: redb::Error) -> Self {
        if let redb::Error::Corrupted(what) = error {
            return Error::Corrupt { what };
        }
        let reason = error.to_string();
        let is_full = matches!(&error, redb::Error::Io(cause) if is_full(cause));
        if is_full { Error::Full { reason } } else { Error::Failed { reason } }
    }
}

fn is_full(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
    kinds.contains(&error.kind())
}

/// Converts the errors of the database's parts by way of its own error.
macro_rules! from_parts {
    ($($part:ident),*) => {
        $(impl From<redb::$part> for Error {
            fn from(error: redb::$part) -> Self {
                Error::from(redb::Error::from(error))
            }
        })*
    };
}

from_parts!(StorageError, TableError, TransactionError, CommitError, DatabaseError);
