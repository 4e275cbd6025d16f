//! The store in Redis: one node, a cluster, or a master named by sentinels. The commands are in
//! [`load`], [`traces`], [`find`], [`marks`], [`agents`], [`deployment`] and [`default_user`], the
//! connection in [`link`].

mod address;
mod agents;
mod default_user;
mod deployment;
mod find;
mod link;
mod load;
mod marks;
mod reply;
mod traces;

use std::sync::Arc;

use ::redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use domain::subject::{Namespace, Partition};

pub use self::address::Login;
use self::{
    address::Address,
    link::{Link, WRONG_TYPE},
};
use super::{Error, keys::Keys};

/// Every command that is sent, also by scripts: a user of Redis needs no other permission (S1).
/// Tests run as such a user.
pub const COMMANDS: [&str; 39] = [
    "ping",
    "time",
    "multi",
    "exec",
    "eval",
    "evalsha",
    "get",
    "set",
    "setnx",
    "incr",
    "del",
    "unlink",
    "hget",
    "hgetall",
    "hmget",
    "hset",
    "hsetnx",
    "hdel",
    "hlen",
    "hkeys",
    "hscan",
    "sadd",
    "srem",
    "smembers",
    "zadd",
    "zrem",
    "zcard",
    "zscore",
    "zmscore",
    "zrange",
    "zrangebyscore",
    "zrevrangebyscore",
    "zrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
    "hincrby",
    "acl|getuser",
    // Where the slots of a cluster are, and whether a sentinel's server is a master.
    "cluster|slots",
    "role",
];

/// Patterns of Redis for all keys of a deployment; the second is for keys that begin with a hash
/// tag.
pub fn key_patterns(namespace: &Namespace) -> [String; 2] {
    let all = namespace.key("*");
    [all.clone(), format!("{{{all}")]
}

#[derive(Debug, Clone)]
pub struct Redis {
    keys: Keys,
    link: Arc<Link>,
}

/// The commands for one item, and the partition of all their keys.
struct Request {
    home: Partition,
    commands: Vec<Cmd>,
}

impl Redis {
    /// Makes one attempt: an unreachable server is reported at once.
    pub async fn connect(url: &str, namespace: Namespace, partitions: u16) -> Result<Redis, Error> {
        Self::connect_as(url, &Login::default(), namespace, partitions).await
    }

    /// As `connect`, with a login that is not in the address.
    pub async fn connect_as(
        url: &str,
        login: &Login,
        namespace: Namespace,
        partitions: u16,
    ) -> Result<Redis, Error> {
        let address = Address::parse(url, login)?;
        let shown = address.to_string();
        let link = Link::open(address).await;
        let link = link.map_err(|error| Error::Connect { address: shown, source: Box::new(error) })?;
        Ok(Redis { keys: Keys::new(namespace, partitions), link: Arc::new(link) })
    }

    /// Sends requests, one pipeline for each partition. Returns the answers of each request, in the
    /// order of the requests.
    async fn send(
        &self,
        doing: &'static str,
        requests: Vec<Request>,
    ) -> Result<Vec<Vec<RedisResult<Value>>>, Error> {
        // An empty pipeline is an error to the client library.
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let mut sizes = Vec::with_capacity(requests.len());
        let mut places: Vec<(Partition, usize)> = Vec::with_capacity(requests.len());
        for (place, request) in requests.iter().enumerate() {
            sizes.push(request.commands.len());
            places.push((request.home, place));
        }
        // A stable sort: requests of one partition keep their order.
        places.sort_by_key(|(home, _)| *home);
        let mut requests: Vec<Option<Vec<Cmd>>> =
            requests.into_iter().map(|request| Some(request.commands)).collect();
        let batches = places.chunk_by(|(one, _), (other, _)| one == other);
        let batches = batches.map(|of_home| {
            of_home.iter().filter_map(|(_, place)| requests[*place].take()).flatten().collect()
        });
        let answers = self.link.send(batches.collect()).await.map_err(unavailable(doing))?;
        let mut answers = answers.into_iter().flatten();
        let mut sorted: Vec<Vec<RedisResult<Value>>> = sizes.iter().map(|_| Vec::new()).collect();
        for (_, place) in places {
            sorted[place] = answers.by_ref().take(sizes[place]).collect();
            if sorted[place].len() != sizes[place] {
                return Err(Error::Corrupt { doing, found: "fewer answers than commands".into() });
            }
        }
        Ok(sorted)
    }

    /// As `send`, for requests whose commands must all succeed.
    async fn fetch(&self, doing: &'static str, requests: Vec<Request>) -> Result<Vec<Vec<Value>>, Error> {
        let answers = self.send(doing, requests).await?;
        let whole = |answers: Vec<RedisResult<Value>>| answers.into_iter().collect::<RedisResult<Vec<_>>>();
        answers.into_iter().map(whole).collect::<RedisResult<_>>().map_err(unavailable(doing))
    }
}

fn unavailable(doing: &'static str) -> impl Fn(RedisError) -> Error {
    move |source| Error::Unavailable { doing, source: Box::new(source) }
}

/// Returns true for an error of the Redis client or server.
pub(super) fn is_error(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<RedisError>()
}

fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
