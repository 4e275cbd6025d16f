//! The lock of a directory: a file that the process which has it open keeps locked. The lock ends with the process, however that
//! ends. What the file says afterwards tells how it ended. Another file has the number of the process, for whoever comes second.

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
/// Another one after each start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    /// What it said before.
    before: String,
    /// What is in the directory was found to be whole, and is in use.
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
        // A full disk is no reason not to open what is there.
        fs::write(directory.join(PROCESS), format!("{}\n", std::process::id())).ok();
        Ok(Lock { file, before, is_open: false })
    }

    /// What is there is whole, and may be changed from here on. Until then the file says what it said before: whoever comes after an
    /// opening that failed or was cut off checks it again.
    pub(super) fn opened(&mut self) {
        self.is_open = true;
        self.say(&format!("{} {}\n", std::process::id(), boot_id()));
    }

    /// Whether the disk has all that the last process wrote: that one closed the directory, or the machine still runs on which it
    /// was killed. A machine that lost its power may have lost what its disk had promised to keep.
    pub(super) fn was_left_whole(&self) -> bool {
        let boot = boot_id();
        self.before == CLOSED || (!boot.is_empty() && self.before.split_whitespace().nth(1) == Some(&boot))
    }

    /// A full disk is no reason not to open what is there: then it says nothing.
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
        // Closing the file is not enough: a program that another thread is just starting has it open too, until it runs.
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

    /// As in a process that was forked and has not become another program yet.
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
