//! The trust in the contents of the store. Every commit raises the counter of its partition; a
//! counter lower than an earlier reading means that the store lost acknowledged writes. Only a
//! coordinator that has owned a partition without a break has seen its counter grow. So a stored
//! trace is trusted if it began while this coordinator owned its partition; any other is compared
//! with the event log first.
//!
//! Counters are remembered for every partition in which this coordinator committed, owned or not.
//! Its owner may not have read the counter yet when the store loses the write.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bus::Position;
use domain::{Timestamp, subject::Partition};
use tokio::sync::watch;

use crate::store::LogMark;

#[derive(Debug, Clone)]
pub(crate) struct Epoch(Arc<State>);

#[derive(Debug)]
struct State {
    known: Mutex<KnownPartitions>,
    number: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct KnownPartitions {
    owned: HashMap<Partition, OwnedPartition>,
    /// The highest counters seen of partitions that other coordinators own.
    elsewhere: HashMap<Partition, u64>,
    /// Partitions of other owners in which writes of this coordinator were lost: this one sweeps
    /// them.
    lost: BTreeSet<Partition>,
    /// When the last loss was seen, or may have happened.
    lost_at: Option<Timestamp>,
    /// The number of coordinators that ended and may have been the only ones to see a loss.
    doubts: u64,
    /// The number of gaps in the watch, after which earlier observations prove nothing. (A loss or
    /// a doubt needs no break here: the sweep that follows proves everything again.)
    breaks: u64,
}

/// The partitions to sweep, and the known losses and doubts at that time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SweepRequest {
    pub(crate) partitions: Vec<Partition>,
    /// The epoch: the number of losses seen.
    pub(crate) number: u64,
    /// The number of possible losses.
    pub(crate) doubts: u64,
}

impl KnownPartitions {
    fn counter(&self, partition: Partition) -> u64 {
        let owned = self.owned.get(&partition).map(|watched| watched.counter);
        owned.or_else(|| self.elsewhere.get(&partition).copied()).unwrap_or_default()
    }

    fn note(&mut self, partition: Partition, counter: u64) {
        let known = match self.owned.get_mut(&partition) {
            Some(watched) => &mut watched.counter,
            None => self.elsewhere.entry(partition).or_default(),
        };
        *known = counter.max(*known);
    }
}

/// The knowledge about a partition that this coordinator owns.
#[derive(Debug)]
struct OwnedPartition {
    since: Timestamp,
    counter: u64,
    /// Every trace in the event log that the store may lack was looked up. A trace that is missing
    /// in the store never existed, or was removed.
    swept: bool,
    /// The state of the partition when that sweep began. None if some traces could not be loaded:
    /// the mark must not pass them.
    mark: Option<LogMark>,
}

impl Epoch {
    pub(crate) fn new() -> Self {
        let (number, _) = watch::channel(0);
        Epoch(Arc::new(State { known: Mutex::default(), number }))
    }

    /// Records a gap in the watch: other coordinators may have owned our partitions.
    pub(crate) fn watch_anew(&self, now: Timestamp) {
        let mut known = self.known();
        known.breaks += 1;
        known.owned.values_mut().for_each(|watched| watched.since = now);
    }

    /// Starts to watch a partition that this coordinator owns from now on.
    pub(crate) fn own(&self, partition: Partition, now: Timestamp) {
        let mut known = self.known();
        let counter = known.elsewhere.remove(&partition).unwrap_or_default();
        known.owned.insert(partition, OwnedPartition { since: now, counter, swept: false, mark: None });
    }

    pub(crate) fn disown(&self, partition: Partition) {
        let mut known = self.known();
        if let Some(watched) = known.owned.remove(&partition) {
            known.note(partition, watched.counter);
        }
    }

    /// The partitions with a known counter.
    pub(crate) fn partitions(&self) -> Vec<Partition> {
        let known = self.known();
        known.owned.keys().chain(known.elsewhere.keys()).copied().collect()
    }

    /// The highest counter of a partition seen so far. Call this *before* the request to the store.
    pub(crate) fn floor(&self, partition: Partition) -> u64 {
        self.known().counter(partition)
    }

    /// Records a counter. `floor` is the counter known before the request to the store. A lower
    /// counter means lost writes and begins a new epoch: stored data is not trusted any more.
    pub(crate) fn observe(&self, partition: Partition, floor: u64, counter: u64, now: Timestamp) {
        let mut known = self.known();
        if counter >= floor {
            known.note(partition, counter);
            return;
        }
        if known.counter(partition) < floor {
            // Another loop noticed the same loss.
            return;
        }
        tracing::error!("the store has lost acknowledged writes; rebuilding traces from the event log");
        for watched in known.owned.values_mut() {
            *watched = OwnedPartition { since: now, counter: 0, swept: false, mark: None };
        }
        let elsewhere = std::mem::take(&mut known.elsewhere);
        known.lost.extend(elsewhere.into_keys());
        known.lost_at = Some(now);
        self.0.number.send_modify(|number| *number += 1);
    }

    /// Records the counter that a commit of this coordinator has raised. Before the commit it was
    /// one less: after a loss, the commit may have raised the counter to the lost value again.
    pub(crate) fn committed(&self, partition: Partition, floor: u64, counter: u64, now: Timestamp) {
        self.observe(partition, floor, counter.saturating_sub(1), now);
        self.observe(partition, floor, counter, now);
    }

    /// Returns true if a trace that began at this time can be trusted as stored.
    pub(crate) fn trusts(&self, partition: Partition, began: Timestamp) -> bool {
        self.known().owned.get(&partition).is_some_and(|watched| began > watched.since)
    }

    /// Since when this coordinator owns a partition in which no loss was seen.
    pub(crate) fn since(&self, partition: Partition) -> Option<Timestamp> {
        self.known().owned.get(&partition).map(|watched| watched.since)
    }

    /// Returns true if a trace that is missing in the store never existed.
    pub(crate) fn trusts_absence(&self, partition: Partition) -> bool {
        self.known().owned.get(&partition).is_some_and(|watched| watched.swept)
    }

    /// Records that a coordinator ended without leaving. It commits in all partitions, so the store
    /// may have lost one of its last writes before another coordinator read the counter. All
    /// partitions are compared with the event log once more.
    pub(crate) fn doubt(&self, now: Timestamp) {
        let mut known = self.known();
        known.doubts += 1;
        known.lost_at = Some(now);
        known.owned.values_mut().for_each(|watched| (watched.swept, watched.mark) = (false, None));
    }

    pub(crate) fn unswept(&self) -> SweepRequest {
        let known = self.known();
        let owned = known.owned.iter().filter(|(_, watched)| !watched.swept).map(|(partition, _)| *partition);
        let unswept: BTreeSet<Partition> = owned.chain(known.lost.iter().copied()).collect();
        let partitions = unswept.into_iter().collect();
        SweepRequest { partitions, number: *self.0.number.borrow(), doubts: known.doubts }
    }

    /// Records a finished sweep, unless there is a new reason to sweep. `marks` has the state at
    /// the beginning of the sweep, for each partition whose traces are all in the store.
    pub(crate) fn swept(&self, swept: &SweepRequest, marks: &HashMap<Partition, LogMark>) {
        let mut known = self.known();
        if *self.0.number.borrow() == swept.number && known.doubts == swept.doubts {
            for partition in &swept.partitions {
                known.lost.remove(partition);
                if let Some(watched) = known.owned.get_mut(partition) {
                    (watched.swept, watched.mark) = (true, marks.get(partition).cloned());
                }
            }
        }
    }

    /// The known state of the owned partitions whose mark may be set, and the number of breaks in
    /// the watch.
    pub(crate) fn markable(&self) -> (u64, Vec<(Partition, LogMark)>) {
        let known = self.known();
        let seen = |(partition, watched): (&Partition, &OwnedPartition)| {
            let mark = watched.mark.clone().filter(|_| watched.swept)?;
            Some((*partition, LogMark { counter: watched.counter, ..mark }))
        };
        let mut markable: Vec<_> = known.owned.iter().filter_map(seen).collect();
        markable.sort_unstable_by_key(|(partition, _)| *partition);
        (known.breaks, markable)
    }

    /// Records the current mark of a partition.
    pub(crate) fn marked(&self, partition: Partition, position: Option<Position>) {
        let mut known = self.known();
        if let Some(mark) = known.owned.get_mut(&partition).and_then(|watched| watched.mark.as_mut()) {
            mark.position = position;
        }
    }

    /// The number of losses: caches drop all entries when it changes.
    pub(crate) fn number(&self) -> u64 {
        *self.0.number.borrow()
    }

    /// When the store lost writes, as far as known.
    pub(crate) fn lost_at(&self) -> Option<Timestamp> {
        self.known().lost_at
    }

    fn known(&self) -> MutexGuard<'_, KnownPartitions> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f17_a_single_lost_write_is_noticed_by_the_commit_that_makes_up_for_it() {
        let at = Timestamp::from_millis;
        let p = Partition::all(1).next().unwrap();
        let epoch = Epoch::new();
        epoch.own(p, at(10));
        epoch.committed(p, 0, 6, at(20));
        epoch.committed(p, 6, 7, at(20));
        // Two commits at once: both asked when the counter was 7.
        epoch.committed(p, 7, 8, at(20));
        epoch.committed(p, 7, 9, at(20));
        assert_eq!((epoch.number(), epoch.floor(p)), (0, 9));
        // The ninth was lost, and another commit became the ninth.
        epoch.committed(p, 9, 9, at(30));
        assert_eq!((epoch.number(), epoch.floor(p)), (1, 9));
        assert!(!epoch.trusts(p, at(29)));
    }

    #[test]
    fn f19_a_lost_write_in_a_partition_of_others_is_noticed_and_swept() {
        let at = Timestamp::from_millis;
        let mut partitions = Partition::all(2);
        let (mine, other) = (partitions.next().unwrap(), partitions.next().unwrap());
        let epoch = Epoch::new();
        epoch.own(mine, at(10));
        epoch.swept(&epoch.unswept(), &HashMap::new());
        epoch.committed(other, epoch.floor(other), 5, at(20));
        assert_eq!((epoch.partitions().len(), epoch.unswept().partitions.len()), (2, 0));
        epoch.observe(other, epoch.floor(other), 4, at(30));
        assert_eq!((epoch.number(), epoch.unswept().partitions), (1, vec![mine, other]));
        epoch.swept(&epoch.unswept(), &HashMap::new());
        assert!(
            epoch.unswept().partitions.is_empty()
                && epoch.trusts_absence(mine)
                && !epoch.trusts_absence(other)
        );
        // The known counter survives when a partition becomes ours, and when it is taken over.
        epoch.observe(other, 0, 7, at(40));
        epoch.own(other, at(50));
        assert_eq!(epoch.floor(other), 7);
        epoch.disown(other);
        assert_eq!(epoch.floor(other), 7);
    }

    #[test]
    fn f18_a_counter_that_went_back_makes_everything_doubtful() {
        let at = Timestamp::from_millis;
        let mut partitions = Partition::all(2);
        let (p, q) = (partitions.next().unwrap(), partitions.next().unwrap());
        let epoch = Epoch::new();
        assert!(!epoch.trusts(p, at(50)), "a partition that is not owned is not trusted");
        epoch.own(p, at(10));
        epoch.own(q, at(10));
        assert!(epoch.trusts(p, at(11)) && !epoch.trusts(p, at(10)));
        let before = epoch.unswept();
        epoch.swept(&before, &HashMap::new());
        assert!(epoch.trusts_absence(p));

        let floor = epoch.floor(p);
        epoch.observe(p, floor, 7, at(20));
        // Requested before the counter was 7, answered after: no loss.
        epoch.observe(p, 3, 5, at(20));
        assert_eq!((epoch.floor(p), epoch.number()), (7, 0));

        epoch.observe(p, 7, 6, at(30));
        assert_eq!((epoch.number(), epoch.floor(p)), (1, 0));
        assert!(!epoch.trusts(p, at(30)) && !epoch.trusts(q, at(30)) && epoch.trusts(q, at(31)));
        assert!(!epoch.trusts_absence(q));
        // Another loop saw the same loss: it is recorded once.
        epoch.observe(p, 7, 6, at(31));
        assert_eq!(epoch.number(), 1);
        // A sweep that began before the loss proves nothing.
        epoch.swept(&before, &HashMap::new());
        assert!(!epoch.trusts_absence(p));
    }

    #[test]
    fn f19_when_a_coordinator_ends_without_a_word_everything_is_swept_again() {
        let p = Partition::all(1).next().unwrap();
        let epoch = Epoch::new();
        epoch.own(p, Timestamp::from_millis(10));
        let begun = epoch.unswept();
        epoch.doubt(Timestamp::from_millis(20));
        epoch.swept(&begun, &HashMap::new());
        assert_eq!(epoch.unswept().partitions, [p], "the sweep began before the change");
        epoch.swept(&epoch.unswept(), &HashMap::new());
        assert!(epoch.unswept().partitions.is_empty() && epoch.number() == 0);
    }

    #[test]
    fn f19_a_mark_may_be_set_from_a_whole_sweep_on_until_something_is_doubtful() {
        let at = Timestamp::from_millis;
        let p = Partition::all(1).next().unwrap();
        let seen = LogMark { counter: 3, position: None, run: "a".into() };
        let marks = HashMap::from([(p, seen.clone())]);
        let epoch = Epoch::new();
        let sweep = |marks| epoch.swept(&epoch.unswept(), marks);
        let markable = || epoch.markable().1;
        epoch.own(p, at(10));
        assert_eq!(markable(), []);
        sweep(&marks);
        epoch.observe(p, 0, 9, at(20));
        assert_eq!(
            markable(),
            [(p, LogMark { counter: 9, ..seen.clone() })],
            "the mark has the highest known counter"
        );
        let position = Some(Position { log: 1, sequence: 4 });
        epoch.marked(p, position);
        assert_eq!(markable(), [(p, LogMark { counter: 9, position, ..seen.clone() })]);
        epoch.watch_anew(at(25));
        assert_eq!((epoch.markable().0, markable().len()), (1, 1));

        epoch.doubt(at(30));
        assert_eq!((epoch.markable().0, markable()), (1, vec![]), "a whole sweep replaces the mark");
        sweep(&marks);
        assert_eq!(markable().len(), 1);
        epoch.observe(p, 9, 8, at(40));
        assert_eq!((epoch.markable().0, markable()), (1, vec![]));
        // Some traces could not be loaded: the mark must not pass them.
        sweep(&HashMap::new());
        assert!(epoch.trusts_absence(p) && markable().is_empty());
        epoch.disown(p);
        epoch.own(p, at(50));
        assert_eq!(markable(), []);
    }
}
