//! The configuration of a gateway, its limits for a client, and the identity of a caller.

use std::{net::SocketAddr, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use bus::role::Kind;
use domain::TraceId;
use tokio::sync::Notify;

/// The configuration of a gateway.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address to listen on; port 0 takes any free port.
    pub listen: SocketAddr,
    /// The file of tokens, with a line for each as [`crate::token::line`] writes it.
    pub tokens: Option<PathBuf>,
    /// Names that the `Host` of a request may have, besides the address itself.
    pub hosts: Vec<String>,
    /// Other origins whose pages may send requests from a browser, such as
    /// `https://app.example.com`.
    pub origins: Vec<String>,
    /// One token with all rights, for a server that only the commands of this user can find.
    pub token: Option<String>,
    /// Allows a server without any tokens, where every client has all rights.
    pub is_open: bool,
    /// The viewer of traces that the page links to.
    pub trace_url: Option<TraceUrl>,
    /// Shows the playground on the page, which may kill the worker of this process.
    pub playground: Option<Playground>,
    pub limits: Limits,
}

impl Config {
    /// Listens on this address without tokens. [`crate::Server::bind`] rejects it as long as
    /// `tokens`, `token` and `is_open` are all unset.
    pub fn new(listen: SocketAddr) -> Self {
        let (hosts, origins) = (Vec::new(), Vec::new());
        Config {
            listen,
            tokens: None,
            hosts,
            origins,
            token: None,
            is_open: false,
            trace_url: None,
            playground: None,
            limits: Limits::default(),
        }
    }
}

/// The address of a viewer of traces, such as `http://localhost:16686/trace/{trace_id}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceUrl(String);

impl TraceUrl {
    /// The address of one trace.
    pub(crate) fn of(&self, trace_id: TraceId) -> String {
        self.0.replace(TraceUrl::PLACE, &trace_id.to_string())
    }

    const PLACE: &str = "{trace_id}";
}

impl FromStr for TraceUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_address = text.starts_with("http://") || text.starts_with("https://");
        match is_address && text.contains(TraceUrl::PLACE) {
            true => Ok(TraceUrl(text.to_owned())),
            false => {
                Err("the address must contain {trace_id}, such as http://localhost:16686/trace/{trace_id}"
                    .into())
            }
        }
    }
}

/// The actions of a playground on its own process.
#[derive(Debug, Clone, Default)]
pub struct Playground(Arc<Notify>);

impl Playground {
    pub(crate) fn kill_worker(&self) {
        self.0.notify_one();
    }

    /// Waits until the playground asks to kill the worker of this process.
    pub async fn kills_worker(&self) {
        self.0.notified().await;
    }
}

/// The limits on the resources that clients use.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The largest body of a request.
    pub body_bytes: usize,
    /// The largest head of a request: its first line and its headers.
    pub head_bytes: usize,
    /// The most connections at once; further ones wait. At most three quarters are streams, and at
    /// most half are streams of one caller.
    pub connections: usize,
    /// The most time for the head of a request to arrive. An idle connection is closed after this
    /// time too.
    pub head_within: Duration,
    /// The most time for the body of a request to arrive.
    pub body_within: Duration,
    /// A client that reads nothing of its answer for this time is disconnected.
    pub unread_within: Duration,
    /// Requests per second, on average, of one token; without tokens, of one address.
    pub per_second: u32,
    /// Requests at once of one token or address.
    pub burst: u32,
    /// The interval of the comments that keep a silent event stream open.
    pub heartbeat: Duration,
    /// The most time that running answers have after the stop.
    pub stop_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body_bytes: domain::limits::MAX_MESSAGE_BYTES,
            head_bytes: 64 << 10,
            connections: 2048,
            head_within: Duration::from_secs(10),
            body_within: Duration::from_secs(30),
            unread_within: Duration::from_secs(30),
            per_second: 100,
            burst: 200,
            heartbeat: Duration::from_secs(15),
            stop_within: Duration::from_secs(10),
        }
    }
}

/// The sender of a request. It is in the extensions of every request that a handler receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub name: String,
    pub kinds: Vec<Kind>,
}
