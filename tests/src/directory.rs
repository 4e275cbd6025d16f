//! A directory for a bus and a store, removed after the test.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use bus::Bus;
use coordinator::store::{self, Store};
use disk::Disk;

#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// A path that does not exist yet.
    pub fn fresh() -> Directory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trellis-kept-{}-{number}", std::process::id()));
        // An earlier process may have had the same id.
        fs::remove_dir_all(&path).ok();
        Directory(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn open(&self) -> Disk {
        Disk::open(&self.0).expect("no other process has the directory open")
    }

    /// Opens a bus and a store in the directory. Data from before is still there.
    pub async fn both(&self, partitions: u16) -> (Bus, Store) {
        let disk = self.open();
        let bus =
            bus::Disk::open(&disk, Default::default()).await.expect("the directory has the same namespace");
        (Bus::Disk(bus), Store::Disk(store::Disk::new(disk, partitions)))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}
