//! The directory of one worker, which contains its workspaces. It is beneath the configured
//! directory, and locked while the worker runs. The lock of a killed worker is released with its
//! process, so the next worker that starts removes the directory. A worker never removes the
//! directory of a running worker, and never follows a link.

use std::{
    fs::{File, TryLockError},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use domain::WorkerId;

use super::workspace::{private, remove};

/// The extension of a worker's directory.
const EXTENSION: &str = "worker";
/// The file that marks a directory as made by a worker. An operator's directory with such a name is
/// not removed.
const MARKER: &str = ".trellis-worker";

#[derive(Debug)]
pub(crate) struct WorkerDirectory {
    path: PathBuf,
    /// The open file that holds the lock.
    _lock: File,
}

impl WorkerDirectory {
    /// Opens a fresh directory. `configured` may be shared with other workers. If absent, all
    /// workers of this user share a directory in the system's temporary directory.
    pub(crate) fn open(configured: Option<&Path>, worker_id: &WorkerId) -> io::Result<Self> {
        let shared = match configured {
            Some(shared) => {
                private().recursive(true).create(shared)?;
                std::path::absolute(shared)?
            }
            None => user_directory()?,
        };
        sweep(&shared);
        let mut number = 1_u32;
        loop {
            // A second worker with the same id uses the next number.
            let name = if number == 1 { worker_id.to_string() } else { format!("{worker_id}.{number}") };
            let path = shared.join(format!("{name}.{EXTENSION}"));
            match private().create(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => {}
            }
            match lock(&path)? {
                Lock::Ours(locked) if has_marker(&path) || is_empty(&path)? => {
                    std::fs::write(path.join(MARKER), "")?;
                    empty(&path)?;
                    return Ok(WorkerDirectory { path, _lock: locked });
                }
                Lock::Ours(_) | Lock::Theirs => number += 1,
                Lock::Gone => {}
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkerDirectory {
    fn drop(&mut self) {
        let _ = remove(&self.path);
    }
}

/// A directory in the temporary directory. It must belong to this user, since another user may have
/// created it first.
fn user_directory() -> io::Result<PathBuf> {
    let user = nix::unistd::geteuid();
    let path = std::env::temp_dir().join(format!("trellis-{user}"));
    match private().create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let metadata = std::fs::symlink_metadata(&path)?;
    if !metadata.is_dir() || metadata.uid() != user.as_raw() || metadata.mode() & 0o022 != 0 {
        let message = format!("`{}` is not a private directory of this user", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(path)
}

enum Lock {
    Ours(File),
    /// Another running worker holds the lock.
    Theirs,
    /// The directory was removed meanwhile.
    Gone,
}

fn lock(path: &Path) -> io::Result<Lock> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let locked = match File::open(path) {
        Ok(locked) => locked,
        Err(error) if gone(&error) => return Ok(Lock::Gone),
        Err(error) => return Err(error),
    };
    match locked.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Lock::Theirs),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // The directory may have been removed before its lock was released. Then this lock is on a
    // removed directory.
    let (ours, current) = (locked.metadata()?, std::fs::symlink_metadata(path));
    match current {
        Ok(current) if (current.dev(), current.ino()) == (ours.dev(), ours.ino()) => Ok(Lock::Ours(locked)),
        Ok(_) => Ok(Lock::Gone),
        Err(error) if gone(&error) => Ok(Lock::Gone),
        Err(error) => Err(error),
    }
}

/// Removes the directories of workers that no longer run. It removes only directories that a worker
/// made, since the shared directory may contain files of the operator.
fn sweep(shared: &Path) {
    for entry in std::fs::read_dir(shared).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_directory || path.extension().is_none_or(|extension| extension != EXTENSION) {
            continue;
        }
        if let Ok(Lock::Ours(_lock)) = lock(&path)
            && has_marker(&path)
        {
            match remove(&path) {
                Ok(()) => tracing::debug!(path = %path.display(), "removed the directory of a killed worker"),
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "the directory of a killed worker could not be removed")
                }
            }
        }
    }
}

fn has_marker(path: &Path) -> bool {
    std::fs::symlink_metadata(path.join(MARKER)).is_ok_and(|marker| marker.is_file())
}

fn is_empty(path: &Path) -> io::Result<bool> {
    Ok(std::fs::read_dir(path)?.next().is_none())
}

/// Removes everything but the marker. If this worker is killed meanwhile, the marker still shows
/// that the directory is a worker's.
fn empty(path: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name() == MARKER {
            continue;
        }
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
