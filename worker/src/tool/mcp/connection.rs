//! One connection to a server: through the pipes of a program, or to an HTTP address. The code that
//! opens it must close it, which also ends the program.

use std::{sync::Arc, time::Duration};

use domain::wording::with_causes;
use host::internet;
use rmcp::{
    ClientHandler, Peer, RoleClient, ServiceError,
    model::{ClientConfig, ClientRequest, Implementation, PaginatedRequestParams, PingRequest},
    service::{NotificationContext, QuitReason, RunningService, serve_client},
    transport::{
        StreamableHttpClientTransport, Transport, async_rw::AsyncRwTransport,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Notify,
    task::JoinError,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    bounded::BoundedTransport,
    offer::Listing,
    process::{Confinement, Process, Tail},
};
use crate::{
    relay::{self, LastFault, MAX_FRAME_BYTES, Pipe, Relay, RequestSent, Upstream},
    secret::{Redactor, variable},
    settings::McpServer,
};

/// The limit for a start, and for the list of tools. Some servers first download their program.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time for a server to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The most tools that a server may list, and the most pages of its list.
const MAX_TOOLS: usize = 1000;
const MAX_PAGES: usize = 100;

type UntilClosed = futures_util::future::BoxFuture<'static, Result<QuitReason, JoinError>>;

pub(super) struct Connection {
    pub(super) link: Link,
    process: Option<Process>,
    /// Completes when the connection has ended; `None` after that.
    until_closed: Option<UntilClosed>,
    /// Closes the connection.
    close: Option<rmcp::service::RunningServiceCancellationToken>,
    changed: Arc<Notify>,
    /// Passes on the answers of an HTTP server; aborted on drop.
    _relay: Option<AbortOnDropHandle<()>>,
}

/// A handle for calls through a connection.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) peer: Peer<RoleClient>,
    /// Cancelled when a caller finds that the connection no longer works.
    pub(super) broken: CancellationToken,
    tail: Tail,
    /// The reason why an answer was not passed on.
    fault: LastFault,
}

/// Receives the notifications of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct Listener(Arc<Notify>);

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
        name: &str,
        settings: &McpServer,
        secrets: &Redactor,
        confinement: &Confinement,
        stop: &CancellationToken,
    ) -> Result<Self, String> {
        let listener = Listener::default();
        let (mut process, mut relaying, fault) = (None, None, LastFault::default());
        let starting = async {
            match &settings.url {
                Some(url) => {
                    let relay =
                        Relay::open(upstream(url, settings)?).await.map_err(|error| with_causes(&error))?;
                    let address = relay.address().map_err(|error| with_causes(&error))?;
                    relaying = Some(AbortOnDropHandle::new(tokio::spawn(relay.serve(fault.clone()))));
                    let mut config = StreamableHttpClientTransportConfig::with_uri(address);
                    config.max_sse_event_size = MAX_FRAME_BYTES;
                    if let Some(name) = &settings.token_env {
                        config = config.auth_header(variable(name)?);
                    }
                    let client = relay::local_client().build().map_err(|error| with_causes(&error))?;
                    let transport = StreamableHttpClientTransport::with_client(client, config);
                    greet(transport, &listener, &fault).await
                }
                None => {
                    let (started, pipes) = Process::start(name, settings, secrets, confinement).await?;
                    process = Some(started);
                    greet(lines(pipes, &fault), &listener, &fault).await
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
            Ok(service) => Ok(Self::new(service, process, listener, fault, relaying)),
            Err(why) => {
                let last = match process {
                    Some(process) => process.end().await,
                    None => String::new(),
                };
                Err(format!("{why}{}{last}", of_fault(&fault)))
            }
        }
    }

    pub(super) fn new(
        service: RunningService<RoleClient, Listener>,
        process: Option<Process>,
        Listener(changed): Listener,
        fault: LastFault,
        relaying: Option<AbortOnDropHandle<()>>,
    ) -> Self {
        let tail = process.as_ref().map(Process::tail).unwrap_or_default();
        let link = Link { peer: service.peer().clone(), broken: CancellationToken::new(), tail, fault };
        let close = Some(service.cancellation_token());
        let until_closed: Option<UntilClosed> = Some(Box::pin(service.waiting()));
        Connection { link, process, until_closed, close, changed, _relay: relaying }
    }

    /// Waits until the connection has ended, and returns the reason.
    pub(super) async fn ended(&mut self) -> String {
        let why = match &mut self.until_closed {
            Some(until_closed) => {
                until_closed.await.err().map(|error| format!("the connection broke: {error}"))
            }
            None => None,
        };
        self.until_closed = None;
        let why = why.unwrap_or_else(|| "the server has ended".into());
        format!("{why}{}", of_fault(&self.link.fault))
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
    /// Adds the tools that the server lists, up to a bound, since its list may be endless.
    pub(super) async fn list(&self, listing: &mut Listing<'_>) -> Result<(), String> {
        let adding = async {
            let (mut tools, mut from) = (0, None);
            for _ in 0..MAX_PAGES {
                let page = PaginatedRequestParams::default().with_cursor(from);
                let page = self.peer.list_tools(Some(page)).await.map_err(|error| with_causes(&error))?;
                tools += page.tools.len();
                from = page.next_cursor;
                if tools > MAX_TOOLS {
                    break;
                }
                page.tools.into_iter().try_for_each(|tool| listing.add(tool))?;
                if from.is_none() {
                    return Ok(());
                }
            }
            Err(format!("it lists more than {MAX_TOOLS} tools, or on more than {MAX_PAGES} pages"))
        };
        let listed = tokio::time::timeout(START_TIMEOUT, adding).await;
        let listed =
            listed.unwrap_or_else(|_| Err(format!("it took longer than {} s", START_TIMEOUT.as_secs())));
        listed.map_err(|why| format!("{why}{}", of_fault(&self.fault)))
    }

    /// Returns true if the connection works, as far as is known.
    pub(super) fn is_usable(&self) -> bool {
        !self.broken.is_cancelled() && !self.peer.is_transport_closed()
    }

    /// Returns true if the server answers a ping.
    pub(super) async fn answers_ping(&self) -> bool {
        let ping = self.peer.send_request(ClientRequest::PingRequest(PingRequest::default()));
        matches!(tokio::time::timeout(PING_TIMEOUT, ping).await, Ok(Ok(_) | Err(ServiceError::McpError(_))))
    }

    /// The reason why an answer was not passed on, if there is one, and the end of the program's
    /// standard error.
    pub(super) fn last_error_lines(&self) -> String {
        format!("{}{}", of_fault(&self.fault), self.tail.last_lines())
    }
}

/// A transport for the messages of a program, which are lines.
pub(super) fn lines<R, W>(
    (output, input): (R, W),
    fault: &LastFault,
) -> AsyncRwTransport<RoleClient, Pipe<R>, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    AsyncRwTransport::new_client(Pipe::new(output, fault.clone()), input)
}

/// Exchanges the first messages with a server.
pub(super) async fn greet(
    transport: impl Transport<RoleClient> + 'static,
    listener: &Listener,
    fault: &LastFault,
) -> Result<RunningService<RoleClient, Listener>, String> {
    let transport = BoundedTransport::new(transport, fault.clone());
    serve_client(listener.clone(), transport).await.map_err(|error| with_causes(&error))
}

fn upstream(url: &str, settings: &McpServer) -> Result<Upstream, String> {
    let client = internet::strict_client().build().map_err(|error| with_causes(&error))?;
    let longest =
        settings.timeout_ms.map_or(Duration::ZERO, Duration::from_millis).max(START_TIMEOUT) + CLOSE_TIMEOUT;
    Ok(Upstream {
        client,
        base: url.to_owned(),
        shape: None,
        passes_errors: true,
        longest: Some(longest),
        sent: RequestSent::default(),
    })
}

fn of_fault(fault: &LastFault) -> String {
    fault.take().map(|why| format!(" ({why})")).unwrap_or_default()
}
