//! What a worker is told.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use crate::{crash::Crash, settings::Settings};
use shared::{WorkerId, clock::Clock, id::PoolName};

#[derive(Debug, Clone)]
pub struct Config {
    pub id: WorkerId,
    /// Whose work it takes.
    pub pool: PoolName,
    /// How many attempts it runs at once.
    pub slots: usize,
    /// How long running attempts may go on once it was told to end; the rest is handed back.
    pub drain: Duration,
    /// Whether the `crash` agent may take the process down: it has to be the worker's own.
    pub may_crash: bool,
    /// Where `/healthz` and `/readyz` answer.
    pub health: Option<SocketAddr>,
    pub clock: Clock,
    /// Where to abort on purpose.
    pub crash: Crash,
    /// Models, tools and workspaces.
    pub settings: Settings,
    /// The executable that makes the sandbox of a program: `<it> sandbox` calls [`crate::enter_sandbox`].
    /// A process whose own program does that names [`crate::OWN_EXECUTABLE`]. Without one, agents of the
    /// kind `command` fail.
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
        let id = format!("worker-{}", uuid::Uuid::new_v4().simple());
        Config {
            id: WorkerId::new(&id).expect("letters, a dash and hex digits"),
            pool: PoolName::new("default").expect("a literal that fits the grammar"),
            slots: 16,
            drain: Duration::from_secs(20),
            may_crash: false,
            health: None,
            clock: Clock::Machine,
            crash: Crash::default(),
            settings: Settings::default(),
            sandbox: None,
        }
    }
}
