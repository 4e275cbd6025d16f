//! The lock of a directory: a file that the process which has it open keeps locked, with its number for whoever comes second.
//! The lock ends with the process, however that ends. What the file says afterwards tells how it ended.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    path::Path,
};

use super::Error;

const NAME: &str = "lock";
const CLOSED: &str = "closed\n";
/// Another one after each start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    /// What it said before.
    before: String,
}

impl Lock {
    pub(super) fn take(directory: &Path) -> Result<Lock, Error> {
        let failed = |error: io::Error| Error::open(directory, &error);
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let mut file = options.open(directory.join(NAME)).map_err(failed)?;
        let locked = file.try_lock();
        let mut before = String::new();
        file.read_to_string(&mut before).map_err(failed)?;
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = before.split_whitespace().next().unwrap_or("?").to_owned();
                return Err(Error::InUse { directory: directory.display().to_string(), pid });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut lock = Lock { file, before };
        lock.say(&format!("{} {}\n", std::process::id(), boot_id()));
        Ok(lock)
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
        self.say(CLOSED);
    }
}

fn boot_id() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}
