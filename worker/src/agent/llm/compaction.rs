//! Chooses what to compact when a window is nearly full (W7): first old tool outputs, then the
//! oldest exchanges. The tool outputs of the newest exchange come last, and that exchange itself is
//! never removed. Pure: the caller records each choice in the journal.

use super::conversation::Exchange;

/// Compaction starts at this percentage of the window's size, and reduces the window to the second
/// one. The gap prevents a compaction at each step.
const FULL_PERCENT: u64 = 90;
const GOAL_PERCENT: u64 = 60;
/// References must free at least this percentage of the window, else exchanges are removed.
const WORTH_PERCENT: u64 = 5;

/// The next compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// The tool outputs of these entries become references.
    Refer { from: u32, to: u32 },
    /// These entries are removed from the window: summarised if the summary is worth its price,
    /// else dropped.
    Remove { from: u32, to: u32, summarise: bool },
}

/// The sizes of a window, in tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes<'a> {
    pub(super) limit: u64,
    /// Everything but the exchanges: the first messages, tools, the answer.
    pub(super) fixed: u64,
    /// The longest summary.
    pub(super) summary: u64,
    pub(super) exchanges: &'a [Exchange],
}

impl Sizes<'_> {
    fn needed(&self) -> u64 {
        self.fixed + self.exchanges.iter().map(|exchange| exchange.tokens).sum::<u64>()
    }

    fn percent(&self, percent: u64) -> u64 {
        self.limit.saturating_mul(percent) / 100
    }
}

/// Returns the next compaction; `None` if the window has room, or nothing is left to compact. Each
/// compaction frees something, so a loop over this function ends.
pub(super) fn next(sizes: Sizes<'_>) -> Option<Plan> {
    let needed = sizes.needed();
    if needed <= sizes.percent(FULL_PERCENT) {
        return None;
    }
    let (newest, old) = sizes.exchanges.split_last()?;
    if let (Some(first), Some(last)) = (old.first(), old.last()) {
        let freed: u64 = old.iter().map(saving).sum();
        if freed > 0 && freed >= sizes.percent(WORTH_PERCENT) {
            return Some(Plan::Refer { from: first.first, to: last.last });
        }
        let mut removed = 0;
        let enough = old.iter().find(|exchange| {
            removed += exchange.tokens;
            needed - removed + sizes.summary <= sizes.percent(GOAL_PERCENT)
        });
        let to = enough.unwrap_or(last).last;
        return Some(Plan::Remove { from: first.first, to, summarise: removed >= 2 * sizes.summary });
    }
    (needed > sizes.limit && saving(newest) > 0)
        .then_some(Plan::Refer { from: newest.first, to: newest.last })
}

fn saving(exchange: &Exchange) -> u64 {
    exchange.tokens.saturating_sub(exchange.as_references)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exchanges of two entries each, from entry 1 on: tokens as shown, and as references.
    fn exchanges(sizes: &[(u64, u64)]) -> Vec<Exchange> {
        let exchange = |(n, (tokens, as_references)): (u32, &(u64, u64))| Exchange {
            first: 2 * n + 1,
            last: 2 * n + 2,
            tokens: *tokens,
            as_references: *as_references,
        };
        (0..).zip(sizes).map(exchange).collect()
    }

    fn plan(fixed: u64, sizes: &[(u64, u64)]) -> Option<Plan> {
        next(Sizes { limit: 1000, fixed, summary: 100, exchanges: &exchanges(sizes) })
    }

    #[test]
    fn w7_references_come_first_then_the_oldest_exchanges_and_the_newest_is_never_removed() {
        assert_eq!(plan(100, &[(300, 20), (300, 20), (200, 20)]), None, "there is room");
        let refer = |from, to| Some(Plan::Refer { from, to });
        assert_eq!(plan(100, &[(300, 20), (300, 20), (300, 20)]), refer(1, 4), "all but the newest");
        let remove = |from, to, summarise| Some(Plan::Remove { from, to, summarise });
        let texts = [(200, 200), (200, 200), (200, 200), (200, 200)];
        assert_eq!(plan(150, &texts), remove(1, 6, true), "until the goal is reached");
        assert_eq!(plan(50, &[(350, 350), (350, 350), (200, 200)]), remove(1, 4, true));
        assert_eq!(plan(800, &[(90, 90), (50, 50)]), remove(1, 2, false), "not worth a summary");
        assert_eq!(plan(100, &[(1200, 300)]), refer(1, 2), "the newest does not fit");
        assert_eq!(plan(100, &[(1200, 1200)]), None, "nothing is left to do");
        assert_eq!(plan(100, &[(850, 300)]), None, "nearly full, but it fits");
        assert_eq!(plan(2000, &[]), None);
    }

    #[test]
    fn w7_compacting_ends_and_frees_something_each_time() {
        let mut sizes = vec![(300, 20), (250, 250), (400, 30), (10, 10), (900, 100)];
        for round in 0.. {
            assert!(round < 10, "it does not end: {sizes:?}");
            let before: u64 = sizes.iter().map(|(tokens, _)| tokens).sum();
            match plan(200, &sizes) {
                None => break,
                Some(Plan::Refer { to, .. }) => {
                    (1..).zip(&mut sizes).filter(|(n, _)| 2 * n <= to).for_each(|(_, size)| size.0 = size.1);
                }
                Some(Plan::Remove { to, .. }) => drop(sizes.drain(..to as usize / 2)),
            }
            assert!(sizes.iter().map(|(tokens, _)| tokens).sum::<u64>() < before, "{sizes:?}");
        }
        assert_eq!(sizes, [(100, 100)], "the newest is left, as references");
    }
}
