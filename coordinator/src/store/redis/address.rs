//! The address of Redis: one node, a cluster, or the master that the sentinels name. Parses the address
//! once and opens connections to it; never shows the credentials it holds.

use std::{fmt, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisResult, TlsMode,
    aio::MultiplexedConnection,
    cluster::{ClusterClient, ClusterClientBuilder},
    cluster_async::ClusterConnection,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
    sentinel::{SentinelClientBuilder, SentinelServerType},
};

use super::super::Error;

/// Time limit of one attempt to connect, handshake included.
const CONNECT: Duration = Duration::from_secs(2);
/// Time limit of one answer, to a whole pipeline: long enough for a disk that syncs slowly, short enough to
/// notice a dead server.
pub(super) const RESPONSE: Duration = Duration::from_secs(3);
/// The kernel notices a vanished peer after about this long.
const KEEPALIVE: Duration = Duration::from_secs(10);

const FORMS: &str = "expected redis://host:port, rediss://…, unix:///path, redis-cluster://host:port,host:port \
                     or redis-sentinel://host:port,host:port/master-name";

#[derive(Clone)]
pub(super) enum Connection {
    Node(MultiplexedConnection),
    Cluster(ClusterConnection),
}

pub(super) struct Address {
    kind: Kind,
    /// Hosts and ports only.
    shown: String,
}

enum Kind {
    Node(Box<Client>),
    Cluster(Box<ClusterClient>),
    Sentinel(Box<Sentinels>),
}

struct Sentinels {
    /// Of the sentinels themselves.
    addresses: Vec<ConnectionAddr>,
    master: String,
    /// For the master, not for the sentinels.
    login: redis::RedisConnectionInfo,
    tls: bool,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Address, Error> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("the scheme is missing"))?;
        let tls = scheme.starts_with("rediss");
        match scheme {
            "redis" | "rediss" | "unix" | "redis+unix" => node(url),
            "redis-cluster" | "rediss-cluster" => cluster(rest, tls),
            "redis-sentinel" | "rediss-sentinel" => sentinel(rest, tls),
            other => Err(wrong(&format!("{other}:// is not a known scheme"))),
        }
    }

    /// One attempt, in bounded time.
    pub(super) async fn open(&self) -> RedisResult<Connection> {
        match tokio::time::timeout(CONNECT, self.connect()).await {
            Ok(opened) => opened,
            Err(_) => Err(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                format!("no connection within {} s", CONNECT.as_secs()),
            )
            .into()),
        }
    }

    async fn connect(&self) -> RedisResult<Connection> {
        let client = match &self.kind {
            Kind::Cluster(client) => return Ok(Connection::Cluster(client.get_async_connection().await?)),
            Kind::Node(client) => (**client).clone(),
            Kind::Sentinel(sentinels) => sentinels.find_master().await?,
        };
        // The caller limits each request. A limit of the client would start at another time.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(None);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        // A server that is still loading its data accepts connections and refuses all other commands.
        redis::cmd("PING").exec_async(&mut connection).await?;
        Ok(Connection::Node(connection))
    }
}

impl Sentinels {
    async fn find_master(&self) -> RedisResult<Client> {
        let mut builder =
            SentinelClientBuilder::new(self.addresses.clone(), &self.master, SentinelServerType::Master)?
                .set_client_to_redis_db(self.login.db())
                .set_client_to_redis_tcp_settings(tcp_settings())
                .set_client_to_sentinel_tcp_settings(tcp_settings());
        if let Some(username) = self.login.username() {
            builder = builder.set_client_to_redis_username(username);
        }
        if let Some(password) = self.login.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if self.tls {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        }
        builder.build()?.async_get_client().await
    }
}

/// Small requests must not wait for each other (the client's default), and a dead peer must be noticed.
fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 5);
    TcpSettings::default().set_nodelay(true).set_keepalive(keepalive)
}

fn node(url: &str) -> Result<Address, Error> {
    let info = url.into_connection_info().map_err(|error| wrong(&error.to_string()))?;
    let info = info.set_tcp_settings(tcp_settings());
    let shown = info.addr().to_string();
    let client = Client::open(info).map_err(|error| wrong(&error.to_string()))?;
    Ok(Address { kind: Kind::Node(Box::new(client)), shown })
}

fn cluster(rest: &str, tls: bool) -> Result<Address, Error> {
    let Hosts { login, hosts, path } = Hosts::of(rest)?;
    if !path.is_empty() {
        return Err(wrong("a cluster has no databases; remove what follows the hosts"));
    }
    let scheme = if tls { "rediss" } else { "redis" };
    let nodes = hosts.iter().map(|host| format!("{scheme}://{login}{host}"));
    let client = ClusterClientBuilder::new(nodes)
        .tcp_settings(tcp_settings())
        .connection_timeout(CONNECT)
        .response_timeout(RESPONSE)
        .retries(3)
        .build()
        .map_err(|error| wrong(&error.to_string()))?;
    Ok(Address { kind: Kind::Cluster(Box::new(client)), shown: format!("cluster {}", hosts.join(",")) })
}

fn sentinel(rest: &str, tls: bool) -> Result<Address, Error> {
    let Hosts { login, hosts, path } = Hosts::of(rest)?;
    let (master, database) = path.split_once('/').unwrap_or((path, ""));
    if master.is_empty() {
        return Err(wrong("the name of the master is missing after the sentinels"));
    }
    let scheme = if tls { "rediss" } else { "redis" };
    let parse = |url: String| url.into_connection_info().map_err(|error| wrong(&error.to_string()));
    let addresses: Result<Vec<ConnectionAddr>, Error> =
        hosts.iter().map(|host| Ok(parse(format!("{scheme}://{host}"))?.addr().clone())).collect();
    // Parsed as an address of a node, so that credentials are decoded by the same rules.
    let login = parse(format!("redis://{login}master/{database}"))?.redis_settings().clone();
    let sentinels = Sentinels { addresses: addresses?, master: master.to_owned(), login, tls };
    let shown = format!("master {master} of sentinels {}", hosts.join(","));
    Ok(Address { kind: Kind::Sentinel(Box::new(sentinels)), shown })
}

/// `user:password@h1:p,h2:p/path`, split into its parts.
struct Hosts<'a> {
    /// Including its `@`, or empty.
    login: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
}

impl<'a> Hosts<'a> {
    fn of(rest: &'a str) -> Result<Hosts<'a>, Error> {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rfind('@') {
            Some(at) => authority.split_at(at + 1),
            None => ("", authority),
        };
        let hosts: Vec<&str> = hosts.split(',').collect();
        if hosts.iter().any(|host| host.is_empty()) {
            return Err(wrong("a host is empty"));
        }
        Ok(Hosts { login, hosts, path })
    }
}

fn wrong(reason: &str) -> Error {
    Error::Address { reason: format!("{reason}; {FORMS}") }
}
