//! A directory that a bus and a store are kept in, removed with the test.

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
    /// It is not there yet.
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
        Disk::open(&self.0).expect("nobody else has it open")
    }

    /// A bus and a store in it. What was there before is there.
    pub async fn both(&self, partitions: u16) -> (Bus, Store) {
        let disk = self.open();
        let bus = bus::Disk::open(&disk, Default::default()).await.expect("its namespace is the same");
        (Bus::Disk(bus), Store::Disk(store::Disk::new(disk, partitions)))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}
