//! The lock of a directory: a file that the owning process keeps locked.
//!
//! The lock ends with the process, in every case. The file's content then shows how the process
//! ended. A second file has the process id, for the error message of another process.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use super::Error;

const NAME: &str = "lock";
const PROCESS: &str = "process";
const CLOSED: &str = "closed\n";
/// The id of the machine's current boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    /// The content of the file before this process locked it.
    before: String,
    /// The directory was found whole and is in use.
    is_open: bool,
}

impl Lock {
    pub(super) fn take(directory: &Path) -> Result<Lock, Error> {
        let failed = |error: io::Error| Error::open(directory, &error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(directory.join(NAME)).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = fs::read_to_string(directory.join(PROCESS)).unwrap_or_default();
                let pid = pid.split_whitespace().next().unwrap_or("?").to_owned();
                return Err(Error::InUse { directory: directory.display().to_string(), pid });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut before = String::new();
        file.read_to_string(&mut before).map_err(failed)?;
        // A full disk must not prevent opening existing data.
        fs::write(directory.join(PROCESS), format!("{}\n", std::process::id())).ok();
        Ok(Lock { file, before, is_open: false })
    }

    /// Marks the directory as whole and in use. Until then the file has its previous content, so an
    /// open after a failed or interrupted one checks the directory again.
    pub(super) fn opened(&mut self) {
        self.is_open = true;
        self.say(&format!("{} {}\n", std::process::id(), boot_id()));
    }

    /// Returns true if the disk has everything that the last process wrote: that process closed the
    /// directory, or it was killed and the machine has not restarted since. A machine that lost
    /// power may have lost writes that its disk had acknowledged.
    pub(super) fn was_left_whole(&self) -> bool {
        let boot = boot_id();
        self.before == CLOSED || (!boot.is_empty() && self.before.split_whitespace().nth(1) == Some(&boot))
    }

    /// Best effort: a full disk must not prevent opening existing data, and then nothing is
    /// written.
    fn say(&mut self, what: &str) {
        let said = self.file.set_len(0).and_then(|()| self.file.rewind());
        said.and_then(|()| self.file.write_all(what.as_bytes())).and_then(|()| self.file.sync_data()).ok();
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.is_open {
            self.say(CLOSED);
        }
        // Closing the file is not enough: a child process that another thread is starting also has
        // it open until its `exec`.
        self.file.unlock().ok();
    }
}

fn boot_id() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Like a forked process before its `exec`.
    #[test]
    fn a_directory_that_was_closed_is_free_though_its_lock_file_is_open_somewhere() {
        let directory = std::env::temp_dir().join(format!("trellis-lock-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let lock = Lock::take(&directory).unwrap();
        let inherited = lock.file.try_clone().unwrap();
        assert!(matches!(Lock::take(&directory), Err(Error::InUse { .. })));
        drop(lock);
        let again = Lock::take(&directory).map(drop);
        drop(inherited);
        fs::remove_dir_all(&directory).unwrap();
        again.unwrap();
    }
}
