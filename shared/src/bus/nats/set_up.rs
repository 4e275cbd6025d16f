//! Streams and consumers: created if they are missing, otherwise compared with the server's configuration.
//! Several processes may do this at the same time: creating the same thing twice does no harm.

use std::{collections::BTreeSet, fmt::Debug, time::Duration};

use async_nats::jetstream::{
    ErrorCode,
    consumer::{self, AckPolicy, pull},
    object_store,
    stream::{self, ConsumerCreateStrictErrorKind, DiscardPolicy, RetentionPolicy, StorageType},
};
use futures_util::future::try_join_all;

use super::{super::fill::Storage, Consumer, Error, Nats, Stream, Topology, failed, server_error};
use crate::subject::Partition;

/// Readers that may wait on one consumer at once. The server's default of 512 is less than the workers of a
/// large pool.
const MAX_WAITING: i64 = 16_384;

impl Nats {
    pub(in super::super) async fn set_up(&self, topology: &Topology) -> Result<(), Error> {
        // Who set it up first sets it up again after a loss.
        self.0.topology.get_or_init(|| topology.clone());
        try_join_all(Stream::ALL.map(|stream| self.ensure_stream(self.stream_config(stream, topology))))
            .await?;
        let reports = Partition::all(topology.partitions).map(Consumer::Report);
        let consumers: Vec<_> = reports.chain([Consumer::Intake]).collect();
        try_join_all(consumers.iter().map(|consumer| self.ensure_consumer(consumer))).await?;
        self.ensure_bucket(topology).await
    }

    fn stream_config(&self, stream: Stream, topology: &Topology) -> stream::Config {
        let queue = stream.is_queue();
        stream::Config {
            name: self.stream(stream),
            subjects: topology.filters(stream).iter().map(|filter| self.namespace().filter(filter)).collect(),
            retention: if queue { RetentionPolicy::WorkQueue } else { RetentionPolicy::Limits },
            discard: if stream.drops_the_oldest() { DiscardPolicy::Old } else { DiscardPolicy::New },
            storage: StorageType::File,
            max_bytes: topology.max_bytes(stream),
            max_messages: -1,
            max_messages_per_subject: stream.max_per_subject().unwrap_or(-1),
            max_consumers: -1,
            max_age: topology.max_age(stream),
            duplicate_window: topology.duplicate_window,
            num_replicas: topology.replicas,
            allow_direct: true,
            ..Default::default()
        }
    }

    async fn ensure_stream(&self, ours: stream::Config) -> Result<(), Error> {
        let api = &self.0.api;
        let name = ours.name.clone();
        let doing = || format!("setting up the stream `{name}`");
        let found = match api.create_stream(&ours).await {
            Ok(created) => created.cached_info().config.clone(),
            Err(error) if has_code(&error, ErrorCode::STREAM_NAME_EXIST) => {
                let there = api.get_stream(&name).await.map_err(|error| failed(doing(), &error))?;
                there.cached_info().config.clone()
            }
            Err(error) if has_code(&error, ErrorCode::STORAGE_RESOURCES_EXCEEDED) => {
                let reason = format!(
                    "the server has too little storage left to reserve {} bytes; give it more \
                     (`max_file_store`) or lower the configured sizes",
                    ours.max_bytes
                );
                return Err(failed(doing(), &reason));
            }
            Err(error) => return Err(failed(doing(), &error)),
        };
        let differs = |difference| Error::Mismatch { what: "stream", name: name.clone(), difference };
        same("subjects", &set(&ours.subjects), &set(&found.subjects)).map_err(differs)?;
        same("retention", &ours.retention, &found.retention).map_err(differs)?;
        same("discard", &ours.discard, &found.discard).map_err(differs)?;
        same("storage", &ours.storage, &found.storage).map_err(differs)?;
        let tuned = stream::Config {
            max_bytes: ours.max_bytes,
            max_age: ours.max_age,
            max_messages_per_subject: ours.max_messages_per_subject,
            num_replicas: ours.num_replicas,
            duplicate_window: ours.duplicate_window,
            allow_direct: ours.allow_direct,
            ..found.clone()
        };
        if tuned != found {
            tracing::info!(stream = name, "the stream's limits were changed to the configured ones");
            api.update_stream(&tuned).await.map_err(|error| failed(doing(), &error))?;
        }
        Ok(())
    }

    /// Also recreates a consumer that somebody deleted.
    pub(super) async fn ensure_consumer(&self, consumer: &Consumer) -> Result<(), Error> {
        let api = &self.0.api;
        let (stream, name) = (self.stream(consumer.stream()), consumer.name());
        let doing = || format!("setting up the consumer `{name}` of `{stream}`");
        let ours = pull::Config {
            durable_name: Some(name.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: consumer.ack_wait(),
            max_ack_pending: consumer.max_ack_pending(),
            max_deliver: -1,
            max_waiting: MAX_WAITING,
            filter_subjects: consumer
                .filters()
                .iter()
                .map(|filter| self.namespace().filter(filter))
                .collect(),
            ..Default::default()
        };
        let found: consumer::Config = match api.create_consumer_strict_on_stream(ours.clone(), &stream).await
        {
            Ok(created) => created.cached_info().config.clone(),
            Err(error) if error.kind() == ConsumerCreateStrictErrorKind::AlreadyExists => {
                let there = api.get_consumer_from_stream::<pull::Config, _, _>(&name, &stream).await;
                there.map_err(|error| failed(doing(), &error))?.cached_info().config.clone()
            }
            Err(error) => return Err(failed(doing(), &error)),
        };
        let differs =
            |difference| Error::Mismatch { what: "consumer", name: format!("{stream}/{name}"), difference };
        same("filter_subjects", &set(&ours.filter_subjects), &filters(&found)).map_err(differs)?;
        same("ack_policy", &ours.ack_policy, &found.ack_policy).map_err(differs)?;
        same("ack_wait", &ours.ack_wait, &found.ack_wait).map_err(differs)?;
        same("max_ack_pending", &ours.max_ack_pending, &found.max_ack_pending).map_err(differs)?;
        same("max_deliver", &ours.max_deliver, &found.max_deliver).map_err(differs)?;
        same("deliver_subject", &None, &found.deliver_subject).map_err(differs)?;
        Ok(())
    }

    /// A server may come back without its streams. Whoever set them up sets them up again.
    pub(super) async fn ensure_consumer_and_streams(&self, consumer: &Consumer) -> Result<(), Error> {
        let lost = match (self.ensure_consumer(consumer).await, self.0.topology.get()) {
            (Err(_), Some(topology)) => topology,
            (ensured, _) => return ensured,
        };
        self.set_up(lost).await?;
        self.ensure_consumer(consumer).await
    }

    async fn ensure_bucket(&self, topology: &Topology) -> Result<(), Error> {
        let bucket = self.bucket();
        let config = object_store::Config {
            bucket: bucket.clone(),
            max_age: topology.max_object_age(),
            max_bytes: topology.max_object_bytes(),
            storage: StorageType::File,
            num_replicas: topology.replicas,
            ..Default::default()
        };
        match self.0.api.create_object_store(config).await {
            Ok(_) => Ok(()),
            // It exists, perhaps with limits that the operator chose: they are kept, unless a size is configured.
            Err(error) if has_code(&error, ErrorCode::STREAM_NAME_EXIST) => {
                self.adapt_bucket(&bucket, topology).await
            }
            Err(error) => Err(failed(format!("setting up the bucket `{bucket}`"), &error)),
        }
    }

    /// A journal is useless without the objects it names: they are kept at least as long.
    async fn adapt_bucket(&self, bucket: &str, topology: &Topology) -> Result<(), Error> {
        let api = &self.0.api;
        let doing = || format!("setting up the bucket `{bucket}`");
        let there = api.get_stream(format!("OBJ_{bucket}")).await.map_err(|error| failed(doing(), &error))?;
        let found = there.cached_info().config.clone();
        let max_age = if found.max_age.is_zero() { Duration::ZERO } else { topology.max_object_age() };
        let adapted = stream::Config {
            max_age: found.max_age.max(max_age),
            max_bytes: topology.max_object_bytes.unwrap_or(found.max_bytes),
            ..found.clone()
        };
        if adapted == found {
            return Ok(());
        }
        tracing::info!(
            bucket,
            "the bucket's limits were changed: its size is the configured one, and objects are kept as long as the journals that name them"
        );
        api.update_stream(&adapted).await.map_err(|error| failed(doing(), &error))?;
        Ok(())
    }

    pub(super) fn bucket(&self) -> String {
        self.namespace().stream(Storage::Objects.name())
    }
}

fn has_code(error: &(dyn std::error::Error + 'static), code: ErrorCode) -> bool {
    server_error(error).is_some_and(|error| error.error_code() == code)
}

fn set(subjects: &[String]) -> BTreeSet<&str> {
    subjects.iter().map(String::as_str).collect()
}

/// A server may report a single filter in either of two fields.
fn filters(config: &consumer::Config) -> BTreeSet<&str> {
    let single = Some(config.filter_subject.as_str()).filter(|filter| !filter.is_empty());
    config.filter_subjects.iter().map(String::as_str).chain(single).collect()
}

fn same<T: PartialEq + Debug>(field: &str, ours: &T, found: &T) -> Result<(), String> {
    if ours == found { Ok(()) } else { Err(format!("`{field}` should be {ours:?} and is {found:?}")) }
}
