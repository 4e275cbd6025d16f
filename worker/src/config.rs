//! The configuration of a worker process.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use domain::{WorkerId, agent_policy::AgentPolicy, id::PoolName};
use host::{clock::Clock, random::Random};

use crate::{crash::Crash, settings::Settings, simulated_provider::SimulatedProvider};

#[derive(Debug, Clone)]
pub struct Config {
    pub id: WorkerId,
    /// The pool from which the worker takes work.
    pub pool: PoolName,
    /// The number of attempts that run at the same time.
    pub slots: usize,
    /// The time for which running attempts may continue after shutdown has begun. They are handed
    /// back at its end.
    pub drain: Duration,
    /// True if the `crash` agent may abort the process. False if the process runs anything besides
    /// this worker.
    pub may_crash: bool,
    /// The address of `/healthz` and `/readyz`.
    pub health: Option<SocketAddr>,
    pub clock: Clock,
    /// The source of the tokens of leases.
    pub random: Random,
    /// The point at which to abort on purpose, for tests.
    pub crash: Crash,
    /// The provider of the scripted model, in a simulation.
    pub simulated_provider: Option<Arc<dyn SimulatedProvider>>,
    /// Models, tools and workspaces.
    pub settings: Settings,
    /// Files with credentials of the worker's connections, each with the name that is shown in
    /// place of its value. They are redacted like every secret.
    pub secret_files: Vec<(String, PathBuf)>,
    /// The rules for profiles that this worker runs. The default allows little.
    pub policy: AgentPolicy,
    /// The executable that creates the sandbox of a program: its command `sandbox` must call
    /// [`crate::enter_sandbox`]. Set it to [`crate::OWN_EXECUTABLE`] if this process's own
    /// executable does that. If absent, agents of the kind `command` fail.
    pub sandbox: Option<PathBuf>,
}

impl Config {
    pub fn new(id: WorkerId) -> Self {
        Config { id, ..Self::default() }
    }
}

impl Default for Config {
    /// A worker of the pool `default` with a fresh id.
    fn default() -> Self {
        let id = format!("worker-{:032x}", Random::System.bits());
        Config {
            id: WorkerId::new(&id).expect("letters, a dash and hex digits"),
            pool: PoolName::new("default").expect("a literal that fits the grammar"),
            slots: 16,
            drain: Duration::from_secs(20),
            may_crash: false,
            health: None,
            clock: Clock::Machine,
            random: Random::System,
            crash: Crash::default(),
            simulated_provider: None,
            settings: Settings::default(),
            secret_files: Vec::new(),
            policy: AgentPolicy::default(),
            sandbox: None,
        }
    }
}
