//! Connecting: the first connection is made quickly or fails; a lost one is tried again for ever.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_nats::{ConnectOptions, Event, ServerAddr, jetstream::ContextBuilder};
use tokio::sync::{OnceCell, watch};

use super::{Connection, Error, Namespace, Nats, backoff};

/// A dead connection is noticed after two pings without an answer. With the client's default of a minute
/// that would take three minutes.
const PING_EVERY: Duration = Duration::from_secs(3);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Publishes that may wait for their acknowledgement at once.
const MAX_UNACKNOWLEDGED: usize = 65_536;
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_secs(3);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Older servers silently drop settings they don't know.
const NEEDED: (u64, u64, &str) = (2, 12, "2.12");

/// Where to connect, and with which credentials.
#[derive(Clone)]
pub struct Connect {
    /// One or several servers, separated by commas: `nats://user:password@host:4222`,
    /// `nats://token@host`, `tls://host`.
    pub url: String,
    /// A credentials file (JWT and nkey).
    pub creds: Option<PathBuf>,
    pub namespace: Namespace,
    /// Our name in the server's list of connections.
    pub name: String,
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("url", &without_credentials(&self.url))
            .field("creds", &self.creds)
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .finish()
    }
}

impl Nats {
    pub async fn connect(to: &Connect) -> Result<Self, Error> {
        let refused = |reason: String| Error::Connect { url: without_credentials(&to.url), reason };
        let (generations, mut generation) = watch::channel(0);
        let mut options = ConnectOptions::new()
            .name(&to.name)
            .ping_interval(PING_EVERY)
            .connection_timeout(CONNECT_WITHIN)
            .request_timeout(Some(ANSWER_WITHIN))
            .reconnect_delay_callback(backoff)
            .max_reconnects(None)
            .event_callback(move |event| {
                hear(&event, &generations);
                std::future::ready(())
            });
        let addresses = addresses(&to.url).map_err(refused)?;
        options = match login(&addresses) {
            Some((user, Some(password))) => options.user_and_password(user, password),
            // A user name without a password is a token.
            Some((token, None)) => options.token(token),
            None => options,
        };
        if let Some(path) = &to.creds {
            let read = options.credentials_file(path).await;
            options =
                read.map_err(|error| refused(format!("credentials file {}: {error}", path.display())))?;
        }
        let tried = tokio::time::timeout(CONNECT_WITHIN * 2, options.connect(addresses)).await;
        let client = match tried {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(refused(error.to_string())),
            Err(_) => return Err(refused("no answer in time".into())),
        };
        // The client reports the first connection too, a little later; counted as a reconnect it would
        // restart every reader.
        tokio::time::timeout(CONNECT_WITHIN, generation.wait_for(|count| *count > 0)).await.ok();
        let found = client.server_info().version;
        if !new_enough(&found) {
            return Err(Error::TooOld { found, needed: NEEDED.2 });
        }
        let publisher = ContextBuilder::new()
            .timeout(ACKNOWLEDGE_WITHIN)
            .ack_timeout(ACKNOWLEDGE_WITHIN)
            .max_ack_inflight(MAX_UNACKNOWLEDGED)
            .backpressure_on_inflight(true)
            .build(client.clone());
        let api = ContextBuilder::new().timeout(ANSWER_WITHIN).build(client.clone());
        let namespace = to.namespace.clone();
        let (objects, topology) = (OnceCell::new(), OnceLock::new());
        Ok(Nats(Arc::new(Connection { client, publisher, api, namespace, generation, objects, topology })))
    }
}

fn hear(event: &Event, generations: &watch::Sender<u64>) {
    match event {
        Event::Connected => {
            generations.send_modify(|generation| *generation += 1);
            tracing::info!("connected to NATS");
        }
        Event::Disconnected => tracing::warn!("disconnected from NATS"),
        Event::SlowConsumer(_) => tracing::warn!("a subscription lags too far behind and loses messages"),
        Event::ServerError(error) => tracing::warn!(%error, "the NATS server reports an error"),
        Event::ClientError(error) => tracing::warn!(%error, "the NATS client reports an error"),
        Event::LameDuckMode | Event::Draining | Event::Closed => tracing::info!(%event, "NATS"),
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

/// The client ignores credentials in addresses; the first address with credentials counts.
fn login(addresses: &[ServerAddr]) -> Option<(String, Option<String>)> {
    let mut named = addresses.iter().filter_map(|address| Some((address.username()?, address.password())));
    named.next().map(|(user, password)| (decoded(user), password.map(decoded)))
}

/// Decodes `%40` and other percent-encoded characters of an address.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| *first == b'%');
        let byte = escaped.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
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
        let to = Connect { url: url.into(), creds: None, namespace: Namespace::default(), name: "x".into() };
        let shown = format!("{to:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("t0ken"), "{shown}");
        assert_eq!(without_credentials("nats://user:p@ss@a:1,b"), "nats://a:1,b");
        assert!(addresses(" , ").is_err());
    }

    #[test]
    fn who_we_are_is_read_from_the_address() {
        let read = |url| login(&addresses(url).unwrap());
        assert_eq!(read("nats://t0ken@b"), Some(("t0ken".into(), None)));
        assert_eq!(read("nats://a,nats://me:p%40ss@b"), Some(("me".into(), Some("p@ss".into()))));
        assert_eq!(read("nats://b:4222"), None);
    }
}
