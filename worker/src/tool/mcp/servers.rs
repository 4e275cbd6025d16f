//! All MCP servers of a worker: starts them, waits for their first start, and ends them.

use std::{collections::BTreeMap, time::Duration};

use tokio::{sync::watch, time::Instant};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{
    offer::Tools,
    process::Confinement,
    secrets,
    server::{START_WAIT, Server},
    supervise::{State, Supervisor},
};
use crate::{model::ToolSpec, secret::Values, settings::McpServer};

/// The limit for one call, unless the settings have another.
const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(in crate::tool) struct Servers {
    servers: BTreeMap<String, Server>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Ends them on drop, if `stop` was not called.
    _guard: DropGuard,
}

impl Servers {
    pub(in crate::tool) fn start(
        settings: &BTreeMap<String, McpServer>,
        values: &Values,
        confinement: &Confinement,
    ) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let server = |(name, settings): (&String, &McpServer)| {
            let (sender, state) = watch::channel(State::Starting);
            let (tools, first_start_done, secrets) =
                (Tools::default(), CancellationToken::new(), secrets::redactor(settings, values));
            let supervisor = Supervisor {
                name: name.clone(),
                settings: settings.clone(),
                state: sender,
                tools: tools.clone(),
                secrets: secrets.clone(),
                confinement: confinement.clone(),
                first_start_done: first_start_done.clone(),
                stop: stop.clone(),
            };
            tasks.spawn(supervisor.run());
            let timeout = settings.timeout_ms.map_or(DEFAULT_CALL_TIMEOUT, Duration::from_millis);
            let wait_until = Instant::now() + START_WAIT;
            let server =
                Server { name: name.clone(), timeout, state, tools, secrets, first_start_done, wait_until };
            (name.clone(), server)
        };
        let servers = settings.iter().map(server).collect();
        tasks.close();
        let guard = stop.clone().drop_guard();
        Servers { servers, tasks, stop, _guard: guard }
    }

    /// Waits for the first start of each wanted server, and never for a later one, since a server
    /// that hangs must not delay every agent.
    pub(in crate::tool) async fn ready(&self, wanted: impl Fn(&str) -> bool) {
        let all = self.servers.values().filter(|server| wanted(&server.name));
        let all =
            all.map(|server| tokio::time::timeout_at(server.wait_until, server.first_start_done.cancelled()));
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

/// Returns true if a tool belongs to this server, by its name.
pub(in crate::tool) fn is_tool_of(tool: &str, server: &str) -> bool {
    tool.split_once(':').is_some_and(|(name, _)| name == server)
}
