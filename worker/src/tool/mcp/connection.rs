//! One connection to a server: through the pipes of a program, or to an address. Who opened it closes
//! it, and with it the program.

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
    secrets::Secrets,
};
use crate::settings::McpServer;

/// How long a start may take, and the listing of tools: some fetch what they run first.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a server may take to say that it is there.
const PING: Duration = Duration::from_secs(2);
const CLOSING: Duration = Duration::from_secs(2);

type Waiting = futures_util::future::BoxFuture<'static, Result<QuitReason, JoinError>>;

pub(super) struct Connection {
    pub(super) link: Link,
    process: Option<Process>,
    /// None once it has ended.
    waiting: Option<Waiting>,
    /// Closes what is waited for.
    close: Option<rmcp::service::RunningServiceCancellationToken>,
    changed: Arc<Notify>,
}

/// A connection as those who call through it have it.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) peer: Peer<RoleClient>,
    /// Set by whoever finds that it is of no use any more.
    pub(super) broken: CancellationToken,
    tail: Tail,
}

/// What a server may tell us unasked.
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
        secrets: &Secrets,
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
            started = tokio::time::timeout(PATIENCE, starting) => {
                started.unwrap_or_else(|_| Err(format!("it did not start within {} s", PATIENCE.as_secs())))
            }
            () = stop.cancelled() => Err("the worker is ending".into()),
        };
        match started {
            Ok(service) => Ok(Self::over(service, process, changed)),
            Err(why) => {
                let last = match process {
                    Some(process) => process.end().await,
                    None => String::new(),
                };
                Err(format!("{why}{last}"))
            }
        }
    }

    fn over(
        service: RunningService<RoleClient, Listener>,
        process: Option<Process>,
        changed: Arc<Notify>,
    ) -> Self {
        let tail = process.as_ref().map(Process::tail).unwrap_or_default();
        let link = Link { peer: service.peer().clone(), broken: CancellationToken::new(), tail };
        let close = Some(service.cancellation_token());
        Connection { link, process, waiting: Some(Box::pin(service.waiting())), close, changed }
    }

    /// Comes back when the server is gone.
    pub(super) async fn ended(&mut self) -> String {
        let why = match &mut self.waiting {
            Some(waiting) => waiting.await.err().map(|error| format!("the connection broke: {error}")),
            None => None,
        };
        self.waiting = None;
        why.unwrap_or_else(|| "it has ended".into())
    }

    /// Told whenever its tools are others.
    pub(super) fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }

    /// Ends the connection and the program behind it; its last words.
    pub(super) async fn close(mut self) -> String {
        if let Some(close) = self.close.take() {
            close.cancel();
        }
        if let Some(waiting) = self.waiting.take() {
            let _ = tokio::time::timeout(CLOSING, waiting).await;
        }
        match self.process {
            Some(process) => process.end().await,
            None => String::new(),
        }
    }
}

impl Link {
    pub(super) async fn tools(&self) -> Result<Vec<Tool>, ServiceError> {
        let listing = tokio::time::timeout(PATIENCE, self.peer.list_all_tools()).await;
        listing.unwrap_or(Err(ServiceError::Timeout { timeout: PATIENCE }))
    }

    /// Whether it is of use, as far as is known here.
    pub(super) fn stands(&self) -> bool {
        !self.broken.is_cancelled() && !self.peer.is_transport_closed()
    }

    /// Whether the server still says that it is there.
    pub(super) async fn answers(&self) -> bool {
        let ping = self.peer.send_request(ClientRequest::PingRequest(PingRequest::default()));
        matches!(tokio::time::timeout(PING, ping).await, Ok(Ok(_) | Err(ServiceError::McpError(_))))
    }

    pub(super) fn last_words(&self) -> String {
        self.tail.told()
    }
}
