//! The state of the bus in memory: stored messages, listeners, unacknowledged deliveries. It is
//! behind one lock, which is never held over an await.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use domain::{
    subject::Namespace,
    time::{Timestamp, millis},
};
use host::simulated_network::Link;
use tokio::{sync::Notify, time::Instant};

use super::{listeners::Listeners, log::Log, objects::Objects, queue::Queue};
use crate::{
    keys::Keys,
    topology::{Stream, Topology},
};

/// A bus within this process. Clones share the same bus.
#[derive(Clone)]
pub struct Memory {
    pub(super) shared: Arc<Shared>,
    /// The simulated link between this handle and the bus.
    pub(super) link: Option<Arc<dyn Link>>,
    /// The keys with which messages are signed and verified.
    pub(crate) keys: Option<Keys>,
}

pub(super) struct Shared {
    pub(super) namespace: Namespace,
    pub(super) started: Instant,
    pub(super) started_at: Timestamp,
    pub(super) state: Mutex<State>,
    /// Wakes the tasks that wait for a stream: a message was stored, or is due again.
    pub(super) changed: BTreeMap<Stream, Notify>,
}

pub(crate) struct State {
    pub(crate) topology: Topology,
    pub(super) logs: BTreeMap<Stream, Log>,
    pub(crate) queues: BTreeMap<String, Queue>,
    pub(super) listeners: Listeners,
    pub(super) objects: Objects,
}

impl Memory {
    /// A bus whose messages carry the time of day.
    pub fn new(namespace: Namespace) -> Self {
        Self::starting_at(namespace, host::clock::Clock::Machine.now())
    }

    /// A bus whose clock starts at a given time, for simulations.
    pub fn starting_at(namespace: Namespace, at: Timestamp) -> Self {
        let shared = Shared {
            namespace,
            started: Instant::now(),
            started_at: at,
            state: Mutex::new(State {
                topology: Topology::default(),
                logs: Stream::ALL.map(|stream| (stream, Log::default())).into(),
                queues: BTreeMap::new(),
                listeners: Listeners::default(),
                objects: Objects::default(),
            }),
            changed: Stream::ALL.map(|stream| (stream, Notify::new())).into(),
        };
        Memory { shared: Arc::new(shared), link: None, keys: None }
    }

    /// The same bus behind a simulated link.
    pub fn behind(&self, link: Arc<dyn Link>) -> Self {
        Memory { shared: self.shared.clone(), link: Some(link), keys: self.keys.clone() }
    }

    pub(crate) fn with_keys(self, keys: Keys) -> Self {
        Memory { keys: Some(keys), ..self }
    }

    pub fn namespace(&self) -> &Namespace {
        &self.shared.namespace
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.started_at.plus_millis(millis(self.shared.started.elapsed()))
    }

    pub(super) fn started_at(&self) -> Timestamp {
        self.shared.started_at
    }

    pub(crate) fn changed(&self, stream: Stream) -> &Notify {
        self.shared.changed.get(&stream).expect("every stream exists from the start")
    }

    /// Held only for short operations. A poisoned lock is safe to use: a panic leaves no half-made
    /// change.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(super) fn log(&mut self, stream: Stream) -> &mut Log {
        self.logs.get_mut(&stream).expect("every stream exists from the start")
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("namespace", &self.shared.namespace).finish_non_exhaustive()
    }
}
