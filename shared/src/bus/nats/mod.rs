//! The bus on NATS JetStream. One connection per process, shared by all clones. Whatever can be lost (a
//! publish, a pull, a follower's consumer) is repeated here.

mod connect;
mod consume;
mod fill;
mod follow;
mod listen;
mod object_index;
mod objects;
mod publish;
mod pull;
mod read;
mod set_up;
mod since;

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_nats::{
    Client, HeaderMap,
    datetime::DateTime,
    jetstream::{
        self,
        consumer::pull::Config as PullConfig,
        context::{CreateStreamError, CreateStreamErrorKind},
        object_store::ObjectStore,
    },
};
use tokio::sync::{OnceCell, watch};

pub use connect::Connect;
pub(super) use consume::{Acker, Consumption};
pub(super) use follow::Follow;
pub(super) use listen::{ServiceRequests, Subscription};
pub(super) use publish::Sending;

use super::{
    Consumer, Error, From, Headers, Message, Outgoing, PublishError, Published, RequestError, Service,
    Stored, Stream, Topology,
    message::{Acknowledgement, Received},
};
use crate::{subject::Namespace, time::Timestamp};

/// Names the object that holds a payload too large for the server.
const OBJECT_HEADER: &str = "Trellis-Object";

/// A connection to NATS; clones share it.
#[derive(Clone)]
pub struct Nats(Arc<Connection>);

struct Connection {
    client: Client,
    /// For publishing: waits briefly for an acknowledgement, then sends again.
    publisher: jetstream::Context,
    /// For all other requests to the server.
    api: jetstream::Context,
    namespace: Namespace,
    /// Counts the connections made: answers to requests on an earlier one never arrive.
    generation: watch::Receiver<u64>,
    objects: OnceCell<ObjectStore>,
    /// What this process has set up, if it sets up anything.
    topology: OnceLock<Topology>,
}

impl Nats {
    pub fn namespace(&self) -> &Namespace {
        &self.0.namespace
    }

    /// The name of a stream on the server.
    fn stream(&self, stream: Stream) -> String {
        self.0.namespace.stream(stream.name())
    }

    /// A round trip to JetStream, on which everything here depends.
    pub(super) async fn ping(&self) -> Result<Duration, Error> {
        let asked = tokio::time::Instant::now();
        let request = async_nats::Request::new().timeout(Some(Duration::from_secs(3)));
        let answer = self.0.client.send_request("$JS.API.INFO", request).await;
        answer.map_err(|error| failed("checking that JetStream answers", &error))?;
        Ok(asked.elapsed())
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("namespace", &self.0.namespace).finish_non_exhaustive()
    }
}

fn failed(doing: impl Into<String>, reason: &impl fmt::Display) -> Error {
    Error::Failed { doing: doing.into(), reason: reason.to_string() }
}

/// The server's own error, if it is among the causes of an error.
fn server_error(error: &(dyn std::error::Error + 'static)) -> Option<jetstream::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<jetstream::Error>() {
            return Some(found.clone());
        }
        if let Some(found) = error.downcast_ref::<CreateStreamError>()
            && let CreateStreamErrorKind::JetStream(error) = found.kind()
        {
            return Some(error);
        }
        next = error.source();
    }
    None
}

fn to_map(headers: &Headers) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let bad = || format!("`{name}` can't be a header");
        let parsed: async_nats::HeaderName = name.parse().map_err(|_| bad())?;
        let value: async_nats::HeaderValue = value.parse().map_err(|_| bad())?;
        map.insert(parsed, value);
    }
    Ok(map)
}

/// The headers that the sender set, without those of the server and of this module.
fn from_map(map: Option<&HeaderMap>) -> Headers {
    let all = map.into_iter().flat_map(HeaderMap::iter);
    let ours = |name: &str| name.starts_with("Nats-") || name == OBJECT_HEADER;
    all.filter(|(name, _)| !ours(name.as_ref()))
        .filter_map(|(name, values)| Some((name.to_string(), values.first()?.to_string())))
        .collect()
}

/// The id that a message was published with.
fn id_of(map: Option<&HeaderMap>) -> Option<String> {
    Some(map?.get(async_nats::header::NATS_MESSAGE_ID)?.to_string())
}

fn timestamp(at: DateTime) -> Timestamp {
    let millis = at.unix_timestamp_nanos() / 1_000_000;
    Timestamp::from_millis(u64::try_from(millis).unwrap_or_default())
}

/// Delays that grow from 50 milliseconds to a second.
fn backoff(attempt: usize) -> Duration {
    Duration::from_millis(50 << attempt.min(5)).min(Duration::from_secs(1))
}
