//! Replays a log whose messages arrive in any order, twice, or not at all. Only complete commits of
//! the valid chain are applied.

use std::collections::{BTreeMap, BTreeSet};

use domain::{Timestamp, TraceId};

use super::{
    Commit, LoggedEvents, LostCost, Rest, Trace,
    chain::{CommitGroup, CommitId, chain},
    lost_costs::lost_costs,
};

/// A trace and the messages of its log that can't be applied yet.
#[derive(Debug, Clone)]
pub struct Replay {
    trace: Trace,
    /// Commits that are not applied yet, because they are incomplete or not the next. By their
    /// first version and the time when they were made.
    waiting: BTreeMap<(u64, Timestamp), CommitGroup>,
    /// The times when the applied commits were made, by their last version.
    applied: BTreeMap<u64, Timestamp>,
    /// Waiting commits that branch off from the applied ones, with the last version that both have.
    branches: BTreeMap<CommitId, u64>,
    /// Commits that were replaced by others.
    abandoned: BTreeSet<CommitId>,
}

/// Other commits replace some that are applied: the log has to be replayed from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superseded;

impl Replay {
    /// Continues from a trace, which may be empty.
    pub fn new(trace: Trace) -> Self {
        let applied = (trace.version() > 0).then(|| (trace.version(), trace.made()));
        Replay {
            trace,
            waiting: BTreeMap::new(),
            applied: applied.into_iter().collect(),
            branches: BTreeMap::new(),
            abandoned: BTreeSet::new(),
        }
    }

    /// The trace after the whole valid chain, and the rest of the log. `trace` may be empty. It is
    /// ignored if another commit replaced its last one.
    pub fn all(trace: Trace, log: Vec<LoggedEvents>) -> (Trace, Rest) {
        let (trace, rest, _) = Replay::with_lost(trace, log);
        (trace, rest)
    }

    /// Like `all`, with the costs in commits outside the valid chain.
    pub fn with_lost(trace: Trace, log: Vec<LoggedEvents>) -> (Trace, Rest, Vec<LostCost>) {
        let from = (trace.version() > 0).then(|| CommitId { last: trace.version(), made: trace.made() });
        let chain = chain(log, from);
        let mut trace = if chain.goes_on { trace } else { Trace::new(trace.id()) };
        chain.commits.iter().for_each(|told| trace.replay(told));
        (trace, chain.rest, lost_costs(&chain.beside))
    }

    /// The trace after the commit that contains an event, in the chain that is valid now; at least
    /// after the first commit. Also returns the number of the last event.
    pub fn until(id: TraceId, log: Vec<LoggedEvents>, event: u64) -> (Trace, u64) {
        let chain = chain(log, None);
        let mut trace = Trace::new(id);
        for told in &chain.commits {
            if trace.version() == 0 || told.commit.first <= event {
                trace.replay(told);
            }
        }
        (trace, chain.commits.last().map_or(0, |told| told.commit.last))
    }

    /// Begins again, for a log that is read again from its start.
    pub fn restart(&mut self) {
        self.trace = Trace::new(self.trace.id());
        self.waiting.clear();
        self.applied.clear();
        self.branches.clear();
    }

    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    pub fn add(&mut self, message: LoggedEvents) -> Result<(), Superseded> {
        let commit = message.commit();
        let id = CommitId::from(commit);
        if self.abandoned.contains(&id) || self.applied.get(&id.last) == Some(&id.made) {
            return Ok(());
        }
        let place = (commit.first, commit.made);
        match self.waiting.get_mut(&place) {
            Some(told) => told.add(message),
            None => drop(self.waiting.insert(place, CommitGroup::of(message))),
        }
        if !self.waiting[&place].is_whole() {
            return Ok(());
        }
        self.begin_with(place);
        while let Some(next) = self.next() {
            self.apply(next);
        }
        if self.waiting.contains_key(&place) { self.supersede(place) } else { Ok(()) }
    }

    /// The last commit of the trace.
    fn tip(&self) -> CommitId {
        CommitId { last: self.trace.version(), made: self.trace.made() }
    }

    /// A commit that may be applied next. If there are several, the one whose chain was made last.
    fn next(&self) -> Option<(u64, Timestamp)> {
        let places: Vec<_> = self.following(self.tip()).collect();
        match places[..] {
            [] => None,
            [(place, _)] => Some(*place),
            _ => {
                let newest = places.into_iter().max_by_key(|(_, told)| self.newest(told.commit.into()));
                newest.map(|(place, _)| *place)
            }
        }
    }

    /// The time of the last commit in a chain with this commit.
    fn newest(&self, id: CommitId) -> Timestamp {
        self.chain_of(id).into_iter().map(|id| id.made).max().unwrap_or(id.made)
    }

    /// The complete waiting commits that follow this one.
    fn following(&self, id: CommitId) -> impl Iterator<Item = (&(u64, Timestamp), &CommitGroup)> {
        let [first, end] = [0, u64::MAX].map(|made| (id.last + 1, Timestamp::from_millis(made)));
        let waiting = self.waiting.range(first..=end);
        waiting.filter(move |(_, told)| told.is_whole() && (id.last == 0 || told.follows(id)))
    }

    /// Continues from a copy, if the log has dropped the commits before it.
    fn begin_with(&mut self, place: (u64, Timestamp)) {
        let Commit { first, last, made, .. } = self.waiting[&place].commit;
        let is_behind = self.trace.version() + 1 < first && self.trace.made() < made;
        let copy = if is_behind { self.waiting[&place].copy() } else { None };
        if let Some(mut trace) = copy {
            trace.set_made(made);
            self.trace = trace;
            self.waiting.remove(&place);
            self.applied.insert(last, made);
        }
    }

    fn apply(&mut self, place: (u64, Timestamp)) {
        let told = self.waiting.remove(&place).expect("the commit waits");
        self.trace.replay(&told);
        self.applied.insert(told.commit.last, told.commit.made);
    }

    /// Discards the applied commits if a chain with this commit branches off from them and was made
    /// later.
    fn supersede(&mut self, place: (u64, Timestamp)) -> Result<(), Superseded> {
        let Commit { first, last, made, after } = self.waiting[&place].commit;
        let before = after.map(|made| CommitId { last: first - 1, made });
        let at = match before {
            None if first == 1 => 0,
            Some(before) if self.applied.get(&before.last) == Some(&before.made) => before.last,
            Some(before) if self.branches.contains_key(&before) => self.branches[&before],
            Some(_) | None => return Ok(()),
        };
        let id = CommitId { last, made };
        let newest = self.newest(id);
        for id in self.chain_of(id) {
            self.branches.insert(id, at);
        }
        if newest <= self.trace.made() {
            return Ok(());
        }
        let others = self.applied.range(at + 1..);
        self.abandoned.extend(others.map(|(last, made)| CommitId { last: *last, made: *made }));
        Err(Superseded)
    }

    /// A commit, and the waiting commits that follow it.
    fn chain_of(&self, id: CommitId) -> Vec<CommitId> {
        let (mut found, mut seen) = (vec![id], BTreeSet::from([id]));
        let mut next = 0;
        while next < found.len() {
            let following = self.following(found[next]).map(|(_, told)| CommitId::from(told.commit));
            found.extend(following.filter(|id| !self.branches.contains_key(id) && seen.insert(*id)));
            next += 1;
        }
        found
    }
}

impl Trace {
    /// Applies a commit. An empty trace may begin with a copy.
    pub(super) fn replay(&mut self, told: &CommitGroup) {
        let is_first = told.commit.first == 1;
        let copy = if self.version == 0 && !is_first { told.copy() } else { None };
        match copy {
            Some(copy) => *self = copy,
            None => {
                let events = told.messages().flat_map(|of| of.events.iter().map(|event| (event, of.at)));
                events.for_each(|(event, at)| self.apply(event, at));
            }
        }
        self.set_made(told.commit.made);
    }
}
