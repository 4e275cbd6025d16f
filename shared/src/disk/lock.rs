//! The lock of a directory: a file that the process which has it open keeps locked, with its number for whoever comes second.
//! The lock ends with the process, however that ends.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    path::Path,
};

use super::Error;

const NAME: &str = "lock";

#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    pub(super) fn take(directory: &Path) -> Result<Lock, Error> {
        let failed = |error: io::Error| Error::open(directory, &error);
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let mut file = options.open(directory.join(NAME)).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).map_err(failed)?;
                let directory = directory.display().to_string();
                return Err(Error::InUse { directory, pid: pid.trim().to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // For people: a full disk is no reason not to open what is there.
        let told = format!("{}\n", std::process::id());
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(told.as_bytes())).ok();
        Ok(Lock { _file: file })
    }
}
