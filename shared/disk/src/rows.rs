//! Rows as a transaction sees them: read as of one moment, or changed. Each row has a checksum,
//! because the database verifies its own checksums only when it repairs a file.

use std::ops::Bound;

use redb::{ReadOnlyTable, ReadableTable, Table};

use super::{Error, Key};

const CHECKSUM_BYTES: usize = 4;

/// The key of a row, and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// Rows that can be read.
pub trait Rows {
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, Error>;

    /// The rows from one key (included) to another (excluded), in order. At most `most` bytes of
    /// each value are returned.
    fn heads<'r>(
        &'r self,
        from: &Key,
        to: Option<&Key>,
        most: usize,
    ) -> Result<impl DoubleEndedIterator<Item = Result<Row, Error>> + use<'r, Self>, Error>;

    /// The rows from one key (included) to another (excluded), in order.
    fn between<'r>(
        &'r self,
        from: &Key,
        to: Option<&Key>,
    ) -> Result<impl DoubleEndedIterator<Item = Result<Row, Error>> + use<'r, Self>, Error> {
        self.heads(from, to, usize::MAX)
    }

    fn has(&self, key: &Key) -> Result<bool, Error> {
        Ok(self.get(key)?.is_some())
    }

    /// The rows whose keys have this prefix, in order.
    fn beginning<'r>(
        &'r self,
        key: &Key,
    ) -> Result<impl DoubleEndedIterator<Item = Result<Row, Error>> + use<'r, Self>, Error> {
        self.between(key, key.end().as_ref())
    }

    /// A value that is one number; zero if the row is missing.
    fn number(&self, key: &Key) -> Result<u64, Error> {
        self.get(key)?.map_or(Ok(0), |value| super::Reader::new(&value).number())
    }
}

/// The committed rows.
#[expect(missing_debug_implementations, reason = "a table of the database has none")]
pub struct View(pub(super) Option<ReadOnlyTable<&'static [u8], &'static [u8]>>);

/// The committed rows with the changes of this transaction.
#[expect(missing_debug_implementations, reason = "a table of the database has none")]
pub struct Change<'t> {
    table: Table<'t, &'static [u8], &'static [u8]>,
    /// True if the transaction has changed anything.
    changed: bool,
}

impl Rows for View {
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, Error> {
        self.0.as_ref().map_or(Ok(None), |table| get(table, key))
    }

    fn heads<'r>(
        &'r self,
        from: &Key,
        to: Option<&Key>,
        most: usize,
    ) -> Result<impl DoubleEndedIterator<Item = Result<Row, Error>> + use<'r>, Error> {
        let rows = self.0.as_ref().map(|table| heads(table, from, to, most)).transpose()?;
        Ok(rows.into_iter().flatten())
    }
}

impl<'t> Rows for Change<'t> {
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, Error> {
        get(&self.table, key)
    }

    fn heads<'r>(
        &'r self,
        from: &Key,
        to: Option<&Key>,
        most: usize,
    ) -> Result<impl DoubleEndedIterator<Item = Result<Row, Error>> + use<'r, 't>, Error> {
        heads(&self.table, from, to, most)
    }
}

impl<'t> Change<'t> {
    pub(super) fn new(table: Table<'t, &'static [u8], &'static [u8]>) -> Self {
        Change { table, changed: false }
    }

    pub(super) fn has_changed(&self) -> bool {
        self.changed
    }

    pub fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), Error> {
        self.changed = true;
        let checked = [value, &checksum(key.bytes(), value)].concat();
        self.table.insert(key.bytes(), &*checked)?;
        Ok(())
    }

    pub fn put_number(&mut self, key: &Key, number: u64) -> Result<(), Error> {
        self.put(key, &number.to_be_bytes())
    }

    /// Removes a row. Returns true if it existed.
    pub fn remove(&mut self, key: &Key) -> Result<bool, Error> {
        let had = self.table.remove(key.bytes())?.is_some();
        self.changed |= had;
        Ok(had)
    }

    /// Removes the rows whose keys have this prefix.
    pub fn remove_beginning(&mut self, key: &Key) -> Result<(), Error> {
        self.changed = true;
        match key.end() {
            Some(end) => self.table.retain_in(key.bytes()..end.bytes(), |_, _| false)?,
            None => self.table.retain_in(key.bytes().., |_, _| false)?,
        }
        Ok(())
    }
}

/// The checksum of a key and its value. It is stored after the value.
fn checksum(key: &[u8], value: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut sum = crc32fast::Hasher::new();
    sum.update(key);
    sum.update(value);
    sum.finalize().to_be_bytes()
}

/// The value of a row, if its checksum is right.
fn checked<'v>(key: &[u8], row: &'v [u8]) -> Result<&'v [u8], Error> {
    let wrong = || Error::corrupt("a row was altered");
    let (value, sum) = row.split_last_chunk().ok_or_else(wrong)?;
    if *sum == checksum(key, value) { Ok(value) } else { Err(wrong()) }
}

fn get(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &Key,
) -> Result<Option<Vec<u8>>, Error> {
    let row = table.get(key.bytes())?;
    row.map(|row| Ok(checked(key.bytes(), row.value())?.to_vec())).transpose()
}

fn heads<'t, T: ReadableTable<&'static [u8], &'static [u8]>>(
    table: &'t T,
    from: &Key,
    to: Option<&Key>,
    most: usize,
) -> Result<impl DoubleEndedIterator<Item = Result<Row, Error>> + use<'t, T>, Error> {
    let nothing = to.is_some_and(|to| to <= from);
    let to = to.map_or(Bound::Unbounded, |to| Bound::Excluded(to.bytes()));
    let range = (Bound::Included(from.bytes()), to);
    let rows = if nothing { None } else { Some(table.range::<&[u8]>(range)?) };
    let read = move |row: Result<_, redb::StorageError>| {
        let (key, value): (redb::AccessGuard<'_, &[u8]>, redb::AccessGuard<'_, &[u8]>) = row?;
        let (key, value) = (key.value(), checked(key.value(), value.value())?);
        Ok((key.to_vec(), value[..value.len().min(most)].to_vec()))
    };
    Ok(rows.into_iter().flatten().map(read))
}
