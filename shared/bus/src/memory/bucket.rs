//! Writes, reads and lists objects, and measures how full the storage is.

use bytes::Bytes;

use super::state::Memory;
use crate::{
    error::Error,
    fill::{Backlog, Fill, Storage},
    topology::Consumer,
};

impl Memory {
    pub(in super::super) async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        let name = name.to_owned();
        let put = move |memory: &Memory| {
            let mut state = memory.state();
            let max_bytes = state.topology.max_bytes_in(Storage::Objects);
            state.objects.put(&name, bytes.clone(), max_bytes)
        };
        self.ask("store an object", put).await?
    }

    pub(in super::super) async fn get_object(&self, name: &str) -> Result<Option<Bytes>, Error> {
        let name = name.to_owned();
        self.ask("read an object", move |memory| memory.state().objects.by_name.get(&name).cloned()).await
    }

    pub(in super::super) async fn delete_object(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.ask("delete an object", move |memory| memory.state().objects.remove(&name)).await
    }

    pub(in super::super) async fn objects(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let prefix = prefix.to_owned();
        let list = move |memory: &Memory| {
            let state = memory.state();
            let names = state.objects.by_name.range(prefix.clone()..).map(|(name, _)| name);
            names.take_while(|name| name.starts_with(&prefix)).cloned().collect()
        };
        self.ask("list objects", list).await
    }

    pub(in super::super) async fn fill(&self) -> Result<Vec<Fill>, Error> {
        let measure = |memory: &Memory| {
            let state = memory.state();
            let fill = |storage: Storage| {
                let (bytes, (first, last), max_bytes) = match storage {
                    Storage::Stream(stream) => {
                        let log = state.logs.get(&stream).expect("every stream exists from the start");
                        (log.bytes(), log.places(), state.topology.max_bytes(stream))
                    }
                    Storage::Objects => (state.objects.bytes, (0, 0), state.topology.max_bytes_in(storage)),
                    // These buckets are unused here: every payload fits into a message.
                    Storage::Core | Storage::Answers => (0, (0, 0), state.topology.max_bytes_in(storage)),
                };
                let max_bytes = u64::try_from(max_bytes).ok().filter(|max| *max > 0);
                Fill { storage, bytes: bytes as u64, first, last, max_bytes }
            };
            Storage::all().map(fill).collect()
        };
        self.ask("measure the storage", measure).await
    }

    pub(in super::super) async fn unacknowledged(&self, consumer: &Consumer) -> Result<usize, Error> {
        let name = consumer.name();
        let count = move |memory: &Memory| memory.state().queues.get(&name).map_or(0, |queue| queue.out());
        self.ask("count deliveries", count).await
    }

    pub(in super::super) async fn backlog(&self, consumer: &Consumer) -> Result<Backlog, Error> {
        let (name, stream) = (consumer.name(), consumer.stream());
        let count = move |memory: &Memory| {
            let state = memory.state();
            let log = state.logs.get(&stream).expect("every stream exists from the start");
            let Some(queue) = state.queues.get(&name) else { return Backlog::default() };
            let Ok(backlog) = queue.backlog(log);
            backlog
        };
        self.ask("count deliveries", count).await
    }
}
