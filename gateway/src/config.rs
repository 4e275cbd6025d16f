//! What a gateway is started with, the bounds on what a client may cost, and who a client is.

use std::{net::SocketAddr, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use bus::role::Kind;
use domain::TraceId;
use tokio::sync::Notify;

/// What a gateway is started with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it listens; port 0 means any free one.
    pub listen: SocketAddr,
    /// The file of tokens: a line for each, as [`crate::token::line`] writes it.
    pub tokens: Option<PathBuf>,
    /// Names besides the address itself that the `Host` of a request may have.
    pub hosts: Vec<String>,
    /// The origins of web pages that may ask from a browser, besides its own: `https://app.example.com`.
    pub origins: Vec<String>,
    /// One token with all rights, for a server that only the commands of this user know.
    pub token: Option<String>,
    /// Whoever reaches it may do everything, if there are no tokens.
    pub is_open: bool,
    /// Where the spans of runs are seen: the page links there.
    pub trace_url: Option<TraceUrl>,
    /// The page has a playground, which may kill the worker of this process.
    pub playground: Option<Playground>,
    pub limits: Limits,
}

impl Config {
    /// On this address, for whoever reaches it, if it is one of this machine only.
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
                Err("it is an address with {trace_id} in it, such as http://localhost:16686/trace/{trace_id}"
                    .into())
            }
        }
    }
}

/// What a playground may do to the process that it runs in.
#[derive(Debug, Clone, Default)]
pub struct Playground(Arc<Notify>);

impl Playground {
    pub(crate) fn kill_worker(&self) {
        self.0.notify_one();
    }

    /// Waits until the worker of this process is to be killed.
    pub async fn kills_worker(&self) {
        self.0.notified().await;
    }
}

/// The bounds on what a client may cost.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The largest body of a request.
    pub body_bytes: usize,
    /// The largest head of a request: its first line and its headers.
    pub head_bytes: usize,
    /// Connections at once; further ones wait. Three quarters may be streams, and half may be streams of one caller.
    pub connections: usize,
    /// Within this time the head of a request must have come; an idle connection is closed then too.
    pub head_within: Duration,
    /// Within this time the body of a request must have come.
    pub body_within: Duration,
    /// A client that reads nothing of its answer for this time is dropped.
    pub unread_within: Duration,
    /// Requests of one token, or of one address without tokens, in a second, on average.
    pub per_second: u32,
    /// Requests of one of them at once.
    pub burst: u32,
    /// How often an event stream that is silent says that it is there.
    pub heartbeat: Duration,
    /// How long answers may go on after the stop.
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

/// Who asks. It is in the extensions of every request that a handler gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub name: String,
    pub kinds: Vec<Kind>,
}
