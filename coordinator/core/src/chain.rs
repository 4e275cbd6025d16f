//! Decides which commits of an event log are valid. The store may lose commits that are in the log.
//! Until a coordinator notices, further commits are made on the state that is left, with numbers
//! that the log already has. The commits of the log then form a tree. The valid chain is the one
//! whose last commit was made last, because the store continues from it. A chain begins with the
//! first commit. If the beginning was dropped from the log, the chain begins with a copy (`copy`).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use domain::Timestamp;

use super::{Commit, LoggedEvents, Trace};

/// A commit, by its last version and the time when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CommitId {
    pub(super) last: u64,
    pub(super) made: Timestamp,
}

/// The messages of a commit that have arrived.
#[derive(Debug, Clone)]
pub(super) struct CommitGroup {
    pub(super) commit: Commit,
    messages: BTreeMap<u64, LoggedEvents>,
    events: u64,
}

impl CommitGroup {
    pub(super) fn of(message: LoggedEvents) -> Self {
        let mut told = CommitGroup { commit: message.commit(), messages: BTreeMap::new(), events: 0 };
        told.add(message);
        told
    }

    pub(super) fn add(&mut self, message: LoggedEvents) {
        let events = message.events.len() as u64;
        if self.messages.insert(message.version, message).is_none() {
            self.events += events;
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.events > self.commit.last - self.commit.first
    }

    /// The messages in order.
    pub(super) fn messages(&self) -> impl Iterator<Item = &LoggedEvents> + Clone {
        self.messages.values()
    }

    /// The trace after the commit, if the commit has a copy.
    pub(super) fn copy(&self) -> Option<Trace> {
        let first = self.messages.values().next().filter(|_| self.is_whole())?;
        Trace::from_copy(first.trace_id, self.messages())
    }

    /// Returns true if this commit directly follows the commit `id`.
    pub(super) fn follows(&self, id: CommitId) -> bool {
        self.commit.first == id.last + 1 && self.commit.after == Some(id.made)
    }
}

impl From<Commit> for CommitId {
    fn from(commit: Commit) -> Self {
        CommitId { last: commit.last, made: commit.made }
    }
}

/// The valid chain of a log, as far as the log shows it.
#[derive(Debug)]
pub(super) struct Chain {
    /// The commits in order. They follow the commit `from`, or begin with the first commit, or with
    /// a copy.
    pub(super) commits: Vec<CommitGroup>,
    /// True if they follow the commit `from`.
    pub(super) goes_on: bool,
    pub(super) rest: Rest,
    /// The branches of complete commits outside the valid chain. Branches may share their first
    /// commits.
    pub(super) beside: Vec<Vec<CommitGroup>>,
}

/// The part of a log that is left over after all of it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    Nothing,
    /// Some messages of the commit that was made last.
    Unfinished,
    /// Events before this one are missing, and later commits exist.
    Gap(u64),
}

/// Finds the valid chain. `from` is a commit that is known to be complete: that of a stored trace.
pub(super) fn chain(log: Vec<LoggedEvents>, from: Option<CommitId>) -> Chain {
    let mut commits = commits(log);
    // The commits that can be reached from the first one, or from `from`.
    let mut reached: HashSet<CommitId> = from.into_iter().collect();
    let (mut unfinished, mut detached): (Option<Timestamp>, Option<(Timestamp, u64)>) = (None, None);
    let mut copies = HashSet::new();
    for (id, told) in &commits {
        let Commit { first, made, .. } = told.commit;
        let follows = before(told).is_some_and(|before| reached.contains(&before));
        if !told.is_whole() {
            unfinished = unfinished.max(Some(made));
        } else if first == 1 || follows || reached.contains(id) {
            reached.insert(*id);
        } else if told.copy().is_some() {
            reached.insert(*id);
            copies.insert(*id);
        } else {
            detached = detached.max(Some((made, first)));
        }
    }
    // In a tie the chain that continues from the stored trace is preferred.
    let tip = reached.into_iter().max_by_key(|id| (id.made, Some(*id) == from, id.last));
    let rest = match (detached, unfinished, tip.map(|id| id.made)) {
        (Some((at, first)), _, made) if Some(at) > made => Rest::Gap(first),
        (_, unfinished, made) if unfinished > made => Rest::Unfinished,
        (_, _, _) => Rest::Nothing,
    };
    let of = |id: &CommitId| commits.get(id).filter(|told| told.is_whole());
    let back = |id: &CommitId| if copies.contains(id) { None } else { before(of(id)?) };
    let mut counts: Vec<CommitId> = std::iter::successors(tip, back).collect();
    counts.reverse();
    let beside = beside(&commits, &counts);
    let beside = beside.iter().map(|branch| branch.iter().map(|id| commits[id].clone()).collect()).collect();
    let known = counts.iter().position(|id| Some(*id) == from).map(|place| place + 1);
    // Commits before `from` may be missing.
    let follow = counts.split_off(known.unwrap_or_default());
    let take = |id: CommitId| commits.remove(&id).expect("only earlier commits may be missing");
    Chain { commits: follow.into_iter().map(take).collect(), goes_on: known.is_some(), rest, beside }
}

/// The predecessor that this commit names.
fn before(told: &CommitGroup) -> Option<CommitId> {
    let Commit { first, after, .. } = told.commit;
    after.filter(|_| first > 1).map(|made| CommitId { last: first - 1, made })
}

/// The branches beside the valid chain, up to each last commit. A branch consists of complete
/// commits outside the chain that begin the trace, or that follow a commit of the chain or of the
/// branch. A commit that can't be traced back is left out, because it may belong to the chain after
/// a gap.
fn beside(commits: &BTreeMap<CommitId, CommitGroup>, counts: &[CommitId]) -> Vec<Vec<CommitId>> {
    let counts: HashSet<CommitId> = counts.iter().copied().collect();
    let begins = |id: &CommitId| commits.get(id).is_some_and(|told| told.commit.first == 1);
    let from_the_first = counts.iter().any(begins);
    let mut beside: BTreeSet<CommitId> = BTreeSet::new();
    for (id, told) in commits.iter().filter(|(id, told)| told.is_whole() && !counts.contains(id)) {
        let follows = |before: CommitId| counts.contains(&before) || beside.contains(&before);
        if told.commit.first == 1 && from_the_first || before(told).is_some_and(follows) {
            beside.insert(*id);
        }
    }
    let goes_on: HashSet<CommitId> = beside.iter().filter_map(|id| before(&commits[id])).collect();
    let back = |id: &CommitId| before(&commits[id]).filter(|before| beside.contains(before));
    let branch = |last: &CommitId| {
        let mut branch: Vec<CommitId> = std::iter::successors(Some(*last), back).collect();
        branch.reverse();
        branch
    };
    beside.iter().filter(|id| !goes_on.contains(id)).map(branch).collect()
}

fn commits(log: Vec<LoggedEvents>) -> BTreeMap<CommitId, CommitGroup> {
    let mut commits: BTreeMap<CommitId, CommitGroup> = BTreeMap::new();
    for message in log {
        let id = CommitId::from(message.commit());
        match commits.get_mut(&id) {
            Some(told) => told.add(message),
            None => drop(commits.insert(id, CommitGroup::of(message))),
        }
    }
    commits
}

/// The messages of the valid chain, in order, each once.
pub fn in_order(log: Vec<LoggedEvents>) -> Vec<LoggedEvents> {
    let commits = chain(log, None).commits;
    commits.into_iter().flat_map(|told| told.messages.into_values()).collect()
}
