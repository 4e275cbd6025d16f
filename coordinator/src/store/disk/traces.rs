//! Traces: loaded, committed by compare-and-set, sent, removed.

use std::collections::HashMap;

use disk::{Change, Reader, Rows};
use domain::{Timestamp, TraceId, subject::Partition};

use super::{
    super::{
        CommitOutcome, Error, LoadedRecord, Replaces, SentOutboxes, Write, keys,
        record::{RUNS_KEPT, timer_after},
    },
    Disk, index,
    list::List,
    rows::{self, Part},
};

impl Disk {
    fn home(&self, trace: TraceId) -> Partition {
        Partition::of(trace, self.partitions)
    }

    pub(in super::super) async fn load(&self, traces: &[TraceId]) -> Result<Vec<LoadedRecord>, Error> {
        let load = |rows: &disk::View, trace: TraceId| {
            let counter = rows.number(&rows::counter(self.home(trace)))?;
            Ok(LoadedRecord { record: rows::record(rows, trace)?, damaged: None, counter })
        };
        self.read("load traces", |rows| traces.iter().map(|trace| load(rows, *trace)).collect())
    }

    pub(in super::super) async fn commit(&self, writes: &[Write]) -> Result<Vec<CommitOutcome>, Error> {
        let writes: Vec<(Partition, Write)> =
            writes.iter().map(|write| (self.home(write.trace_id), write.clone())).collect();
        self.write("commit", move |rows| {
            writes.iter().map(|(home, write)| commit(rows, *home, write)).collect()
        })
        .await
    }

    pub(in super::super) async fn sent(&self, sent: &[SentOutboxes]) -> Result<(), Error> {
        let sent: Vec<(Partition, SentOutboxes)> =
            sent.iter().map(|sent| (self.home(sent.trace_id), sent.clone())).collect();
        self.write("clear outboxes", move |rows| {
            sent.iter().try_for_each(|(home, sent)| clear(rows, *home, sent))
        })
        .await
    }

    pub(in super::super) async fn due(
        &self,
        partitions: &[Partition],
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<TraceId>, Error> {
        let lists = partitions.iter().map(|home| List::timers(*home));
        let due = self.read("find due timers", |rows| {
            lists.map(|list| list.until(rows, now, limit)).collect::<Result<Vec<_>, _>>()
        });
        Ok(due?.concat())
    }

    pub(in super::super) async fn ended(
        &self,
        partitions: &[Partition],
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<TraceId>, Error> {
        let lists = partitions.iter().map(|home| List::ended(*home));
        let ended = self.read("find ended traces", |rows| {
            lists.map(|list| list.until(rows, until, limit)).collect::<Result<Vec<_>, _>>()
        });
        Ok(ended?.concat())
    }

    pub(in super::super) async fn delay(&self, trace: TraceId, until: Timestamp) -> Result<(), Error> {
        let timers = List::timers(self.home(trace));
        self.write("delay a timer", move |rows| move_in(rows, timers, trace, until)).await
    }

    pub(in super::super) async fn put_off(&self, trace: TraceId, until: Timestamp) -> Result<(), Error> {
        let ended = List::ended(self.home(trace));
        self.write("put off a removal", move |rows| move_in(rows, ended, trace, until)).await
    }

    pub(in super::super) async fn remove(&self, trace: TraceId, version: u64) -> Result<bool, Error> {
        let home = self.home(trace);
        self.write("remove a trace", move |rows| remove(rows, home, trace, version)).await
    }

    pub(in super::super) async fn add_branches(&self, of: TraceId, by: &[TraceId]) -> Result<(), Error> {
        let by = by.to_vec();
        self.write("note a branch", move |rows| {
            by.iter().try_for_each(|by| rows.put(&rows::branches(of).id(by.as_u128()), &[]))
        })
        .await
    }

    pub(in super::super) async fn branches(&self, of: TraceId) -> Result<Vec<TraceId>, Error> {
        let all = rows::branches(of);
        self.read("list branches", |rows| {
            rows.beginning(&all)?.map(|row| rows::trace_id(Reader::behind(&row?.0, &all)?.id()?)).collect()
        })
    }

    pub(in super::super) async fn versions(&self, traces: &[TraceId]) -> Result<Vec<u64>, Error> {
        self.read("read versions", |rows| traces.iter().map(|trace| rows::version(rows, *trace)).collect())
    }

    pub(in super::super) async fn fields(
        &self,
        traces: &[TraceId],
        fields: &[&str],
    ) -> Result<Vec<HashMap<String, String>>, Error> {
        let of = |rows: &disk::View, trace: TraceId| {
            let mut found = HashMap::new();
            for name in fields {
                let text = rows::text(rows, &rows::field(trace, name))?;
                found.extend(text.map(|text| ((*name).to_owned(), text)));
            }
            Ok(found)
        };
        self.read("read fields", |rows| traces.iter().map(|trace| of(rows, *trace)).collect())
    }
}

fn commit(rows: &mut Change<'_>, home: Partition, write: &Write) -> Result<CommitOutcome, disk::Error> {
    let trace = write.trace_id;
    let (version, counter) = (rows::version(rows, trace)?, rows.number(&rows::counter(home))?);
    let moved_on = write.stamp.is_some() && write.stamp != rows::stamp(rows, trace)?;
    if version != write.expected || moved_on {
        return Ok(CommitOutcome::Conflict { version, counter });
    }
    let revision = rows.number(&rows::revision())?;
    if write.profiles.is_some_and(|known| known < revision) {
        return Ok(CommitOutcome::Outdated { revision, counter });
    }
    rows.put_number(&rows::version_of(trace), write.version)?;
    let index = rows::field(trace, keys::INDEX);
    if write.index.is_some() || write.replaces != Replaces::Nothing {
        let before = rows::text(rows, &index)?;
        index::list(rows, home, trace, before.as_deref(), write.index.as_deref())?;
    }
    if write.replaces != Replaces::Nothing {
        rows.remove_beginning(&rows::part(trace, Part::Fields))?;
        rows.remove_beginning(&rows::part(trace, Part::Values))?;
    }
    if write.replaces == Replaces::Everything {
        rows.remove_beginning(&rows::part(trace, Part::Outboxes))?;
    }
    for (name, text) in &write.fields {
        put(rows, &rows::field(trace, name), text.as_deref())?;
    }
    if let Some(text) = &write.index {
        put(rows, &index, Some(text))?;
    }
    for (name, text) in &write.values {
        put(rows, &rows::value(trace, name), text.as_deref())?;
    }
    for key in &write.cleared {
        rows.remove(&rows::outbox(trace, *key))?;
    }
    if let Some((key, text)) = &write.outbox {
        put(rows, &rows::outbox(trace, *key), Some(text))?;
    }
    set_timer(rows, home, trace, write.timer, write.keeps_earlier_timer)?;
    List::ended(home).set(rows, trace, write.ended_at)?;
    if let Some(at) = write.opened_at {
        List::runs(home).set(rows, trace, Some(at))?;
        List::runs(home).keep_newest(rows, RUNS_KEPT as u64)?;
    }
    rows.put_number(&rows::counter(home), counter + 1)?;
    Ok(CommitOutcome::Done { counter: counter + 1 })
}

/// Sets a row with a text, and removes a row without one.
fn put(rows: &mut Change<'_>, key: &disk::Key, text: Option<&str>) -> Result<(), disk::Error> {
    match text {
        Some(text) => rows.put(key, text.as_bytes()),
        None => rows.remove(key).map(drop),
    }
}

fn clear(rows: &mut Change<'_>, home: Partition, sent: &SentOutboxes) -> Result<(), disk::Error> {
    let trace = sent.trace_id;
    for key in &sent.outboxes {
        rows.remove(&rows::outbox(trace, *key))?;
    }
    let same = sent.stamp.is_none() || sent.stamp == rows::stamp(rows, trace)?;
    if same && sent.version == Some(rows::version(rows, trace)?) {
        if sent.all {
            rows.remove_beginning(&rows::part(trace, Part::Outboxes))?;
        }
        set_timer(rows, home, trace, sent.timer, sent.keeps_earlier_timer)?;
    }
    Ok(())
}

fn set_timer(
    rows: &mut Change<'_>,
    home: Partition,
    trace: TraceId,
    timer: Option<Timestamp>,
    keeps_earlier: bool,
) -> Result<(), disk::Error> {
    let timers = List::timers(home);
    let before = timers.get(rows, trace)?;
    timers.set(rows, trace, timer_after(before, timer, keeps_earlier))
}

/// Changes the time of a trace in a list that contains it.
fn move_in(
    rows: &mut Change<'_>,
    list: List<'_>,
    trace: TraceId,
    until: Timestamp,
) -> Result<(), disk::Error> {
    if list.get(rows, trace)?.is_some() { list.set(rows, trace, Some(until)) } else { Ok(()) }
}

fn remove(rows: &mut Change<'_>, home: Partition, trace: TraceId, version: u64) -> Result<bool, disk::Error> {
    let found = rows::version(rows, trace)?;
    if found != version || (found > 0 && List::timers(home).get(rows, trace)?.is_some()) {
        return Ok(false);
    }
    let listed = rows::text(rows, &rows::field(trace, keys::INDEX))?;
    index::list(rows, home, trace, listed.as_deref(), None)?;
    rows.remove(&rows::version_of(trace))?;
    for part in [Part::Fields, Part::Values, Part::Outboxes] {
        rows.remove_beginning(&rows::part(trace, part))?;
    }
    rows.remove_beginning(&rows::branches(trace))?;
    for list in [List::timers(home), List::runs(home), List::ended(home)] {
        list.set(rows, trace, None)?;
    }
    Ok(true)
}
