//! The faults of the chaos: processes and servers are killed, stopped and restarted, one after
//! another or together.

use std::{collections::BTreeMap, fmt, time::Duration};

use tokio::time::Instant;

use crate::{processes::Processes, simulation::chance::Chance};

/// The longest time without a fault, in milliseconds.
const CALM_MS: u64 = 2_500;
/// The longest outage of a process, in milliseconds: more than two leases.
const AWAY_MS: u64 = 9_000;
/// The longest outage of a server, in milliseconds.
const SERVER_AWAY_MS: u64 = 4_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    CoordinatorKilled,
    CoordinatorPaused,
    CoordinatorRestarted,
    AllCoordinatorsKilled,
    WorkerKilled,
    WorkerPaused,
    WorkerRestarted,
    AllWorkersKilled,
    NatsKilled,
    NatsPaused,
    RedisKilled,
    RedisPaused,
    EverythingKilled,
}

impl Fault {
    const ALL: [Fault; 13] = [
        Fault::CoordinatorKilled,
        Fault::CoordinatorPaused,
        Fault::CoordinatorRestarted,
        Fault::AllCoordinatorsKilled,
        Fault::WorkerKilled,
        Fault::WorkerPaused,
        Fault::WorkerRestarted,
        Fault::AllWorkersKilled,
        Fault::NatsKilled,
        Fault::NatsPaused,
        Fault::RedisKilled,
        Fault::RedisPaused,
        Fault::EverythingKilled,
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Fault::CoordinatorKilled => "a coordinator killed",
            Fault::CoordinatorPaused => "a coordinator paused",
            Fault::CoordinatorRestarted => "a coordinator restarted",
            Fault::AllCoordinatorsKilled => "all coordinators killed",
            Fault::WorkerKilled => "a worker killed",
            Fault::WorkerPaused => "a worker paused",
            Fault::WorkerRestarted => "a worker restarted",
            Fault::AllWorkersKilled => "all workers killed",
            Fault::NatsKilled => "NATS killed",
            Fault::NatsPaused => "NATS paused",
            Fault::RedisKilled => "Redis killed",
            Fault::RedisPaused => "Redis paused",
            Fault::EverythingKilled => "everything killed",
        })
    }
}

pub(super) struct Trouble {
    chance: Chance,
    counted: BTreeMap<Fault, usize>,
}

impl Trouble {
    pub(super) fn new(chance: Chance) -> Self {
        Trouble { chance, counted: BTreeMap::new() }
    }

    pub(super) fn counted(&self) -> BTreeMap<Fault, usize> {
        self.counted.clone()
    }

    /// Causes faults until the time is over. At the end, all processes run.
    pub(super) async fn brew(&mut self, over: Instant, cluster: &mut Processes) {
        while Instant::now() < over {
            tokio::time::sleep(self.chance.millis(0, CALM_MS)).await;
            let fault = *self.chance.pick(&Fault::ALL);
            *self.counted.entry(fault).or_default() += 1;
            self.cause(fault, cluster).await;
            self.revive(cluster);
        }
    }

    /// Starts the processes that were killed, or that ended because a server was unavailable during
    /// their start.
    pub(super) fn revive(&self, cluster: &mut Processes) {
        for name in cluster.names("") {
            if !cluster.is_running(&name) {
                cluster.run(&name);
            }
        }
    }

    async fn cause(&self, fault: Fault, cluster: &mut Processes) {
        let kind = match fault {
            Fault::CoordinatorKilled | Fault::CoordinatorPaused | Fault::CoordinatorRestarted => "c",
            Fault::AllCoordinatorsKilled => "c",
            Fault::WorkerKilled | Fault::WorkerPaused | Fault::WorkerRestarted | Fault::AllWorkersKilled => {
                "w"
            }
            Fault::NatsKilled | Fault::NatsPaused | Fault::RedisKilled | Fault::RedisPaused => "",
            Fault::EverythingKilled => "",
        };
        let names = cluster.names(kind);
        let one = self.chance.pick(&names).clone();
        match fault {
            Fault::CoordinatorKilled | Fault::WorkerKilled => {
                cluster.kill(&one);
                self.pass(AWAY_MS).await;
            }
            Fault::CoordinatorPaused | Fault::WorkerPaused => {
                if cluster.is_running(&one) {
                    cluster.pause(&one);
                    self.pass(AWAY_MS).await;
                    cluster.resume(&one);
                }
            }
            Fault::CoordinatorRestarted | Fault::WorkerRestarted => {
                if cluster.is_running(&one) {
                    cluster.stop(&one).await;
                }
            }
            Fault::AllCoordinatorsKilled | Fault::AllWorkersKilled => {
                names.iter().for_each(|name| cluster.kill(name));
                self.pass(AWAY_MS).await;
            }
            Fault::NatsKilled => {
                cluster.nats.kill();
                self.pass(SERVER_AWAY_MS).await;
                cluster.nats.restart();
            }
            Fault::NatsPaused => {
                cluster.nats.pause();
                self.pass(SERVER_AWAY_MS).await;
                cluster.nats.resume();
            }
            Fault::RedisKilled => {
                cluster.redis.kill();
                self.pass(SERVER_AWAY_MS).await;
                cluster.redis.restart();
            }
            Fault::RedisPaused => {
                cluster.redis.pause();
                self.pass(SERVER_AWAY_MS).await;
                cluster.redis.resume();
            }
            Fault::EverythingKilled => {
                names.iter().for_each(|name| cluster.kill(name));
                cluster.nats.kill();
                cluster.redis.kill();
                self.pass(SERVER_AWAY_MS).await;
                cluster.nats.restart();
                cluster.redis.restart();
            }
        }
    }

    async fn pass(&self, most_ms: u64) {
        let time: Duration = self.chance.millis(0, most_ms);
        tokio::time::sleep(time).await;
    }
}
