//! A directory that a bus or a store is kept in, removed with the test.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use coordinator::store::{self, Store};
use shared::{
    bus::{self, Bus},
    disk::Disk,
};

use super::{store::PARTITIONS, topology};

pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new() -> Directory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trellis-kept-{}-{number}", std::process::id()));
        // An earlier process may have had the same id.
        std::fs::remove_dir_all(&path).ok();
        Directory(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn open(&self) -> Disk {
        Disk::open(&self.0).unwrap()
    }

    pub(super) async fn bus(&self) -> Bus {
        bus_of(&self.open()).await
    }

    pub(super) async fn store(&self) -> Store {
        store_of(&self.open())
    }
}

pub(super) async fn bus_of(disk: &Disk) -> Bus {
    let bus = Bus::Disk(bus::Disk::open(disk, Default::default()).await.unwrap());
    bus.set_up(&topology()).await.unwrap();
    bus
}

pub(super) fn store_of(disk: &Disk) -> Store {
    Store::Disk(store::Disk::new(disk.clone(), PARTITIONS))
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}
