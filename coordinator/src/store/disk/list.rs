//! Lists of traces, sorted by a time: timers, runs, ended traces, and the runs of a term.

use disk::{Change, Error, Key, Kind, Reader, Rows};
use domain::{Timestamp, TraceId, subject::Partition};

use super::rows::trace_id;

/// A list of a partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct List<'t> {
    home: Partition,
    of: Of<'t>,
}

#[derive(Debug, Clone, Copy)]
enum Of<'t> {
    Timers,
    Runs,
    Ended,
    Term(&'t str),
}

impl<'t> List<'t> {
    pub(super) fn timers(home: Partition) -> Self {
        List { home, of: Of::Timers }
    }

    pub(super) fn runs(home: Partition) -> Self {
        List { home, of: Of::Runs }
    }

    pub(super) fn ended(home: Partition) -> Self {
        List { home, of: Of::Ended }
    }

    pub(super) fn term(home: Partition, term: &'t str) -> Self {
        List { home, of: Of::Term(term) }
    }

    fn rows(&self, kind: Kind) -> Key {
        let key = Key::new(kind).number(self.home.number().into());
        match self.of {
            Of::Timers => key.byte(1),
            Of::Runs => key.byte(2),
            Of::Ended => key.byte(3),
            Of::Term(term) => key.byte(4).text(term),
        }
    }

    fn listed(&self, trace: TraceId) -> Key {
        self.rows(Kind::Listed).id(trace.as_u128())
    }

    pub(super) fn get(&self, rows: &impl Rows, trace: TraceId) -> Result<Option<Timestamp>, Error> {
        let at = rows.get(&self.listed(trace))?;
        at.map(|at| Ok(Timestamp::from_millis(Reader::new(&at).number()?))).transpose()
    }

    pub(super) fn set(
        &self,
        rows: &mut Change<'_>,
        trace: TraceId,
        at: Option<Timestamp>,
    ) -> Result<(), Error> {
        let sorted = |at: Timestamp| self.rows(Kind::Sorted).number(at.millis()).id(trace.as_u128());
        let before = self.get(rows, trace)?;
        if before == at {
            return Ok(());
        }
        if let Some(before) = before {
            rows.remove(&sorted(before))?;
        }
        match at {
            Some(at) => {
                rows.put_number(&self.listed(trace), at.millis())?;
                rows.put(&sorted(at), &[])?;
            }
            None => drop(rows.remove(&self.listed(trace))?),
        }
        let more = i64::from(at.is_some()) - i64::from(before.is_some());
        let count = self.count(rows)?.saturating_add_signed(more);
        rows.put_number(&self.rows(Kind::Count), count)
    }

    pub(super) fn count(&self, rows: &impl Rows) -> Result<u64, Error> {
        rows.number(&self.rows(Kind::Count))
    }

    pub(super) fn keep_newest(&self, rows: &mut Change<'_>, count: u64) -> Result<(), Error> {
        while self.count(rows)? > count {
            let oldest = self.until(rows, Timestamp::from_millis(u64::MAX), 1)?;
            let Some(oldest) = oldest.first() else { return Ok(()) };
            self.set(rows, *oldest, None)?;
        }
        Ok(())
    }

    /// The traces with this time or an earlier one, the earliest first.
    pub(super) fn until(
        &self,
        rows: &impl Rows,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<TraceId>, Error> {
        let sorted = self.rows(Kind::Sorted);
        let end = sorted.clone().number(until.millis()).end();
        let found = rows.between(&sorted, end.as_ref())?.take(limit);
        found.map(|row| Ok(read(&row?.0, &sorted)?.1)).collect()
    }

    /// The entries with this time or an earlier one, the latest first; without a time, all entries.
    pub(super) fn newest<'r, R: Rows>(
        &self,
        rows: &'r R,
        until: Option<Timestamp>,
    ) -> Result<impl Iterator<Item = Result<(Timestamp, TraceId), Error>> + use<'r, 't, R>, Error> {
        let sorted = self.rows(Kind::Sorted);
        let end = until.map_or_else(|| sorted.end(), |until| sorted.clone().number(until.millis()).end());
        Ok(rows.between(&sorted, end.as_ref())?.rev().map(move |row| read(&row?.0, &sorted)))
    }
}

fn read(key: &[u8], sorted: &Key) -> Result<(Timestamp, TraceId), Error> {
    let mut key = Reader::behind(key, sorted)?;
    Ok((Timestamp::from_millis(key.number()?), trace_id(key.id()?)?))
}
