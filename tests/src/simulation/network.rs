//! The network between the processes of a simulation and their servers. In calm weather, messages
//! take a moment and arrive in order. In bad weather they are late, lost, doubled and reordered.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use host::simulated_network::{Arrive, Crossing, Link};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::chance::Chance;

/// The most messages of one simulation. More indicate an endless loop of messages while no time
/// passes.
const MAX_CARRIED: usize = 3_000_000;
/// The delay of a message in calm weather, in milliseconds.
const CALM_MS: u64 = 3;

#[derive(Debug, Clone)]
pub(super) struct Network(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    began: Instant,
    chance: Chance,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    weather: BTreeMap<String, Weather>,
    store: Weather,
    /// The arrival of the last message in each direction. The next message must not overtake it.
    last: BTreeMap<(String, Way), Instant>,
    traps: BTreeMap<String, Trap>,
    carried: Vec<Carried>,
}

/// Every message of a simulation, to compare two simulations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    pub at: Duration,
    pub process: String,
    pub what: String,
    /// The arrival times: none if the message is lost, two if it is doubled.
    pub arrives: Vec<Duration>,
}

/// The faults that affect the messages of a process.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weather {
    /// If set, no message leaves the process, or none reaches it.
    pub(super) no_way_out: bool,
    pub(super) no_way_in: bool,
    pub(super) lost_percent: u64,
    pub(super) doubled_percent: u64,
    pub(super) slow_ms: u64,
    pub(super) shuffled: bool,
}

/// The paused state of a process. Its waiting tasks continue in the order in which they began to
/// wait. The order of waiters of tokio's `watch` is random, which would break determinism.
#[derive(Debug, Clone, Default)]
pub(super) struct Paused(Arc<(AtomicBool, Notify)>);

impl Paused {
    pub(super) fn set(&self, paused: bool) {
        let (flag, over) = &*self.0;
        flag.store(paused, Ordering::Relaxed);
        if !paused {
            over.notify_waiters();
        }
    }

    pub(super) fn get(&self) -> bool {
        self.0.0.load(Ordering::Relaxed)
    }

    async fn over(&self) {
        while self.get() {
            self.0.1.notified().await;
        }
    }
}

/// A notification after a process has sent this many more messages.
#[derive(Debug)]
struct Trap {
    left: u64,
    sprung: Arc<Notify>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    ToBus,
    FromBus,
    ToStore,
    FromStore,
}

impl Way {
    fn of(what: Crossing<'_>) -> (Self, &str) {
        match what {
            Crossing::ToBus(what) => (Way::ToBus, what),
            Crossing::FromBus(what) => (Way::FromBus, what),
            Crossing::ToStore(what) => (Way::ToStore, what),
            Crossing::FromStore(what) => (Way::FromStore, what),
        }
    }
}

impl Network {
    pub(super) fn new(chance: Chance) -> Self {
        Network(Arc::new(Inner { began: Instant::now(), chance, state: Mutex::default() }))
    }

    /// The link of a process. It carries nothing while the process is paused.
    pub(super) fn link(&self, process: &str, paused: Paused) -> Arc<dyn Link> {
        Arc::new(Cable { network: self.clone(), process: process.into(), paused })
    }

    pub(super) fn set(&self, process: &str, weather: Weather) {
        self.state().weather.insert(process.into(), weather);
    }

    /// Sets the weather between all processes and the store.
    pub(super) fn set_store(&self, weather: Weather) {
        self.state().store = weather;
    }

    pub(super) fn calm_down(&self) {
        let mut state = self.state();
        state.weather.clear();
        state.store = Weather::default();
        state.traps.clear();
    }

    /// Notifies when the process sends its n-th message from now.
    pub(super) fn trap(&self, process: &str, left: u64) -> Arc<Notify> {
        let sprung = Arc::new(Notify::new());
        self.state().traps.insert(process.into(), Trap { left, sprung: sprung.clone() });
        sprung
    }

    pub(super) fn carried(&self) -> Vec<Carried> {
        self.state().carried.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The arrival times of a message.
    fn arrivals(&self, process: &str, what: Crossing<'_>) -> Vec<Instant> {
        let (way, text) = Way::of(what);
        let (chance, now) = (&self.0.chance, Instant::now());
        let mut state = self.state();
        if let Some(trap) = state.traps.get_mut(process) {
            trap.left = trap.left.saturating_sub(1);
            if trap.left == 0 {
                trap.sprung.notify_one();
                state.traps.remove(process);
            }
        }
        let own = state.weather.get(process).copied().unwrap_or_default();
        let weather = match way {
            Way::ToBus | Way::FromBus => own,
            Way::ToStore | Way::FromStore => own.and(state.store),
        };
        let closed = match way {
            Way::ToBus | Way::ToStore => weather.no_way_out,
            Way::FromBus | Way::FromStore => weather.no_way_in,
        };
        let times = match () {
            () if closed || chance.percent(weather.lost_percent) => 0,
            () if chance.percent(weather.doubled_percent) => 2,
            () => 1,
        };
        let mut arrivals = Vec::new();
        for _ in 0..times {
            let mut at = now + chance.millis(0, CALM_MS) + chance.millis(0, weather.slow_ms);
            let last = state.last.entry((process.into(), way)).or_insert(now);
            if !weather.shuffled {
                at = at.max(*last + Duration::from_millis(1));
                *last = at;
            }
            arrivals.push(at);
        }
        let began = self.0.began;
        state.carried.push(Carried {
            at: now - began,
            process: process.into(),
            what: format!("{way:?} {text}"),
            arrives: arrivals.iter().map(|at| *at - began).collect(),
        });
        assert!(state.carried.len() < MAX_CARRIED, "a process sends messages without end");
        arrivals
    }
}

impl Weather {
    fn and(self, other: Weather) -> Self {
        Weather {
            no_way_out: self.no_way_out || other.no_way_out,
            no_way_in: self.no_way_in || other.no_way_in,
            lost_percent: self.lost_percent.max(other.lost_percent),
            doubled_percent: self.doubled_percent.max(other.doubled_percent),
            slow_ms: self.slow_ms.max(other.slow_ms),
            shuffled: self.shuffled || other.shuffled,
        }
    }
}

#[derive(Debug)]
struct Cable {
    network: Network,
    process: String,
    paused: Paused,
}

impl Link for Cable {
    fn carry(&self, what: Crossing<'_>, arrive: Arrive) {
        let arrive = Arc::new(arrive);
        for at in self.network.arrivals(&self.process, what) {
            let (arrive, paused) = (arrive.clone(), self.paused.clone());
            tokio::spawn(async move {
                sleep_until(at).await;
                paused.over().await;
                arrive();
            });
        }
    }
}
