//! The faults of a simulation. For a while they occur one after another, and several at a time.

use std::time::Duration;

use bus::{Bus, Topology};
use coordinator::store::Snapshot;

use super::{
    chance::Chance,
    extra::{Extra, Extras},
    network::Weather,
    processes::{Ground, Process},
};

/// The end of a fault, at a later time.
#[derive(Debug)]
enum Later {
    Start(usize),
    GoOn(usize),
    CalmLink(usize),
    CalmStore,
    CalmProvider,
    EmptyQueues,
}

#[derive(Debug)]
pub(super) struct Trouble {
    chance: Chance,
    lost_writes: bool,
    /// A snapshot of the store with only the agents' profiles.
    as_new: Snapshot,
    /// An earlier snapshot of the store.
    remembered: Option<Snapshot>,
    later: Vec<(Duration, Later)>,
}

impl Trouble {
    pub(super) fn new(chance: Chance, extras: &Extras, as_new: Snapshot) -> Self {
        let lost_writes = extras.has(Extra::LostWrites);
        Trouble { chance, lost_writes, as_new, remembered: None, later: Vec::new() }
    }

    /// Causes faults for this long, then ends them all.
    pub(super) async fn brew(&mut self, lasts: Duration, ground: &Ground, processes: &mut [Process]) {
        let over = ground.story.elapsed() + lasts;
        let calm_ms = *self.chance.pick(&[2_000, 6_000, 15_000]);
        while ground.story.elapsed() < over {
            tokio::time::sleep(self.chance.millis(10, calm_ms)).await;
            self.mend_what_is_due(ground, processes).await;
            self.strike(ground, processes).await;
        }
        self.heal(ground, processes).await;
    }

    async fn strike(&mut self, ground: &Ground, processes: &mut [Process]) {
        let chance = self.chance.clone();
        let last = processes.len() as u64 - 1;
        let who = usize::try_from(chance.between(0, last)).expect("an index");
        let lasts = ground.story.elapsed() + chance.millis(500, 20_000);
        match chance.between(0, 11) {
            0 | 1 => {
                processes[who].kill(ground);
                self.later.push((lasts, Later::Start(who)));
            }
            2 => {
                let messages = chance.between(1, 40);
                self.kill_at(messages, who, ground, processes).await;
                self.later.push((lasts, Later::Start(who)));
            }
            3 => {
                processes[who].stop(ground);
                self.later.push((lasts, Later::Start(who)));
            }
            4 if processes[who].runs() => {
                processes[who].pause(ground);
                self.later.push((lasts, Later::GoOn(who)));
            }
            5 => {
                let (no_way_out, no_way_in) = *chance.pick(&[(true, true), (true, false), (false, true)]);
                let weather = Weather { no_way_out, no_way_in, ..Weather::default() };
                let ways = match (no_way_out, no_way_in) {
                    (true, true) => "is cut off",
                    (true, false) => "can't send",
                    _ => "can't receive",
                };
                ground.story.note(&processes[who].name, ways);
                ground.network.set(&processes[who].name, weather);
                self.later.push((lasts, Later::CalmLink(who)));
            }
            6 | 7 => {
                let weather = Weather {
                    lost_percent: chance.between(0, 30),
                    doubled_percent: chance.between(0, 20),
                    slow_ms: *chance.pick(&[0, 50, 500, 3_000]),
                    shuffled: chance.percent(50),
                    ..Weather::default()
                };
                ground.story.note(&processes[who].name, format!("has a bad link: {weather:?}"));
                ground.network.set(&processes[who].name, weather);
                self.later.push((lasts, Later::CalmLink(who)));
            }
            8 => {
                let away = chance.percent(50);
                let slow_ms = if away { 0 } else { chance.between(200, 6_000) };
                let weather = Weather {
                    no_way_out: away,
                    slow_ms,
                    lost_percent: chance.between(0, 20),
                    ..Weather::default()
                };
                let what = if away { "is away".into() } else { format!("is slow: {slow_ms} ms") };
                ground.story.note("store", what);
                ground.network.set_store(weather);
                self.later.push((lasts, Later::CalmStore));
            }
            9 => {
                ground.story.note("provider", "is in trouble");
                ground.provider.set_trouble(true);
                self.later.push((lasts, Later::CalmProvider));
            }
            10 => {
                ground.story.note("bus", "its queues are full");
                let full = Topology { max_queue_bytes: 1, ..ground.topology.clone() };
                Bus::Memory(ground.bus.clone()).set_up(&full).await.expect("in memory");
                self.later.push((lasts, Later::EmptyQueues));
            }
            11 if self.lost_writes => self.lose_writes(ground),
            _ => {}
        }
    }

    /// Kills a process exactly at its n-th message from now, or after 5 s if it sends fewer.
    async fn kill_at(&self, messages: u64, who: usize, ground: &Ground, processes: &mut [Process]) {
        let sprung = ground.network.trap(&processes[who].name, messages);
        let waited = tokio::time::timeout(Duration::from_secs(5), sprung.notified()).await;
        if waited.is_ok() {
            ground.story.note(&processes[who].name, format!("is at its {messages}th message"));
        }
        processes[who].kill(ground);
    }

    fn lose_writes(&mut self, ground: &Ground) {
        match self.remembered.take() {
            None => self.remembered = Some(ground.store.snapshot()),
            Some(_) if self.chance.percent(30) => {
                // The snapshot contains the profiles. Without it, and without a coordinator that
                // remembers them, people would have to apply the profiles again.
                ground.story.note("store", "is wiped");
                ground.store.restore(self.as_new.clone());
            }
            Some(before) => {
                ground.story.note("store", "has lost its last writes");
                ground.store.restore(before);
            }
        }
    }

    async fn mend_what_is_due(&mut self, ground: &Ground, processes: &mut [Process]) {
        let now = ground.story.elapsed();
        let (due, later) = std::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= now);
        self.later = later;
        for (_, what) in due {
            mend(what, ground, processes).await;
        }
    }

    async fn heal(&mut self, ground: &Ground, processes: &mut [Process]) {
        for (_, what) in std::mem::take(&mut self.later) {
            mend(what, ground, processes).await;
        }
        ground.network.calm_down();
        for process in processes.iter_mut() {
            process.go_on(ground);
            process.start(ground);
        }
        ground.story.note("everything", "is well again");
    }
}

async fn mend(what: Later, ground: &Ground, processes: &mut [Process]) {
    match what {
        Later::Start(who) => processes[who].start(ground),
        Later::GoOn(who) => processes[who].go_on(ground),
        Later::CalmLink(who) => ground.network.set(&processes[who].name, Weather::default()),
        Later::CalmStore => ground.network.set_store(Weather::default()),
        Later::CalmProvider => ground.provider.set_trouble(false),
        Later::EmptyQueues => {
            let bus = Bus::Memory(ground.bus.clone());
            bus.set_up(&ground.topology).await.expect("in memory");
        }
    }
}
