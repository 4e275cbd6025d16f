//! The index of runs (G17): the terms that list a run, its cost, and its id.

use disk::{Change, Error, Key, Kind, Reader, Rows};
use domain::{TraceId, subject::Partition};

use super::{super::record::IndexEntry, list::List, rows::trace_id};

pub(super) fn cost(home: Partition, trace: TraceId) -> Key {
    Key::new(Kind::Cost).number(home.number().into()).id(trace.as_u128())
}

fn id(trace: TraceId) -> Key {
    Key::new(Kind::Id).id(trace.as_u128())
}

/// Adds the entries of a run's new index text, and removes those of the text before.
pub(super) fn list(
    rows: &mut Change<'_>,
    home: Partition,
    trace: TraceId,
    before: Option<&str>,
    after: Option<&str>,
) -> Result<(), Error> {
    let (before, after) = (before.and_then(IndexEntry::read), after.and_then(IndexEntry::read));
    if let Some(before) = before {
        let stays = |term: &&str| after.as_ref().is_some_and(|after| after.terms.contains(term));
        for term in before.terms.iter().filter(|term| !stays(term)) {
            List::term(home, term).set(rows, trace, None)?;
        }
        rows.remove(&cost(home, trace))?;
        rows.remove(&id(trace))?;
    }
    if let Some(after) = after {
        for term in after.terms {
            List::term(home, term).set(rows, trace, Some(after.at))?;
        }
        if let Some(nanos) = after.cost {
            rows.put_number(&cost(home, trace), nanos)?;
        }
        rows.put(&id(trace), &[])?;
    }
    Ok(())
}

/// Traces whose id begins with these hex digits, in order.
pub(super) fn with_prefix(rows: &impl Rows, prefix: &str, limit: usize) -> Result<Vec<TraceId>, Error> {
    let padded = |digit: char| {
        let digits: String = prefix.chars().chain(std::iter::repeat(digit)).take(32).collect();
        // Ids are displayed in lowercase hex digits: a prefix with other characters matches none.
        let is_hex = prefix.len() <= 32 && digits.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
        u128::from_str_radix(&digits, 16).ok().filter(|_| is_hex)
    };
    let (Some(first), Some(last)) = (padded('0'), padded('f')) else { return Ok(Vec::new()) };
    let all = Key::new(Kind::Id);
    let end = all.clone().id(last).end();
    let found = rows.between(&all.clone().id(first), end.as_ref())?.take(limit);
    found.map(|row| trace_id(Reader::behind(&row?.0, &all)?.id()?)).collect()
}
