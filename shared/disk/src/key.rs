//! Keys and values of rows. Keys sort by their parts in order: numbers by size, then the part after
//! them. Every kind of row is listed here, so that no number is used twice.

use super::Error;

/// The kind of a row, which is the first byte of its key. The number of a kind is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The identity of the directory, by name.
    Identity = 1,

    /// A stream's last sequence and bytes.
    Stream = 16,
    /// A message, by stream and sequence.
    Message = 17,
    /// Messages by stream, subject and sequence.
    Subject = 18,
    /// The sequence of a message, by stream and id.
    MessageId = 19,
    /// The ids of messages, by stream and time of storing.
    MessageIdAge = 20,
    /// An object's size, and the number that its pieces are stored under, by name.
    Object = 24,
    /// A piece of an object, by number and place.
    Piece = 25,
    /// The bytes of all objects, and the number of the last one.
    Objects = 26,
    /// The time when an object was stored, and its name, by number.
    ObjectMade = 27,

    /// A trace's version.
    Trace = 32,
    /// A field, value or outbox of a trace.
    Field = 33,
    /// The time at which each trace is due in a list of a partition.
    Listed = 34,
    /// The traces of a list, in the order of their times.
    Sorted = 35,
    /// The number of traces in a list.
    Count = 36,
    /// The cost of a run, by partition and trace.
    Cost = 37,
    /// The ids of all traces in the index.
    Id = 38,
    /// The branches of a trace.
    Branch = 39,
    /// The commits of a partition.
    Counter = 40,
    /// The position in the event log up to which the store has it, by partition.
    Mark = 41,
    /// An agent's profile.
    Agent = 42,
    /// The version of an agent's profile.
    AgentVersion = 43,
    /// Numbers of the deployment, by name.
    Setting = 44,
}

/// A key, or a value, that is being built.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(Vec<u8>);

impl Key {
    pub fn new(kind: Kind) -> Key {
        Key(vec![kind as u8])
    }

    /// A value, which has no kind.
    pub fn value() -> Key {
        Key(Vec::new())
    }

    #[must_use]
    pub fn byte(mut self, byte: u8) -> Key {
        self.0.push(byte);
        self
    }

    #[must_use]
    pub fn number(mut self, number: u64) -> Key {
        self.0.extend(number.to_be_bytes());
        self
    }

    #[must_use]
    pub fn id(mut self, id: u128) -> Key {
        self.0.extend(id.to_be_bytes());
        self
    }

    /// A text with more parts after it. Texts sort by length first.
    #[must_use]
    pub fn text(self, text: &str) -> Key {
        self.number(text.len() as u64).rest(text.as_bytes())
    }

    /// A text without NUL, with more parts after it. It sorts alphabetically.
    #[must_use]
    pub fn name(self, name: &str) -> Key {
        self.rest(name.as_bytes()).byte(0)
    }

    /// The last part, without its length.
    #[must_use]
    pub fn rest(mut self, bytes: &[u8]) -> Key {
        self.0.extend(bytes);
        self
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The first key after all keys with this prefix; none if no such key exists.
    pub fn end(&self) -> Option<Key> {
        let mut end = self.0.clone();
        while let Some(last) = end.pop() {
            if let Some(next) = last.checked_add(1) {
                end.push(next);
                return Some(Key(end));
            }
        }
        None
    }
}

/// Reads the parts that a [`Key`] was built from.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    /// Reads a value.
    pub fn new(bytes: &'b [u8]) -> Reader<'b> {
        Reader(bytes)
    }

    /// Reads the parts of a key after a prefix.
    pub fn behind(key: &'b [u8], beginning: &Key) -> Result<Reader<'b>, Error> {
        let rest = key.strip_prefix(beginning.bytes());
        Ok(Reader(rest.ok_or_else(|| Error::corrupt("a key has an invalid beginning"))?))
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], Error> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or_else(|| Error::corrupt("a row is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        self.take(N)?.try_into().map_err(|_| Error::corrupt("a row is too short"))
    }

    pub fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.array::<1>()?[0])
    }

    pub fn number(&mut self) -> Result<u64, Error> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub fn id(&mut self) -> Result<u128, Error> {
        Ok(u128::from_be_bytes(self.array()?))
    }

    pub fn text(&mut self) -> Result<&'b str, Error> {
        let length = self.number()?;
        let length = usize::try_from(length).map_err(|_| Error::corrupt("a text is too long"))?;
        text(self.take(length)?)
    }

    pub fn name(&mut self) -> Result<&'b str, Error> {
        let length = self.0.iter().position(|byte| *byte == 0);
        let name = self.take(length.ok_or_else(|| Error::corrupt("a name has no end"))?)?;
        self.take(1)?;
        text(name)
    }

    pub fn rest(self) -> &'b [u8] {
        self.0
    }

    pub fn rest_as_text(self) -> Result<&'b str, Error> {
        text(self.0)
    }
}

fn text(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::corrupt("a text is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_like_their_parts_and_can_be_split_again() {
        let key = |name: &str, number| Key::new(Kind::Subject).byte(3).name(name).number(number);
        let sorted = [key("a", 1), key("a", 256), key("a.b", 0), key("b", 0)];
        assert!(sorted.is_sorted(), "{sorted:?}");
        let beginning = Key::new(Kind::Subject).byte(3);
        let mut reader = Reader::behind(sorted[2].bytes(), &beginning).unwrap();
        assert_eq!((reader.name(), reader.number()), (Ok("a.b"), Ok(0)));
        assert!(reader.number().is_err() && Reader::behind(&[1], &beginning).is_err());
        let value = Key::value().text("ü").id(7).byte(1).rest(b"rest");
        let mut reader = Reader::new(value.bytes());
        assert_eq!((reader.text(), reader.id(), reader.byte()), (Ok("ü"), Ok(7), Ok(1)));
        assert_eq!(reader.rest_as_text(), Ok("rest"));
    }

    #[test]
    fn the_end_of_a_beginning_is_behind_all_that_begin_so() {
        assert_eq!(Key::value().rest(&[1, 2]).end(), Some(Key::value().rest(&[1, 3])));
        assert_eq!(Key::value().rest(&[1, 255, 255]).end(), Some(Key::value().rest(&[2])));
        assert_eq!(Key::value().rest(&[255]).end(), None);
    }
}
