//! The bus on NATS JetStream. A process has one connection, which all clones share. Everything that
//! can be lost is retried here: a publish, a pull, a reader's consumer.

mod connect;
mod consume;
mod denials;
mod denied;
mod fetch;
mod fill;
mod follow;
mod heads;
mod identity;
mod listen;
mod object_index;
mod objects;
mod outages;
mod publish;
mod pull;
mod read;
mod set_up;
mod since;
mod told;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use async_nats::{
    Client, HeaderMap,
    client::RequestErrorKind,
    datetime::DateTime,
    jetstream::{
        self,
        context::{CreateStreamError, CreateStreamErrorKind, GetStreamError, GetStreamErrorKind},
        stream::{ConsumerError, ConsumerErrorKind},
    },
};
use tokio::sync::{Semaphore, watch};

pub use connect::{Connect, Login};
pub(super) use consume::{Acker, Consumption};
pub(super) use follow::Follow;
pub(super) use listen::{ServiceRequests, Subscription};
pub(super) use publish::Sending;

use domain::{id::PoolName, span::Headers, subject::Namespace, time::Timestamp};

use self::{
    denials::{Denials, Latch},
    outages::Outages,
};
use super::{
    Consumer, Error, From, Message, Outgoing, PublishError, PublishReceipt, RequestError, Service,
    StoredMessage, Stream, Topology,
    message::{Acknowledgement, HEADERS_OF_REPLAYS, REQUEST_INFO, ReceivedMessage},
};
use crate::keys::Keys;

/// The prefix of the subjects of calls to JetStream in the account that has the streams.
const OWN_CALLS: &str = "$JS.API";
/// The header with the name of the object that holds a payload too large for the server.
const OBJECT_HEADER: &str = "Trellis-Object";

/// A connection to NATS; clones share it. With keys, messages that a coordinator stores are signed,
/// and messages that it reads without a valid signature are left out.
#[derive(Clone)]
pub struct Nats(Arc<Connection>, pub(super) Option<Keys>);

struct Connection {
    client: Client,
    /// For publishing: waits briefly for an acknowledgement, then sends again.
    publisher: jetstream::Context,
    /// For all other requests to the server.
    api: jetstream::Context,
    namespace: Namespace,
    /// The number of connections so far. Answers to requests on an earlier connection never arrive.
    generation: watch::Receiver<u64>,
    /// The streams that this process has set up, if any.
    topology: OnceLock<Topology>,
    /// The pools that this process has published work for. It recreates their consumers.
    pools: Mutex<BTreeSet<PoolName>>,
    /// True if this process has an inbox of its own, and the server therefore has permissions.
    restricted: bool,
    inbox: String,
    /// The prefix of the subjects of calls to JetStream.
    calls: String,
    denials: Denials,
    outages: Arc<Outages>,
    /// Permissions that the server has denied; they are not requested again on this connection for
    /// a while.
    no_account_info: Latch,
    no_purge: Latch,
    /// Bounds on the number of payloads that are read as objects at once.
    payloads_of_the_core: Semaphore,
    payloads_of_others: Semaphore,
}

impl Nats {
    pub(super) fn with_keys(self, keys: Keys) -> Self {
        Nats(self.0, Some(keys))
    }

    pub fn namespace(&self) -> &Namespace {
        &self.0.namespace
    }

    /// Returns true if a denial is still assumed.
    fn holds(&self, latch: &Latch) -> bool {
        latch.holds(*self.0.generation.borrow())
    }

    /// Notes a denial.
    fn note(&self, latch: &Latch) {
        latch.note(*self.0.generation.borrow());
    }

    /// The name of a stream on the server.
    fn stream(&self, stream: Stream) -> String {
        self.0.namespace.stream(stream.name())
    }

    /// The subject of a call to JetStream.
    fn call(&self, what: &str) -> String {
        format!("{}.{what}", self.0.calls)
    }

    /// Measures a round trip to JetStream, which every operation here depends on. For roles that
    /// may not ask JetStream about the account, it is a round trip to the server.
    pub(super) async fn ping(&self) -> Result<Duration, Error> {
        // Only coordinators may ask about their account. For other roles each attempt would log a
        // denial.
        if self.0.calls != OWN_CALLS || self.holds(&self.0.no_account_info) {
            return self.echo().await;
        }
        let asked = tokio::time::Instant::now();
        let request = async_nats::Request::new().timeout(Some(Duration::from_secs(3)));
        let about = self.call("INFO");
        match self.permitted(&about, self.0.client.send_request(about.clone(), request)).await {
            Ok(Ok(_)) => Ok(asked.elapsed()),
            Ok(Err(error)) if self.0.restricted && error.kind() == RequestErrorKind::NoResponders => {
                self.note(&self.0.no_account_info);
                self.echo().await
            }
            Ok(Err(error)) => Err(failed("checking that JetStream answers", &error)),
            Err(_) => {
                self.note(&self.0.no_account_info);
                self.echo().await
            }
        }
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
        if let Some(found) = error.downcast_ref::<GetStreamError>()
            && let GetStreamErrorKind::JetStream(error) = found.kind()
        {
            return Some(error);
        }
        if let Some(found) = error.downcast_ref::<ConsumerError>()
            && let ConsumerErrorKind::JetStream(error) = found.kind()
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
    let ours = |name: &str| name.starts_with("Nats-") || name.starts_with(OBJECT_HEADER);
    all.filter(|(name, _)| !ours(name.as_ref()))
        .filter_map(|(name, values)| Some((name.to_string(), values.first()?.to_string())))
        .collect()
}

/// The headers of a received message. They include those by which the server marks a message that
/// it sent on, and for which account.
fn received(map: Option<&HeaderMap>) -> Headers {
    let mut headers = from_map(map);
    for name in HEADERS_OF_REPLAYS.into_iter().chain([REQUEST_INFO]) {
        let value = map.and_then(|map| map.get(name));
        headers.extend(value.map(|value| (name.to_owned(), value.to_string())));
    }
    headers
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
