//! Objects: what is too large for a message. Also where a payload goes that the server would refuse,
//! with its name in the message instead.

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

impl Nats {
    pub(in super::super) async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        let doing = || format!("storing the object `{name}`");
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
            // What the object says of its size is only what somebody wrote there.
            let mut bytes = Vec::with_capacity(object.info().size.min(1 << 20));
            let read = object.read_to_end(&mut bytes).await;
            read.map_err(|error| failed(doing(), &error))?;
            Ok(Some(bytes.into()))
        };
        let got = tokio::time::timeout(GET_WITHIN, get).await;
        got.unwrap_or_else(|_| Err(failed(doing(), &"no answer in time")))
    }

    pub(in super::super) async fn delete_object(&self, name: &str) -> Result<(), Error> {
        let store = self.store().await?;
        match store.delete(name).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == DeleteErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed(format!("deleting the object `{name}`"), &error)),
        }
    }

    /// Stores a payload that no message can hold; its name.
    pub(super) async fn put_aside(&self, payload: Bytes) -> Result<String, Error> {
        let name = format!("overflow/{}", uuid::Uuid::now_v7().simple());
        self.put_object(&name, payload).await?;
        Ok(name)
    }

    /// The payload of a message, from where it is.
    pub(super) async fn payload(&self, headers: Option<&HeaderMap>, payload: &Bytes) -> Result<Bytes, Error> {
        let Some(name) = headers.and_then(|headers| headers.get(OBJECT_HEADER)) else {
            return Ok(payload.clone());
        };
        let found = self.get_object(name.as_str()).await?;
        // It can't come back. Empty, the message is refused by whoever has to parse it, and says so.
        Ok(found.unwrap_or_else(|| {
            tracing::error!(object = name.as_str(), "the payload of a message is gone");
            Bytes::new()
        }))
    }

    async fn store(&self) -> Result<&ObjectStore, Error> {
        let bucket = self.bucket();
        let open = || async {
            let store = self.0.api.get_object_store(&bucket).await;
            store.map_err(|error| failed(format!("opening the bucket `{bucket}`"), &error))
        };
        self.0.objects.get_or_try_init(open).await
    }
}
