//! The configuration of a coordinator.

use std::{net::SocketAddr, time::Duration};

use bus::{Topology, keys::Keys};
use domain::{WorkerId, agent_policy::AgentPolicy, limits::Settings};
use host::{clock::Clock, random::Random, webhook::Webhooks};

use crate::crash::Crash;

#[derive(Debug, Clone)]
pub struct Config {
    /// The id of this coordinator among the coordinators.
    pub id: WorkerId,
    /// Defaults and limits for every trace that this coordinator admits.
    pub settings: Settings,
    pub topology: Topology,
    /// The bounds that profiles must respect when they are applied; without a policy any profile is
    /// accepted. Workers check their own policy in any case.
    pub agent_policy: Option<AgentPolicy>,
    /// The time for which an ended trace is kept: its state, its journals and its objects.
    pub retention: Duration,
    /// The webhooks that are notified of outcomes and questions.
    pub webhooks: Webhooks,
    /// If set, time passes in traces: due deadlines end contexts, and due messages are sent again.
    /// Off where no client could act in time.
    pub timers: bool,
    /// If set, this coordinator begins the runs of schedules that are due.
    pub schedules: bool,
    /// Address of the health endpoints; without it there are no endpoints.
    pub health: Option<SocketAddr>,
    /// Number of shards (the loops that decide); each has its own part of the traces.
    pub shards: usize,
    /// The most bytes of traces kept in memory, over all shards, measured as stored text. An
    /// evicted trace is loaded again when it is needed.
    pub cached_bytes: usize,
    /// Interval of heartbeats, and the time for which one is valid.
    pub heartbeat: Duration,
    pub heartbeat_ttl: Duration,
    /// Interval at which the timer loop looks for due timers.
    pub timer_interval: Duration,
    /// Delay after which messages that were committed, but may never have been sent, are sent
    /// again.
    pub resend_after: Duration,
    /// The age that the beginning of a live trace may reach in the event log before its state is
    /// copied into the log again. At most half of the age at which the log drops messages.
    pub copy_after: Duration,
    /// Interval at which marks are stored, and the age that a position of the event log must reach
    /// before it becomes a mark. This age is longer than a committed message needs to be sent, and
    /// then missed. A loss that a stopping coordinator may have seen is younger.
    pub mark_every: Duration,
    pub mark_lag: Duration,
    /// If set, the server's statement of who sent a message is trusted. Valid only where senders
    /// are in other accounts than the coordinators (S7).
    pub trust_request_info: bool,
    /// The clock that measures time between two readings of the store's clock.
    pub clock: Clock,
    /// With keys, everything written to the logs and the store is signed, and only signed data is
    /// read back (S3).
    pub keys: Option<Keys>,
    /// The source of new ids.
    pub random: Random,
    /// The point at which to abort on purpose, to test recovery.
    pub crash: Crash,
}

/// The time after which a trace is woken for a reason other than its own timers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delays {
    /// To send messages that may never have been sent.
    pub(crate) resend_ms: u64,
    /// To copy the trace into the event log.
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
