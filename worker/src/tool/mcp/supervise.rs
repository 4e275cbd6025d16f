//! The one task that starts a server, watches it, and starts it again when it has ended: at once the
//! first time, ever later if it goes on ending. It alone ends the server's processes.

use std::{sync::Arc, time::Duration};

use shared::text::with_causes;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    connection::{Connection, Link},
    offer::Tools,
    secrets::Secrets,
};
use crate::settings::McpServer;

/// A server that was up this long is taken to work: when it ends, it is started again at once.
const STEADY: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(super) enum State {
    Starting,
    Up(Link),
    /// Why, with its last words.
    Down(Arc<str>),
}

#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) name: String,
    pub(super) settings: McpServer,
    pub(super) state: watch::Sender<State>,
    pub(super) tools: Tools,
    pub(super) secrets: Secrets,
    /// Told once a start has succeeded or failed.
    pub(super) tried: CancellationToken,
    pub(super) stop: CancellationToken,
}

impl Supervisor {
    pub(super) async fn run(self) {
        let (name, mut pause) = (self.name.as_str(), Duration::ZERO);
        while !self.stop.is_cancelled() {
            self.state.send_replace(State::Starting);
            let (why, up_for) = match Connection::open(&self.settings, &self.secrets, &self.stop).await {
                Ok(connection) => {
                    let since = Instant::now();
                    (self.keep(connection).await, Some(since.elapsed()))
                }
                Err(why) => (why, None),
            };
            let why = self.secrets.redact(why);
            if self.stop.is_cancelled() {
                break;
            }
            tracing::warn!(server = name, why, "a server of tools is not there");
            pause = match up_for {
                Some(up) if up >= STEADY => Duration::ZERO,
                Some(_) => pause,
                // Those who wait for the start must see that it failed.
                None => pause.max(FIRST_PAUSE),
            };
            if !pause.is_zero() {
                self.state.send_replace(State::Down(why.into()));
                self.tried.cancel();
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = self.stop.cancelled() => break,
                }
            }
            pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        }
        self.state.send_replace(State::Down("the worker is ending".into()));
        self.tried.cancel();
    }

    /// Keeps a connection for as long as it is of use; tells why it is not any more.
    async fn keep(&self, mut connection: Connection) -> String {
        let (link, changed) = (connection.link.clone(), connection.changed());
        let why = loop {
            match link.tools().await {
                Ok(tools) => self.tools.set(&self.name, tools, &self.secrets),
                Err(error) => break format!("it does not list its tools: {}", with_causes(&error)),
            }
            self.state.send_replace(State::Up(link.clone()));
            self.tried.cancel();
            tokio::select! {
                () = self.stop.cancelled() => break "the worker is ending".into(),
                () = link.broken.cancelled() => break "it does not answer".into(),
                why = connection.ended() => break why,
                // Its tools are others now: they are listed again.
                () = changed.notified() => {}
            }
        };
        // Whoever calls from here on waits for the next start.
        self.state.send_replace(State::Starting);
        let last = connection.close().await;
        format!("{why}{last}")
    }
}
