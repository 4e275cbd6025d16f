//! One connection to a server: through the pipes of a program, or to an HTTP address. Whoever opened it must close
//! it, which also ends the program.

use std::{sync::Arc, time::Duration};

use rmcp::{
    ClientHandler, Peer, RoleClient, ServiceError,
    model::{ClientConfig, ClientRequest, Implementation, PingRequest, Tool},
    service::{NotificationContext, QuitReason, RunningService, serve_client},
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use shared::text::with_causes;
use tokio::{sync::Notify, task::JoinError};
use tokio_util::sync::CancellationToken;

use super::{
    environment::variable,
    process::{Process, Tail},
    secrets::ServerSecrets,
};
use crate::settings::McpServer;

/// The limit for a start, and for the list of tools. Some servers first download what they run.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a server may take to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

type UntilClosed = futures_util::future::BoxFuture<'static, Result<QuitReason, JoinError>>;

pub(super) struct Connection {
    pub(super) link: Link,
    process: Option<Process>,
    /// Completes when the connection has ended; None after that.
    until_closed: Option<UntilClosed>,
    /// Closes the connection.
    close: Option<rmcp::service::RunningServiceCancellationToken>,
    changed: Arc<Notify>,
}

/// A handle for calls through a connection.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) peer: Peer<RoleClient>,
    /// Cancelled when a caller finds that the connection no longer works.
    pub(super) broken: CancellationToken,
    tail: Tail,
}

/// Receives the notifications of a server.
#[derive(Debug)]
struct Listener(Arc<Notify>);

impl ClientHandler for Listener {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.notify_one();
    }

    fn get_info(&self) -> ClientConfig {
        let mut config = ClientConfig::default();
        config.client_info = Implementation::new("trellis", env!("CARGO_PKG_VERSION"));
        config
    }
}

impl Connection {
    pub(super) async fn open(
        settings: &McpServer,
        secrets: &ServerSecrets,
        stop: &CancellationToken,
    ) -> Result<Self, String> {
        let changed = Arc::new(Notify::new());
        let listener = Listener(changed.clone());
        let mut process = None;
        let starting = async {
            match &settings.url {
                Some(url) => {
                    let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
                    if let Some(name) = &settings.token_env {
                        config = config.auth_header(variable(name)?);
                    }
                    let transport = StreamableHttpClientTransport::from_config(config);
                    serve_client(listener, transport).await.map_err(|error| with_causes(&error))
                }
                None => {
                    let (started, pipes) = Process::start(settings, secrets)?;
                    process = Some(started);
                    serve_client(listener, pipes).await.map_err(|error| with_causes(&error))
                }
            }
        };
        let started = tokio::select! {
            started = tokio::time::timeout(START_TIMEOUT, starting) => {
                started.unwrap_or_else(|_| Err(format!("the server did not start within {} s", START_TIMEOUT.as_secs())))
            }
            () = stop.cancelled() => Err("the worker is stopping".into()),
        };
        match started {
            Ok(service) => Ok(Self::new(service, process, changed)),
            Err(why) => {
                let last = match process {
                    Some(process) => process.end().await,
                    None => String::new(),
                };
                Err(format!("{why}{last}"))
            }
        }
    }

    fn new(
        service: RunningService<RoleClient, Listener>,
        process: Option<Process>,
        changed: Arc<Notify>,
    ) -> Self {
        let tail = process.as_ref().map(Process::tail).unwrap_or_default();
        let link = Link { peer: service.peer().clone(), broken: CancellationToken::new(), tail };
        let close = Some(service.cancellation_token());
        Connection { link, process, until_closed: Some(Box::pin(service.waiting())), close, changed }
    }

    /// Waits until the connection has ended, and returns why.
    pub(super) async fn ended(&mut self) -> String {
        let why = match &mut self.until_closed {
            Some(until_closed) => {
                until_closed.await.err().map(|error| format!("the connection broke: {error}"))
            }
            None => None,
        };
        self.until_closed = None;
        why.unwrap_or_else(|| "the server has ended".into())
    }

    /// Notified when the server's list of tools has changed.
    pub(super) fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }

    /// Closes the connection and ends the program behind it. Returns the last lines of the program's standard error.
    pub(super) async fn close(mut self) -> String {
        if let Some(close) = self.close.take() {
            close.cancel();
        }
        if let Some(until_closed) = self.until_closed.take() {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, until_closed).await;
        }
        match self.process {
            Some(process) => process.end().await,
            None => String::new(),
        }
    }
}

impl Link {
    pub(super) async fn tools(&self) -> Result<Vec<Tool>, ServiceError> {
        let listing = tokio::time::timeout(START_TIMEOUT, self.peer.list_all_tools()).await;
        listing.unwrap_or(Err(ServiceError::Timeout { timeout: START_TIMEOUT }))
    }

    /// Whether the connection works, as far as is known.
    pub(super) fn is_usable(&self) -> bool {
        !self.broken.is_cancelled() && !self.peer.is_transport_closed()
    }

    /// Whether the server answers a ping.
    pub(super) async fn answers_ping(&self) -> bool {
        let ping = self.peer.send_request(ClientRequest::PingRequest(PingRequest::default()));
        matches!(tokio::time::timeout(PING_TIMEOUT, ping).await, Ok(Ok(_) | Err(ServiceError::McpError(_))))
    }

    pub(super) fn last_error_lines(&self) -> String {
        self.tail.last_lines()
    }
}
