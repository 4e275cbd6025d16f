//! What a coordinator is told when it starts.

use std::{net::SocketAddr, time::Duration};

use shared::{WorkerId, bus::Topology, limits::Settings};

use crate::crash::Crash;

#[derive(Debug, Clone)]
pub struct Config {
    /// Who it is among the coordinators.
    pub id: WorkerId,
    /// What every trace it admits gets.
    pub settings: Settings,
    pub topology: Topology,
    /// How long an ended trace is kept in the store.
    pub retention: Duration,
    /// Where health is asked, if anywhere.
    pub health: Option<SocketAddr>,
    /// Loops that decide, each over its own share of the traces.
    pub shards: usize,
    /// The most contexts kept in memory, over all shards. What falls out is loaded again when needed.
    pub cached_contexts: usize,
    /// How often it says that it is alive, and how long others believe it.
    pub heartbeat: Duration,
    pub heartbeat_ttl: Duration,
    /// How often due timers are looked for.
    pub timer_interval: Duration,
    /// When messages that were committed and perhaps never sent are sent again.
    pub resend_after: Duration,
    /// Where to abort on purpose, to rehearse failures.
    pub crash: Crash,
}

impl Config {
    pub fn new(id: WorkerId) -> Self {
        Config {
            id,
            settings: Settings::default(),
            topology: Topology::default(),
            retention: Duration::from_secs(7 * 24 * 3600),
            health: None,
            shards: 2,
            cached_contexts: 40_000,
            heartbeat: Duration::from_millis(1_000),
            heartbeat_ttl: Duration::from_millis(3_500),
            timer_interval: Duration::from_millis(200),
            resend_after: Duration::from_millis(5_000),
            crash: Crash::default(),
        }
    }
}
