//! Servers of the Model Context Protocol: each is started once per worker and kept, since a start takes
//! longer than a call. Their tools are named `server:tool`. A server that is slow, broken or dead costs
//! an agent that calls it an observation, and nobody else anything: no lock is held over a call.

mod connection;
mod content;
mod environment;
mod offer;
mod process;
mod secrets;
mod supervise;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use rmcp::{ServiceError, model::CallToolRequestParams};
use serde_json::Value;
use shared::{problem::nearest, text::with_causes};
use tokio::{sync::watch, time::Instant};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::call::Output;
use crate::{model::ToolSpec, settings::McpServer};
use offer::{Offer, Tools};
use secrets::Secrets;
use supervise::{State, Supervisor};

/// How long one call may take, unless the settings say otherwise.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long an agent that begins, or calls, waits for a server that is just starting.
const STARTING: Duration = Duration::from_secs(20);
#[derive(Debug)]
pub(super) struct Servers {
    servers: BTreeMap<String, Server>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Ends them also where nobody said stop.
    _guard: DropGuard,
}

/// One server, as those who call it see it.
#[derive(Debug)]
pub(super) struct Server {
    name: String,
    timeout: Duration,
    state: watch::Receiver<State>,
    tools: Tools,
    secrets: Secrets,
    /// Cancelled once a start has succeeded or failed.
    tried: CancellationToken,
    /// How long that may be waited for before an agent begins without its tools.
    patience: Instant,
}

impl Servers {
    pub(super) fn start(settings: &BTreeMap<String, McpServer>) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let server = |(name, settings): (&String, &McpServer)| {
            let (sender, state) = watch::channel(State::Starting);
            let (tools, tried, secrets) = (Tools::default(), CancellationToken::new(), Secrets::of(settings));
            let supervisor = Supervisor {
                name: name.clone(),
                settings: settings.clone(),
                state: sender,
                tools: tools.clone(),
                secrets: secrets.clone(),
                tried: tried.clone(),
                stop: stop.clone(),
            };
            tasks.spawn(supervisor.run());
            let timeout = settings.timeout_ms.map_or(TIMEOUT, Duration::from_millis);
            let patience = Instant::now() + STARTING;
            let server = Server { name: name.clone(), timeout, state, tools, secrets, tried, patience };
            (name.clone(), server)
        };
        let servers = settings.iter().map(server).collect();
        tasks.close();
        let guard = stop.clone().drop_guard();
        Servers { servers, tasks, stop, _guard: guard }
    }

    /// Waits for the first start of each, and never again: one that hangs must not hold up every agent.
    pub(super) async fn ready(&self, wanted: impl Fn(&str) -> bool) {
        let all = self.servers.values().filter(|server| wanted(&server.name));
        let all = all.map(|server| tokio::time::timeout_at(server.patience, server.tried.cancelled()));
        futures_util::future::join_all(all).await;
    }

    pub(super) fn specs(&self) -> Vec<ToolSpec> {
        let specs = |server: &Server| -> Vec<ToolSpec> {
            server.tools.get().iter().map(|offer| offer.spec.clone()).collect()
        };
        self.servers.values().flat_map(specs).collect()
    }

    pub(super) fn named(&self, name: &str) -> Option<&Server> {
        self.servers.get(name)
    }

    pub(super) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

/// Whether a tool is one of this server's.
pub(super) fn is_of(tool: &str, server: &str) -> bool {
    tool.split_once(':').is_some_and(|(of, _)| of == server)
}

impl Server {
    pub(super) async fn call(&self, tool: &str, given: &Value) -> Output {
        let said = self.answer(tool, given).await;
        said.map(|text| self.secrets.redact(text)).map_err(|text| self.secrets.redact(text))
    }

    async fn answer(&self, tool: &str, given: &Value) -> Output {
        let link = match self.settled().await {
            State::Up(link) => link,
            State::Down(why) => return Err(format!("the server `{}` can't be used now: {why}", self.name)),
            State::Starting => return Err(format!("the server `{}` has not started yet", self.name)),
        };
        let tools = self.tools.get();
        let Some(offer) = tools.iter().find(|offer| offer.tool == tool) else {
            return Err(self.no_such(&tools, tool));
        };
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(offer.arguments(given)?);
        match tokio::time::timeout(self.timeout, link.peer.call_tool(params)).await {
            Ok(Ok(result)) => content::said(result),
            Ok(Err(ServiceError::McpError(error))) => Err(format!("`{}` says: {}", self.name, error.message)),
            Ok(Err(error)) => {
                link.broken.cancel();
                let last = link.last_words();
                Err(format!(
                    "the server `{}` broke off; what it did is not known: {}{last}",
                    self.name,
                    with_causes(&error)
                ))
            }
            Err(_) => {
                if !link.answers().await {
                    link.broken.cancel();
                }
                let ms = self.timeout.as_millis();
                Err(format!("`{}` did not answer within {ms} ms; what it did is not known", offer.spec.name))
            }
        }
    }

    /// The state once a start has succeeded or failed; `Starting` if that takes too long.
    async fn settled(&self) -> State {
        let mut state = self.state.clone();
        // A connection that is found broken is as good as starting: whoever keeps it is about to see it.
        let settled = state.wait_for(|state| match state {
            State::Starting => false,
            State::Up(link) => link.stands(),
            State::Down(_) => true,
        });
        match tokio::time::timeout(STARTING, settled).await {
            Ok(Ok(state)) => state.clone(),
            Ok(Err(_)) => State::Down("the worker is ending".into()),
            Err(_) => State::Starting,
        }
    }

    fn no_such(&self, tools: &[Offer], tool: &str) -> String {
        let name = &self.name;
        let hint = match nearest(tool, tools.iter().map(|offer| offer.tool.as_str())) {
            Some(near) => format!("did you mean `{name}:{near}`?"),
            None => {
                let names: Vec<String> = tools.iter().map(|offer| offer.spec.name.to_string()).collect();
                format!("it has {}", names.join(", "))
            }
        };
        format!("the server `{name}` has no tool `{tool}`\n\nhint: {hint}")
    }
}
