//! Whether the store can still be believed. Every commit raises its partition's counter; a counter
//! that is lower than one seen before says that the store lost what it had acknowledged. From then on
//! nothing loaded is believed before it was held against the event log.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use shared::{Timestamp, subject::Partition};
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(crate) struct Epoch(Arc<State>);

#[derive(Debug)]
struct State {
    /// Traces that began before this are checked when they are loaded.
    since: AtomicU64,
    floors: Mutex<HashMap<Partition, u64>>,
    /// Partitions whose first commit was ours: new, or emptied while nobody looked.
    born: Mutex<BTreeSet<Partition>>,
    number: watch::Sender<u64>,
}

impl Epoch {
    /// A coordinator that starts knows nothing of what was before.
    pub(crate) fn new(now: Timestamp) -> Self {
        let (number, _) = watch::channel(0);
        let since = AtomicU64::new(now.millis());
        Epoch(Arc::new(State { since, floors: Mutex::default(), born: Mutex::default(), number }))
    }

    /// What the counter of a partition was at least, when last seen. Ask *before* the store is asked.
    pub(crate) fn floor(&self, partition: Partition) -> u64 {
        self.floors().get(&partition).copied().unwrap_or(0)
    }

    /// Takes note of a counter. True if it is lower than `floor`, which was seen before it was asked
    /// for: then writes were lost, and a new epoch begins.
    pub(crate) fn observe(&self, partition: Partition, floor: u64, counter: u64, now: Timestamp) -> bool {
        if counter < floor {
            self.begin(now);
            return true;
        }
        let mut floors = self.floors();
        let seen = floors.entry(partition).or_insert(0);
        *seen = (*seen).max(counter);
        false
    }

    /// A commit of ours was the first of its partition. Whoever serves it may not have looked yet, and
    /// would find it used; so it is for us to look whether the log knows more of it.
    pub(crate) fn committed(&self, partition: Partition, counter: u64) {
        if counter == 1 {
            self.born().insert(partition);
        }
    }

    pub(crate) fn take_born(&self) -> BTreeSet<Partition> {
        std::mem::take(&mut *self.born())
    }

    /// They could not be looked at yet.
    pub(crate) fn give_back(&self, born: BTreeSet<Partition>) {
        self.born().extend(born);
    }

    fn born(&self) -> std::sync::MutexGuard<'_, BTreeSet<Partition>> {
        self.0.born.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, now: Timestamp) {
        let mut floors = self.floors();
        if floors.is_empty() {
            return;
        }
        tracing::error!("the store has lost acknowledged writes: traces are rebuilt from the event log");
        floors.clear();
        self.0.since.store(now.millis(), Ordering::SeqCst);
        self.0.number.send_modify(|number| *number += 1);
    }

    pub(crate) fn since(&self) -> Timestamp {
        Timestamp::from_millis(self.0.since.load(Ordering::SeqCst))
    }

    /// Counts the epochs: whoever caches throws all away when it changes.
    pub(crate) fn number(&self) -> u64 {
        *self.0.number.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.0.number.subscribe()
    }

    fn floors(&self) -> std::sync::MutexGuard<'_, HashMap<Partition, u64>> {
        self.0.floors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
