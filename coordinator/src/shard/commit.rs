//! Commits the decisions of a turn: every changed trace with its outbox and its timer, by
//! compare-and-set, in one pipeline.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use domain::{Timestamp, TraceId};
use serde::Serialize;
use telemetry::metrics;
use trace::Trace;

use super::{
    Shard,
    batch::{Open, SettledTrace},
    outbox::Outbox,
};
use crate::{
    error_log,
    store::{CommitOutcome, Replaces, Write},
};

impl Shard {
    pub(super) async fn commit(
        &mut self,
        order: &[TraceId],
        mut opened: HashMap<TraceId, Open>,
        now: Timestamp,
    ) -> Vec<SettledTrace> {
        let mut writes = Vec::new();
        let mut floors = Vec::new();
        let mut outboxes: HashMap<TraceId, Arc<Outbox>> = HashMap::new();
        for id in order {
            let open = opened.get_mut(id).expect("every trace in `order` is open");
            if open.events.is_empty() {
                continue;
            }
            let Ok((write, outbox)) = catch_unwind(AssertUnwindSafe(|| self.write(*id, open, now))) else {
                let open = opened.remove(id).expect("the trace is open");
                for reply in open.replies {
                    self.broken(reply.into_job(), open.expected, now).await;
                }
                continue;
            };
            floors.push(self.handles.epoch.floor(self.handles.partition(*id)));
            writes.push(write);
            outboxes.insert(*id, outbox);
        }
        if !writes.is_empty() {
            match self.handles.store.commit(&writes).await {
                Ok(committed) => {
                    for ((write, floor), committed) in writes.iter().zip(floors).zip(committed) {
                        let id = write.trace_id;
                        let partition = self.handles.partition(id);
                        let epoch = &self.handles.epoch;
                        match committed {
                            CommitOutcome::Done { counter } => {
                                epoch.committed(partition, floor, counter, now)
                            }
                            CommitOutcome::Conflict { counter, .. } => {
                                epoch.observe(partition, floor, counter, now);
                                metrics::commit_conflict();
                                if let Some(open) = opened.remove(&id) {
                                    self.decide_again(id, open.replies).await;
                                }
                            }
                            CommitOutcome::Outdated { revision, counter } => {
                                epoch.observe(partition, floor, counter, now);
                                if let Some(open) = opened.remove(&id) {
                                    self.decide_with_later_profiles(id, revision, open.replies).await;
                                }
                            }
                        }
                    }
                }
                Err(error) => {
                    // Some writes may have happened. Every caller gets `unavailable` and asks
                    // again, and all these traces are loaded again.
                    error_log::tell(&error, None, "commits failed; the jobs are answered as unavailable");
                    for write in &writes {
                        self.cache.remove(write.trace_id);
                        for reply in opened.remove(&write.trace_id).into_iter().flat_map(|open| open.replies)
                        {
                            self.unavailable(reply.into_job()).await;
                        }
                    }
                }
            }
        }
        let settle = |id: &TraceId| {
            let open = opened.remove(id)?;
            open.lines.iter().for_each(|line| line.tell(*id));
            open.counted.tell();
            let (outbox, frees_room) = (outboxes.remove(id), open.frees_room);
            Some(SettledTrace { trace_id: *id, outbox, frees_room, replies: open.replies })
        };
        order.iter().filter_map(settle).collect()
    }

    fn write(&mut self, id: TraceId, open: &mut Open, now: Timestamp) -> (Write, Arc<Outbox>) {
        let delays = self.handles.delays();
        let cleared = self.sent.remove(&id).unwrap_or_default();
        let entry = self.cache.peek(id).expect("a trace in a turn is in the cache");
        let outbox = Arc::new(Outbox::new(&mut entry.trace, std::mem::take(&mut open.events), now));
        entry.unsent.push(outbox.clone().into());
        let changes = entry.trace.take_changes();
        let timer = entry.next_timer(delays);
        let opened_at = entry.trace.root().filter(|_| !open.had_root).map(|root| root.identity.started_at);
        let version = entry.trace.version();
        let ended_at = ended_at(&entry.trace, now);
        let mut write = Write {
            trace_id: id,
            expected: open.expected,
            stamp: open.stamp.take(),
            version,
            replaces: Replaces::Nothing,
            fields: changes.fields,
            values: changes.values,
            outbox: Some((outbox.key(), text(&*outbox))),
            cleared,
            timer,
            // Only the owner of a partition knows which leases were renewed in memory. To any other
            // coordinator every lease looks fresh (B13), so its timer must not delay the wake at
            // which the owner notices a lost worker.
            keeps_earlier_timer: !self.handles.owns(id),
            ended_at,
            opened_at,
            profiles: open.profiles,
            index: changes.index,
        };
        entry.seal.close(&mut write);
        (write, outbox)
    }
}

/// A trace that is over is removed after the retention, which begins with its last change. A live
/// trace is never removed.
pub(super) fn ended_at(trace: &Trace, now: Timestamp) -> Option<Timestamp> {
    trace.is_over().then_some(now)
}

pub(super) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("outboxes have string keys only")
}
