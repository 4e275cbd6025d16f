//! Objects: values too large for a message, stored as the object store of NATS stores them. Read without a consumer, and
//! written without the right to remove anything: a worker has neither. A payload that exceeds the server's limit is stored
//! as an object too; the message then carries its name, which has the hash of its content. What is stored about an object is
//! whatever its writer claims: nothing is removed, and nothing believed, because of it (S6).

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
/// Chunks that are sent before the first must be acknowledged, or that are read at once: eight megabytes.
const CHUNKS_AT_ONCE: usize = 64;
/// How often a part that is missing is looked for again: a replica may be behind, by less than four seconds.
const TRIES: usize = 8;
/// What was stored about an object under one name that is looked through for a certain content.
const ABOUT_AT_ONCE: usize = 1000;
const MAX_ABOUT: usize = 10_000;
/// The most bytes of it that are read at once.
const ABOUT_BYTES: usize = 8 << 20;
/// The largest object that is stored, or read into memory.
const MAX_OBJECT_BYTES: u64 = 256 << 20;
/// The largest payload that is read, except of coordinators' messages: nobody reads a larger message.
const MAX_PAYLOAD_BYTES: u64 = MAX_MESSAGE_BYTES as u64;
/// Payloads of coordinators that one process reads at once, and those of others: who names many large ones must not fill its
/// memory (S6), and who names some that can't be read does not delay the work of coordinators.
pub(super) const PAYLOADS_AT_ONCE: usize = 16;
const IN_PART: &str = "a part of it is missing";
/// Bytes that headers may need beside a payload within the server's limit.
const HEADER_ROOM: usize = 8 * 1024;

/// Who stores a payload that is too large for a message. The beginning of its object's name says so; no other object is ever
/// used as a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Large {
    /// Coordinators, in a bucket that nobody else writes to.
    OfTheCore,
    /// Coordinators, to whoever asked.
    Answer,
    OfOthers,
}

impl Large {
    const ALL: [Large; 3] = [Large::OfTheCore, Large::Answer, Large::OfOthers];

    /// That of a message on this subject.
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
    /// It was to be in an object that can't be read, for this reason, and never will be.
    Lost(String),
}

impl Payload {
    /// Its bytes. The headers tell whoever reads them that it is lost.
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

/// What was found under the name of an object.
enum ObjectLookup {
    Bytes(Bytes),
    Nothing,
    /// A part of it is missing: a replica may be behind, or it is gone.
    InPart,
    /// It is not what was stored, and never will be.
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
        // Boxed, as the read: whoever publishes or reads anything has their state within its own.
        let put = tokio::time::timeout(PUT_WITHIN, Box::pin(self.put(name, &bytes))).await;
        put.unwrap_or_else(|_| Err(failed(format!("storing the object `{name}`"), &"no answer in time")))
    }

    async fn put(&self, name: &str, bytes: &Bytes) -> Result<(), Error> {
        let doing = || format!("storing the object `{name}`");
        let digest = digest_of(bytes);
        // Who can't find out stores it, perhaps once more.
        let earlier = match self.about(name).await {
            Ok(found) => found.filter(|info| !info.deleted),
            Err(denied @ Error::Denied(_)) => return Err(denied),
            Err(_) => None,
        };
        // A second time changes nothing.
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

    /// Stores what is told of an object. The last counts; those before it stay, because whoever may remove them could remove
    /// everything.
    async fn tell(&self, subject: String, payload: Bytes) -> Result<(), Error> {
        let since = tokio::time::Instant::now();
        let sent = self.0.api.publish(subject.clone(), payload).await;
        let waiting = sent.map_err(|error| failed(String::new(), &error))?;
        let stored = self.permitted_since(&subject, since, waiting.into_future()).await?;
        stored.map(drop).map_err(|error| failed(String::new(), &error))
    }

    /// What is stored about an object; from the leader, so that whoever was told of an object finds it.
    async fn about(&self, name: &str) -> Result<Option<ObjectInfo>, Error> {
        let bucket = self.bucket_of(name);
        let found = self.last_of(&format!("OBJ_{bucket}"), &meta_subject(&bucket, name)).await?;
        Ok(found.and_then(|message| serde_json::from_slice(&message.payload).ok()))
    }

    /// The same, of the object with this content. Others may have stored something under its name since, which must not hide it.
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

    /// Reads an object, as one of a few if a bound is given. What is there in part is looked for again, and takes neither memory
    /// nor a place among the few meanwhile.
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
            return Ok(ObjectLookup::Broken("what is stored about it names no parts".into()));
        }
        let bucket = self.bucket_of(name);
        let (stream, subject) = (format!("OBJ_{bucket}"), chunk_subject(&bucket, &info.nuid));
        // The size is what the writer claimed: it is not trusted.
        let mut bytes = BytesMut::with_capacity(info.size.min(1 << 20));
        let (mut next, mut read) = (1, 0);
        while read < info.chunks {
            let wanted = CHUNKS_AT_ONCE.min(info.chunks - read);
            // Parts may be larger than those that we write. The server sends none that is larger than what is asked for.
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
        // What tells of it goes last: a delete that was interrupted finds the rest again.
        if let Some(info) = self.about(name).await? {
            self.drop_parts(name, &info).await?;
        }
        for subject in [Some(meta_subject(&bucket, name)), index_subject(&bucket, name)].into_iter().flatten()
        {
            self.drop_subject(&bucket, &subject).await?;
        }
        Ok(())
    }

    /// Removes the parts of an object, if they are its own: their name is what its writer claimed, and might be that of another
    /// object's, or of all.
    async fn drop_parts(&self, name: &str, info: &ObjectInfo) -> Result<(), Error> {
        if !is_token(&info.nuid) || !info.nuid.starts_with(&parts_of(name)) {
            tracing::warn!("what is stored about an object names parts that are not its own; they stay");
            tracing::debug!(name, "which");
            return Ok(());
        }
        let bucket = self.bucket_of(name);
        self.drop_subject(&bucket, &chunk_subject(&bucket, &info.nuid)).await
    }

    /// Removes what is stored under a subject of a bucket. A role that may not remove leaves it until its age.
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

    /// The payload to send to a subject: if it is too large, it is stored as an object, its name is put into the
    /// headers, and the payload is empty. The same message sent again has the same object. What coordinators send is stored where
    /// nobody else may. The name says on which subject its message is, and is removed with no other.
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

    /// The payload of a message, or what is in the object that holds it, which may be larger if coordinators sent it. An error:
    /// the server gave no answer.
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

    /// The payload that an object holds.
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

    /// The payload of a message of a log. What nobody has signed for its place is not fetched, and what was signed and has an
    /// object that can't be it is as one without: both have no payload, and are left out by whoever checks their codes. One such
    /// message must not keep the others from being read.
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

/// The hash of the content of an object that holds a payload, from its name.
fn hash_in(name: &str) -> Option<&str> {
    name.rsplit_once('.').map(|(_, hash)| hash)
}

/// A hash as the object store writes it.
fn as_digest(sha256: &str) -> Option<String> {
    let digits: Vec<u8> = (0..sha256.len())
        .step_by(2)
        .map(|at| sha256.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok()))
        .collect::<Option<_>>()?;
    Some(format!("SHA-256={}", URL_SAFE.encode(digits)))
}

/// How the names of the parts of an object begin.
fn parts_of(name: &str) -> String {
    short_sha256(name)
}

/// The object that holds the payload of a message with these headers.
pub(super) fn overflow(headers: &HeaderMap) -> Option<String> {
    let name = headers.get(OBJECT_HEADER)?.as_str();
    Large::named(name).map(|_| name.to_owned())
}

/// The same, if it is the message's own and goes with it. Whoever wrote the message may name the object of another (S6).
pub(super) fn own_overflow(headers: &HeaderMap, subject: &str) -> Option<String> {
    let is_own = |name: &String| name.rsplit('.').nth(1) == Some(place_of(subject).as_str());
    overflow(headers).filter(is_own)
}

/// The id of a message, as the name of its object has it.
fn id_in_name(id: &str) -> uuid::Uuid {
    uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, id.as_bytes())
}

/// The subject of a message, as the name of its object has it.
fn place_of(subject: &str) -> String {
    short_sha256(subject)
}

fn too_large(name: &str, max: u64) -> Error {
    Error::TooLarge { name: name.to_owned(), max }
}

fn chunk_subject(bucket: &str, nuid: &str) -> String {
    format!("$O.{bucket}.C.{nuid}")
}

/// As the object store writes it.
fn digest_of(bytes: &[u8]) -> String {
    format!("SHA-256={}", URL_SAFE.encode(Sha256::digest(bytes)))
}

/// Says what was being done.
fn named(error: Error, doing: String) -> Error {
    match error {
        Error::Failed { reason, .. } => Error::Failed { doing, reason },
        other @ (Error::Connect { .. }
        | Error::Unreached { .. }
        | Error::TooOld { .. }
        | Error::Mismatch { .. }
        | Error::NoRoom { .. }
        | Error::TooLarge { .. }
        | Error::Denied(_)) => other,
    }
}
