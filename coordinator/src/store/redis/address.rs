//! The address of Redis: one node, a cluster, or the master that the sentinels name. It is parsed
//! once and opens connections; its text never contains credentials.

use std::{fmt, path::PathBuf, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo,
    RedisResult, TlsCertificates, TlsMode,
    aio::MultiplexedConnection,
    cluster::{ClusterClient, ClusterClientBuilder},
    cluster_async::ClusterConnection,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
    sentinel::{SentinelClientBuilder, SentinelServerType},
};

use domain::tls::Tls;

use super::super::Error;

/// Time limit of one attempt to connect, handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of one answer, to a whole pipeline: long enough for a disk that syncs slowly, short
/// enough to notice a dead server.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// The kernel notices a vanished peer after about this long.
const KEEPALIVE: Duration = Duration::from_secs(10);

const FORMS: &str = "expected redis://host:port, rediss://…, unix:///path, redis-cluster://host:port,host:port \
                     or redis-sentinel://host:port,host:port/master-name";

#[derive(Clone)]
pub(super) enum Connection {
    Node(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// The credentials and TLS files for Redis. Credentials given here replace those in an address.
#[derive(Clone, Default)]
pub struct Login {
    pub user: Option<String>,
    pub password: Option<String>,
    pub tls: Tls,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).field("tls", &self.tls).finish_non_exhaustive()
    }
}

impl Login {
    fn over(&self, mut settings: RedisConnectionInfo) -> RedisConnectionInfo {
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        settings
    }

    /// Reads the TLS files, if any is named. With an address without TLS they are an error, because
    /// they would not be used.
    fn certificates(&self, tls: bool) -> Result<Option<TlsCertificates>, Error> {
        let Tls { required, ca, certificate } = &self.tls;
        if !tls && (*required || ca.is_some() || certificate.is_some()) {
            return Err(wrong("TLS files are given, but the address does not use TLS: use rediss://"));
        }
        let read = |path: &PathBuf| {
            std::fs::read(path)
                .map_err(|error| Error::Address { reason: format!("{}: {error}", path.display()) })
        };
        let root_cert = ca.as_ref().map(read).transpose()?;
        let client_tls = match certificate {
            Some((certificate, key)) => {
                Some(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
            }
            None => None,
        };
        Ok((root_cert.is_some() || client_tls.is_some()).then_some(TlsCertificates { client_tls, root_cert }))
    }
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
    /// The addresses of the sentinels themselves.
    addresses: Vec<ConnectionAddr>,
    master: String,
    /// The credentials for the master, not for the sentinels.
    login: RedisConnectionInfo,
    tls: bool,
    certificates: Option<TlsCertificates>,
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
    pub(super) fn parse(url: &str, who: &Login) -> Result<Address, Error> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("the scheme is missing"))?;
        let tls = scheme.starts_with("rediss");
        let certificates = who.certificates(tls)?;
        match scheme {
            "redis" | "rediss" | "unix" | "redis+unix" => node(url, who, certificates),
            "redis-cluster" | "rediss-cluster" => cluster(rest, tls, who, certificates),
            "redis-sentinel" | "rediss-sentinel" => sentinel(rest, tls, who, certificates),
            other => Err(wrong(&format!("{other}:// is not a known scheme"))),
        }
    }

    /// Makes one attempt to connect, in bounded time.
    pub(super) async fn open(&self) -> RedisResult<Connection> {
        match tokio::time::timeout(CONNECT_TIMEOUT, self.connect()).await {
            Ok(opened) => opened,
            Err(_) => Err(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                format!("no connection within {} s", CONNECT_TIMEOUT.as_secs()),
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
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        // A server that is still loading its data accepts connections and refuses all other
        // commands.
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
        if let Some(certificates) = &self.certificates {
            builder = builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates.clone());
        }
        builder.build()?.async_get_client().await
    }
}

/// Sends small requests at once (the client's default delays them), and notices a dead peer.
fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 5);
    TcpSettings::default().set_nodelay(true).set_keepalive(keepalive)
}

fn node(url: &str, who: &Login, certificates: Option<TlsCertificates>) -> Result<Address, Error> {
    let info = url.into_connection_info().map_err(|error| wrong(&error.to_string()))?;
    let settings = who.over(info.redis_settings().clone());
    let info = info.set_redis_settings(settings).set_tcp_settings(tcp_settings());
    let shown = info.addr().to_string();
    let client = match certificates {
        Some(certificates) => Client::build_with_tls(info, certificates),
        None => Client::open(info),
    };
    let client = client.map_err(|error| wrong(&error.to_string()))?;
    Ok(Address { kind: Kind::Node(Box::new(client)), shown })
}

fn cluster(
    rest: &str,
    tls: bool,
    who: &Login,
    certificates: Option<TlsCertificates>,
) -> Result<Address, Error> {
    let Hosts { login, hosts, path } = Hosts::of(rest)?;
    if !path.is_empty() {
        return Err(wrong("a cluster has no databases; remove what follows the hosts"));
    }
    let scheme = if tls { "rediss" } else { "redis" };
    let nodes = hosts.iter().map(|host| format!("{scheme}://{login}{host}"));
    let mut builder = ClusterClientBuilder::new(nodes)
        .tcp_settings(tcp_settings())
        .connection_timeout(CONNECT_TIMEOUT)
        .response_timeout(RESPONSE_TIMEOUT)
        .retries(3);
    if let Some(user) = &who.user {
        builder = builder.username(user);
    }
    if let Some(password) = &who.password {
        builder = builder.password(password);
    }
    if let Some(certificates) = certificates {
        builder = builder.certs(certificates);
    }
    let client = builder.build().map_err(|error| wrong(&error.to_string()))?;
    Ok(Address { kind: Kind::Cluster(Box::new(client)), shown: format!("cluster {}", hosts.join(",")) })
}

fn sentinel(
    rest: &str,
    tls: bool,
    who: &Login,
    certificates: Option<TlsCertificates>,
) -> Result<Address, Error> {
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
    let login = who.over(parse(format!("redis://{login}master/{database}"))?.redis_settings().clone());
    let sentinels = Sentinels { addresses: addresses?, master: master.to_owned(), login, tls, certificates };
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
