//! All MCP servers of a worker: starts them, waits for their first start, and ends them.

use std::{collections::BTreeMap, time::Duration};

use tokio::{sync::watch, time::Instant};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{
    offer::Tools,
    secrets::Secrets,
    server::{STARTING, Server},
    supervise::{State, Supervisor},
};
use crate::{model::ToolSpec, settings::McpServer};

/// How long one call may take, unless the settings say otherwise.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(in crate::tool) struct Servers {
    servers: BTreeMap<String, Server>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Ends them also where nobody said stop.
    _guard: DropGuard,
}

impl Servers {
    pub(in crate::tool) fn start(settings: &BTreeMap<String, McpServer>) -> Self {
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
    pub(in crate::tool) async fn ready(&self, wanted: impl Fn(&str) -> bool) {
        let all = self.servers.values().filter(|server| wanted(&server.name));
        let all = all.map(|server| tokio::time::timeout_at(server.patience, server.tried.cancelled()));
        futures_util::future::join_all(all).await;
    }

    pub(in crate::tool) fn specs(&self) -> Vec<ToolSpec> {
        let specs = |server: &Server| -> Vec<ToolSpec> {
            server.tools.get().iter().map(|offer| offer.spec.clone()).collect()
        };
        self.servers.values().flat_map(specs).collect()
    }

    pub(in crate::tool) fn named(&self, name: &str) -> Option<&Server> {
        self.servers.get(name)
    }

    pub(in crate::tool) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

/// Whether a tool is one of this server's.
pub(in crate::tool) fn is_of(tool: &str, server: &str) -> bool {
    tool.split_once(':').is_some_and(|(of, _)| of == server)
}
