//! Sets up streams and consumers: creates missing ones, and compares existing ones with the
//! server's configuration. Several processes may do so at the same time; a second creation is
//! harmless. A process without the right to create only compares.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

use async_nats::jetstream::{
    ErrorCode,
    consumer::{self, AckPolicy, pull},
    stream::{self, ConsumerCreateStrictErrorKind, DiscardPolicy, RetentionPolicy, StorageType},
};
use domain::{
    id::PoolName,
    subject::{Partition, Subject},
    wording,
};
use futures_util::future::try_join_all;

use super::{
    super::{fill::Storage, topology::ExistingLimits},
    Consumer, Error, Nats, Outgoing, Stream, Topology, failed, server_error,
};

/// The most readers that may wait on one consumer at once. The server's default of 512 is less than
/// the number of workers in a large pool.
const MAX_WAITING: i64 = 16_384;

impl Nats {
    pub(in super::super) async fn set_up(
        &self,
        topology: &Topology,
        existing: ExistingLimits,
    ) -> Result<(), Error> {
        // Stored so that this process can set the streams up again after a loss.
        self.0.topology.get_or_init(|| topology.clone());
        match self.ensure_streams(topology, existing).await {
            // A second attempt, because existing streams may reserve less now.
            Err(Error::NoRoom { .. }) => self.ensure_streams(topology, existing).await?,
            ensured => ensured?,
        }
        let reports = Partition::all(topology.partitions).map(Consumer::Report);
        let pools = topology.pools.iter().cloned();
        self.pools().extend(pools.clone());
        let consumers: Vec<_> =
            reports.chain([Consumer::Intake, Consumer::Span]).chain(pools.map(Consumer::Execute)).collect();
        try_join_all(consumers.iter().map(|consumer| Box::pin(self.ensure_consumer(consumer)))).await?;
        for storage in Storage::BUCKETS {
            self.ensure_bucket(storage, topology, existing).await?;
        }
        Ok(())
    }

    /// Sets up the streams one after another. A server checks the room before it reserves it, so
    /// streams created at the same time may together reserve more than the server has. From then on
    /// the server would reject every change, even a reduction.
    ///
    /// If one stream finds no room, the others are still set up.
    async fn ensure_streams(&self, topology: &Topology, existing: ExistingLimits) -> Result<(), Error> {
        // A refused limit must leave all streams as they are.
        if existing == ExistingLimits::Raise {
            for stream in Stream::ALL {
                let ours = self.stream_config(stream, topology);
                if let Some(found) = self.find_stream(&ours.name).await? {
                    limited(&ours, &found.config, &found.state, existing)?;
                }
            }
        }
        let mut room = Ok(());
        for stream in Stream::ALL {
            // Boxed: it is large.
            match Box::pin(self.ensure_stream(self.stream_config(stream, topology), existing)).await {
                Err(error @ Error::NoRoom { .. }) => room = room.and(Err(error)),
                ensured => ensured?,
            }
        }
        room
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
            // If the stream dropped its oldest message instead, any sender could push out the
            // current one (S3).
            discard_new_per_subject: stream.max_per_subject().is_some(),
            max_consumers: -1,
            max_age: topology.max_age(stream),
            duplicate_window: topology.duplicate_window,
            num_replicas: topology.replicas,
            allow_direct: true,
            ..Default::default()
        }
    }

    async fn ensure_stream(&self, ours: stream::Config, existing: ExistingLimits) -> Result<(), Error> {
        let api = &self.0.api;
        let name = ours.name.clone();
        let stream::Info { config: found, state, .. } = match self.find_stream(&name).await? {
            Some(found) => found,
            None => self.create_stream(&ours).await?,
        };
        let differs = |difference| Error::Mismatch { what: "stream", name: name.clone(), difference };
        same("subjects", &set(&ours.subjects), &set(&found.subjects)).map_err(differs)?;
        have_same_form(&ours, &found).map_err(differs)?;
        let tuned = stream::Config {
            max_messages_per_subject: ours.max_messages_per_subject,
            discard_new_per_subject: ours.discard_new_per_subject,
            duplicate_window: ours.duplicate_window,
            allow_direct: ours.allow_direct,
            ..limited(&ours, &found, &state, existing)?
        };
        if tuned != found {
            let to = self.call(&format!("STREAM.UPDATE.{name}"));
            match self.permitted(&to, api.update_stream(&tuned)).await {
                Ok(updated) => {
                    updated.map_err(|error| self.refused(&ours, &error))?;
                    tracing::debug!(stream = name, "the stream's limits were changed to the configured ones");
                }
                Err(denied) => tracing::warn!(
                    %denied,
                    stream = name,
                    "the stream has other limits than the configured ones; `trellis provision` changes them"
                ),
            }
        }
        Ok(())
    }

    /// The differences between the server's streams and those that a coordinator creates. Sizes and
    /// ages are not compared, because each deployment configures them.
    pub(in super::super) async fn differences(&self) -> Result<Vec<String>, Error> {
        let topology = Topology::default();
        let (mut differences, mut replicas) = (Vec::new(), BTreeSet::new());
        for stream in Stream::ALL {
            let ours = self.stream_config(stream, &topology);
            let found = match self.find_stream(&ours.name).await {
                Ok(Some(found)) => found.config,
                Ok(None) | Err(Error::Denied(_)) => continue,
                Err(error) => return Err(error),
            };
            replicas.insert(found.num_replicas);
            // The subjects of reports depend on the number of partitions.
            let subjects = match stream == Stream::Report {
                true => Ok(()),
                false => same("subjects", &set(&ours.subjects), &set(&found.subjects)),
            };
            let per_subject =
                same("max_msgs_per_subject", &ours.max_messages_per_subject, &found.max_messages_per_subject);
            let new = same(
                "discard_new_per_subject",
                &ours.discard_new_per_subject,
                &found.discard_new_per_subject,
            );
            let checks = [subjects, have_same_form(&ours, &found), per_subject, new];
            let of = |difference| format!("of `{}`, {difference}", ours.name);
            differences.extend(checks.into_iter().filter_map(Result::err).map(of));
        }
        if replicas.len() > 1 {
            differences
                .push(format!("`num_replicas` is not the same in all of them, but one of {replicas:?}"));
        }
        Ok(differences)
    }

    /// The configuration and the state of a stream, if it exists.
    async fn find_stream(&self, name: &str) -> Result<Option<stream::Info>, Error> {
        let asked =
            self.permitted(&self.call(&format!("STREAM.INFO.{name}")), self.0.api.get_stream(name)).await?;
        match asked {
            Ok(found) => Ok(Some(found.cached_info().clone())),
            Err(error) if has_code(&error, ErrorCode::STREAM_NOT_FOUND) => Ok(None),
            Err(error) => Err(failed(format!("setting up the stream `{name}`"), &error)),
        }
    }

    async fn create_stream(&self, ours: &stream::Config) -> Result<stream::Info, Error> {
        let name = &ours.name;
        let doing = || format!("setting up the stream `{name}`");
        let to = self.call(&format!("STREAM.CREATE.{name}"));
        match self.permitted(&to, self.0.api.create_stream(ours)).await? {
            Ok(created) => Ok(created.cached_info().clone()),
            // Another process created it first.
            Err(error) if has_code(&error, ErrorCode::STREAM_NAME_EXIST) => {
                let found = self.find_stream(name).await?;
                found.ok_or_else(|| failed(doing(), &"it was created and removed meanwhile"))
            }
            Err(error) => Err(self.refused(ours, &error)),
        }
    }

    /// The error for a stream that the server rejects.
    fn refused(&self, ours: &stream::Config, error: &(impl std::error::Error + 'static)) -> Error {
        if !has_code(error, ErrorCode::STORAGE_RESOURCES_EXCEEDED) {
            return failed(format!("setting up the stream `{}`", ours.name), error);
        }
        let all = self.0.topology.get().map_or(0, Topology::reserved_bytes);
        Error::NoRoom { name: ours.name.clone(), bytes: u64::try_from(ours.max_bytes).unwrap_or(0), all }
    }

    /// A consumer as the server has it, if it exists.
    pub(super) async fn find_consumer(&self, consumer: &Consumer) -> Result<Option<consumer::Info>, Error> {
        let (stream, name) = (self.stream(consumer.stream()), consumer.name());
        let to = self.call(&format!("CONSUMER.INFO.{stream}.{name}"));
        let asked = self.0.api.get_consumer_from_stream::<pull::Config, _, _>(&name, &stream);
        match self.permitted(&to, asked).await? {
            Ok(found) => Ok(Some(found.cached_info().clone())),
            Err(error) if has_code(&error, ErrorCode::CONSUMER_NOT_FOUND) => Ok(None),
            Err(error) => {
                Err(failed(format!("reading the state of the consumer `{name}` of `{stream}`"), &error))
            }
        }
    }

    /// Creates the consumers of the pools that the messages are for, once each, because workers may
    /// not create them. A failure is only logged: the work is stored, and the next publish tries
    /// again.
    pub(super) async fn make_pools(&self, messages: &[Outgoing]) {
        for message in messages {
            let Subject::Execute(pool) = &message.subject else { continue };
            if self.pools().contains(pool) {
                continue;
            }
            match self.ensure_consumer(&Consumer::Execute(pool.clone())).await {
                Ok(()) => drop(self.pools().insert(pool.clone())),
                Err(error) => tracing::warn!(%error, %pool, "the queue of a pool can't be made yet"),
            }
        }
    }

    /// Recreates the consumers of the known pools, if they were removed.
    pub(in super::super) async fn keep_pools(&self) -> Result<(), Error> {
        let known = self.pools().clone();
        for pool in known {
            self.ensure_consumer(&Consumer::Execute(pool)).await?;
        }
        Ok(())
    }

    /// The guard is never held over an await.
    fn pools(&self) -> MutexGuard<'_, BTreeSet<PoolName>> {
        self.0.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a missing consumer, also one that was deleted, and compares an existing one.
    pub(super) async fn ensure_consumer(&self, consumer: &Consumer) -> Result<(), Error> {
        let api = &self.0.api;
        let (stream, name) = (self.stream(consumer.stream()), consumer.name());
        let doing = || format!("setting up the consumer `{name}` of `{stream}`");
        let mut filters_of: Vec<String> =
            consumer.filters().iter().map(|filter| self.namespace().filter(filter)).collect();
        let filter_subject = if filters_of.len() == 1 { filters_of.remove(0) } else { String::new() };
        let ours = pull::Config {
            durable_name: Some(name.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: consumer.ack_wait(),
            max_ack_pending: consumer.max_ack_pending(),
            max_deliver: -1,
            max_waiting: MAX_WAITING,
            filter_subject,
            filter_subjects: filters_of,
            ..Default::default()
        };
        let found: consumer::Config = match self.find_consumer(consumer).await? {
            Some(found) => found.config,
            None => {
                let created = api.create_consumer_strict_on_stream(ours.clone(), &stream);
                // With one filter, the subject of the request contains it.
                let to = match ours.filter_subject.is_empty() {
                    true => self.call(&format!("CONSUMER.CREATE.{stream}.{name}")),
                    false => self.call(&format!("CONSUMER.CREATE.{stream}.{name}.{}", ours.filter_subject)),
                };
                match self.permitted(&to, created).await? {
                    Ok(created) => created.cached_info().config.clone(),
                    Err(error) if error.kind() == ConsumerCreateStrictErrorKind::AlreadyExists => {
                        let found = self.find_consumer(consumer).await?;
                        found.ok_or_else(|| failed(doing(), &"it was created and removed meanwhile"))?.config
                    }
                    Err(error) => return Err(failed(doing(), &error)),
                }
            }
        };
        let differs =
            |difference| Error::Mismatch { what: "consumer", name: format!("{stream}/{name}"), difference };
        let wanted = consumer::Config {
            filter_subject: ours.filter_subject.clone(),
            filter_subjects: ours.filter_subjects.clone(),
            ..Default::default()
        };
        same("filter_subjects", &filters(&wanted), &filters(&found)).map_err(differs)?;
        same("ack_policy", &ours.ack_policy, &found.ack_policy).map_err(differs)?;
        same("ack_wait", &ours.ack_wait, &found.ack_wait).map_err(differs)?;
        same("max_ack_pending", &ours.max_ack_pending, &found.max_ack_pending).map_err(differs)?;
        same("max_deliver", &ours.max_deliver, &found.max_deliver).map_err(differs)?;
        same("deliver_subject", &None, &found.deliver_subject).map_err(differs)?;
        Ok(())
    }

    /// A server may come back without its streams. The process that set them up then sets them up
    /// again.
    pub(super) async fn ensure_consumer_and_streams(&self, consumer: &Consumer) -> Result<(), Error> {
        let lost = match (self.ensure_consumer(consumer).await, self.0.topology.get()) {
            (Err(_), Some(topology)) => topology,
            (ensured, _) => return ensured,
        };
        self.set_up(lost, ExistingLimits::Keep).await?;
        self.ensure_consumer(consumer).await
    }

    /// Sets up a bucket of objects, in the form of the NATS object store but without roll-ups. A
    /// user that may roll up could remove everything by one message, and a server can't permit
    /// roll-ups to some users only.
    async fn ensure_bucket(
        &self,
        storage: Storage,
        topology: &Topology,
        existing: ExistingLimits,
    ) -> Result<(), Error> {
        let bucket = self.bucket(storage);
        // An existing bucket may have limits that the operator chose. They stay, unless a size is
        // configured.
        if let Some(found) = self.find_stream(&format!("OBJ_{bucket}")).await? {
            return self.adapt_bucket(storage, found, topology, existing).await;
        }
        let config = stream::Config {
            name: format!("OBJ_{bucket}"),
            subjects: vec![format!("$O.{bucket}.C.>"), format!("$O.{bucket}.M.>")],
            discard: if storage.drops_the_oldest() { DiscardPolicy::Old } else { DiscardPolicy::New },
            storage: StorageType::File,
            max_age: topology.max_object_age(storage),
            max_bytes: topology.max_bytes_in(storage),
            num_replicas: topology.replicas,
            allow_direct: true,
            allow_rollup: false,
            ..Default::default()
        };
        self.create_stream(&config).await.map(drop)
    }

    /// Adapts an existing bucket. A journal is useless without the objects that it names, so
    /// objects are stored at least as long.
    async fn adapt_bucket(
        &self,
        storage: Storage,
        stream::Info { config: found, state, .. }: stream::Info,
        topology: &Topology,
        existing: ExistingLimits,
    ) -> Result<(), Error> {
        let bucket = self.bucket(storage);
        let max_age = if found.max_age.is_zero() { Duration::ZERO } else { topology.max_object_age(storage) };
        let sized = topology.max_object_bytes.filter(|_| storage == Storage::Objects);
        let ours = stream::Config {
            max_age: found.max_age.max(max_age),
            max_bytes: sized.unwrap_or(found.max_bytes),
            ..found.clone()
        };
        // The age is never lowered here, and objects must outlive the journals that name them.
        let max_age = ours.max_age;
        let adapted =
            stream::Config { max_age, allow_rollup: false, ..limited(&ours, &found, &state, existing)? };
        if adapted == found {
            return Ok(());
        }
        let to = self.call(&format!("STREAM.UPDATE.OBJ_{bucket}"));
        match self.permitted(&to, self.0.api.update_stream(&adapted)).await {
            Ok(updated) => {
                updated.map_err(|error| failed(format!("setting up the bucket `{bucket}`"), &error))?;
                tracing::debug!(
                    bucket,
                    "the bucket's settings were changed: its size is the configured one, objects expire with the journals that name them, and roll-ups are not allowed"
                );
            }
            Err(denied) => tracing::warn!(
                %denied,
                bucket,
                "the bucket has other settings than the configured ones; `trellis provision` changes them"
            ),
        }
        Ok(())
    }

    pub(super) fn bucket(&self, storage: Storage) -> String {
        self.namespace().stream(storage.name())
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

/// The existing stream with the limits that setting up may give it. A lower limit that deletes
/// nothing is no loss: a server without enough room leaves empty streams of the refused size.
fn limited(
    ours: &stream::Config,
    found: &stream::Config,
    state: &stream::State,
    existing: ExistingLimits,
) -> Result<stream::Config, Error> {
    // A size below zero, and an age of zero, are no limit.
    let bytes = |config: &stream::Config| u64::try_from(config.max_bytes).unwrap_or(u64::MAX);
    let age = |config: &stream::Config| if config.max_age.is_zero() { Duration::MAX } else { config.max_age };
    let differs =
        [bytes(ours) != bytes(found), age(ours) != age(found), ours.num_replicas != found.num_replicas];
    if existing == ExistingLimits::Keep {
        if differs.contains(&true) {
            tracing::info!(
                stream = found.name,
                "the stream keeps its size, age limit and replicas, which differ from the options; `trellis provision` changes them"
            );
        }
        return Ok(found.clone());
    }
    let lower = [
        (bytes(ours) < state.bytes).then(|| (size(found), size(ours))),
        (state.messages > 0 && age(ours) < age(found)).then(|| (age_limit(found), age_limit(ours))),
        (state.messages > 0 && ours.num_replicas < found.num_replicas)
            .then(|| (replicas(found), replicas(ours))),
    ];
    if let (ExistingLimits::Raise, Some((found_limit, given))) =
        (existing, lower.into_iter().flatten().next())
    {
        return Err(Error::Lower { name: found.name.clone(), found: found_limit, given });
    }
    Ok(stream::Config {
        max_bytes: ours.max_bytes,
        max_age: ours.max_age,
        num_replicas: ours.num_replicas,
        ..found.clone()
    })
}

fn size(config: &stream::Config) -> String {
    u64::try_from(config.max_bytes).map_or_else(|_| "no size limit".to_owned(), wording::size)
}

fn age_limit(config: &stream::Config) -> String {
    match config.max_age.as_secs() {
        0 => "no age limit".to_owned(),
        seconds => format!("an age limit of {} hours", seconds / 3600),
    }
}

fn replicas(config: &stream::Config) -> String {
    format!("{} replicas", config.num_replicas)
}

/// Compares the settings that can't be changed on an existing stream.
fn have_same_form(ours: &stream::Config, found: &stream::Config) -> Result<(), String> {
    same("retention", &ours.retention, &found.retention)?;
    same("discard", &ours.discard, &found.discard)?;
    same("storage", &ours.storage, &found.storage)
}

fn same<T: PartialEq + Debug>(field: &str, ours: &T, found: &T) -> Result<(), String> {
    if ours == found { Ok(()) } else { Err(format!("`{field}` should be {ours:?} and is {found:?}")) }
}
