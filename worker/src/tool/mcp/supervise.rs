//! The task that starts a server, watches it, and restarts it when it has ended: at once the first time, then after
//! growing pauses if it keeps ending. No other code ends the server's processes.

use std::{sync::Arc, time::Duration};

use domain::wording::cut;
use telemetry::Outage;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    connection::{Connection, Link},
    offer::{Listing, Tools},
    process::Confinement,
};
use crate::{secret::Redactor, settings::McpServer};

/// A server that was up for this long is considered working: when it ends, it is restarted at once.
const STABLE_AFTER: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The most bytes of the reason why a server is down, which may contain text of the server.
const MAX_WHY_BYTES: usize = 8 << 10;
/// The pause between a notice that the tools have changed and the new list.
const RELIST_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
pub(super) enum State {
    Starting,
    Up(Link),
    /// The reason, with the end of its standard error.
    Down(Arc<str>),
}

#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) name: String,
    pub(super) settings: McpServer,
    pub(super) state: watch::Sender<State>,
    pub(super) tools: Tools,
    pub(super) secrets: Redactor,
    pub(super) confinement: Confinement,
    /// Cancelled once the first start has succeeded or failed.
    pub(super) first_start_done: CancellationToken,
    pub(super) stop: CancellationToken,
}

impl Supervisor {
    pub(super) async fn run(self) {
        let (name, mut pause) = (self.name.as_str(), Duration::ZERO);
        let mut outage = Outage::new("an MCP server");
        while !self.stop.is_cancelled() {
            self.state.send_replace(State::Starting);
            let (why, up_for) = match self.open().await {
                Ok(connection) => {
                    let since = Instant::now();
                    (self.keep(connection).await, Some(since.elapsed()))
                }
                Err(why) => (why, None),
            };
            let why = cut(self.secrets.text(why), MAX_WHY_BYTES);
            if self.stop.is_cancelled() {
                break;
            }
            if up_for.is_some_and(|up| up >= STABLE_AFTER) {
                outage.ended();
            }
            outage.failed(&format!("`{name}` is not running; agents that call it receive the reason"));
            tracing::debug!(server = name, why, "why");
            pause = match up_for {
                Some(up) if up >= STABLE_AFTER => Duration::ZERO,
                Some(_) => pause,
                // Callers that wait for the start must see the failure.
                None => pause.max(FIRST_PAUSE),
            };
            if !pause.is_zero() {
                self.state.send_replace(State::Down(why.into()));
                self.first_start_done.cancel();
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = self.stop.cancelled() => break,
                }
            }
            pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        }
        self.state.send_replace(State::Down("the worker is stopping".into()));
        self.first_start_done.cancel();
    }

    async fn open(&self) -> Result<Connection, String> {
        Connection::open(&self.name, &self.settings, &self.secrets, &self.confinement, &self.stop).await
    }

    /// Keeps a connection as long as it works. Returns the reason for its end.
    pub(super) async fn keep(&self, mut connection: Connection) -> String {
        let (link, changed) = (connection.link.clone(), connection.changed());
        let why = loop {
            let mut listing = Listing::new(&self.name, &self.secrets);
            let listed = tokio::select! {
                listed = link.list(&mut listing) => listed,
                () = self.stop.cancelled() => break "the worker is stopping".into(),
            };
            match listed {
                Ok(()) => self.tools.set(listing),
                Err(why) => break format!("the server did not list its tools: {why}"),
            }
            self.state.send_replace(State::Up(link.clone()));
            self.first_start_done.cancel();
            tokio::select! {
                () = self.stop.cancelled() => break "the worker is stopping".into(),
                () = link.broken.cancelled() => break "the server does not answer".into(),
                why = connection.ended() => break why,
                // The tools have changed and are listed again. The pause limits how often a server
                // can cause that.
                () = changed.notified() => tokio::time::sleep(RELIST_PAUSE).await,
            }
        };
        // Calls from now on wait for the next start.
        self.state.send_replace(State::Starting);
        let last = connection.close().await;
        format!("{why}{last}")
    }
}
