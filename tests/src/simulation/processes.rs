//! The processes of a simulation: real coordinators and workers, which are started, paused, stopped
//! and killed. A killed process ends at its current await; its sent messages may still arrive.

use std::{path::PathBuf, time::Duration};

use bus::{Bus, Topology};
use coordinator::store::{self, Store};
use domain::Timestamp;
use host::clock::Clock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    chance::Chance,
    network::{Network, Paused},
    provider::Provider,
    story::Story,
};
use crate::cluster::{lenient_keys, name};

/// The time after which a process that ended by itself is restarted, as by a supervisor.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// The retention of ended runs in simulations where they expire.
pub(super) const SHORT_RETENTION: Duration = Duration::from_secs(900);

/// The parts that all processes share.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) bus: bus::Memory,
    pub(super) store: store::Memory,
    pub(super) topology: Topology,
    pub(super) network: Network,
    pub(super) provider: Provider,
    pub(super) story: Story,
    pub(super) chance: Chance,
    pub(super) began_at: Timestamp,
    pub(super) workspaces: PathBuf,
    /// If set, ended runs expire soon.
    pub(super) runs_expire: bool,
    /// The interval at which live runs are copied into the log.
    pub(super) copy_after: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Coordinator,
    Worker {
        slots: usize,
        /// The difference of its clock from the true time; positive if it is ahead.
        ahead_ms: i64,
    },
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    kind: Kind,
    paused: Paused,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Process {
    pub(super) fn new(name: String, kind: Kind) -> Self {
        Process { name, kind, paused: Paused::default(), running: None }
    }

    pub(super) fn runs(&self) -> bool {
        self.running.is_some()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.get()
    }

    pub(super) fn start(&mut self, ground: &Ground) {
        if self.runs() {
            return;
        }
        ground.story.note(&self.name, "starts");
        self.paused = Paused::default();
        let link = ground.network.link(&self.name, self.paused.clone());
        let bus = Bus::Memory(ground.bus.behind(link.clone()));
        let stop = CancellationToken::new();
        let (process, stopping, story) = (self.name.clone(), stop.clone(), ground.story.clone());
        let task = match self.kind {
            Kind::Coordinator => {
                let store = Store::Memory(ground.store.behind(link));
                let config = coordinator_config(&self.name, ground);
                tokio::spawn(async move {
                    while !stopping.is_cancelled() {
                        let (config, bus, store) = (config.clone(), bus.clone(), store.clone());
                        let ended =
                            coordinator::run(config, bus, store, stopping.clone().cancelled_owned()).await;
                        story.note(&process, format!("has ended: {ended:?}"));
                        tokio::time::sleep(RESTART_AFTER).await;
                    }
                })
            }
            Kind::Worker { slots, ahead_ms } => {
                let config = worker_config(&self.name, slots, ahead_ms, ground);
                tokio::spawn(async move {
                    while !stopping.is_cancelled() {
                        let (config, bus) = (config.clone(), bus.clone());
                        let ended = worker::run(config, bus, stopping.clone().cancelled_owned()).await;
                        story.note(&process, format!("has ended: {ended:?}"));
                        tokio::time::sleep(RESTART_AFTER).await;
                    }
                })
            }
        };
        self.running = Some(Running { task, stop });
    }

    pub(super) fn kill(&mut self, ground: &Ground) {
        if let Some(running) = self.running.take() {
            ground.story.note(&self.name, "is killed");
            running.task.abort();
            self.paused.set(false);
        }
    }

    /// Asks the process to stop, as in a rolling restart. While it drains, its successor may
    /// already run.
    pub(super) fn stop(&mut self, ground: &Ground) {
        if let Some(running) = self.running.take() {
            ground.story.note(&self.name, "is stopped");
            self.paused.set(false);
            running.stop.cancel();
        }
    }

    pub(super) fn pause(&mut self, ground: &Ground) {
        ground.story.note(&self.name, "is paused");
        self.paused.set(true);
    }

    pub(super) fn go_on(&mut self, ground: &Ground) {
        if self.is_paused() {
            ground.story.note(&self.name, "continues");
            self.paused.set(false);
        }
    }
}

fn coordinator_config(name_: &str, ground: &Ground) -> coordinator::Config {
    let mut config = coordinator::Config::new(name(name_));
    config.topology = ground.topology.clone();
    config.keys = lenient_keys();
    config.clock = Clock::simulated(ground.store_now());
    config.random = ground.chance.source();
    // Work whose message was lost is sent again. The default interval of a quarter of an hour would
    // only lengthen simulations.
    config.settings.redispatch_ms = 60_000;
    config.copy_after = ground.copy_after;
    // A simulation ends within minutes, so marks are frequent. The lag is still longer than it
    // takes to send a message and to notice its loss.
    (config.mark_every, config.mark_lag) = (Duration::from_secs(1), Duration::from_secs(20));
    if ground.runs_expire {
        config.retention = SHORT_RETENTION;
    }
    config
}

fn worker_config(name_: &str, slots: usize, ahead_ms: i64, ground: &Ground) -> worker::Config {
    let mut config = worker::Config::new(name(name_));
    let now = ground.store_now();
    let ahead = ahead_ms.unsigned_abs();
    let shown = if ahead_ms < 0 { now.millis().saturating_sub(ahead) } else { now.millis() + ahead };
    config.clock = Clock::simulated(Timestamp::from_millis(shown));
    config.slots = slots;
    config.random = ground.chance.source();
    config.simulated_provider = Some(std::sync::Arc::new(ground.provider.clone()));
    config.settings.workspaces = Some(ground.workspaces.clone());
    config
}

impl Ground {
    /// The true time.
    pub(super) fn store_now(&self) -> Timestamp {
        let passed = self.story.elapsed();
        self.began_at.plus_millis(domain::time::millis(passed))
    }
}
