//! Objects: values too large for a message. A payload that exceeds the server's limit is stored as an
//! object too; the message then carries its name.

use std::time::Duration;

use async_nats::{
    HeaderMap,
    jetstream::object_store::{DeleteErrorKind, GetErrorKind, ObjectMetadata, ObjectStore},
};
use bytes::Bytes;
use tokio::io::AsyncReadExt;

use super::{Error, Nats, OBJECT_HEADER, failed};

const PUT_WITHIN: Duration = Duration::from_secs(60);
const GET_WITHIN: Duration = Duration::from_secs(30);
const CHUNK_BYTES: usize = 128 * 1024;
/// The largest object that is stored, or read into memory.
const MAX_OBJECT_BYTES: u64 = 256 << 20;
/// Prefix of payloads that are too large for a message. No other object is ever used as a payload.
const OVERFLOW: &str = "overflow/";
/// Bytes that headers may need beside a payload within the server's limit.
const HEADER_ROOM: usize = 8 * 1024;

impl Nats {
    pub(in super::super) async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        let doing = || format!("storing the object `{name}`");
        if bytes.len() as u64 > MAX_OBJECT_BYTES {
            return Err(too_large(name));
        }
        self.announce(name).await?;
        let store = self.store().await?;
        let chunk_size = Some(CHUNK_BYTES.min(self.0.client.max_payload() / 2).max(1));
        let about = ObjectMetadata { name: name.to_owned(), chunk_size, ..Default::default() };
        let mut rest: &[u8] = &bytes;
        let put = tokio::time::timeout(PUT_WITHIN, store.put(about, &mut rest)).await;
        match put {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(failed(doing(), &error)),
            Err(_) => Err(failed(doing(), &"no answer in time")),
        }
    }

    pub(in super::super) async fn get_object(&self, name: &str) -> Result<Option<Bytes>, Error> {
        let doing = || format!("reading the object `{name}`");
        let store = self.store().await?;
        let get = async {
            let mut object = match store.get(name).await {
                Ok(object) => object,
                Err(error) if error.kind() == GetErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(failed(doing(), &error)),
            };
            // The size is what the writer claimed: it is not trusted.
            let mut bytes = Vec::with_capacity(object.info().size.min(1 << 20));
            let read = (&mut object).take(MAX_OBJECT_BYTES + 1).read_to_end(&mut bytes).await;
            if read.map_err(|error| failed(doing(), &error))? as u64 > MAX_OBJECT_BYTES {
                return Err(too_large(name));
            }
            Ok(Some(bytes.into()))
        };
        let got = tokio::time::timeout(GET_WITHIN, get).await;
        got.unwrap_or_else(|_| Err(failed(doing(), &"no answer in time")))
    }

    pub(in super::super) async fn delete_object(&self, name: &str) -> Result<(), Error> {
        let store = self.store().await?;
        match store.delete(name).await {
            Ok(()) => {}
            Err(error) if error.kind() == DeleteErrorKind::NotFound => {}
            Err(error) => return Err(failed(format!("deleting the object `{name}`"), &error)),
        }
        self.forget(name).await
    }

    pub(in super::super) fn fits(&self, bytes: usize) -> bool {
        bytes.saturating_add(HEADER_ROOM) <= self.0.client.max_payload()
    }

    /// The payload to send: if it is too large, it is stored as an object, its name is put into the
    /// headers, and the payload is empty. The same message sent again has the same object.
    pub(super) async fn fit(
        &self,
        headers: &mut HeaderMap,
        payload: Bytes,
        id: Option<&str>,
    ) -> Result<Bytes, Error> {
        if self.fits(payload.len()) {
            return Ok(payload);
        }
        let named = |id: &str| uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, id.as_bytes());
        let name = format!("{OVERFLOW}{}", id.map_or_else(uuid::Uuid::now_v7, named).simple());
        self.put_object(&name, payload).await?;
        headers.insert(OBJECT_HEADER, name);
        Ok(Bytes::new())
    }

    /// The payload of a message, or the object that holds it.
    pub(super) async fn payload(&self, headers: Option<&HeaderMap>, payload: &Bytes) -> Result<Bytes, Error> {
        let Some(name) = headers.and_then(|headers| headers.get(OBJECT_HEADER)) else {
            return Ok(payload.clone());
        };
        let found = match headers.and_then(overflow) {
            Some(ours) => self.get_object(&ours).await?,
            None => None,
        };
        // The object can't come back. With an empty payload the message is refused by its reader, with a
        // reason.
        Ok(found.unwrap_or_else(|| {
            tracing::error!(
                object = name.as_str(),
                "the object that holds the payload of a message does not exist"
            );
            Bytes::new()
        }))
    }

    pub(super) async fn store(&self) -> Result<&ObjectStore, Error> {
        let bucket = self.bucket();
        let open = || async {
            let store = self.0.api.get_object_store(&bucket).await;
            store.map_err(|error| failed(format!("opening the bucket `{bucket}`"), &error))
        };
        self.0.objects.get_or_try_init(open).await
    }
}

/// The object that holds the payload of a message with these headers.
pub(super) fn overflow(headers: &HeaderMap) -> Option<String> {
    let name = headers.get(OBJECT_HEADER)?.as_str();
    name.starts_with(OVERFLOW).then(|| name.to_owned())
}

fn too_large(name: &str) -> Error {
    Error::TooLarge { name: name.to_owned(), max: MAX_OBJECT_BYTES }
}
