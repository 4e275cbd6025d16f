//! Finding runs in the index (G17).

use std::iter::Peekable;

use disk::Rows;
use domain::{Timestamp, TraceId, subject::Partition};

use super::{
    super::{Error, Find},
    Disk, index,
    list::List,
};

type RunEntry = (Timestamp, TraceId);

impl Disk {
    pub(in super::super) async fn find(&self, find: &Find) -> Result<Vec<(TraceId, Timestamp)>, Error> {
        let mut runs: Vec<RunEntry> = Vec::new();
        for home in self.homes() {
            runs.extend(self.read("find runs", |rows| in_home(rows, home, find))?);
        }
        runs.sort_unstable_by(|a, b| b.cmp(a));
        Ok(runs.into_iter().take(find.limit).map(|(at, trace)| (trace, at)).collect())
    }

    pub(in super::super) async fn with_prefix(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<TraceId>, Error> {
        self.read("find traces by their ids", |rows| index::with_prefix(rows, prefix, limit))
    }

    pub(in super::super) async fn run_count(&self) -> Result<u64, Error> {
        self.read("count runs", |rows| self.homes().map(|home| List::runs(home).count(rows)).sum())
    }
}

/// The newest matching runs of a partition. Reads the lists of the first group of terms, or without
/// terms the list of all runs.
fn in_home(rows: &impl Rows, home: Partition, find: &Find) -> Result<Vec<RunEntry>, disk::Error> {
    let lists: Vec<List<'_>> = match find.terms.first() {
        Some(any) => any.iter().map(|term| List::term(home, term)).collect(),
        None => vec![List::runs(home)],
    };
    let newest = lists.iter().map(|list| Ok(list.newest(rows, find.latest())?.peekable()));
    let mut newest = newest.collect::<Result<Vec<_>, disk::Error>>()?;
    let mut found = Vec::new();
    while found.len() < find.limit
        && let Some(run) = next(&mut newest).transpose()?
        && run.0 >= find.since
    {
        if fits(rows, home, find, run)? {
            found.push(run);
        }
    }
    Ok(found)
}

/// The newest entry of several lists, returned once even if several lists have it.
fn next<I: Iterator<Item = Result<RunEntry, disk::Error>>>(
    lists: &mut [Peekable<I>],
) -> Option<Result<RunEntry, disk::Error>> {
    let mut newest: Option<RunEntry> = None;
    for list in &mut *lists {
        match list.peek() {
            Some(Ok(run)) => newest = newest.max(Some(*run)),
            Some(Err(_)) => return list.next(),
            None => {}
        }
    }
    let newest = newest?;
    for list in lists {
        list.next_if(|run| run.as_ref() == Ok(&newest));
    }
    Some(Ok(newest))
}

fn fits(rows: &impl Rows, home: Partition, find: &Find, (at, trace): RunEntry) -> Result<bool, disk::Error> {
    if find.until.is_some_and(|until| at >= until) || find.after.is_some_and(|after| (at, trace) >= after) {
        return Ok(false);
    }
    if !find.any_age && List::runs(home).get(rows, trace)?.is_none() {
        return Ok(false);
    }
    for any in find.terms.iter().skip(1) {
        let mut has = false;
        for term in any {
            has = has || List::term(home, term).get(rows, trace)?.is_some();
        }
        if !has {
            return Ok(false);
        }
    }
    let Some((least, most)) = find.cost else { return Ok(true) };
    let key = index::cost(home, trace);
    Ok(!rows.has(&key)? || (least..=most).contains(&rows.number(&key)?))
}
