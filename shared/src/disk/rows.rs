//! Rows as a transaction sees them: read at one moment, or changed.

use std::ops::Bound;

use redb::{ReadOnlyTable, ReadableTable, Table};

use super::{Error, Key};

/// The key of a row, and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// Rows that can be read.
pub trait Rows {
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, Error>;

    /// The rows from a key on and before another, in order, with at most so many bytes of each value.
    fn heads<'r>(
        &'r self,
        from: &Key,
        to: Option<&Key>,
        most: usize,
    ) -> Result<impl DoubleEndedIterator<Item = Result<Row, Error>> + use<'r, Self>, Error>;

    /// The rows from a key on and before another, in order.
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

    /// The rows whose keys begin so, in order.
    fn beginning<'r>(
        &'r self,
        key: &Key,
    ) -> Result<impl DoubleEndedIterator<Item = Result<Row, Error>> + use<'r, Self>, Error> {
        self.between(key, key.end().as_ref())
    }

    /// A value that is one number; zero if it is not there.
    fn number(&self, key: &Key) -> Result<u64, Error> {
        self.get(key)?.map_or(Ok(0), |value| super::Reader::new(&value).number())
    }
}

/// What is committed.
#[expect(missing_debug_implementations, reason = "a table of the database has none")]
pub struct View(pub(super) Option<ReadOnlyTable<&'static [u8], &'static [u8]>>);

/// What is committed, and what this transaction changes.
#[expect(missing_debug_implementations, reason = "a table of the database has none")]
pub struct Change<'t>(pub(super) Table<'t, &'static [u8], &'static [u8]>);

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
        get(&self.0, key)
    }

    fn heads<'r>(
        &'r self,
        from: &Key,
        to: Option<&Key>,
        most: usize,
    ) -> Result<impl DoubleEndedIterator<Item = Result<Row, Error>> + use<'r, 't>, Error> {
        heads(&self.0, from, to, most)
    }
}

impl Change<'_> {
    pub fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), Error> {
        self.0.insert(key.bytes(), value)?;
        Ok(())
    }

    pub fn put_number(&mut self, key: &Key, number: u64) -> Result<(), Error> {
        self.put(key, &number.to_be_bytes())
    }

    /// Whether there was one.
    pub fn remove(&mut self, key: &Key) -> Result<bool, Error> {
        Ok(self.0.remove(key.bytes())?.is_some())
    }

    /// Removes the rows whose keys begin so.
    pub fn remove_beginning(&mut self, key: &Key) -> Result<(), Error> {
        match key.end() {
            Some(end) => self.0.retain_in(key.bytes()..end.bytes(), |_, _| false)?,
            None => self.0.retain_in(key.bytes().., |_, _| false)?,
        }
        Ok(())
    }
}

fn get(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &Key,
) -> Result<Option<Vec<u8>>, Error> {
    Ok(table.get(key.bytes())?.map(|value| value.value().to_vec()))
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
        let value = value.value();
        Ok((key.value().to_vec(), value[..value.len().min(most)].to_vec()))
    };
    Ok(rows.into_iter().flatten().map(read))
}
