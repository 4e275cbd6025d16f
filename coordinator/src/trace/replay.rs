//! Replays a log whose messages come in any order, twice, or not at all. Only whole commits are applied.

use std::collections::{BTreeMap, BTreeSet};

use shared::Timestamp;

use super::{Commit, Generation, Logged, Trace, in_order, log::has_begun};

/// A trace and the messages of its log that can't be applied yet.
#[derive(Debug, Clone)]
pub struct Replay {
    trace: Trace,
    /// The first messages of the next commit.
    begun: Vec<Logged>,
    /// Messages that came before their predecessors, by version.
    early: BTreeMap<u64, Logged>,
    /// The generations that have begun, in order.
    generations: BTreeMap<(Timestamp, u32), Generation>,
    /// Messages of generations that have not begun: their first commit is not whole.
    unbegun: Vec<Logged>,
    /// The commits that are applied, by their first version.
    applied: BTreeMap<u64, Applied>,
    /// Commits that a later one took the place of, though no generation has begun since.
    replaced: BTreeSet<(u64, Applied)>,
}

/// The last version of a commit, and when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Applied {
    last: u64,
    made: ((Timestamp, u32), Timestamp),
}

impl Applied {
    fn of(message: &Logged) -> (u64, Self) {
        let Commit { first, last } = message.commit();
        (first, Applied { last, made: message.made() })
    }
}

/// A message of a later generation takes the place of events that are already applied: the log has to be
/// replayed again, from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superseded;

/// What is left of a log when all of it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    Nothing,
    /// Some messages of one commit, the last of the log.
    Unfinished,
    /// Events before this one are missing, and later commits are there.
    Gap(u64),
}

impl Replay {
    /// Goes on from a trace, which may be empty.
    pub fn new(trace: Trace) -> Self {
        let generation = trace.generation();
        let generations = BTreeMap::from([(generation.order(), generation)]);
        Replay {
            trace,
            begun: Vec::new(),
            early: BTreeMap::new(),
            generations,
            unbegun: Vec::new(),
            applied: BTreeMap::new(),
            replaced: BTreeSet::new(),
        }
    }

    /// The trace after all of its log that can be applied.
    pub fn all(trace: Trace, log: Vec<Logged>) -> Self {
        let log = in_order(log);
        let mut replay = Replay::new(trace);
        // A trace whose last events were replaced is not gone on from.
        if log.iter().any(|message| replay.is_superseded_by(message.generation)) {
            replay.restart();
        }
        for message in log {
            replay.add(message).expect("messages that were replaced are left out");
        }
        replay
    }

    /// Begins again, for a log that is read from its start again.
    pub fn restart(&mut self) {
        self.trace = Trace::new(self.trace.id());
        self.begun.clear();
        self.early.clear();
        self.unbegun.clear();
        self.applied.clear();
    }

    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    pub fn into_trace(self) -> Trace {
        self.trace
    }

    pub fn add(&mut self, message: Logged) -> Result<(), Superseded> {
        let generation = message.generation;
        if self.generations.values().any(|later| message.is_replaced_by(*later)) {
            return Ok(());
        }
        self.fork(&message)?;
        if self.replaced.contains(&Applied::of(&message)) {
            return Ok(());
        }
        if self.generations.contains_key(&generation.order()) || generation.is_first() {
            self.early.insert(message.version, message);
        } else {
            self.unbegun.push(message);
            if !has_begun(generation, &self.unbegun) {
                return Ok(());
            }
            self.generations.insert(generation.order(), generation);
            self.begun.retain(|begun| !begun.is_replaced_by(generation));
            self.early.retain(|_, early| !early.is_replaced_by(generation));
            if self.is_superseded_by(generation) {
                return Err(Superseded);
            }
            let begun = self.unbegun.extract_if(.., |message| message.generation == generation);
            self.early.extend(begun.map(|message| (message.version, message)));
            self.unbegun.retain(|message| !message.is_replaced_by(generation));
        }
        while let Some(next) = self.next() {
            self.begin(next);
        }
        Ok(())
    }

    /// If another commit is applied under these numbers, the one that was made later counts.
    fn fork(&mut self, message: &Logged) -> Result<(), Superseded> {
        let (first, new) = Applied::of(message);
        let Some((at, known)) = self.applied.range(..=new.last).next_back() else { return Ok(()) };
        if known.last < first || (*at, *known) == (first, new) {
            return Ok(());
        }
        if known.made > new.made {
            self.replaced.insert((first, new));
            return Ok(());
        }
        let others = self.applied.iter().filter(|(_, known)| known.last >= first);
        self.replaced.extend(others.map(|(first, known)| (*first, *known)));
        Err(Superseded)
    }

    /// What is left, if this was the whole log.
    pub fn rest(&self) -> Rest {
        let next = self.trace.version() + 1;
        let mut waiting = self.begun.iter().chain(self.early.values());
        match self.early.keys().next() {
            _ if waiting.clone().next().is_none() => Rest::Nothing,
            Some(early) if waiting.any(|message| message.commit().first > next) => Rest::Gap(*early),
            Some(_) | None => Rest::Unfinished,
        }
    }

    fn is_superseded_by(&self, generation: Generation) -> bool {
        generation.order() > self.trace.generation().order() && generation.since <= self.trace.version()
    }

    /// The next message, if its predecessors are here.
    fn next(&mut self) -> Option<Logged> {
        let due = *self.early.keys().next()? <= self.reached() + 1;
        due.then(|| self.early.pop_first()).flatten().map(|(_, message)| message)
    }

    /// The number of the last event that is applied, or waits for the rest of its commit.
    fn reached(&self) -> u64 {
        self.begun.last().map_or(self.trace.version(), Logged::last_version)
    }

    /// Takes the next message of a commit; applies the commit if it is whole.
    fn begin(&mut self, message: Logged) {
        if message.last_version() <= self.reached() {
            return;
        }
        let whole = message.last_version() >= message.commit().last;
        self.begun.push(message);
        if whole {
            let commit = std::mem::take(&mut self.begun);
            self.applied.extend(commit.first().map(Applied::of));
            commit.iter().for_each(|message| self.trace.replay(message));
        }
    }
}
