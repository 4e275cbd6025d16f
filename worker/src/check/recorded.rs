//! The decisions of checks in the journal. A check does not run again for a call with a recorded
//! decision.

use std::collections::{BTreeMap, HashMap, HashSet};

use domain::{
    check::{CheckDecision, Moment},
    id::CheckName,
    wire::{CheckedStep, HistoryEntry, Verdict},
};

use super::content::Content;

#[derive(Debug, Default)]
pub(super) struct RecordedChecks {
    /// Decisions by check, moment and the place of the call.
    decisions: HashMap<(CheckName, Moment, String), CheckedStep>,
    /// The changed messages and arguments of each check, by the digest of the unchanged content.
    changed: HashMap<CheckName, BTreeMap<String, String>>,
    /// The digests of the messages that a check has judged.
    judged: HashMap<CheckName, HashSet<String>>,
    halted: Option<(CheckName, String)>,
    /// The number of decisions in the journal that are not a pass. It includes decisions that a
    /// restore revoked.
    pub(super) count: u32,
}

impl RecordedChecks {
    /// Reads a journal: `all` are its entries, and `standing` those that no restore revoked.
    pub(super) fn read(all: &[HistoryEntry], standing: &[HistoryEntry]) -> Self {
        let mut recorded = RecordedChecks::default();
        standing.iter().for_each(|entry| recorded.add(entry));
        recorded.count =
            all.iter().map(|entry| notable(entry).count()).sum::<usize>().try_into().unwrap_or(u32::MAX);
        recorded
    }

    /// Adds the decisions of an entry. Does not change `count`.
    pub(super) fn add(&mut self, entry: &HistoryEntry) {
        for step in entry.step.checks() {
            if step.decision == CheckDecision::Halt {
                let reason = step.reason.clone().unwrap_or_default();
                self.halted.get_or_insert((step.check.clone(), reason));
            }
            if !step.changed.is_empty() {
                self.changed.entry(step.check.clone()).or_default().extend(step.changed.clone());
            }
            if !step.judged.is_empty() {
                self.judged.entry(step.check.clone()).or_default().extend(step.judged.iter().cloned());
            }
            if let Some(place) = &step.place {
                self.decisions.insert((step.check.clone(), step.moment, place.clone()), step.clone());
            }
        }
    }

    pub(super) fn decision(&self, check: &CheckName, moment: Moment, place: &str) -> Option<&CheckedStep> {
        self.decisions.get(&(check.clone(), moment, place.to_owned()))
    }

    /// The content that the check changed this content to before. `None` if it never changed it.
    pub(super) fn changed(&self, check: &CheckName, content: &Content) -> Option<Content> {
        let changed = self.changed.get(check)?.get(&content.digest())?;
        Some(content.changed_to(changed))
    }

    /// Returns true if the check has judged this content before, at any call.
    pub(super) fn has_judged(&self, check: &CheckName, content: &Content) -> bool {
        let digest = content.digest();
        self.judged.get(check).is_some_and(|judged| judged.contains(&digest))
            || self.changed.get(check).is_some_and(|changed| changed.contains_key(&digest))
    }

    /// The verdict of a context that a check halted. It takes precedence over all other entries.
    pub(super) fn halted(&self) -> Option<Verdict> {
        let (check, reason) = self.halted.clone()?;
        Some(Verdict::Halted { check: check.to_string(), reason })
    }
}

/// The decisions of an entry that are reported to the coordinator.
pub(super) fn notable(entry: &HistoryEntry) -> impl Iterator<Item = &CheckedStep> {
    entry.step.checks().iter().filter(|step| step.decision != CheckDecision::Pass)
}
