//! The form of a message in a row. The time when it was stored comes first, so that expiry needs to
//! read no more.

use bytes::Bytes;
use disk::{Error, Key, Reader};
use domain::{span::Headers, subject::Namespace, time::Timestamp};

use crate::{
    memory::Entry,
    message::{Outgoing, StoredMessage},
};

/// The bytes of a row that hold the time when its message was stored.
pub(super) const AT_BYTES: usize = 8;

pub(super) fn encode(subject: &str, message: &Outgoing, at: Timestamp) -> Key {
    let value = Key::value().number(at.millis()).name(subject);
    let value = match &message.id {
        Some(id) => value.byte(1).text(id),
        None => value.byte(0),
    };
    let value = value.number(message.headers.len() as u64);
    let headers = message.headers.iter();
    headers.fold(value, |value, (name, text)| value.text(name).text(text)).rest(&message.payload)
}

pub(super) fn stored_at(value: &[u8]) -> Result<Timestamp, Error> {
    Ok(Timestamp::from_millis(Reader::new(value).number()?))
}

/// The subject of a message; the rest is not decoded.
pub(super) fn subject(value: &[u8]) -> Result<&str, Error> {
    let mut reader = Reader::new(value);
    reader.number()?;
    reader.name()
}

pub(super) fn decode(value: Vec<u8>, sequence: u64, namespace: &Namespace) -> Result<Entry, Error> {
    let mut reader = Reader::new(&value);
    let at = Timestamp::from_millis(reader.number()?);
    let subject = reader.name()?.to_owned();
    let id = match reader.byte()? {
        0 => None,
        _ => Some(reader.text()?.to_owned()),
    };
    let mut headers = Headers::new();
    for _ in 0..reader.number()? {
        headers.insert(reader.text()?.to_owned(), reader.text()?.to_owned());
    }
    let behind = value.len() - reader.rest().len();
    let parsed = namespace.parse(&subject);
    let parsed = parsed.map_err(|unknown| Error::Corrupt { what: unknown.to_string() })?;
    let payload = Bytes::from(value).slice(behind..);
    let stored = StoredMessage { subject: parsed, id, headers, payload, sequence, at };
    Ok(Entry { subject, stored })
}
