//! Current numbers that are read on demand: the runs in a shard's memory, the slots of a worker,
//! the contents of a queue.
//!
//! The part of the program that updates a number holds its handle. Dropping the last handle removes
//! the number. A process may have several numbers of one kind, which are combined into one.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// The statuses of contexts that have not ended, in their form on the wire.
pub const LIVE: [&str; 4] = ["submitted", "working", "input_required", "paused"];

static RUNS: GaugeSet<Live> = GaugeSet::new();
static PARTITIONS: GaugeSet<(u64, u64)> = GaugeSet::new();
static SLOTS: GaugeSet<(u64, u64)> = GaugeSet::new();
static QUEUES: GaugeSet<Vec<Queue>> = GaugeSet::new();

/// The runs in a shard's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Live {
    /// Contexts by their status, in the order of [`LIVE`].
    pub contexts: [u64; LIVE.len()],
    /// The age of the oldest run.
    pub oldest: Duration,
    pub held_nanos: u64,
    /// Commits whose messages are not known to be stored.
    pub unsent: u64,
}

/// The work of a pool that waits or is in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    pub pool: String,
    pub pending: u64,
    pub ack_pending: u64,
    pub oldest: Duration,
}

/// The handle of a number.
#[derive(Debug)]
pub struct GaugeHandle<T>(Arc<Mutex<T>>);

impl<T> GaugeHandle<T> {
    pub fn tell(&self, now: T) {
        *lock(&self.0) = now;
    }
}

pub fn tell_runs() -> GaugeHandle<Live> {
    RUNS.begin()
}

/// The partitions that this process serves, and all partitions.
pub fn tell_partitions() -> GaugeHandle<(u64, u64)> {
    PARTITIONS.begin()
}

/// The busy and the free slots.
pub fn tell_slots() -> GaugeHandle<(u64, u64)> {
    SLOTS.begin()
}

pub fn tell_queues() -> GaugeHandle<Vec<Queue>> {
    QUEUES.begin()
}

pub(super) fn runs() -> Option<Live> {
    RUNS.sum(|sum, one| {
        let contexts = std::array::from_fn(|status| sum.contexts[status] + one.contexts[status]);
        let held_nanos = sum.held_nanos.saturating_add(one.held_nanos);
        Live { contexts, oldest: sum.oldest.max(one.oldest), held_nanos, unsent: sum.unsent + one.unsent }
    })
}

pub(super) fn partitions() -> Option<(u64, u64)> {
    PARTITIONS.sum(|(owned, all), (more, of)| (owned + more, all.max(of)))
}

pub(super) fn slots() -> Option<(u64, u64)> {
    SLOTS.sum(|(busy, free), (more_busy, more_free)| (busy + more_busy, free + more_free))
}

pub(super) fn queues() -> Vec<Queue> {
    QUEUES.sum(|all, more| [all, more].concat()).unwrap_or_default()
}

/// Dollars for metrics. They are the only rounded numbers here.
#[expect(clippy::float_arithmetic, reason = "a metric is not money: no decision depends on it")]
pub(super) fn dollars(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

struct GaugeSet<T>(Mutex<Vec<Weak<Mutex<T>>>>);

impl<T: Clone + Default> GaugeSet<T> {
    const fn new() -> Self {
        GaugeSet(Mutex::new(Vec::new()))
    }

    fn begin(&self) -> GaugeHandle<T> {
        let told = Arc::new(Mutex::new(T::default()));
        let mut all = lock(&self.0);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&told));
        GaugeHandle(told)
    }

    /// None without a handle.
    fn sum(&self, add: impl Fn(T, T) -> T) -> Option<T> {
        let all: Vec<Arc<Mutex<T>>> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        all.into_iter().map(|one| lock(&one).clone()).reduce(add)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_added_up_and_go_with_their_handle() {
        static WATCHED: GaugeSet<u64> = GaugeSet::new();
        assert_eq!(WATCHED.sum(|a, b| a + b), None);
        let (one, two) = (WATCHED.begin(), WATCHED.begin());
        one.tell(3);
        two.tell(4);
        assert_eq!(WATCHED.sum(|a, b| a + b), Some(7));
        drop(one);
        assert_eq!(WATCHED.sum(|a, b| a + b), Some(4));
    }
}
