//! Connects to NATS. The first connection succeeds quickly or fails; a lost connection is retried
//! for ever.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_nats::{ConnectOptions, Event, ServerAddr, ServerError, jetstream::ContextBuilder};
use domain::tls::Tls;
use percent_encoding::percent_decode_str;
use tokio::sync::{Semaphore, watch};

use super::{
    Connection, Error, Namespace, Nats, OWN_CALLS, backoff, denials::Denials, objects::PAYLOADS_AT_ONCE,
    outages::Outages,
};

/// The interval of pings. Two unanswered pings close a dead connection. With the client's default
/// of a minute that would take three minutes.
const PING_EVERY: Duration = Duration::from_secs(3);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// The most publishes that may wait for their acknowledgement at once.
const MAX_UNACKNOWLEDGED: usize = 65_536;
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_secs(3);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The default prefix of the inboxes of all users. A user that may subscribe to all of it can read
/// the answers to others.
const SHARED_INBOX: &str = "_INBOX";
/// The oldest supported version. Older servers silently drop settings that they don't know.
const NEEDED: (u64, u64, &str) = (2, 12, "2.12");

/// The servers to connect to, and the login.
#[derive(Debug, Clone)]
pub struct Connect {
    /// One or several servers, separated by commas: `nats://host:4222`, `tls://host`. An address
    /// may contain a login: `nats://user:password@host`, `nats://token@host`.
    pub url: Servers,
    pub login: Login,
    pub tls: Tls,
    /// The prefix of every subject at which this process receives answers. Where users have
    /// permissions, each has a prefix of its own; without it, all share one.
    pub inbox: Option<String>,
    /// The prefix of the subjects of calls to JetStream, if the streams are in another account: the
    /// server itself answers `$JS.API` for this process's own account. Without it, `$JS.API`.
    pub js_api: Option<String>,
    pub namespace: Namespace,
    /// The name of this process in the server's list of connections.
    pub name: String,
}

impl Connect {
    /// Without a login, except one in the address.
    pub fn new(url: impl Into<String>, namespace: Namespace, name: impl Into<String>) -> Self {
        let (login, tls) = (Login::default(), Tls::default());
        let (url, name) = (Servers(url.into()), name.into());
        Connect { url, login, tls, inbox: None, js_api: None, namespace, name }
    }
}

/// Addresses, which may contain a login and are shown without it.
#[derive(Clone)]
pub struct Servers(String);

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_credentials(&self.0))
    }
}

/// The identity of this process. It takes precedence over a login in an address.
#[derive(Clone, Default)]
pub struct Login {
    /// A credentials file (JWT and nkey).
    pub creds: Option<PathBuf>,
    /// A file with the seed of an nkey.
    pub nkey: Option<PathBuf>,
    pub user: Option<String>,
    pub password: Option<String>,
    pub token: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("creds", &self.creds)
            .field("nkey", &self.nkey)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Nats {
    pub async fn connect(to: &Connect) -> Result<Self, Error> {
        let refused = |reason: String| Error::Connect { url: without_credentials(&to.url.0), reason };
        let (generations, mut generation) = watch::channel(0);
        let denials = Denials::default();
        let heard = denials.clone();
        let outages = Arc::new(Outages::default());
        let told = outages.clone();
        let inbox = to.inbox.clone().unwrap_or_else(|| SHARED_INBOX.to_owned());
        let options = ConnectOptions::new()
            .name(&to.name)
            .ping_interval(PING_EVERY)
            .connection_timeout(CONNECT_WITHIN)
            .request_timeout(Some(ANSWER_WITHIN))
            .reconnect_delay_callback(backoff)
            .max_reconnects(None)
            .custom_inbox_prefix(&inbox)
            .event_callback(move |event| {
                hear(&event, &generations, &heard, &told);
                std::future::ready(())
            });
        let addresses = addresses(&to.url.0).map_err(refused)?;
        let options = with_login(options, &to.login, &addresses).await.map_err(refused)?;
        let options = with_tls(options, &to.tls).map_err(refused)?;
        let tried = tokio::time::timeout(CONNECT_WITHIN * 2, options.connect(addresses)).await;
        let client = match tried {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(refused(error.to_string())),
            Err(_) => return Err(refused("no answer in time".into())),
        };
        // The client also reports the first connection, a little later. Counted as a reconnect,
        // that report would restart every reader.
        tokio::time::timeout(CONNECT_WITHIN, generation.wait_for(|count| *count > 0)).await.ok();
        let found = client.server_info().version;
        if !new_enough(&found) {
            return Err(Error::TooOld { found, needed: NEEDED.2 });
        }
        let calls = to.js_api.clone().unwrap_or_else(|| OWN_CALLS.to_owned());
        let publisher = ContextBuilder::new()
            .timeout(ACKNOWLEDGE_WITHIN)
            .ack_timeout(ACKNOWLEDGE_WITHIN)
            .max_ack_inflight(MAX_UNACKNOWLEDGED)
            .backpressure_on_inflight(true)
            .build(client.clone());
        let api = ContextBuilder::new().timeout(ANSWER_WITHIN).api_prefix(&calls).build(client.clone());
        let connection = Connection {
            client,
            publisher,
            api,
            namespace: to.namespace.clone(),
            generation,
            topology: OnceLock::new(),
            pools: Default::default(),
            restricted: to.inbox.is_some(),
            inbox,
            calls,
            denials,
            outages,
            no_account_info: Default::default(),
            no_purge: Default::default(),
            payloads_of_the_core: Semaphore::new(PAYLOADS_AT_ONCE),
            payloads_of_others: Semaphore::new(PAYLOADS_AT_ONCE),
        };
        Ok(Nats(Arc::new(connection), None))
    }
}

async fn with_login(
    options: ConnectOptions,
    login: &Login,
    addresses: &[ServerAddr],
) -> Result<ConnectOptions, String> {
    if let Some(path) = &login.creds {
        let read = options.credentials_file(path).await;
        return read.map_err(|error| format!("credentials file {}: {error}", path.display()));
    }
    if let Some(path) = &login.nkey {
        return Ok(options.nkey(seed(path)?));
    }
    if let Some(token) = &login.token {
        return Ok(options.token(token.clone()));
    }
    if let (Some(user), Some(password)) = (&login.user, &login.password) {
        return Ok(options.user_and_password(user.clone(), password.clone()));
    }
    Ok(match of_address(addresses) {
        Some((user, Some(password))) => options.user_and_password(user, password),
        // A user name without a password is a token.
        Some((token, None)) => options.token(token),
        None => options,
    })
}

/// The seed in a file: one line, which begins with `S`.
fn seed(path: &Path) -> Result<String, String> {
    let wrong = |reason: &str| format!("nkey file {}: {reason}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?;
    let line = text.lines().map(str::trim).find(|line| line.starts_with('S'));
    line.map(str::to_owned).ok_or_else(|| wrong("it has no seed: a line that begins with `SU`"))
}

/// The files are opened here, because the client would report a missing file as a failed
/// connection.
fn with_tls(mut options: ConnectOptions, tls: &Tls) -> Result<ConnectOptions, String> {
    let there = |path: &PathBuf| match std::fs::File::open(path) {
        Ok(_) => Ok(path.clone()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    };
    if let Some(ca) = &tls.ca {
        options = options.add_root_certificates(there(ca)?);
    }
    if let Some((certificate, key)) = &tls.certificate {
        options = options.add_client_certificate(there(certificate)?, there(key)?);
    }
    Ok(options.require_tls(tls.required || tls.ca.is_some() || tls.certificate.is_some()))
}

fn hear(event: &Event, generations: &watch::Sender<u64>, denials: &Denials, outages: &Outages) {
    match event {
        Event::Connected => {
            generations.send_modify(|generation| *generation += 1);
            tracing::debug!("connected to NATS");
            outages.connected();
        }
        Event::Disconnected => outages.disconnected("the connection was lost"),
        Event::SlowConsumer(_) => tracing::warn!("a subscription lags too far behind and loses messages"),
        Event::ServerError(ServerError::Other(said)) if denials.hear(said) => {}
        Event::ServerError(error) => tracing::warn!(%error, "the NATS server reports an error"),
        Event::ClientError(error) => outages.disconnected(&error.to_string()),
        Event::LameDuckMode | Event::Draining | Event::Closed => tracing::debug!(%event, "NATS"),
    }
}

fn addresses(url: &str) -> Result<Vec<ServerAddr>, String> {
    let servers = url.split(',').map(str::trim).filter(|server| !server.is_empty());
    let parsed: Result<Vec<ServerAddr>, _> = servers.map(str::parse).collect();
    match parsed {
        Ok(addresses) if addresses.is_empty() => Err("no server is named".into()),
        Ok(addresses) => Ok(addresses),
        Err(error) => Err(format!("not a server address: {error}")),
    }
}

/// The client ignores a login in an address. The first address with a login is used.
fn of_address(addresses: &[ServerAddr]) -> Option<(String, Option<String>)> {
    let mut named = addresses.iter().filter_map(|address| Some((address.username()?, address.password())));
    named.next().map(|(user, password)| (decoded(user), password.map(decoded)))
}

/// Decodes `%40` and other percent-encoded characters of an address.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn without_credentials(url: &str) -> String {
    let server = |server: &str| match (server.split_once("://"), server.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        (None, Some((_, host))) => host.to_owned(),
        (_, None) => server.to_owned(),
    };
    url.split(',').map(server).collect::<Vec<_>>().join(",")
}

fn new_enough(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split(['.', '-', '+']).map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (NEEDED.0, NEEDED.1),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for enough in ["2.12.0", "2.12.0-RC.1", "v2.15.1", "2.100.0", "3.0.0"] {
            assert!(new_enough(enough), "{enough}");
        }
        for too_old in ["2.9.10", "2.11.9", "1.99.0", "", "two", "2"] {
            assert!(!new_enough(too_old), "{too_old}");
        }
    }

    #[test]
    fn credentials_are_never_shown() {
        let url = "nats://user:s3cret@a:4222, tls://t0ken@b,c:4222";
        let mut to = Connect::new(url, Namespace::default(), "x");
        to.login = Login { password: Some("pa55".into()), token: Some("t0k".into()), ..Login::default() };
        let shown = format!("{to:?}");
        for secret in ["s3cret", "t0ken", "pa55", "t0k"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert_eq!(without_credentials("nats://user:p@ss@a:1,b"), "nats://a:1,b");
        assert!(addresses(" , ").is_err());
    }

    #[test]
    fn the_user_is_read_from_the_address() {
        let read = |url| of_address(&addresses(url).unwrap());
        assert_eq!(read("nats://t0ken@b"), Some(("t0ken".into(), None)));
        assert_eq!(read("nats://a,nats://me:p%40ss@b"), Some(("me".into(), Some("p@ss".into()))));
        assert_eq!(read("nats://b:4222"), None);
    }
}
