//! The server: it binds, accepts connections within the limits, and ends every one of them when it
//! stops.

use std::{
    convert::Infallible,
    future::Future,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::Body, middleware::from_fn_with_state};
use bus::Bus;
use client::Client;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_service::Service;

use crate::{
    auth::{Door, Ends, pass},
    config::{Config, Limits},
    last_request::LastRequest,
    live_runs::LiveRuns,
    rate::Rate,
    router::{self, AppState},
    session::Sessions,
    streams::Streams,
    token::{self, Tokens},
    write_timeout::WriteTimeout,
};

/// Files that a process has open besides its connections.
const OTHER_FILES: u64 = 512;
/// The pause after a failed accept, for example because of too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// The reasons for which a gateway can't start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "other machines can reach {0}, and there are no tokens\n\nhint: name a token file with --tokens (`trellis gateway token` makes its lines), or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    #[error(
        "can't listen on {address}: {source}\n\nhint: another process may use this port; port 0 takes any free port"
    )]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error(
        "there are no tokens, so every user and every agent of this machine could do everything\n\nhint: name a token file with --tokens (`trellis gateway token` makes its lines), or allow this with --open"
    )]
    Tokenless,
    #[error(transparent)]
    Tokens(#[from] token::Error),
}

/// The parts of a link that signs in to the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignIn {
    /// It follows `#in=` in the link, and is valid once.
    pub code: String,
    /// The host name to use for the page on this machine.
    pub host: Option<String>,
}

/// A gateway that listens but does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
    door: Arc<Door>,
    limits: Limits,
    /// Cancelled at the stop; ends streams of events.
    stopping: CancellationToken,
}

impl Server {
    /// Listens. An address that other machines can reach requires a file of tokens.
    pub async fn bind(config: Config, bus: Bus) -> Result<Server, Error> {
        let Config { listen, tokens, mut hosts, origins, token, is_open, trace_url, playground, limits } =
            config;
        if !listen.ip().to_canonical().is_loopback() && tokens.is_none() {
            return Err(Error::Open(listen));
        }
        if tokens.is_none() && token.is_none() && !is_open {
            return Err(Error::Tokenless);
        }
        let stopping = CancellationToken::new();
        let tokens = Tokens::read(tokens, token.as_deref(), &stopping).await?;
        let (everybody, rate) = (token::everybody(&stopping), Rate::new(limits.per_second, limits.burst));
        let sessions = Arc::new(Sessions::new(token.as_deref(), listen.ip().to_canonical().is_loopback()));
        hosts.extend(sessions.host.clone());
        let (seen, signing_in) = (LastRequest::default(), sessions.clone());
        let form_within = limits.body_within;
        let door = Arc::new(Door { hosts, origins, tokens, everybody, sessions, form_within, rate, seen });
        allow_open_files(limits.connections);
        let cannot = |source| Error::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let client = Client::new(bus.clone(), "gateway");
        let (streams, watched) = (Streams::of(limits.connections), LiveRuns::of(&client));
        let means = AppState {
            client,
            limits: limits.clone(),
            streams,
            sessions: signing_in,
            watched,
            trace_url,
            playground,
        };
        let router = router::router(&means, bus).layer(from_fn_with_state(door.clone(), pass));
        Ok(Server { listener, address, router, door, limits, stopping })
    }

    /// The time of the last request.
    pub fn seen(&self) -> LastRequest {
        self.door.seen.clone()
    }

    /// A one-time code that signs in the owner of the server's token; none if there is no such
    /// token.
    pub fn sign_in(&self) -> Option<SignIn> {
        let owner = self.door.tokens.as_ref()?.owner()?;
        Some(SignIn { code: self.door.sessions.code_for(owner), host: self.door.sessions.host.clone() })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop`. Then event streams end at once, and other answers have a bounded time
    /// to finish.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
        let Server { listener, router, door, limits, stopping, .. } = self;
        let (connections, ended) = (TaskTracker::new(), CancellationToken::new());
        let room = Arc::new(Semaphore::new(limits.connections));
        let take = async {
            loop {
                // Taken before `accept`: connections beyond the limit wait in the backlog.
                let permit = room.clone().acquire_owned().await.expect("the semaphore is never closed");
                match listener.accept().await {
                    Ok((stream, remote)) => {
                        let (router, limits) = (router.clone(), limits.clone());
                        let connection = Connection { stream, remote: remote.ip(), router, limits, permit };
                        connections.spawn(connection.serve(stopping.clone(), ended.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        let follow = async {
            match &door.tokens {
                Some(tokens) => tokens.follow().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop => {}
            () = take => {}
            () = follow => {}
        }
        drop(listener);
        stopping.cancel();
        connections.close();
        if tokio::time::timeout(limits.stop_within, connections.wait()).await.is_err() {
            ended.cancel();
            connections.wait().await;
        }
        Ok(())
    }
}

/// Raises the limit of open files for this many connections, as far as the hard limit allows. Many
/// systems begin with 1,024.
fn allow_open_files(connections: usize) {
    let wanted = connections as u64 + OTHER_FILES;
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        let most = wanted.min(hard).max(soft);
        setrlimit(Resource::RLIMIT_NOFILE, most, hard).map(|()| most)
    });
    if raised.is_ok_and(|most| most >= wanted) {
        return;
    }
    tracing::warn!(wanted, "the limit of open files is below the number of connections: raise `ulimit -Hn`");
}

struct Connection {
    stream: TcpStream,
    remote: IpAddr,
    router: Router,
    limits: Limits,
    permit: OwnedSemaphorePermit,
}

impl Connection {
    /// Serves the connection until it is closed. After `stopping` it takes no further request, and
    /// after `ended` it is dropped.
    async fn serve(self, stopping: CancellationToken, ended: CancellationToken) {
        let Connection { stream, remote, router, limits, permit: _permit } = self;
        // Without delay, because each answer and each event of a stream is sent at once.
        let (Ok(local), Ok(())) = (stream.local_addr(), stream.set_nodelay(true)) else { return };
        let ends = Ends { local: local.ip(), remote };
        let service = service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ends);
            let mut router = router.clone();
            async move { Service::call(&mut router, request).await.map_err(|never: Infallible| never) }
        });
        let stream = TokioIo::new(WriteTimeout::new(stream, limits.unread_within));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_within)
            .max_buf_size(limits.head_bytes)
            .serve_connection(stream, service);
        let mut connection = std::pin::pin!(connection);
        let closed = tokio::select! {
            closed = connection.as_mut() => Some(closed),
            () = stopping.cancelled() => None,
        };
        let closed = match closed {
            Some(closed) => closed,
            None => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    closed = connection => closed,
                    () = ended.cancelled() => return,
                }
            }
        };
        if let Err(error) = closed {
            tracing::debug!(%error, "a connection ended");
        }
    }
}
