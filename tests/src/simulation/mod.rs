//! A deterministic simulation: real coordinators and workers on the bus and the store in memory, in
//! one thread. Virtual time passes only while all tasks wait, and one seed decides everything
//! random. A failing seed fails again, with the same story.

pub(crate) mod chance;
mod extra;
mod network;
pub(crate) mod people;
mod processes;
mod provider;
mod story;
mod trouble;
pub(crate) mod verdict;
pub(crate) mod work;

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bus::{Bus, StoredMessage, Topology};
use coordinator::store::{self, AgentVersion, Store};
use domain::{Timestamp, subject::Filter};
use host::clock::Clock;
use serde_json::json;

pub use extra::{Extra, Extras};
pub use network::Carried;
pub use story::{Line, Story};

use chance::Chance;
use network::Network;
use people::People;
use processes::{Ground, Kind, Process};
use provider::Provider;
use trouble::Trouble;
use work::Run;

use crate::checker;

/// t8: after the last fault, all runs end within this time. Two leases, a backoff and 30 s would be
/// enough for a fault; the rest is for the work of the runs.
const REST: Duration = Duration::from_secs(600);
/// The interval at which it checks whether the runs have ended.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The number of looks after which people raise the budgets of paused contexts.
const RAISE_EVERY: u32 = 30;
/// The time at which the first process starts.
const BEGAN_AT: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// The result of one seed.
#[derive(Debug)]
pub struct Report {
    pub seed: u64,
    /// All mistakes; empty if there are none.
    pub wrong: Vec<String>,
    pub story: Story,
    /// Every message that was sent, and every message that was stored at the end.
    pub carried: Vec<Carried>,
    pub stored: Vec<StoredMessage>,
    /// The duration in virtual time.
    pub took: Duration,
}

/// From this seed on, live runs are copied into the log. Earlier seeds stay as they were when some
/// of them failed.
pub const COPIES_FROM: u64 = 500_000;

/// From this seed on, agents also get messages, and their budgets have ladders.
pub const MESSAGES_FROM: u64 = 600_000;

/// Simulates one seed.
pub fn simulate(seed: u64, extras: &Extras) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime in this thread");
    let report = runtime.block_on(async { Simulation::new(seed, extras.clone()).run().await });
    drop(runtime);
    report
}

struct Simulation {
    seed: u64,
    extras: Extras,
    chance: Chance,
    ground: Ground,
    processes: Vec<Process>,
    people: People,
    runs: Vec<Run>,
}

impl Simulation {
    fn new(seed: u64, extras: Extras) -> Self {
        let chance = Chance::new(seed);
        let copy_after =
            if seed < COPIES_FROM { Duration::MAX } else { Duration::from_secs(chance.between(2, 20)) };
        let topology = Topology { partitions: *chance.pick(&[1, 2, 4]), ..Topology::default() };
        let ground = Ground {
            bus: bus::Memory::starting_at(Default::default(), BEGAN_AT),
            store: store::Memory::with_clock(topology.partitions, Clock::simulated(BEGAN_AT)),
            topology,
            network: Network::new(chance.fork()),
            provider: Provider::new(chance.fork()),
            story: Story::new(),
            chance: chance.fork(),
            began_at: BEGAN_AT,
            workspaces: workspaces(),
            runs_expire: extras.has(Extra::ExpiredRuns),
            copy_after,
        };
        let (bus, store) = (Bus::Memory(ground.bus.clone()), Store::Memory(ground.store.clone()));
        let people = People::new(bus, store, ground.story.clone(), chance.fork());
        let coordinators =
            (1..=chance.between(1, 3)).map(|n| (format!("coordinator-{n}"), Kind::Coordinator));
        let skewed = extras.has(Extra::SkewedClocks);
        let worker = |n| {
            let ahead_ms = if skewed { *chance.pick(&[0, 600_000, -600_000]) } else { 0 };
            let slots = usize::try_from(chance.between(1, 4)).expect("few");
            (format!("worker-{n}"), Kind::Worker { slots, ahead_ms })
        };
        let workers: Vec<_> = (1..=chance.between(1, 3)).map(worker).collect();
        let processes = coordinators.chain(workers).map(|(name, kind)| Process::new(name, kind)).collect();
        Simulation { seed, extras, ground, processes, people, runs: Vec::new(), chance }
    }

    async fn run(mut self) -> Report {
        let profiles = self.make_runs();
        let store = Store::Memory(self.ground.store.clone());
        store.apply_agents(&profiles, 0).await.expect("in memory");
        for process in &mut self.processes {
            process.start(&self.ground);
        }
        self.in_trouble().await;
        // Full queues may have prevented some submissions.
        self.people.submit_rest(&self.runs).await;
        let mut wrong = self.come_to_rest(&store).await;
        if wrong.is_empty() && self.extras.has(Extra::ExpiredRuns) {
            wrong = self.outlive(&store).await;
        }
        if !wrong.is_empty() {
            for run in &self.runs {
                verdict::tell(&self.ground, &self.people, run).await;
            }
            verdict::tell_dead_letters(&self.ground, &self.people).await;
        }
        let took = self.ground.story.elapsed();
        let stored = self.all_stored().await;
        std::fs::remove_dir_all(&self.ground.workspaces).ok();
        let Ground { story, network, .. } = self.ground;
        Report { seed: self.seed, wrong, story, carried: network.carried(), stored, took }
    }

    /// Makes the runs. Returns the profiles of their agents, as the store has them.
    fn make_runs(&mut self) -> Vec<AgentVersion> {
        let mut profiles = Vec::new();
        for number in 0..usize::try_from(self.chance.between(1, 5)).expect("few") {
            let (run, mut agents) = work::run(number, work::SCRIPTED, &self.chance);
            self.runs.push(run);
            if self.seed >= MESSAGES_FROM {
                let ladder = json!([{"at": 0.1, "tell": true}, {"at": 0.4, "compact": true}]);
                agents.iter_mut().for_each(|agent| agent["on_budget"] = ladder.clone());
            }
            for agent in agents {
                let agent_id = agent["agent_id"].as_str().expect("a profile has a name").to_owned();
                let version = profiles.len() as u64 + 1;
                profiles.push(AgentVersion {
                    agent_id,
                    version,
                    profile: Some(agent.to_string()),
                    again: false,
                });
            }
        }
        profiles
    }

    /// Submits the runs while faults occur.
    async fn in_trouble(&mut self) {
        let lasts = self.chance.millis(0, 60_000) + Duration::from_secs(50);
        let mut trouble = Trouble::new(self.chance.fork(), &self.extras, self.ground.store.snapshot());
        let (ground, chance) = (&self.ground, self.chance.fork());
        let (people, runs) = (&mut self.people, &mut self.runs);
        let tells = self.seed >= MESSAGES_FROM;
        let any_key = self.extras.has(Extra::ChargeKeys);
        let using = async {
            for run in runs.iter_mut() {
                tokio::time::sleep(chance.millis(0, 5_000)).await;
                people.submit(run).await;
                if chance.percent(15) {
                    tokio::time::sleep(chance.millis(0, 5_000)).await;
                    people.cancel(run).await;
                }
                if chance.percent(20) {
                    let keys: &[&str] = if any_key { &["ads", "1-1", "2-1"] } else { &["ads"] };
                    people.charge(run, chance.pick::<&str>(keys)).await;
                }
            }
            loop {
                tokio::time::sleep(chance.millis(1_000, 5_000)).await;
                people.answer(runs, false).await;
                if tells && chance.percent(30) {
                    let last = runs.len() as u64 - 1;
                    let n = usize::try_from(chance.between(0, last)).expect("an index");
                    people.tell(&runs[n]).await;
                }
                if chance.percent(20) {
                    let last = runs.len() as u64 - 1;
                    let n = usize::try_from(chance.between(0, last)).expect("an index");
                    people.raise(&mut runs[n]).await;
                }
            }
        };
        tokio::select! {
            biased;
            () = using => {}
            () = trouble.brew(lasts, ground, &mut self.processes) => {}
        }
    }

    /// Waits until all runs have ended, while people answer questions and raise budgets.
    async fn come_to_rest(&mut self, store: &Store) -> Vec<String> {
        let ids: Vec<_> = self.runs.iter().map(|run| run.trace_id).collect();
        let over = self.ground.story.elapsed() + REST;
        let mut looks = 0;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let (resting, moving) = checker::look(store, &ids).await;
            if moving.is_empty() {
                return verdict::wrong(&self.ground, &self.people, &self.runs, resting, &self.extras).await;
            }
            if self.ground.story.elapsed() > over {
                return moving.into_iter().map(|why| format!("t8: not at rest: {why}")).collect();
            }
            self.people.answer(&self.runs, true).await;
            looks += 1;
            if looks % RAISE_EVERY == 0 {
                if self.extras.has(Extra::NobodyStarves) {
                    let starved = verdict::starved_now(&self.people, &self.runs).await;
                    if !starved.is_empty() {
                        return starved;
                    }
                }
                for run in &mut self.runs {
                    self.people.raise(run).await;
                }
            }
        }
    }

    /// Waits until the runs have expired, and restarts the coordinators.
    async fn outlive(&mut self, store: &Store) -> Vec<String> {
        tokio::time::sleep(processes::SHORT_RETENTION * 2).await;
        for process in &mut self.processes {
            process.kill(&self.ground);
            process.start(&self.ground);
        }
        tokio::time::sleep(processes::SHORT_RETENTION / 2).await;
        let ids: Vec<_> = self.runs.iter().map(|run| run.trace_id).collect();
        let versions = store.versions(&ids).await.expect("in memory");
        let back = ids.iter().zip(versions).filter(|(_, version)| *version > 0);
        back.map(|(id, _)| format!("{id} had expired, and is back")).collect()
    }

    async fn all_stored(&self) -> Vec<StoredMessage> {
        let mut all = Vec::new();
        for filter in [Filter::Events, Filter::Outcomes, Filter::Questions, Filter::Dead] {
            all.extend(self.people.client().bus.read(&filter).await.expect("in memory"));
        }
        all
    }
}

/// A directory for the workspaces of one simulation.
fn workspaces() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("trellis-simulation-{}-{number}", std::process::id()))
}
