//! Stores the mark of every owned partition: the position up to which the store has all commits of
//! the event log. A sweep reads only messages after the mark. A mark that is too low costs time; a
//! mark that is too high would hide a loss for ever. So a mark is set only while no loss is known,
//! and only to the position where the log ended a while ago (docs/decisions/005-mark.md).

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bus::Position;
use domain::subject::{Filter, Partition};
use host::clock::{Clock, Mark};
use telemetry::Outage;

use crate::{
    error_log,
    loops::Handles,
    store::{self, LogMark, MarkOutcome, NewMark},
};

pub(crate) async fn run(handles: Arc<Handles>) {
    let mut interval = tokio::time::interval(handles.config.mark_every);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut ends = Ends::default();
    let mut outage = Outage::new("the end of the event log");
    loop {
        interval.tick().await;
        // The watch is read before the log: a break in between is seen in the next round, long
        // before this end is used.
        let (breaks, partitions) = handles.epoch.markable();
        let end = match handles.bus.end(&Filter::Events).await {
            Ok(end) => end,
            Err(error) => {
                handles.bus.tell(&mut outage, &error);
                continue;
            }
        };
        outage.ended();
        let clock = handles.config.clock;
        ends.add(breaks, end, clock.mark());
        let settled = ends.settled(clock, handles.config.mark_lag);
        let marks: Vec<NewMark> = partitions
            .into_iter()
            .filter_map(|(partition, seen)| next(partition, seen, settled, end))
            .collect();
        if !marks.is_empty()
            && let Err(error) = set(&handles, &marks).await
        {
            error_log::tell(&error, None, "the marks of partitions can't be set");
        }
    }
}

/// The new mark of a partition, if it changes.
fn next(partition: Partition, seen: LogMark, settled: Option<Position>, end: Position) -> Option<NewMark> {
    let fits = seen.position.is_none_or(|position| position.is_in(end));
    // The log was made anew, or lost its end: the mark would soon name other messages.
    let nothing = Position { log: end.log, sequence: 0 };
    let position = if fits { settled.filter(|settled| seen.position < Some(*settled))? } else { nothing };
    Some(NewMark { partition, seen, position })
}

async fn set(handles: &Handles, marks: &[NewMark]) -> Result<(), store::Error> {
    let epoch = &handles.epoch;
    let marked = handles.store.set_log_marks(marks).await?;
    for (NewMark { partition, seen, position }, marked) in marks.iter().zip(marked) {
        match marked {
            MarkOutcome::Done => epoch.marked(*partition, Some(*position)),
            MarkOutcome::Differs(found) if found.counter < seen.counter => {
                epoch.observe(*partition, seen.counter, found.counter, handles.clock.now());
            }
            // Another process serves the store, or the store has lost our mark. It may have lost
            // writes, and later commits may have raised the counter again. One doubt is enough: all
            // partitions are swept.
            MarkOutcome::Differs(found) if found.run != seen.run || found.position < seen.position => {
                epoch.doubt(handles.clock.now());
                return Ok(());
            }
            // Another coordinator set the mark, or our last answer was lost.
            MarkOutcome::Differs(found) => epoch.marked(*partition, found.position),
        }
    }
    Ok(())
}

/// The ends of the event log, and when they were read. All are later than the last break of the
/// watch.
#[derive(Debug, Default)]
struct Ends {
    breaks: u64,
    taken: VecDeque<(Mark, Position)>,
}

impl Ends {
    fn add(&mut self, breaks: u64, end: Position, now: Mark) {
        let grew = self.taken.back().is_none_or(|(_, last)| last.is_in(end));
        if breaks != self.breaks || !grew {
            self.taken.clear();
        }
        self.breaks = breaks;
        self.taken.push_back((now, end));
    }

    /// The end of the log at least `lag` ago.
    fn settled(&mut self, clock: Clock, lag: Duration) -> Option<Position> {
        let is_old = |(taken, _): &(Mark, Position)| clock.since(*taken) >= lag;
        while self.taken.get(1).is_some_and(is_old) {
            self.taken.pop_front();
        }
        self.taken.front().filter(|first| is_old(first)).map(|(_, end)| *end)
    }
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;

    use super::*;

    fn at(sequence: u64) -> Position {
        Position { log: 1, sequence }
    }

    #[tokio::test(start_paused = true)]
    async fn f19_a_mark_is_where_the_log_ended_a_while_ago_without_a_break_since() {
        let clock = Clock::simulated(Timestamp::from_millis(0));
        let lag = Duration::from_secs(60);
        let mut ends = Ends::default();
        let mut add = async |breaks, end| {
            tokio::time::advance(Duration::from_secs(30)).await;
            ends.add(breaks, end, clock.mark());
            ends.settled(clock, lag)
        };
        // The number of breaks in the watch, the end of the log now, and the expected settled end.
        let cases = [
            (0, at(5), None),
            (0, at(8), None),
            (0, at(8), Some(at(5))),
            (0, at(9), Some(at(8))),
            (1, at(9), None),
            (1, at(9), None),
            (1, at(10), Some(at(9))),
            // The log loses its end here; at the end of the list it is another log.
            (1, at(7), None),
            (1, at(7), None),
            (1, at(7), Some(at(7))),
            (1, Position { log: 2, sequence: 9 }, None),
        ];
        for (number, (breaks, end, settled)) in cases.into_iter().enumerate() {
            assert_eq!(add(breaks, end).await, settled, "case {number}");
        }
    }

    #[test]
    fn f19_a_mark_grows_and_one_of_another_log_is_taken_back() {
        let partition = Partition::all(1).next().unwrap();
        let next = |position, settled, end| {
            let seen = LogMark { counter: 1, position, run: String::new() };
            next(partition, seen, settled, end).map(|mark| mark.position)
        };
        assert_eq!(next(None, None, at(9)), None);
        assert_eq!(next(None, Some(at(5)), at(9)), Some(at(5)));
        assert_eq!(next(Some(at(4)), Some(at(5)), at(9)), Some(at(5)));
        assert_eq!(next(Some(at(5)), Some(at(5)), at(9)), None);
        assert_eq!(next(Some(at(6)), Some(at(5)), at(9)), None, "another coordinator has set the mark");
        assert_eq!(next(Some(at(10)), None, at(9)), Some(at(0)));
        assert_eq!(next(Some(Position { log: 0, sequence: 3 }), Some(at(5)), at(9)), Some(at(0)));
    }
}
