//! How full the streams and buckets are, and how many deliveries of a queue wait, as the server
//! reports it.

use futures_util::future::try_join_all;

use super::{
    super::fill::{Backlog, Fill, Storage},
    Consumer, Error, Nats, failed,
    read::stream_info,
    timestamp,
};

impl Nats {
    pub(in super::super) async fn fill(&self) -> Result<Vec<Fill>, Error> {
        try_join_all(Storage::all().map(|storage| self.fill_of(storage))).await
    }

    async fn fill_of(&self, storage: Storage) -> Result<Fill, Error> {
        let name = match storage {
            Storage::Stream(stream) => self.stream(stream),
            Storage::Objects | Storage::Core | Storage::Answers => format!("OBJ_{}", self.bucket(storage)),
        };
        let info = stream_info(self, &name).await?;
        let max_bytes = u64::try_from(info.config.max_bytes).ok().filter(|max| *max > 0);
        let (first, last) = (info.state.first_sequence, info.state.last_sequence);
        Ok(Fill { storage, bytes: info.state.bytes, first, last, max_bytes })
    }

    pub(in super::super) async fn unacknowledged(&self, consumer: &Consumer) -> Result<usize, Error> {
        let name = consumer.name();
        let doing = || format!("reading the state of the consumer `{name}`");
        let found = self.find_consumer(consumer).await?;
        let found = found.ok_or_else(|| failed(doing(), &"it does not exist"))?;
        Ok(found.num_ack_pending)
    }

    pub(in super::super) async fn backlog(&self, consumer: &Consumer) -> Result<Backlog, Error> {
        let Some(found) = self.find_consumer(consumer).await? else { return Ok(Backlog::default()) };
        let (pending, unacknowledged) = (found.num_pending, found.num_ack_pending as u64);
        let mut oldest = None;
        if pending > 0 {
            let stream = self.stream(consumer.stream());
            let from = found.delivered.stream_sequence + 1;
            for filter in consumer.filters() {
                let first = self.batch_of(&stream, &self.namespace().filter(&filter), from, 1).await?;
                let at = first.first().map(|message| timestamp(message.time));
                oldest = oldest.into_iter().chain(at).min();
            }
        }
        Ok(Backlog { pending, unacknowledged, oldest })
    }
}
