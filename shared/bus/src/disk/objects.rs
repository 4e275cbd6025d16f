//! Objects on disk. They are stored in pieces, and limited in total bytes and in age. A later
//! object has a higher number.

use bytes::{Bytes, BytesMut};

use disk::{Change, Error, Key, Kind, Reader, Rows};
use domain::time::Timestamp;

/// The bytes of a piece: with its key it fills a page of the database.
const PIECE_BYTES: usize = (64 << 10) - 256;

/// The most bytes of all objects, and how long they are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) max_bytes: u64,
    pub(super) max_age_ms: u64,
}

/// The totals over all objects.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    bytes: u64,
    /// The number of the object that was stored last.
    number: u64,
}

/// The size of an object, and the number that its pieces are stored under.
struct ObjectPlace {
    bytes: u64,
    number: u64,
}

fn totals(rows: &impl Rows) -> Result<Totals, Error> {
    let Some(value) = rows.get(&Key::new(Kind::Objects))? else { return Ok(Totals::default()) };
    let mut reader = Reader::new(&value);
    Ok(Totals { bytes: reader.number()?, number: reader.number()? })
}

fn set_totals(rows: &mut Change<'_>, totals: Totals) -> Result<(), Error> {
    rows.put(&Key::new(Kind::Objects), Key::value().number(totals.bytes).number(totals.number).bytes())
}

fn named(name: &str) -> Key {
    Key::new(Kind::Object).rest(name.as_bytes())
}

fn pieces(number: u64) -> Key {
    Key::new(Kind::Piece).number(number)
}

fn made(number: u64) -> Key {
    Key::new(Kind::ObjectMade).number(number)
}

fn placed(rows: &impl Rows, name: &str) -> Result<Option<ObjectPlace>, Error> {
    let Some(value) = rows.get(&named(name))? else { return Ok(None) };
    let mut reader = Reader::new(&value);
    Ok(Some(ObjectPlace { bytes: reader.number()?, number: reader.number()? }))
}

/// Stores an object. Returns false if there is no room for it.
pub(super) fn put(
    rows: &mut Change<'_>,
    name: &str,
    object: &[u8],
    at: Timestamp,
    limits: Limits,
) -> Result<bool, Error> {
    forget(rows, at, limits)?;
    let had = placed(rows, name)?.map_or(0, |had| had.bytes);
    let bytes = object.len() as u64;
    if totals(rows)?.bytes.saturating_sub(had).saturating_add(bytes) > limits.max_bytes {
        return Ok(false);
    }
    remove(rows, name)?;
    let all = totals(rows)?;
    let number = all.number + 1;
    for (place, piece) in object.chunks(PIECE_BYTES).enumerate() {
        rows.put(&pieces(number).number(place as u64), piece)?;
    }
    rows.put(&named(name), Key::value().number(bytes).number(number).bytes())?;
    rows.put(&made(number), Key::value().number(at.millis()).rest(name.as_bytes()).bytes())?;
    set_totals(rows, Totals { bytes: all.bytes + bytes, number })?;
    Ok(true)
}

pub(super) fn get(rows: &impl Rows, name: &str) -> Result<Option<Bytes>, Error> {
    let Some(ObjectPlace { bytes, number }) = placed(rows, name)? else { return Ok(None) };
    let mut object = BytesMut::new();
    for piece in rows.beginning(&pieces(number))? {
        object.extend_from_slice(&piece?.1);
    }
    if object.len() as u64 != bytes {
        return Err(Error::Corrupt { what: format!("the object `{name}` is not whole") });
    }
    Ok(Some(object.freeze()))
}

pub(super) fn remove(rows: &mut Change<'_>, name: &str) -> Result<(), Error> {
    let Some(ObjectPlace { bytes, number }) = placed(rows, name)? else { return Ok(()) };
    rows.remove_beginning(&pieces(number))?;
    rows.remove(&named(name))?;
    rows.remove(&made(number))?;
    let all = totals(rows)?;
    set_totals(rows, Totals { bytes: all.bytes.saturating_sub(bytes), ..all })
}

/// Drops the expired objects.
pub(super) fn forget(rows: &mut Change<'_>, now: Timestamp, limits: Limits) -> Result<(), Error> {
    loop {
        let Some(row) = rows.beginning(&Key::new(Kind::ObjectMade))?.next() else { return Ok(()) };
        let (_, value) = row?;
        let mut reader = Reader::new(&value);
        if now.millis_since(Timestamp::from_millis(reader.number()?)) < limits.max_age_ms {
            return Ok(());
        }
        remove(rows, reader.rest_as_text()?)?;
    }
}

/// The names with this prefix, in order.
pub(super) fn list(rows: &impl Rows, prefix: &str) -> Result<Vec<String>, Error> {
    let all = Key::new(Kind::Object);
    let name = |(key, _): (Vec<u8>, Vec<u8>)| Ok(Reader::behind(&key, &all)?.rest_as_text()?.to_owned());
    rows.beginning(&named(prefix))?.map(|row| name(row?)).collect()
}

pub(super) fn bytes(rows: &impl Rows) -> Result<u64, Error> {
    Ok(totals(rows)?.bytes)
}
