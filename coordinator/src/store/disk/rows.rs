//! The keys of the store's rows, made here and nowhere else.

use std::collections::HashMap;

use disk::{Error, Key, Kind, Reader, Row, Rows};
use domain::{TraceId, subject::Partition};

use super::super::{OutboxKey, Record, keys};

/// The parts of a trace, each with its own rows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Fields = 1,
    Values = 2,
    Outboxes = 3,
}

pub(super) fn version_of(trace: TraceId) -> Key {
    Key::new(Kind::Trace).id(trace.as_u128())
}

pub(super) fn part(trace: TraceId, part: Part) -> Key {
    Key::new(Kind::Field).id(trace.as_u128()).byte(part as u8)
}

pub(super) fn field(trace: TraceId, name: &str) -> Key {
    part(trace, Part::Fields).rest(name.as_bytes())
}

pub(super) fn value(trace: TraceId, name: &str) -> Key {
    part(trace, Part::Values).rest(name.as_bytes())
}

pub(super) fn outbox(trace: TraceId, key: OutboxKey) -> Key {
    part(trace, Part::Outboxes).number(key.version).number(key.made)
}

pub(super) fn branches(of: TraceId) -> Key {
    Key::new(Kind::Branch).id(of.as_u128())
}

pub(super) fn counter(home: Partition) -> Key {
    Key::new(Kind::Counter).number(home.number().into())
}

pub(super) fn mark(home: Partition) -> Key {
    Key::new(Kind::Mark).number(home.number().into())
}

/// A number of the deployment.
pub(super) fn setting(name: &str) -> Key {
    Key::new(Kind::Setting).rest(name.as_bytes())
}

/// The revision of the agent profiles.
pub(super) fn revision() -> Key {
    setting("revision")
}

pub(super) fn version(rows: &impl Rows, trace: TraceId) -> Result<u64, Error> {
    rows.number(&version_of(trace))
}

/// The text of a row.
pub(super) fn text(rows: &impl Rows, key: &Key) -> Result<Option<String>, Error> {
    rows.get(key)?.map(into_text).transpose()
}

fn into_text(value: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(value).map_err(|_| Error::Corrupt { what: "a text is not UTF-8".into() })
}

pub(super) fn stamp(rows: &impl Rows, trace: TraceId) -> Result<Option<String>, Error> {
    text(rows, &field(trace, keys::STAMP))
}

pub(super) fn trace_id(id: u128) -> Result<TraceId, Error> {
    TraceId::from_u128(id).ok_or_else(|| Error::Corrupt { what: "a trace has no id".into() })
}

/// A whole trace.
pub(super) fn record(rows: &impl Rows, trace: TraceId) -> Result<Option<Record>, Error> {
    let version = version(rows, trace)?;
    if version == 0 {
        return Ok(None);
    }
    let outboxes = part(trace, Part::Outboxes);
    let kept = |(key, value): Row| {
        let mut key = Reader::behind(&key, &outboxes)?;
        Ok((OutboxKey { version: key.number()?, made: key.number()? }, into_text(value)?))
    };
    let outbox = rows.beginning(&outboxes)?.map(|row| kept(row?)).collect::<Result<_, Error>>()?;
    Ok(Some(Record {
        version,
        fields: texts(rows, trace, Part::Fields)?,
        values: texts(rows, trace, Part::Values)?,
        outbox,
    }))
}

fn texts(rows: &impl Rows, trace: TraceId, of: Part) -> Result<HashMap<String, String>, Error> {
    let beginning = part(trace, of);
    let named = |(key, value): Row| {
        Ok((Reader::behind(&key, &beginning)?.rest_as_text()?.to_owned(), into_text(value)?))
    };
    rows.beginning(&beginning)?.map(|row| named(row?)).collect()
}
