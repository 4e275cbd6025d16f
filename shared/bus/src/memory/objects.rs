//! Objects in memory: values by name with a limit on their total bytes, like a bucket on a server.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::error::Error;

#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) by_name: BTreeMap<String, Bytes>,
    pub(super) bytes: usize,
}

impl Objects {
    pub(super) fn put(&mut self, name: &str, object: Bytes, max_bytes: i64) -> Result<(), Error> {
        let max = usize::try_from(max_bytes).ok().filter(|max| *max > 0).unwrap_or(usize::MAX);
        let rest = self.bytes - self.by_name.get(name).map_or(0, Bytes::len);
        if rest.saturating_add(object.len()) > max {
            let doing = format!("storing the object `{name}`");
            return Err(Error::Failed { doing, reason: "maximum bytes exceeded".into() });
        }
        self.bytes = rest + object.len();
        self.by_name.insert(name.to_owned(), object);
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.bytes -= self.by_name.remove(name).map_or(0, |object| object.len());
    }
}
