//! The connection to Redis: one multiplexed connection that all callers share, replaced when it is
//! broken or stops answering. The client library alone never drops a half-open connection. No call
//! takes longer than one reconnect and one answer.

use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{
    FutureExt, TryFutureExt,
    future::{self, BoxFuture, Shared},
};
use redis::{
    Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr},
};

use domain::wording::with_causes;
use telemetry::Outage;

use super::address::{Address, Connection, RESPONSE_TIMEOUT};

/// Pauses between the attempts of one reconnect: a restarting server is back within some of them.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
];
/// Time limit of one reconnect, all attempts together.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// One timeout may be a slow disk; two in a row mean a dead connection.
const MAX_TIMEOUTS: u32 = 2;
/// Errors that callers handle: a key of another type, and a script that the server does not have
/// yet.
const EXPECTED: [&str; 2] = [WRONG_TYPE, "NOSCRIPT"];
/// The server's error code for a command on a key of another type.
pub(super) const WRONG_TYPE: &str = "WRONGTYPE";

pub(super) struct Link {
    address: Arc<Address>,
    current: Mutex<CurrentConnection>,
}

/// All callers wait for the same connection to open, and get the same error if it fails.
type Opening = Shared<BoxFuture<'static, RedisResult<Connection>>>;

struct CurrentConnection {
    opening: Opening,
    /// Identifies the connection that a caller reports as broken.
    generation: u64,
    /// Timeouts since the last answer.
    timeouts: u32,
    /// Logs outages once for all callers.
    outage: Outage,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Link {
    /// Makes one attempt: a wrong address should be reported at once.
    pub(super) async fn open(address: Address) -> RedisResult<Link> {
        let connection = address.open().await?;
        let opening = future::ready(Ok(connection)).boxed().shared();
        let current = CurrentConnection { opening, generation: 0, timeouts: 0, outage: Outage::new("Redis") };
        Ok(Link { address: Arc::new(address), current: Mutex::new(current) })
    }

    /// Sends each batch as a pipeline and returns its answers, including errors of single commands.
    /// The keys of one batch share a hash slot. A single node gets all batches as one pipeline.
    pub(super) async fn send(&self, batches: Vec<Vec<Cmd>>) -> RedisResult<Vec<Vec<RedisResult<Value>>>> {
        let sent = self.watched(async |connection| match connection {
            Connection::Node(mut node) => {
                let sizes: Vec<usize> = batches.iter().map(Vec::len).collect();
                let pipeline = pipeline(batches.into_iter().flatten());
                let mut answers =
                    pipeline.query_async::<Vec<RedisResult<Value>>>(&mut node).await?.into_iter();
                Ok(sizes.into_iter().map(|size| answers.by_ref().take(size).collect()).collect())
            }
            Connection::Cluster(cluster) => {
                let send = |batch: Vec<Cmd>| {
                    let mut cluster = cluster.clone();
                    async move { pipeline(batch).query_async::<Vec<RedisResult<Value>>>(&mut cluster).await }
                };
                future::try_join_all(batches.into_iter().map(send)).await
            }
        });
        let answers = sent.await?;
        if let Some(error) = answers.iter().flatten().find_map(|answer| answer.as_ref().err()) {
            self.tell(error);
        }
        Ok(answers)
    }

    /// Runs commands as one MULTI/EXEC; their keys share a hash slot.
    pub(super) async fn transact(&self, mut commands: Pipeline) -> RedisResult<Vec<Value>> {
        commands.atomic();
        let done = self
            .watched(async |connection| match connection {
                Connection::Node(mut node) => commands.query_async(&mut node).await,
                Connection::Cluster(mut cluster) => commands.query_async(&mut cluster).await,
            })
            .await;
        if done.is_ok() {
            self.current().outage.ended();
        }
        done
    }

    /// Logs an outage, apart from expected errors. It ends when a transaction succeeds (every
    /// heartbeat is one): reads may succeed while writes fail.
    fn tell(&self, error: &RedisError) {
        if !EXPECTED.contains(&error.code().unwrap_or_default()) {
            self.current().outage.failed(&with_causes(error));
        }
    }

    /// Sends a command without a key. In a cluster it goes to the node that holds `key`.
    pub(super) async fn ask(&self, command: Cmd, key: &str) -> RedisResult<Value> {
        self.watched(async |connection| connection.query(command, key).await).await
    }

    /// As `ask`, for a command that users of earlier ACL files lack. A refusal returns None and
    /// logs no outage.
    pub(super) async fn ask_if_permitted(&self, command: Cmd, key: &str) -> RedisResult<Option<Value>> {
        self.watched(async |connection| match connection.query(command, key).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => Ok(None),
            answer => answer.map(Some),
        })
        .await
    }

    /// Runs the work on the current connection, in bounded time. Timeouts in a row, or a broken
    /// connection, lead to a new connection.
    async fn watched<T>(&self, work: impl AsyncFnOnce(Connection) -> RedisResult<T>) -> RedisResult<T> {
        let (opening, generation) = {
            let current = self.current();
            (current.opening.clone(), current.generation)
        };
        let connection = opening.await.inspect_err(|error| {
            self.tell(error);
            self.replace(generation);
        })?;
        let answer = tokio::time::timeout(RESPONSE_TIMEOUT, work(connection)).await;
        let answer = answer.unwrap_or_else(|_| Err(timed_out("no answer within", RESPONSE_TIMEOUT)));
        answer.as_ref().err().into_iter().for_each(|error| self.tell(error));
        match &answer {
            Ok(_) => self.current().timeouts = 0,
            Err(error) if error.is_timeout() => self.silent(generation),
            Err(error) if is_broken(error) => self.replace(generation),
            Err(_) => {}
        }
        answer
    }

    fn silent(&self, generation: u64) {
        let timeouts = {
            let mut current = self.current();
            current.timeouts += 1;
            current.timeouts
        };
        if timeouts >= MAX_TIMEOUTS {
            self.replace(generation);
        }
    }

    /// Handles an error among the answers of a pipeline: the node may no longer be the master.
    pub(super) fn doubt(&self, error: &RedisError) {
        if is_broken(error) {
            let generation = self.current().generation;
            self.replace(generation);
        }
    }

    /// Makes the next caller open a new connection, unless this generation was already replaced.
    fn replace(&self, generation: u64) {
        let mut current = self.current();
        if current.generation == generation {
            tracing::debug!(address = %self.address, "the connection to Redis is broken or silent; opening a new one");
            current.generation += 1;
            current.timeouts = 0;
            current.opening = reopen(Arc::clone(&self.address)).boxed().shared();
        }
    }

    /// The guard is never held over an `.await`, and no code panics while it is held.
    fn current(&self) -> MutexGuard<'_, CurrentConnection> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Sends a command. In a cluster it goes to the node that holds `key`.
    async fn query(self, command: Cmd, key: &str) -> RedisResult<Value> {
        match self {
            Connection::Node(mut node) => command.query_async(&mut node).await,
            Connection::Cluster(mut cluster) => {
                let node = SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master));
                cluster.route_command(command, RoutingInfo::SingleNode(node)).await?.extract_error()
            }
        }
    }
}

fn pipeline(commands: impl IntoIterator<Item = Cmd>) -> Pipeline {
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors();
    for command in commands {
        pipeline.add_command(command);
    }
    pipeline
}

async fn reopen(address: Arc<Address>) -> RedisResult<Connection> {
    let tries = async {
        for pause in PAUSES {
            match address.open().await {
                Ok(connection) => return Ok(connection),
                Err(_) => tokio::time::sleep(pause).await,
            }
        }
        address.open().await
    };
    tokio::time::timeout(RECONNECT_TIMEOUT, tries)
        .map_err(|_| timed_out("no connection within", RECONNECT_TIMEOUT))
        .await
        .and_then(|opened| opened)
}

fn timed_out(what: &str, limit: Duration) -> RedisError {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} {} s", limit.as_secs())).into()
}

/// A demoted master refuses all writes; a new connection finds the new master.
fn is_broken(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}
