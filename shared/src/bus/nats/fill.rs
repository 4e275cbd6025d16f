//! How full the streams and the bucket are, and how much of a queue is delivered, as the server says.

use futures_util::future::try_join_all;

use super::{
    super::fill::{Fill, Storage},
    Consumer, Error, Nats, failed,
};

impl Nats {
    pub(in super::super) async fn fill(&self) -> Result<Vec<Fill>, Error> {
        try_join_all(Storage::all().map(|storage| self.fill_of(storage))).await
    }

    async fn fill_of(&self, storage: Storage) -> Result<Fill, Error> {
        let name = match storage {
            Storage::Stream(stream) => self.stream(stream),
            Storage::Objects => format!("OBJ_{}", self.bucket()),
        };
        let stream = self.0.api.get_stream(&name).await;
        let stream = stream.map_err(|error| failed(format!("measuring the stream `{name}`"), &error))?;
        let info = stream.cached_info();
        let max_bytes = u64::try_from(info.config.max_bytes).ok().filter(|max| *max > 0);
        let (first, last) = (info.state.first_sequence, info.state.last_sequence);
        Ok(Fill { storage, bytes: info.state.bytes, first, last, max_bytes })
    }

    pub(in super::super) async fn unacknowledged(&self, consumer: &Consumer) -> Result<usize, Error> {
        let (stream, name) = (self.stream(consumer.stream()), consumer.name());
        let doing = || format!("reading the state of the consumer `{name}`");
        let found = self.0.api.get_consumer_from_stream::<super::PullConfig, _, _>(&name, &stream).await;
        let found = found.map_err(|error| failed(doing(), &error))?;
        Ok(found.cached_info().num_ack_pending)
    }
}
