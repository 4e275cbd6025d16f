//! Writes, reads and lists objects, and measures how full the storage is.

use bytes::Bytes;
use disk::{Change, View};
use domain::time::millis;

use super::{
    look::Look,
    objects,
    state::{Disk, failed},
};
use crate::{
    error::Error,
    fill::{Backlog, Fill, Storage},
    topology::{Consumer, Topology},
};

impl Disk {
    pub(in super::super) async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        let limits = limits(&self.within.state().topology);
        let (at, own_name) = (self.within.now(), name.to_owned());
        let put = move |rows: &mut Change<'_>| objects::put(rows, &own_name, &bytes, at, limits);
        match self.directory.write(put).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let doing = format!("storing the object `{name}`");
                Err(Error::Failed { doing, reason: "maximum bytes exceeded".into() })
            }
            Err(error) => Err(failed("store an object", &error)),
        }
    }

    pub(in super::super) async fn get_object(&self, name: &str) -> Result<Option<Bytes>, Error> {
        self.looked("read an object", |rows| objects::get(rows, name))
    }

    pub(in super::super) async fn delete_object(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        let deleted = self.directory.write(move |rows| objects::remove(rows, &name)).await;
        deleted.map_err(|error| failed("delete an object", &error))
    }

    pub(in super::super) async fn objects(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.looked("list objects", |rows| objects::list(rows, prefix))
    }

    pub(in super::super) async fn fill(&self) -> Result<Vec<Fill>, Error> {
        let topology = self.within.state().topology.clone();
        let fill = |rows: &View, storage: Storage| {
            let (bytes, (first, last)) = match storage {
                Storage::Stream(stream) => {
                    let log = self.rows_of(stream);
                    let head = log.head(rows)?;
                    let first = Look::all(rows, &log).first()?.unwrap_or(head.last + 1);
                    (head.bytes, (first, head.last))
                }
                Storage::Objects => (objects::bytes(rows)?, (0, 0)),
                // These buckets are unused here: every payload fits into a message.
                Storage::Core | Storage::Answers => (0, (0, 0)),
            };
            let max_bytes = u64::try_from(topology.max_bytes_in(storage)).ok().filter(|max| *max > 0);
            Ok(Fill { storage, bytes, first, last, max_bytes })
        };
        self.looked("measure the storage", |rows| Storage::all().map(|storage| fill(rows, storage)).collect())
    }

    pub(in super::super) async fn backlog(&self, consumer: &Consumer) -> Result<Backlog, Error> {
        let log = self.rows_of(consumer.stream());
        let state = self.within.state();
        let Some(queue) = state.queues.get(&consumer.name()) else { return Ok(Backlog::default()) };
        self.looked("count deliveries", |rows| queue.backlog(&Look::all(rows, &log)))
    }

    /// Checks that the directory can be read.
    pub(in super::super) fn ping(&self) -> Result<(), Error> {
        self.looked("read the directory", |_| Ok(()))
    }

    fn looked<T>(
        &self,
        doing: &'static str,
        look: impl FnOnce(&View) -> Result<T, disk::Error>,
    ) -> Result<T, Error> {
        self.directory.read(look).map_err(|error| failed(doing, &error))
    }
}

pub(super) fn limits(topology: &Topology) -> objects::Limits {
    let max_bytes = u64::try_from(topology.max_bytes_in(Storage::Objects)).ok().filter(|max| *max > 0);
    let max_age_ms = millis(topology.max_object_age(Storage::Objects));
    objects::Limits { max_bytes: max_bytes.unwrap_or(u64::MAX), max_age_ms }
}
