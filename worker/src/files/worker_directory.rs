//! Where the workspaces of one worker are: a directory of its own beneath the one it was told, locked for
//! as long as it works. What a worker left that was killed is removed by whichever starts next: its lock
//! went with it. Two workers never remove what is the other's, nor does a link lead them elsewhere.

use std::{
    fs::{File, TryLockError},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use shared::WorkerId;

use super::workspace::{private, remove};

/// What the directory of a worker ends in.
const ENDING: &str = "worker";
/// The file that says that a directory of that name was made by a worker, and is not an operator's.
const MARKER: &str = ".trellis-worker";

#[derive(Debug)]
pub(crate) struct WorkerDirectory {
    path: PathBuf,
    /// The lock on it.
    _held: File,
}

impl WorkerDirectory {
    /// `configured` may be shared with other workers; if absent, one in the system's temporary directory
    /// is shared by all workers of this user.
    pub(crate) fn open(configured: Option<&Path>, worker_id: &WorkerId) -> io::Result<Self> {
        let shared = match configured {
            Some(shared) => {
                private().recursive(true).create(shared)?;
                std::path::absolute(shared)?
            }
            None => of_this_user()?,
        };
        sweep(&shared);
        let mut number = 1_u32;
        loop {
            // A second worker of one name, if there is one, is the next.
            let name = if number == 1 { worker_id.to_string() } else { format!("{worker_id}.{number}") };
            let path = shared.join(format!("{name}.{ENDING}"));
            match private().create(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => {}
            }
            match lock(&path)? {
                Lock::Ours(held) if is_a_workers(&path) || is_empty(&path)? => {
                    std::fs::write(path.join(MARKER), "")?;
                    empty(&path)?;
                    return Ok(WorkerDirectory { path, _held: held });
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

/// A directory in the temporary one that nobody else could have made in our stead.
fn of_this_user() -> io::Result<PathBuf> {
    let user = nix::unistd::geteuid();
    let path = std::env::temp_dir().join(format!("trellis-{user}"));
    match private().create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let metadata = std::fs::symlink_metadata(&path)?;
    if !metadata.is_dir() || metadata.uid() != user.as_raw() || metadata.mode() & 0o022 != 0 {
        let said = format!("`{}` is not a private directory of this user", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, said));
    }
    Ok(path)
}

enum Lock {
    Ours(File),
    /// Its worker runs.
    Theirs,
    /// It was removed meanwhile.
    Gone,
}

fn lock(path: &Path) -> io::Result<Lock> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let held = match File::open(path) {
        Ok(held) => held,
        Err(error) if gone(&error) => return Ok(Lock::Gone),
        Err(error) => return Err(error),
    };
    match held.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Lock::Theirs),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Whoever removed it held the lock until then: this may be a lock on something that is gone.
    let (ours, there) = (held.metadata()?, std::fs::symlink_metadata(path));
    match there {
        Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => Ok(Lock::Ours(held)),
        Ok(_) => Ok(Lock::Gone),
        Err(error) if gone(&error) => Ok(Lock::Gone),
        Err(error) => Err(error),
    }
}

/// Removes what belongs to no worker that runs. Only what a worker has made: the directory may be an
/// operator's, with other things in it.
fn sweep(shared: &Path) {
    for entry in std::fs::read_dir(shared).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_directory || path.extension().is_none_or(|ending| ending != ENDING) {
            continue;
        }
        if let Ok(Lock::Ours(_held)) = lock(&path)
            && is_a_workers(&path)
        {
            match remove(&path) {
                Ok(()) => tracing::info!(path = %path.display(), "removed what a worker left"),
                Err(error) => tracing::warn!(%error, path = %path.display(), "what a worker left stays"),
            }
        }
    }
}

fn is_a_workers(path: &Path) -> bool {
    std::fs::symlink_metadata(path.join(MARKER)).is_ok_and(|marker| marker.is_file())
}

fn is_empty(path: &Path) -> io::Result<bool> {
    Ok(std::fs::read_dir(path)?.next().is_none())
}

/// All but the marker: killed half-way, it is still known as a worker's.
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
