//! Objects: values too large for a message, in the form of the NATS object store.
//!
//! They are read without a consumer and written without the right to remove anything, because a
//! worker has neither permission. A payload that exceeds the server's limit is also stored as an
//! object. The message then carries the object's name, which contains the hash of its content.
//!
//! An object's metadata is only a claim of its writer. Nothing is removed, and no content is
//! trusted, because of it (S6).

use std::time::Duration;

use async_nats::{
    HeaderMap,
    jetstream::object_store::{ObjectInfo, ObjectOptions},
};
use base64::{Engine, engine::general_purpose::URL_SAFE};
use bytes::{Bytes, BytesMut};
use domain::{
    digest::{sha256, short_sha256},
    limits::MAX_MESSAGE_BYTES,
    span::Headers,
    subject::Subject,
};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::{
    super::{authentic, fill::Storage, message::LOST_HEADER},
    Error, Nats, OBJECT_HEADER, backoff, failed, from_map,
    object_index::{index_subject, is_token, meta_subject},
};

const PUT_WITHIN: Duration = Duration::from_secs(60);
const GET_WITHIN: Duration = Duration::from_secs(30);
const CHUNK_BYTES: usize = 128 * 1024;
/// The most chunks that are sent before they must be acknowledged, or that are read at once: eight
/// megabytes.
const CHUNKS_AT_ONCE: usize = 64;
/// The number of attempts to read a missing part: a replica may lag behind by up to four seconds.
const TRIES: usize = 8;
/// The page size, and the total, of earlier metadata of one name that is searched for a given
/// content.
const ABOUT_AT_ONCE: usize = 1000;
const MAX_ABOUT: usize = 10_000;
/// The most bytes of such a page.
const ABOUT_BYTES: usize = 8 << 20;
/// The largest object that is stored, or read into memory.
const MAX_OBJECT_BYTES: u64 = 256 << 20;
/// The largest payload that is read, except in coordinators' messages. Larger messages have no
/// reader.
const MAX_PAYLOAD_BYTES: u64 = MAX_MESSAGE_BYTES as u64;
/// The most payloads that one process reads at once: of coordinators, and separately of other
/// senders. A sender of many large payloads can't fill the memory of the process, and one of
/// unreadable payloads can't delay the work of coordinators (S6).
pub(super) const PAYLOADS_AT_ONCE: usize = 16;
const IN_PART: &str = "a part of it is missing";
/// The bytes left for headers beside a payload within the server's limit.
const HEADER_ROOM: usize = 8 * 1024;

/// The sender of a payload that is too large for a message. The prefix of the object's name
/// identifies it. An object without such a prefix is never used as a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Large {
    /// Coordinators, in a bucket that only they may write to.
    OfTheCore,
    /// Coordinators, in an answer to a request.
    Answer,
    OfOthers,
}

impl Large {
    const ALL: [Large; 3] = [Large::OfTheCore, Large::Answer, Large::OfOthers];

    /// The sender of a message on this subject.
    pub(super) fn of(subject: &Subject) -> Self {
        if subject.is_of_the_core() { Large::OfTheCore } else { Large::OfOthers }
    }

    fn named(object: &str) -> Option<Self> {
        Large::ALL.into_iter().find(|large| object.starts_with(large.prefix()))
    }

    fn prefix(self) -> &'static str {
        match self {
            Large::OfTheCore => "core/",
            Large::Answer => "answer/",
            Large::OfOthers => "overflow/",
        }
    }

    fn bucket(self) -> Storage {
        match self {
            Large::OfTheCore => Storage::Core,
            Large::Answer => Storage::Answers,
            Large::OfOthers => Storage::Objects,
        }
    }
}

/// The payload of a message.
#[derive(Debug)]
pub(super) enum Payload {
    Here(Bytes),
    /// The payload was in an object that will never be readable, for this reason.
    Lost(String),
}

impl Payload {
    /// Its bytes; empty for a lost payload, whose reason is added to the headers.
    pub(super) fn told(self, headers: &mut Headers) -> Bytes {
        match self {
            Payload::Here(bytes) => bytes,
            Payload::Lost(reason) => {
                tracing::warn!("the payload of a message can't be read");
                tracing::debug!(reason, "why");
                headers.insert(LOST_HEADER.to_owned(), reason);
                Bytes::new()
            }
        }
    }
}

/// The result of looking an object up by its name.
enum ObjectLookup {
    Bytes(Bytes),
    Nothing,
    /// A part is missing: a replica may be behind, or the part was removed.
    InPart,
    /// The content differs from what was stored, and always will.
    Broken(String),
}

impl Nats {
    /// The bucket of an object.
    fn bucket_of(&self, name: &str) -> String {
        self.bucket(Large::named(name).map_or(Storage::Objects, Large::bucket))
    }

    pub(in super::super) async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        if bytes.len() as u64 > MAX_OBJECT_BYTES {
            return Err(too_large(name, MAX_OBJECT_BYTES));
        }
        // Boxed, as the read is: otherwise its state would be part of every future that publishes
        // or reads.
        let put = tokio::time::timeout(PUT_WITHIN, Box::pin(self.put(name, &bytes))).await;
        put.unwrap_or_else(|_| Err(failed(format!("storing the object `{name}`"), &"no answer in time")))
    }

    async fn put(&self, name: &str, bytes: &Bytes) -> Result<(), Error> {
        let doing = || format!("storing the object `{name}`");
        let digest = digest_of(bytes);
        // If the lookup fails, the object is stored, perhaps a second time.
        let earlier = match self.about(name).await {
            Ok(found) => found.filter(|info| !info.deleted),
            Err(denied @ Error::Denied(_)) => return Err(denied),
            Err(_) => None,
        };
        // The same content is already stored under this name.
        if earlier
            .as_ref()
            .is_some_and(|info| info.digest.as_ref() == Some(&digest) && info.size == bytes.len())
        {
            return Ok(());
        }
        let bucket = self.bucket_of(name);
        if let Some(subject) = index_subject(&bucket, name) {
            self.tell(subject, Bytes::new()).await.map_err(|error| named(error, doing()))?;
        }
        let nuid = format!("{}{}", parts_of(name), uuid::Uuid::now_v7().simple());
        let subject = chunk_subject(&bucket, &nuid);
        let size = CHUNK_BYTES.min(self.0.client.max_payload() / 2).max(1);
        let pieces: Vec<Bytes> = (0..bytes.len())
            .step_by(size)
            .map(|start| bytes.slice(start..(start + size).min(bytes.len())))
            .collect();
        for some in pieces.chunks(CHUNKS_AT_ONCE) {
            let mut sent = Vec::with_capacity(some.len());
            for piece in some {
                let since = tokio::time::Instant::now();
                let waiting = self.0.api.publish(subject.clone(), piece.clone()).await;
                sent.push((since, waiting.map_err(|error| failed(doing(), &error))?));
            }
            for (since, waiting) in sent {
                let stored = self.permitted_since(&subject, since, waiting.into_future()).await?;
                stored.map_err(|error| failed(doing(), &error))?;
            }
        }
        let info = ObjectInfo {
            name: name.to_owned(),
            description: None,
            metadata: Default::default(),
            headers: None,
            options: Some(ObjectOptions { link: None, max_chunk_size: Some(size) }),
            bucket: bucket.clone(),
            nuid,
            size: bytes.len(),
            chunks: pieces.len(),
            modified: None,
            digest: Some(digest),
            deleted: false,
        };
        let about = serde_json::to_vec(&info).map_err(|error| failed(doing(), &error))?;
        self.tell(meta_subject(&bucket, name), about.into()).await.map_err(|error| named(error, doing()))?;
        match earlier {
            Some(earlier) => self.drop_parts(name, &earlier).await,
            None => Ok(()),
        }
    }

    /// Publishes metadata or an index entry. The last message of a subject is the current one.
    /// Earlier messages stay, because the right to remove them would be the right to remove
    /// everything.
    async fn tell(&self, subject: String, payload: Bytes) -> Result<(), Error> {
        let since = tokio::time::Instant::now();
        let sent = self.0.api.publish(subject.clone(), payload).await;
        let waiting = sent.map_err(|error| failed(String::new(), &error))?;
        let stored = self.permitted_since(&subject, since, waiting.into_future()).await?;
        stored.map(drop).map_err(|error| failed(String::new(), &error))
    }

    /// An object's metadata. It is read from the leader, so that a reader that just received the
    /// object's name finds it.
    async fn about(&self, name: &str) -> Result<Option<ObjectInfo>, Error> {
        let bucket = self.bucket_of(name);
        let found = self.last_of(&format!("OBJ_{bucket}"), &meta_subject(&bucket, name)).await?;
        Ok(found.and_then(|message| serde_json::from_slice(&message.payload).ok()))
    }

    /// The metadata of the object with this name and content. Later metadata of other writers under
    /// the same name must not hide it.
    async fn about_content(&self, name: &str, digest: &str) -> Result<Option<ObjectInfo>, Error> {
        let bucket = self.bucket_of(name);
        let is_it = |info: &ObjectInfo| !info.deleted && info.digest.as_deref() == Some(digest);
        if let Some(last) = self.about(name).await?.filter(is_it) {
            return Ok(Some(last));
        }
        let (stream, subject) = (format!("OBJ_{bucket}"), meta_subject(&bucket, name));
        let (mut next, mut seen, room) = (1, 0, self.0.client.max_payload().max(ABOUT_BYTES) as u64);
        while seen < MAX_ABOUT {
            let page = self.batch_within(&stream, &subject, next, ABOUT_AT_ONCE, room).await?;
            let Some(last) = page.last() else { break };
            (next, seen) = (last.sequence + 1, seen + page.len());
            let mut read = page.iter().filter_map(|message| serde_json::from_slice(&message.payload).ok());
            if let Some(found) = read.find(is_it) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The object of this name; with this content, if its hash is given.
    pub(in super::super) async fn get_object(
        &self,
        name: &str,
        sha256: Option<&str>,
    ) -> Result<Option<Bytes>, Error> {
        let broken = |reason: &str| Err(failed(format!("reading the object `{name}`"), &reason));
        match self.get_in_time(name, sha256, MAX_OBJECT_BYTES, None).await? {
            ObjectLookup::Bytes(bytes) => Ok(Some(bytes)),
            ObjectLookup::Nothing => Ok(None),
            ObjectLookup::InPart => broken(IN_PART),
            ObjectLookup::Broken(reason) => broken(&reason),
        }
    }

    /// Reads an object; with `few`, as one of a bounded number of reads. An incomplete object is
    /// read again later, and occupies neither memory nor one of the bounded reads meanwhile.
    async fn get_in_time(
        &self,
        name: &str,
        sha256: Option<&str>,
        most: u64,
        few: Option<&Semaphore>,
    ) -> Result<ObjectLookup, Error> {
        let getting = async {
            for tries in 0..TRIES {
                let one_of_few = match few {
                    Some(few) => few.acquire().await.ok(),
                    None => None,
                };
                let found = Box::pin(self.get(name, sha256, most)).await?;
                drop(one_of_few);
                match found {
                    ObjectLookup::InPart => tokio::time::sleep(backoff(tries)).await,
                    found @ (ObjectLookup::Bytes(_) | ObjectLookup::Nothing | ObjectLookup::Broken(_)) => {
                        return Ok(found);
                    }
                }
            }
            Ok(ObjectLookup::InPart)
        };
        let got = tokio::time::timeout(GET_WITHIN, getting).await;
        got.unwrap_or_else(|_| Err(failed(format!("reading the object `{name}`"), &"no answer in time")))
    }

    async fn get(&self, name: &str, sha256: Option<&str>, most: u64) -> Result<ObjectLookup, Error> {
        let found = match sha256.and_then(as_digest) {
            Some(digest) => self.about_content(name, &digest).await?,
            None => None,
        };
        let info = match found {
            Some(found) => Some(found),
            None => self.about(name).await?,
        };
        let Some(info) = info.filter(|info| !info.deleted) else { return Ok(ObjectLookup::Nothing) };
        if info.size as u64 > most {
            return Err(too_large(name, most));
        }
        if !is_token(&info.nuid) {
            return Ok(ObjectLookup::Broken("its stored record names no parts".into()));
        }
        let bucket = self.bucket_of(name);
        let (stream, subject) = (format!("OBJ_{bucket}"), chunk_subject(&bucket, &info.nuid));
        // The size is a claim of the writer, so it is not trusted.
        let mut bytes = BytesMut::with_capacity(info.size.min(1 << 20));
        let (mut next, mut read) = (1, 0);
        while read < info.chunks {
            let wanted = CHUNKS_AT_ONCE.min(info.chunks - read);
            // Other writers' chunks may be larger than ours. The server never sends more than the
            // requested bytes.
            let room = most.saturating_sub(bytes.len() as u64) + self.0.client.max_payload() as u64;
            let chunks = self.batch_within(&stream, &subject, next, wanted, room).await?;
            if chunks.is_empty() {
                return Ok(ObjectLookup::InPart);
            }
            for chunk in chunks {
                (next, read) = (chunk.sequence + 1, read + 1);
                bytes.extend_from_slice(&chunk.payload);
            }
            if bytes.len() as u64 > most {
                return Err(too_large(name, most));
            }
        }
        let bytes = bytes.freeze();
        if info.digest.is_some_and(|digest| digest != digest_of(&bytes)) {
            return Ok(ObjectLookup::Broken("its content is not what was stored".into()));
        }
        Ok(ObjectLookup::Bytes(bytes))
    }

    pub(in super::super) async fn delete_object(&self, name: &str) -> Result<(), Error> {
        let bucket = self.bucket_of(name);
        // The metadata is removed last, so that a repeated delete after an interruption still finds
        // the object.
        if let Some(info) = self.about(name).await? {
            self.drop_parts(name, &info).await?;
        }
        for subject in [Some(meta_subject(&bucket, name)), index_subject(&bucket, name)].into_iter().flatten()
        {
            self.drop_subject(&bucket, &subject).await?;
        }
        Ok(())
    }

    /// Removes the parts of an object, if they belong to it. The name of the parts is a claim of
    /// the writer: it could be that of another object's parts, or of all parts.
    async fn drop_parts(&self, name: &str, info: &ObjectInfo) -> Result<(), Error> {
        if !is_token(&info.nuid) || !info.nuid.starts_with(&parts_of(name)) {
            tracing::warn!(
                "the stored record of an object names parts of another object; they are not removed"
            );
            tracing::debug!(name, "which");
            return Ok(());
        }
        let bucket = self.bucket_of(name);
        self.drop_subject(&bucket, &chunk_subject(&bucket, &info.nuid)).await
    }

    /// Removes the messages of a subject of a bucket. Without that permission they stay until their
    /// age limit.
    async fn drop_subject(&self, bucket: &str, subject: &str) -> Result<(), Error> {
        if self.holds(&self.0.no_purge) {
            return Ok(());
        }
        let stream = format!("OBJ_{bucket}");
        let doing = || format!("removing `{subject}`");
        let handle = self.0.api.get_stream_no_info(&stream).await.map_err(|error| failed(doing(), &error))?;
        let to = self.call(&format!("STREAM.PURGE.{stream}"));
        match self.permitted(&to, handle.purge().filter(subject).into_future()).await {
            Ok(purged) => purged.map(drop).map_err(|error| failed(doing(), &error)),
            Err(_) => {
                self.note(&self.0.no_purge);
                Ok(())
            }
        }
    }

    pub(in super::super) fn fits(&self, bytes: usize) -> bool {
        bytes.saturating_add(HEADER_ROOM) <= self.0.client.max_payload()
    }

    /// Returns the payload to send to a subject. A payload that is too large is stored as an
    /// object; its name is put into the headers, and the returned payload is empty.
    ///
    /// A message that is sent again has the same object. Payloads of coordinators are stored where
    /// only they may write. The name contains a hash of the message's subject, so that the object
    /// is removed only with a message of that subject.
    pub(super) async fn fit(
        &self,
        headers: &mut HeaderMap,
        payload: Bytes,
        (to, id): (&str, Option<&str>),
        large: Large,
    ) -> Result<Bytes, Error> {
        if self.fits(payload.len()) {
            return Ok(payload);
        }
        let id = id.map_or_else(uuid::Uuid::now_v7, id_in_name).simple();
        let name = format!("{}{id}.{}.{}", large.prefix(), place_of(to), sha256(&payload));
        self.put_object(&name, payload).await?;
        headers.insert(OBJECT_HEADER, name);
        Ok(Bytes::new())
    }

    /// The payload of a message, read from its object if it has one. Coordinators' objects may be
    /// larger. An error means that the server did not answer.
    pub(super) async fn payload(
        &self,
        of_the_core: bool,
        headers: Option<&HeaderMap>,
        payload: &Bytes,
    ) -> Result<Payload, Error> {
        if headers.is_none_or(|headers| headers.get(OBJECT_HEADER).is_none()) {
            return Ok(Payload::Here(payload.clone()));
        }
        match headers.and_then(overflow) {
            Some(name) => Box::pin(self.payload_in(&name, of_the_core)).await,
            None => Ok(Payload::Lost("it names no object that holds a payload".into())),
        }
    }

    /// The payload in an object.
    async fn payload_in(&self, name: &str, of_the_core: bool) -> Result<Payload, Error> {
        let lost = |reason: &str| Ok(Payload::Lost(format!("the object `{name}` holds it: {reason}")));
        let Some(hash) = hash_in(name) else {
            return lost("its name does not end with the hash of its content");
        };
        let (most, few) = match of_the_core {
            true => (MAX_OBJECT_BYTES, &self.0.payloads_of_the_core),
            false => (MAX_PAYLOAD_BYTES, &self.0.payloads_of_others),
        };
        match self.get_in_time(name, Some(hash), most, Some(few)).await {
            Ok(ObjectLookup::Bytes(bytes)) if hash != sha256(&bytes) => {
                lost("its content is not what the message names")
            }
            Ok(ObjectLookup::Bytes(bytes)) => Ok(Payload::Here(bytes)),
            Ok(ObjectLookup::Nothing) => lost("it does not exist"),
            Ok(ObjectLookup::InPart) => lost(IN_PART),
            Ok(ObjectLookup::Broken(reason)) => lost(&reason),
            Err(error @ (Error::TooLarge { .. } | Error::Denied(_))) => lost(&error.to_string()),
            Err(error) => Err(error),
        }
    }

    /// The payload of a message of a log. With keys, the object of a message without a valid
    /// signature for its subject is not fetched, and the payload is empty. The payload is also
    /// empty if a signed message's object can't be read. The check of codes then leaves both out,
    /// so that one such message does not prevent reading the others.
    pub(super) async fn logged(
        &self,
        subject: &Subject,
        headers: &HeaderMap,
        payload: &Bytes,
    ) -> Result<Payload, Error> {
        let keys = self.1.as_ref().filter(|_| headers.get(OBJECT_HEADER).is_some());
        let headers_read = || from_map(Some(headers));
        if keys.is_some_and(|keys| !authentic::may_fetch(keys, self.namespace(), subject, &headers_read())) {
            return Ok(Payload::Here(Bytes::new()));
        }
        self.payload(subject.is_of_the_core(), Some(headers), payload).await
    }
}

/// The hash of the content, from the name of an object that holds a payload.
fn hash_in(name: &str) -> Option<&str> {
    name.rsplit_once('.').map(|(_, hash)| hash)
}

/// A hash in the form of the object store.
fn as_digest(sha256: &str) -> Option<String> {
    let digits: Vec<u8> = (0..sha256.len())
        .step_by(2)
        .map(|at| sha256.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok()))
        .collect::<Option<_>>()?;
    Some(format!("SHA-256={}", URL_SAFE.encode(digits)))
}

/// The prefix of the names of an object's parts.
fn parts_of(name: &str) -> String {
    short_sha256(name)
}

/// The object that holds the payload of a message with these headers.
pub(super) fn overflow(headers: &HeaderMap) -> Option<String> {
    let name = headers.get(OBJECT_HEADER)?.as_str();
    Large::named(name).map(|_| name.to_owned())
}

/// The object of a message's payload, if it was stored for a message of this subject. A forged
/// message may name an object of another message (S6).
pub(super) fn own_overflow(headers: &HeaderMap, subject: &str) -> Option<String> {
    let is_own = |name: &String| name.rsplit('.').nth(1) == Some(place_of(subject).as_str());
    overflow(headers).filter(is_own)
}

/// The id of a message, as in the name of its object.
fn id_in_name(id: &str) -> uuid::Uuid {
    uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, id.as_bytes())
}

/// The subject of a message, as in the name of its object.
fn place_of(subject: &str) -> String {
    short_sha256(subject)
}

fn too_large(name: &str, max: u64) -> Error {
    Error::TooLarge { name: name.to_owned(), max }
}

fn chunk_subject(bucket: &str, nuid: &str) -> String {
    format!("$O.{bucket}.C.{nuid}")
}

/// In the form of the object store.
fn digest_of(bytes: &[u8]) -> String {
    format!("SHA-256={}", URL_SAFE.encode(Sha256::digest(bytes)))
}

/// Adds the failed operation to an error.
fn named(error: Error, doing: String) -> Error {
    match error {
        Error::Failed { reason, .. } => Error::Failed { doing, reason },
        other @ (Error::Connect { .. }
        | Error::Unreached { .. }
        | Error::TooOld { .. }
        | Error::Mismatch { .. }
        | Error::NoRoom { .. }
        | Error::Lower { .. }
        | Error::TooLarge { .. }
        | Error::Denied(_)) => other,
    }
}
