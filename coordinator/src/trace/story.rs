//! Which messages of an event log count. The store may lose commits that the log has. Until somebody notices,
//! commits are made on what is left, with numbers that the log has already: it then tells two stories from one
//! version on. The later one counts, because the store goes on from it.

use std::collections::BTreeMap;

use super::{Commit, Logged, log::latest_generations};

/// The messages of a log that count: of all its stories, the latest.
#[derive(Debug)]
pub struct Story {
    /// In order, each once.
    pub(super) messages: Vec<Logged>,
    /// The first version that two commits made.
    pub(super) forked_at: Option<u64>,
}

/// The messages of one commit.
struct Told {
    last: u64,
    messages: Vec<Logged>,
}

impl Story {
    pub fn new(log: Vec<Logged>) -> Self {
        let mut by_time: BTreeMap<_, Told> = BTreeMap::new();
        for message in latest_generations(log) {
            let Commit { first, last } = message.commit();
            let told = by_time.entry((message.made(), first, last));
            told.or_insert_with(|| Told { last, messages: Vec::new() }).messages.push(message);
        }
        let mut kept: BTreeMap<u64, Told> = BTreeMap::new();
        let mut forked_at: Option<u64> = None;
        for ((_, first, last), mut told) in by_time {
            let before = kept.range(..=last).next_back();
            if before.is_some_and(|(_, earlier)| earlier.last >= first) {
                kept.retain(|_, earlier| earlier.last < first);
                forked_at = Some(forked_at.map_or(first, |version| version.min(first)));
            }
            told.messages.dedup_by_key(|message| message.version);
            kept.insert(first, told);
        }
        Story { messages: kept.into_values().flat_map(|told| told.messages).collect(), forked_at }
    }

    pub fn is_forked(&self) -> bool {
        self.forked_at.is_some()
    }
}

/// The messages that count, in order, each once.
pub fn in_order(log: Vec<Logged>) -> Vec<Logged> {
    Story::new(log).messages
}
