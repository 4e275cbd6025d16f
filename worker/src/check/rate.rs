//! The rate of a context's calls, by the times in its journal, so that it is the same on every
//! worker. Pure.

use std::time::Duration;

use domain::{
    Timestamp,
    wire::{HistoryEntry, HistoryStep},
};

const MINUTE_MS: u64 = 60_000;

/// The time until another call is allowed; `None` if it is allowed now. `counts` selects the
/// entries of the calls to count. The copies that a branch begins with are skipped, since they were
/// calls of another context.
pub(super) fn wait(
    entries: &[HistoryEntry],
    now: Timestamp,
    per_minute: u32,
    counts: impl Fn(&HistoryStep) -> bool,
) -> Option<Duration> {
    let mut copies = 0;
    let mut calls: Vec<Timestamp> = Vec::new();
    for entry in entries {
        match &entry.step {
            HistoryStep::Branched { copies: made, .. } => copies = *made,
            step if step.is_work() && copies > 0 => copies -= 1,
            step if counts(step) && now.millis_since(entry.at) < MINUTE_MS => calls.push(entry.at),
            HistoryStep::Began { .. }
            | HistoryStep::Model(_)
            | HistoryStep::Lost(_)
            | HistoryStep::Tool(_)
            | HistoryStep::Told(_)
            | HistoryStep::Rung(_)
            | HistoryStep::Received { .. }
            | HistoryStep::Restored { .. }
            | HistoryStep::Checked(_)
            | HistoryStep::Compacted { .. }
            | HistoryStep::Result(_) => {}
        }
    }
    // The call that has to be a minute old before the next call.
    let blocking = calls.len().checked_sub(per_minute as usize).map(|at| calls[at])?;
    let waited = now.millis_since(blocking);
    Some(Duration::from_millis(MINUTE_MS.saturating_sub(waited).max(1)))
}

#[cfg(test)]
mod tests {
    use domain::wire::{Checkpoint, ToolOutput, ToolStep};

    use super::*;

    fn entry(number: u32, at: u64, step: HistoryStep) -> HistoryEntry {
        let (trace_id, child_id) =
            ("0af7651916cd43dd8448eb211c80319c".parse().unwrap(), "root".parse().unwrap());
        HistoryEntry { trace_id, child_id, number, attempt: 1, at: Timestamp::from_millis(at), step }
    }

    fn tool(number: u32, at: u64) -> HistoryEntry {
        let (id, tool, output) =
            (number.to_string(), "fs.read".parse().unwrap(), ToolOutput::Inline("x".into()));
        let step = ToolStep { id, tool, output, is_error: false, note: None, checks: Vec::new() };
        entry(number, at, HistoryStep::Tool(Box::new(step)))
    }

    fn waits(entries: &[HistoryEntry], now: u64, per_minute: u32) -> Option<u64> {
        let counts = |step: &HistoryStep| matches!(step, HistoryStep::Tool(_));
        wait(entries, Timestamp::from_millis(now), per_minute, counts)
            .map(|wait| u64::try_from(wait.as_millis()).unwrap())
    }

    #[test]
    fn b16_a_rate_counts_the_calls_of_the_last_minute_in_the_journal() {
        let entries = [tool(1, 1_000), tool(2, 11_000), tool(3, 70_000)];
        assert_eq!(waits(&entries, 70_500, 3), None);
        assert_eq!(waits(&entries, 70_500, 2), Some(500));
        assert_eq!(waits(&entries, 70_500, 1), Some(59_500));
        assert_eq!(waits(&entries, 71_000, 2), None);
        // The copies of a branch were calls of another context.
        let from = Checkpoint { trace_id: entries[0].trace_id, child_id: "other".parse().unwrap(), step: 2 };
        let branch = entry(1, 1_000, HistoryStep::Branched { from, copies: 2 });
        let branched = [branch, tool(2, 1_000), tool(3, 1_000), tool(4, 1_001)];
        assert_eq!(waits(&branched, 1_002, 2), None);
        assert_eq!(waits(&branched, 1_002, 1), Some(59_999));
    }
}
