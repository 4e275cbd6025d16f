//! The configuration of a coordinator.

use std::{net::SocketAddr, time::Duration};

use bus::{Topology, keys::Keys};
use domain::{WorkerId, agent_policy::AgentPolicy, limits::Settings};
use host::{clock::Clock, random::Random, webhook::Webhooks};

use crate::crash::Crash;

#[derive(Debug, Clone)]
pub struct Config {
    /// Its name among the coordinators.
    pub id: WorkerId,
    /// Defaults and limits for every trace it admits.
    pub settings: Settings,
    pub topology: Topology,
    /// What profiles may ask for when they are applied; none: whatever they like. Workers check it in any case.
    pub agent_policy: Option<AgentPolicy>,
    /// How long an ended trace is kept: its state, its journals and its objects.
    pub retention: Duration,
    /// Who is told of outcomes and questions.
    pub webhooks: Webhooks,
    /// Whether it lets time pass in traces: what is due ends, or is sent again. Not where nobody could act in time.
    pub timers: bool,
    /// Whether it begins the runs of schedules that are due.
    pub schedules: bool,
    /// Address of the health endpoints; none: no endpoints.
    pub health: Option<SocketAddr>,
    /// Number of loops that decide; each has its own share of the traces.
    pub shards: usize,
    /// The most bytes of traces kept in memory, over all shards, counted as they are stored. Traces that are evicted are
    /// loaded again when needed.
    pub cached_bytes: usize,
    /// Interval of heartbeats, and how long one counts.
    pub heartbeat: Duration,
    pub heartbeat_ttl: Duration,
    /// Interval at which due timers are looked for.
    pub timer_interval: Duration,
    /// Delay after which messages that were committed, but may never have been sent, are sent again.
    pub resend_after: Duration,
    /// How old the beginning of a live trace in the event log may be before its state is copied into the log again; at most
    /// half as old as messages get there.
    pub copy_after: Duration,
    /// Interval at which it is noted up to where the event log is in the store, and how much later than it was so. That is
    /// longer than it takes to send what was committed, and then to be missed: what a coordinator that ends may have seen the
    /// store lose is younger than that.
    pub mark_every: Duration,
    pub mark_lag: Duration,
    /// Whether the server can be believed about who sent a message: only where senders are in other accounts than the
    /// coordinators (S7).
    pub trust_request_info: bool,
    /// What passes between two readings of the store's clock.
    pub clock: Clock,
    /// With keys, what is written to the logs and the store is signed, and only what was signed is read back (S3).
    pub keys: Option<Keys>,
    /// Where new ids come from.
    pub random: Random,
    /// Where to abort on purpose, to test recovery.
    pub crash: Crash,
}

/// How long is waited before a trace is woken, apart from its own timers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delays {
    /// To send what may never have been sent.
    pub(crate) resend_ms: u64,
    /// To copy it into the event log.
    pub(crate) copy_ms: u64,
}

impl Config {
    pub fn new(id: WorkerId) -> Self {
        Config {
            id,
            settings: Settings::default(),
            topology: Topology::default(),
            agent_policy: None,
            retention: Duration::from_secs(7 * 24 * 3600),
            webhooks: Webhooks::default(),
            timers: true,
            schedules: true,
            health: None,
            shards: 2,
            cached_bytes: 64 << 20,
            heartbeat: Duration::from_millis(1_000),
            heartbeat_ttl: Duration::from_millis(3_500),
            timer_interval: Duration::from_millis(200),
            resend_after: Duration::from_millis(5_000),
            copy_after: Duration::MAX,
            mark_every: Duration::from_secs(10),
            mark_lag: Duration::from_secs(60),
            trust_request_info: false,
            clock: Clock::Machine,
            keys: None,
            random: Random::System,
            crash: Crash::default(),
        }
    }
}
