//! Objects of the object store: large results, files and tool outputs. The store is not trusted, so
//! the checksum is compared.

use bytes::Bytes;
use domain::{digest, wire::ObjectReference};

use crate::{Client, Error, off_thread::off_thread};

/// The content of an object reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Stored(Bytes),
    /// The object no longer exists.
    Expired,
    /// The object has another content.
    Altered,
}

impl Client {
    pub async fn content(&self, reference: &ObjectReference) -> Result<Content, Error> {
        let ObjectReference { object, sha256, .. } = reference;
        let Some(bytes) = self.bus().get_content(object, sha256).await? else { return Ok(Content::Expired) };
        let (checked, wanted) = (bytes.clone(), sha256.clone());
        let is_same = off_thread(bytes.len(), move || digest::sha256(&checked) == wanted).await?;
        Ok(if is_same { Content::Stored(bytes) } else { Content::Altered })
    }
}
